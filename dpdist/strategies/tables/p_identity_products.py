"""p-Identity strategies: cells with a few learnt queries, of one attribute and of products of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy

from dpdist.arrays import lapack
from dpdist.errors import InvalidInput
from dpdist.operators import Dense, Matrix, Operator, Total, Tree
from dpdist.reconstruction.kronecker_terms import Term
from dpdist.strategies.baselines import BRANCHINGS
from dpdist.strategies.lower_bounds import laplace_bound
from dpdist.strategies.representations import DenseStrategy
from dpdist.strategies.strategy import (
    UNIT_VARIANCE,
    OnStep,
    Solve,
    Step,
    Stop,
    check_start,
    check_workload,
    gram_of,
    ignore_step,
)
from dpdist.strategies.tables.laplace_products import ProductsStrategy, stack_terms
from dpdist.workloads import Gram, Workload

CELLS_A_QUERY = 16
"""Cells for every learnt query, as McKenna et al. found best on ranges."""
RESTARTS = 3
COST_AGREEMENT = 1e-6
"""How closely two ways to compute a cost have to agree, relative to it."""


def p_identity(
    workload: Workload | Gram,
    *,
    queries: int | None = None,
    restarts: int = RESTARTS,
    max_iterations: int = 500,
    seed: int = 0,
    on_step: OnStep = ignore_step,
    start: Matrix | None = None,
) -> DenseStrategy:
    """The best p-Identity strategy under Laplace noise (by total error) that the starts lead to; never worse than the identity.

    Args:
        workload: a workload, or its gram W'W, (n, n).
        queries: p, learnt queries; default n / 16, at least 1.
        restarts: random starts.
        max_iterations: of L-BFGS from each start.
        seed: fixes the random starts.
        on_step: called with a ``Step`` after every iteration; may raise ``Cancelled``.
        start: checkpoint Theta, (p, n), of an interrupted solve: the only start.
    Returns: a strategy for Laplace noise, with its cost at epsilon = 1 and a lower bound.
    Raises: InvalidInput.
    Source: McKenna, Miklau, Hay, Machanavajjhala 2018 (HDMM), OPT_0.
    """
    gram = gram_of(workload)
    cells = gram.shape[0]
    rows = max(1, cells // CELLS_A_QUERY) if queries is None else queries
    if rows < 1 or restarts < 1:
        raise InvalidInput(f"a p-Identity strategy has at least one learnt query and one start, found {rows} and {restarts}")
    state = np.random.default_rng(seed)
    starts = [state.uniform(0.0, 1.0, (rows, cells)) for _ in range(restarts)]
    if start is not None:
        starts = [np.maximum(check_start(start, (rows, cells)), 0.0)]
    best_fit = fit_p_identity(gram, starts, max_iterations=max_iterations, on_step=on_step)
    record = Solve("p-identity", best_fit.stop, best_fit.history)
    return DenseStrategy("p-identity", Dense(best_fit.matrix), best_fit.cost, laplace_bound(Gram(gram)), record, norm="l1")


@dataclass(frozen=True)
class PIdentityFit:
    """The best p-Identity strategy that some starts lead to.

    Attributes:
        cost: 2 tr(V (A'A)^-1), never above the identity's.
        theta: the learnt queries, none where the identity is better.
    """

    cost: float
    theta: Matrix
    stop: Stop
    history: tuple[Step, ...]

    @property
    def matrix(self) -> Matrix:
        """A, every column of unit L1 length."""
        return np.asarray(np.vstack([np.eye(self.theta.shape[1]), self.theta]) / (1.0 + self.theta.sum(axis=0)))


def fit_p_identity(
    gram: Matrix, starts: Sequence[Matrix], *, max_iterations: int = 500, on_step: OnStep = ignore_step
) -> PIdentityFit:
    """The p-Identity strategy of least cost that several starts, all of one shape, lead to."""
    scale = float(np.trace(gram)) or 1.0
    unit = gram / scale
    best, theta = 2.0 * float(np.trace(gram)), np.zeros((0, gram.shape[0]))
    history: list[Step] = []
    stop: Stop = "converged"
    for point in starts:
        shape = point.shape

        def value(flat: Matrix, shape: tuple[int, ...] = shape) -> tuple[float, Matrix]:
            cost, gradient = cost_and_gradient(unit, flat.reshape(shape))
            return cost, gradient.ravel()

        bounds = scipy.optimize.Bounds(0.0, np.inf)
        options = {"maxiter": max_iterations, "maxfun": 2 * max_iterations, "maxcor": 10}
        result = scipy.optimize.minimize(value, point.ravel(), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        stop = "iteration limit" if result.nit >= max_iterations else "converged"
        cost = 2.0 * scale * float(result.fun)
        if cost < best and _is_confirmed(unit, result.x.reshape(shape), float(result.fun)):
            best, theta = cost, result.x.reshape(shape)
        history.append(Step(len(history) + 1, best, float("inf")))
        on_step(replace(history[-1], checkpoint=theta))
    return PIdentityFit(best, theta, stop, tuple(history))


def _is_confirmed(gram: Matrix, theta: Matrix, cost: float) -> bool:
    """Whether a cost is that of its queries: of very long ones, as of a workload that asks for a total alone, rounding leaves nothing."""
    lengths = 1.0 + theta.sum(axis=0)
    try:
        inner = lapack.cho_factor(np.eye(gram.shape[0]) + theta.T @ theta)
    except np.linalg.LinAlgError:
        return False
    direct = float(np.trace(lapack.cho_solve(inner, lengths[:, None] * gram * lengths)))
    return cost > 0 and abs(direct - cost) <= COST_AGREEMENT * cost


def cost_and_gradient(gram: Matrix, theta: Matrix) -> tuple[float, Matrix]:
    """tr(S V S M) and its gradient in Theta, (p, n): products of n x n with n x p matrices only."""
    lengths = 1.0 + theta.sum(axis=0)
    inner = lapack.cho_factor(np.eye(theta.shape[0]) + theta @ theta.T)
    solved = lapack.cho_solve(inner, theta)  # Theta M = (I + Theta Theta')^-1 Theta
    weighted = gram * lengths  # V S
    scaled = lengths[:, None] * weighted
    weighted_queries = scaled @ theta.T  # S V S Theta'
    cost = float(np.trace(scaled) - np.einsum("ij,ji->", weighted_queries, solved))
    # diag(V S M) = diag(V S) - diag(V S Theta' (I + Theta Theta')^-1 Theta)
    along = np.diag(weighted) - np.einsum("ik,ki->i", weighted_queries / lengths[:, None], solved)
    # Theta M (S V S) M = solved (S V S) - (solved S V S Theta') solved
    twice = solved @ scaled
    twice -= (twice @ theta.T) @ solved
    return cost, 2.0 * along - 2.0 * twice


LEARNT_VALUES = 1024
"""Up to so many values an attribute's queries are learnt; beyond, trees and the identity are compared."""
ROUNDS = 8
PRODUCT_RESTARTS = 2
SETTLED = 1e-4


def p_identity_products(workload: Workload, *, seed: int = 0) -> ProductsStrategy:
    """The products of p-Identity strategies and trees with the least total error under Laplace noise that the search finds.

    Args:
        workload: a weighted union of products, (m, n).
        seed: fixes the random starts.
    Returns: a strategy for Laplace noise, with its cost at epsilon = 1.
    Raises: InvalidInput for queries that are not products over attributes.
    Source: McKenna, Miklau, Hay, Machanavajjhala 2018 (HDMM), OPT_kron and OPT_+; trees: Qardaji, Yang, Li 2013.
    """
    check_workload(workload)
    if not workload.kind.is_separable:
        raise InvalidInput(
            "the workload holds queries that are no product over attributes; choose 'p-identity' or 'identity'"
        )
    grams = _Grams(workload)
    all_blocks = tuple(range(len(workload.blocks)))
    alone: dict[tuple[int, ...], list[int]] = {}
    for number in all_blocks:
        alone.setdefault(workload.blocks[number].asked_axes, []).append(number)
    divisions: list[tuple[tuple[int, ...], ...]] = [(all_blocks,)]
    if len(alone) > 1:
        divisions.append(tuple(tuple(numbers) for numbers in alone.values()))
    best: tuple[float, tuple[_Product, ...], tuple[tuple[int, ...], ...]] | None = None
    steps: list[Step] = []
    for groups in divisions:
        products = tuple(_optimise_product(workload, grams, group, seed) for group in groups)
        cost = sum(product.cost ** (1.0 / 3.0) for product in products) ** 3
        if best is None or cost < best[0]:
            best = (cost, products, groups)
        steps.append(Step(len(steps) + 1, best[0], math.inf))
    assert best is not None
    _, products, groups = best
    scales = [product.cost ** (1.0 / 3.0) for product in products]
    terms = tuple(Term(p.axes, p.factors, scale / sum(scales)) for p, scale in zip(products, scales, strict=True))
    operator, record = (
        stack_terms(terms, workload.domain.shape),
        Solve("products for pure epsilon", "converged", tuple(steps)),
    )
    return ProductsStrategy("p-identity-products", operator, best[0], None, record, terms=terms, groups=groups)


@dataclass(frozen=True)
class _Product:
    axes: tuple[int, ...]
    factors: tuple[Matrix, ...]
    cost: float


@dataclass(frozen=True)
class _Grams:
    """Grams of the blocks' factors, each once."""

    workload: Workload
    cached_grams: dict[str, Matrix] = field(default_factory=dict)

    def factor_gram(self, number: int, axis: int) -> Matrix:
        """V_bi, (n_i, n_i); all ones where the block sums over the attribute."""
        block = self.workload.blocks[number]
        factor: Operator = Total(self.workload.domain.shape[axis])
        if axis in block.axes:
            factor = block.scaled(block.factors)[block.axes.index(axis)]
        if factor.fingerprint not in self.cached_grams:
            self.cached_grams[factor.fingerprint] = factor.gram()
        return self.cached_grams[factor.fingerprint]


def _optimise_product(workload: Workload, grams: _Grams, group: tuple[int, ...], seed: int) -> _Product:
    """One product for some blocks: factor by factor, each optimal given the others, from the identity on."""
    blocks = [workload.blocks[number] for number in group]
    axes = tuple(sorted({axis for block in blocks for axis in block.asked_axes}))
    squares = [block.weight**2 for block in blocks]
    traces = {(j, axis): float(np.trace(grams.factor_gram(number, axis))) for j, number in enumerate(group) for axis in axes}
    factors = {axis: _Factor.identity(workload.domain.shape[axis]) for axis in axes}

    def cost() -> float:
        return sum(square * math.prod(traces[j, axis] for axis in axes) for j, square in enumerate(squares))

    before = cost()
    for turn in range(ROUNDS):
        for axis in axes:
            block_weights = [
                s * math.prod(traces[j, other_axis] for other_axis in axes if other_axis != axis)
                for j, s in enumerate(squares)
            ]
            gram = np.sum(
                [weight * grams.factor_gram(number, axis) for weight, number in zip(block_weights, group, strict=True)],
                axis=0,
            )
            ordered = not workload.domain.attributes[axis].categories
            factors[axis] = factors[axis].improve(gram, ordered=ordered, seed=seed, is_initial=turn == 0)
            inverse = factors[axis].inverse
            for j, number in enumerate(group):
                traces[j, axis] = float(np.einsum("ij,ij->", grams.factor_gram(number, axis), inverse))
        after = cost()
        if after >= before * (1 - SETTLED) or len(axes) < 2:
            break
        before = after
    return _Product(axes, tuple(factors[axis].matrix for axis in axes), UNIT_VARIANCE["l1"] * cost())


@dataclass(frozen=True)
class _Factor:
    """The strategy of one attribute, every column of unit L1 length.

    Attributes:
        inverse: (A'A)^-1.
        theta: the learnt queries, from which the next solve starts; None for trees and the identity.
    """

    matrix: Matrix
    inverse: Matrix
    theta: Matrix | None = None

    @staticmethod
    def identity(size: int) -> _Factor:
        return _Factor(np.eye(size), np.eye(size))

    @staticmethod
    def of(matrix: Matrix, theta: Matrix | None = None) -> _Factor:
        inverse = scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix.T @ matrix), np.eye(matrix.shape[1]))
        return _Factor(matrix, inverse, theta)

    def cost(self, gram: Matrix) -> float:
        """tr(V (A'A)^-1)."""
        return float(np.einsum("ij,ij->", gram, self.inverse))

    def improve(self, gram: Matrix, *, ordered: bool, seed: int, is_initial: bool) -> _Factor:
        """The best strategy for a gram: this one, the identity, trees where the values have an order, and learnt queries."""
        size = gram.shape[0]
        candidates = [self, _Factor.identity(size)]
        if _is_scaled_identity(gram):
            return candidates[1]
        if size <= LEARNT_VALUES:
            state = np.random.default_rng(seed)
            shape = (max(1, size // CELLS_A_QUERY), size)
            starts = [] if self.theta is None else [self.theta]
            if is_initial or not starts:
                starts += [state.uniform(0.0, 1.0, shape) for _ in range(PRODUCT_RESTARTS)]
            solved = fit_p_identity(gram, starts)
            if solved.theta.shape[0]:
                candidates.append(_Factor.of(solved.matrix, solved.theta))
        if ordered and size > 2 and is_initial:
            candidates += [_Factor.of(_tree(size, branching)) for branching in BRANCHINGS if branching < size]
        return min(candidates, key=lambda candidate: candidate.cost(gram))


def _tree(size: int, branching: int) -> Matrix:
    rows = Tree(size, branching).dense()
    return np.asarray(rows / np.abs(rows).sum(axis=0).max())


def _is_scaled_identity(gram: Matrix) -> bool:
    """Whether the gram is a multiple of the identity, for which the identity is optimal."""
    return bool((gram == np.diag(np.diag(gram))).all()) and np.ptp(np.diag(gram)) == 0
