"""HM: noise on the counts of every node of a tree, made consistent by least squares (Hay et al. 2010)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dpdist.operators import Tree
from dpdist.strategies.attributes import attribute_by_attribute
from dpdist.strategies.base import Norm, Strategy
from dpdist.workloads import Workload


def hierarchical(
    shape: Sequence[int],
    workload: Workload | None = None,
    *,
    branching: int = 2,
    ordered: Sequence[bool] | None = None,
    norm: Norm = "l2",
) -> Strategy:
    """Tree counts along each ordered attribute, every combination of nodes over several.

    Args:
        shape: sizes of the attributes.
        workload: gives the cost, and which attributes are ordered.
        branching: children of a node; Qardaji, Yang, Li 2013 recommend 8 to 16 for large attributes.
        ordered: which attributes have an order; the others are measured value by value.
    """
    tree = partial(Tree, branching=branching)
    return attribute_by_attribute("hierarchical", tree, shape, workload, ordered, norm)
