"""Weights that prove a lower bound to readers: with them anybody recomputes that no strategy has less error.

For any weights v >= 0 of the cells LB(v) = (tr (D_v^1/2 V D_v^1/2)^1/2)^2 / sum(v) is a lower bound (docs/mathematics.md, section 2),
wherever they come from: the solver's dual, the strategy itself, or the weights of each attribute's values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import scipy

from dpdist.operators import Matrix
from dpdist.strategies.base import UNIT_VARIANCE, Strategy
from dpdist.strategies.bounds import dual_bound, laplace_bound
from dpdist.strategies.exchangeable import SymmetricStrategy
from dpdist.strategies.filters import bound_of_ends
from dpdist.strategies.proofs import DualWeights
from dpdist.workloads import Workload
from dpdist.workloads.kinds import is_dyadic, is_filters, is_separable, line_of

MOST_CELLS = 1024
"""Cells up to which weights are evaluated before they are published: an eigen-decomposition each, of a tenth of a second."""
MOST_KEPT = 4096
"""Cells up to which a solver's weights are kept and published."""
NEAR = 2e-6
"""By how much of itself the bound of published weights may lie below the certificate's."""


Gram = Callable[[], Matrix]
"""W'W of the weighted rows, made or read when it is needed."""

Products = Callable[[], tuple[float, dict[int, Matrix]]]
"""A bound under Gaussian noise, and the weights of each attribute's values that prove it, computed when they are needed."""


def dual_weights(
    workload: Workload, compared: Sequence[Strategy], lower: float, asked: Gram, product: Products
) -> DualWeights | None:
    """Weights that prove a lower bound of a workload's cost; None where none that are at hand come near it.

    Args:
        compared: the strategies that the bound may come from, all for one kind of noise.
        lower: the bound.
        asked: W'W of the workload.
        product: the bound of unions of products.
    """
    norm, shape, cells = compared[0].norm, workload.domain.shape, workload.shape[1]
    if cells > MOST_CELLS:
        return _of_many_cells(workload, compared, lower / UNIT_VARIANCE[norm], product)
    gram = asked()
    for weights in _candidates(workload, compared, gram, product):
        found = weights.over_cells(shape)
        bound = dual_bound if norm == "l2" else laplace_bound
        if found.any() and bound(gram, found) >= lower * (1 - NEAR):
            return weights
    return None


def _candidates(workload: Workload, compared: Sequence[Strategy], gram: Matrix, product: Products) -> Iterator[DualWeights]:
    """What is cheap first."""
    yield DualWeights("equal")
    for strategy in compared:
        solved = _solved(strategy, workload)
        if solved is not None:
            yield DualWeights("cells", {0: solved})
    for strategy in compared:
        if strategy.lower_bound is not None and strategy.gap < 1e-3:
            yield DualWeights("cells", {0: _met_by(strategy.operator.gram(), gram)})
    if is_separable(workload):
        yield DualWeights("products", product()[1])


def _of_many_cells(workload: Workload, compared: Sequence[Strategy], lower: float, product: Products) -> DualWeights | None:
    """The weights of a solver that has converged, which are not evaluated again, or those of products."""
    for strategy in compared:
        solved = _solved(strategy, workload)
        if solved is not None and strategy.gap < NEAR:
            return DualWeights("cells", {0: solved})
    if is_dyadic(workload) or (is_filters(workload) and _of_series(workload) >= lower * (1 - NEAR)):
        return DualWeights("equal")
    proven, weights = product() if is_separable(workload) else (0.0, {})
    return DualWeights("products", weights) if proven >= lower * (1 - NEAR) else None


def _of_series(workload: Workload) -> float:
    """What equal weights prove for filters: around a circle they are the optimum's."""
    _, axes, filters = line_of(workload)
    if filters[0].circular:
        return math.inf
    return math.prod(workload.domain.shape[axis] for axis in axes) // filters[0].n * bound_of_ends(workload)


def _solved(strategy: Strategy, workload: Workload) -> Matrix | None:
    """The solver's weights, one a cell."""
    dual = None if strategy.solve is None else strategy.solve.dual
    if dual is None or workload.shape[1] > MOST_KEPT:
        return None
    if isinstance(strategy, SymmetricStrategy):
        orbits = np.zeros(1, dtype=np.int64)
        for code in strategy.symmetry.codes:
            orbits = (orbits[:, None] * (int(code.max()) + 1) + code).ravel()
        return np.asarray((dual / strategy.symmetry.sizes)[orbits])
    return np.asarray(dual) if dual.shape == workload.shape[1:] else None


def _met_by(precision: Matrix, gram: Matrix) -> Matrix:
    """diag(X^-1 V X^-1), which the dual weights are at an optimum X of full rank."""
    inverse = scipy.linalg.pinvh(precision, rtol=1e-11, check_finite=False)
    return np.asarray(np.maximum(np.einsum("ij,jk,ki->i", inverse, gram, inverse, optimize=True), 0.0))
