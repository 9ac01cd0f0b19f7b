"""HM: noise on the counts of every node of a tree, made consistent by least squares (Hay et al. 2010)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from dpdist.errors import InvalidInput
from dpdist.operators import Tree
from dpdist.strategies.attributes import attribute_by_attribute
from dpdist.strategies.base import Norm, Strategy
from dpdist.workloads import Workload

BRANCHINGS = (2, 4, 8, 16)


def hierarchical(
    shape: Sequence[int],
    workload: Workload | None = None,
    *,
    branching: int | None = 2,
    ordered: Sequence[bool] | None = None,
    norm: Norm = "l2",
) -> Strategy:
    """Tree counts along each ordered attribute, every combination of nodes over several.

    Args:
        shape: sizes of the attributes.
        workload: gives the cost, and which attributes are ordered.
        branching: children of a node; None takes the best of 2, 4, 8 and 16 for the workload (Qardaji, Yang, Li 2013).
        ordered: which attributes have an order; the others are measured value by value.
    """
    if branching is None:
        if workload is None:
            raise InvalidInput("the best branching depends on the queries: give the workload, or a branching")
        every = [hierarchical(shape, workload, branching=b, ordered=ordered, norm=norm) for b in BRANCHINGS]
        return min(every, key=lambda strategy: strategy.workload_cost or math.inf)
    tree = partial(Tree, branching=branching)
    return attribute_by_attribute("hierarchical", tree, shape, workload, ordered, norm)
