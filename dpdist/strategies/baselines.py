"""Strategies that need no search: cells, their trees and wavelets, and the queries themselves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from dpdist.domain import Domain, sizes_of
from dpdist.errors import InvalidInput
from dpdist.measurement.integer_measurement import Norm
from dpdist.operators import Haar, Identity, Kronecker, Operator, Tree
from dpdist.operators.range_operators import count_tree_ranges
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE, Kind
from dpdist.strategies.representations import DenseStrategy, DirectStrategy
from dpdist.strategies.strategy import CLOSED_FORM, UNIT_VARIANCE, check_workload
from dpdist.workloads import Workload

BRANCHINGS = (2, 4, 8, 16)


def identity(n: int, workload: Workload | None = None, *, norm: Norm = "l2") -> DenseStrategy:
    """The identity strategy, A = I: cost ||W||_F^2 under Gaussian noise, twice that under Laplace noise.

    Args:
        n: number of cells.
        workload: gives the cost, (m, n).
        norm: "l2" for Gaussian noise, "l1" for Laplace noise.
    """
    (n,) = sizes_of(n)
    cost = None if workload is None else workload.operator.frobenius_squared * UNIT_VARIANCE[norm]
    return DenseStrategy("identity", Identity(n), cost, None, CLOSED_FORM, norm=norm)


def wavelet(
    shape: int | Sequence[int], workload: Workload | None = None, *, ordered: Sequence[bool] | None = None, norm: Norm = "l2"
) -> DenseStrategy:
    """The strategy of Haar wavelet coefficients along each ordered attribute, and their products over several attributes.

    Args:
        shape: sizes of the attributes.
        workload: gives the cost, and which attributes are ordered.
        ordered: which attributes have an order; the others are measured value by value, as in Privelet+.
        norm: "l2" for Gaussian noise, "l1" for Laplace noise.
    Source: Xiao, Wang, Gehrke 2010 (Privelet).
    """
    return _attribute_by_attribute("wavelet", Haar, shape, workload, ordered, norm)


def largest_tree_rows(workload: Workload) -> int:
    """Rows of the largest of the trees that ``hierarchical`` compares for a workload."""
    return max(math.prod(count_tree_ranges(size, b) for size in workload.domain.shape) for b in BRANCHINGS)


def hierarchical(
    shape: int | Sequence[int],
    workload: Workload | None = None,
    *,
    branching: int | None = 2,
    ordered: Sequence[bool] | None = None,
    norm: Norm = "l2",
) -> DenseStrategy:
    """The strategy that counts the nodes of a tree along each ordered attribute, and every combination of nodes over several.

    Args:
        shape: sizes of the attributes.
        workload: gives the cost, and which attributes are ordered.
        branching: children of a node; None takes the best of 2, 4, 8 and 16 for the workload (Qardaji, Yang, Li 2013).
        ordered: which attributes have an order; the others are measured value by value.
        norm: "l2" for Gaussian noise, "l1" for Laplace noise.
    Source: Hay, Rastogi, Miklau, Suciu 2010; Qardaji, Yang, Li 2013.
    """
    if branching is None:
        if workload is None:
            raise InvalidInput("the best branching depends on the queries: give the workload, or a branching")
        strategies = [hierarchical(shape, workload, branching=b, ordered=ordered, norm=norm) for b in BRANCHINGS]
        return min(strategies, key=lambda strategy: strategy.workload_cost or math.inf)
    tree = partial(Tree, branching=branching)
    return _attribute_by_attribute("hierarchical", tree, shape, workload, ordered, norm)


def attribute_rows(attribute_operator: Callable[[int], Operator], domain: Domain) -> Operator:
    """Rows along each ordered attribute of a domain, and its values where it has no order; of several their products."""
    return _products_of_rows(attribute_operator, domain.shape, [not attribute.categories for attribute in domain.attributes])


def _products_of_rows(
    attribute_operator: Callable[[int], Operator], shape: Sequence[int], ordered: Sequence[bool]
) -> Operator:
    factors = [
        attribute_operator(size) if has_order else Identity(size) for size, has_order in zip(shape, ordered, strict=True)
    ]
    return factors[0] if len(factors) == 1 else Kronecker(factors)


def formula_strategy(name: str, rows: Operator, workload: Workload | None = None, *, norm: Norm = "l2") -> DenseStrategy:
    """The strategy of rows over the cells that a formula gives.

    Args:
        rows: (p, n), whatever their lengths.
        workload: gives the cost, (m, n).
        norm: "l2" for Gaussian noise, "l1" for Laplace noise.
    """
    strategy = DenseStrategy(name, rows, solve=CLOSED_FORM, norm=norm)
    return strategy if workload is None else replace(strategy, workload_cost=strategy.cost(workload))


def _attribute_by_attribute(
    name: str,
    attribute_operator: Callable[[int], Operator],
    shape: int | Sequence[int],
    workload: Workload | None,
    ordered: Sequence[bool] | None,
    norm: Norm,
) -> DenseStrategy:
    """``along(size)`` for each ordered attribute, the identity for each other one; cost when a workload is given."""
    shape = sizes_of(shape)
    if workload is not None and shape != workload.domain.shape:
        raise InvalidInput(f"a strategy over {shape} does not fit a workload over {workload.domain.shape}")
    if ordered is None:
        ordered = (
            [not attribute.categories for attribute in workload.domain.attributes]
            if workload is not None
            else [True] * len(shape)
        )
    if len(ordered) != len(shape):
        raise InvalidInput(f"'ordered' names {len(ordered)} attributes, the shape has {len(shape)}")
    return formula_strategy(name, _products_of_rows(attribute_operator, shape, ordered), workload, norm=norm)


def gaussian(workload: Workload) -> DirectStrategy:
    """The Gaussian mechanism: cost m * (largest L2 column norm of W)^2.

    Args:
        workload: the queries, (m, n).
    Source: Dwork, Kenthapadi, McSherry, Mironov, Naor 2006.
    """
    return _direct(GAUSSIAN, workload)


def laplace(workload: Workload) -> DirectStrategy:
    """The Laplace mechanism: cost 2 m * (largest L1 column norm of W)^2.

    Args:
        workload: the queries, (m, n).
    Source: Dwork, McSherry, Nissim, Smith 2006.
    """
    return _direct(LAPLACE, workload)


def _direct(kind: Kind, workload: Workload) -> DirectStrategy:
    operator = check_workload(workload).operator
    sensitivity = operator.l1_sensitivity if kind is LAPLACE else operator.l2_sensitivity
    cost = workload.shape[0] * sensitivity**2 * UNIT_VARIANCE[kind.norm]
    return DirectStrategy(kind.value, operator, cost, None, CLOSED_FORM, kind.norm)
