"""Certified optimum for rank-deficient grams: barrier Newton on the dual, in the thin factor.

    maximise  2 tr (F D_v F')^{1/2} - sum(v) + mu * sum(log v),   mu -> 0.

Singular grams leave some constraints slack (v_i -> 0 there), which the barrier handles. A Newton step is solved by
preconditioned conjugate gradients on exact Hessian products; where those need too many, the whole Hessian is formed
from an exponential sum for 1/(s_a + s_b) and factored.

A gram that is block diagonal gives several factors over the same weights, each counted as often as the block occurs
(``dpdist.workloads.symmetry``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpdist.operators import Matrix
from dpdist.strategies import linear_algebra
from dpdist.strategies.dense.deflation import deflated_roots
from dpdist.strategies.dense.trace_problem import EPSILON, Summand
from dpdist.strategies.strategy import OnStep, Solve, Step, Stop, proven_root_trace

SHRINK = 0.1
SMALLEST_FACTOR = 0.03
"""A weight falls at most to this fraction in one step."""


def conjugate_gradients(
    apply: Callable[[Matrix], Matrix], target: Matrix, precondition: Matrix, *, forcing: float, cap: int
) -> tuple[Matrix, int]:
    """z with apply(z) = target to a relative residual of ``forcing``, diagonal preconditioner; and the products used."""
    solution = np.zeros(target.size)
    residual = target.copy()
    scaled = residual / precondition
    direction = scaled.copy()
    energy = float(residual @ scaled)
    initial_norm = np.sqrt(energy)
    if initial_norm == 0.0:
        return solution, 0
    for iterations in range(1, cap + 1):
        image = apply(direction)
        length = energy / float(direction @ image)
        solution += length * direction
        residual -= length * image
        scaled = residual / precondition
        renewed = float(residual @ scaled)
        if np.sqrt(renewed) < forcing * initial_norm:
            return solution, iterations
        direction = scaled + renewed / energy * direction
        energy = renewed
    return solution, cap


def damp_step(dual: Matrix, move: Matrix, barrier: float, *, largest_step: float, floor: float) -> tuple[Matrix, float]:
    """The weights after a relative step, and the next barrier: smaller once a full step is short."""
    step = min(1.0, largest_step / max(float(np.abs(move).max()), 1e-300))
    size = float(np.sqrt(dual @ move**2 / dual.sum()))
    if step == 1.0 and size < 0.5:
        barrier = max(barrier * (SHRINK if size < 0.3 else 0.4), floor)
    return dual * np.maximum(1.0 + step * move, SMALLEST_FACTOR), barrier


INITIAL_BARRIER = 0.1
LARGEST_STEP = 1.5
FORCING = 0.03
"""Relative residual of the inner conjugate gradients."""
PATIENCE = 15
OUTRUN = 0.03
"""Least barrier of many cells after an iteration without progress, in gaps and over the mean weight. A lower one has outrun the weights,
and steps to it get short and take many products: for sums over 29,568 cells of rank 267 over 300 CPU seconds in place of 40."""
HALF_DIGITS = 3
"""Iterations without progress after which an ill-conditioned K is deflated."""
ILL_RATIO = 1e-5
"""Ratio of its roots below which that may help."""
ILL_PRODUCTS = 200
"""Of its Hessian, whose entries are not formed: an exponential sum is no longer exact."""
DEFLATED_COST = 1.5
"""Eigen-decompositions that one with deflation takes, rounded up: 1.0 to 1.3 on the ill-conditioned grams of benchmarks/optimisers.py."""
HESSIAN_CELLS = 2048
"""Beyond so many cells, and four times the rank, the Hessian is not formed: it would be the largest array by far."""


class DualProblem(Protocol):
    """What the solver asks of a problem: the parts of V, a first guess, and how a checkpoint is written."""

    @property
    def summands(self) -> Sequence[Summand]:
        """V = sum over the parts of copies F'F, each over some of the cells."""

    @property
    def initial_dual(self) -> Matrix:
        """The first guess of the weights."""

    @property
    def scale(self) -> float:
        """Costs of the problem times this are costs of the workload."""

    @property
    def cells(self) -> int:
        """Number of dual weights."""

    @property
    def rank(self) -> int:
        """Rows of the largest factor."""

    def expand(self, dual: Matrix) -> Matrix:
        """The weights as a checkpoint."""


@dataclass(frozen=True)
class SpectralPart:
    """One part at v: its spectrum s and C = U'F."""

    roots: Matrix
    factor: Matrix
    summand: Summand


@dataclass(frozen=True)
class Point:
    """The dual function at v: every part, diag X, and both bounds.

    Tiny s are raised to a floor: any s > 0 gives a strategy of cost max diag X * sum(s); only the lower bound needs care.
    """

    weight: Matrix
    proven_total: float
    spectral_parts: tuple[SpectralPart, ...]
    diagonal: Matrix

    @property
    def total(self) -> float:
        """tr K^{1/2}."""
        return sum(spectral_part.summand.copies * float(spectral_part.roots.sum()) for spectral_part in self.spectral_parts)

    def balanced(self) -> Point:
        """The same direction scaled so that sum(v) = tr K^1/2: everything scales with a power of v."""
        f = self.total / float(self.weight.sum())
        spectral_parts = tuple(
            SpectralPart(spectral_part.roots * f, spectral_part.factor, spectral_part.summand)
            for spectral_part in self.spectral_parts
        )
        return Point(self.weight * f**2, self.proven_total * f, spectral_parts, self.diagonal / f)

    @property
    def lower(self) -> float:
        """LB(v) of docs/mathematics.md, section 2."""
        return self.proven_total**2 / float(self.weight.sum())

    @property
    def upper(self) -> float:
        """Cost of the strategy K^{-1/4} F, scaled to sensitivity 1."""
        return float(self.diagonal.max()) * self.total


@dataclass
class _NewtonSolver:
    """How Newton steps are solved: by products, and from the first that need too many on by forming the Hessian.

    Attributes:
        deflated: whether K is ill-conditioned, so that its small roots are found by deflation; products only then.
    """

    problem: DualProblem
    dense: bool = False
    deflated: bool = False
    products: int = 0

    @property
    def may_form_hessian(self) -> bool:
        """Whether the Hessian may: of few cells, or few for the rank."""
        return self.problem.cells <= max(HESSIAN_CELLS, 4 * self.problem.rank)

    def may_deflate(self, point: Point) -> bool:
        """Whether deflation may reach what one eigen-decomposition does not."""
        ill = any(
            spectral_part.roots.min() < ILL_RATIO * spectral_part.roots.max() for spectral_part in point.spectral_parts
        )
        return ill and not self.deflated

    def move(self, point: Point, gradient: Matrix, ridge: Matrix) -> Matrix:
        """The relative step of all weights."""
        cells, rank = self.problem.cells, self.problem.rank
        if self.dense and not self.deflated:
            self.products += 20
            return _newton(point, gradient, ridge)
        cap = ILL_PRODUCTS if self.deflated else max(int(5 * cells / rank) + 5, 12)
        move, used_products = _inexact_newton(point, gradient, ridge, cap=cap)
        self.products += used_products
        self.dense = used_products >= cap and self.may_form_hessian and cells * rank > 10_000
        return move


def solve(
    problem: DualProblem, *, tolerance: float, max_iterations: int, on_step: OnStep, start: Matrix | None = None
) -> tuple[tuple[Matrix, ...], float, float, Solve]:
    """The optimal strategy of a problem of any rank.

    Returns: for each part the mixing M with A = M F; the cost and the lower bound, both of the scaled problem; the record.
    """
    summands = problem.summands
    weight = np.maximum(problem.initial_dual if start is None else start, 0.0)
    weight = np.maximum(weight, 1e-14 * weight.sum())
    point, vectors = evaluate(summands, weight)
    point = point.balanced()
    mean = point.total / problem.cells
    barrier = INITIAL_BARRIER * mean if start is None else 1e-3 * mean
    best, best_upper, lower = point.weight, point.upper, point.lower
    history: list[Step] = []
    inner, eighs, since, smallest = _NewtonSolver(problem), 2.0, 0, np.inf
    stop: Stop = "iteration limit"
    for iteration in range(1, max_iterations + 1):
        lower = max(lower, point.lower)
        if point.upper < best_upper:
            best, best_upper = point.weight, point.upper
        gap = best_upper / lower - 1.0
        since = 0 if not history or gap < 0.9 * smallest else since + 1
        smallest = gap if since == 0 else smallest
        history.append(Step(iteration, best_upper * problem.scale, gap, checkpoint=problem.expand(point.weight)))
        on_step(history[-1])
        if gap <= tolerance:
            stop = "converged"
            break
        if since == HALF_DIGITS and inner.may_deflate(point):
            inner.deflated, barrier = True, max(barrier, mean * gap)
            del point, vectors
            point, vectors = evaluate(summands, best, deflated=True)
            point = point.balanced()
        if since > PATIENCE:
            stop = "stalled"
            break
        if since and not inner.may_form_hessian:
            barrier = max(barrier, OUTRUN * gap * mean)
        del vectors  # memory: the inner products need the room
        gradient = point.weight * (point.diagonal - 1.0) + barrier
        # primal-dual: the multiplier of a slack cell is its slack 1 - X_ii, so that its weight goes to mu / slack at once
        ridge = np.maximum(point.weight * (1.0 - point.diagonal), barrier)
        move = inner.move(point, gradient, ridge)
        floor = 1e-3 * tolerance * mean
        weight, barrier = damp_step(point.weight, move, barrier, largest_step=LARGEST_STEP, floor=floor)
        del point
        point, vectors = evaluate(summands, weight, deflated=inner.deflated)
        eighs += DEFLATED_COST if inner.deflated else 1
    record = Solve(
        "dual barrier Newton",
        stop,
        tuple(history),
        history[-1].checkpoint,
        eighs,
        inner.products,
    )
    if best is not point.weight:
        point, vectors = evaluate(summands, best, deflated=inner.deflated)
    largest = float(point.diagonal.max())
    mixing = []
    for u, spectral_part in zip(vectors, point.spectral_parts, strict=True):
        mixing.append(u.T / linear_algebra.like(u, np.sqrt(spectral_part.roots * largest))[:, None])
    return tuple(mixing), best_upper, lower, record


def evaluate(summands: Sequence[Summand], weight: Matrix, *, deflated: bool = False) -> tuple[Point, tuple[Matrix, ...]]:
    """The dual at v, and the eigenvectors of K = F D_v F' of every part.

    Args:
        deflated: whether the roots below eps^1/2 of the largest are found as well.
    """
    diagonal, proven = np.zeros(weight.size), 0.0
    spectral_parts, turned = [], []
    for summand in summands:
        if deflated:
            deflation = deflated_roots(
                (summand.factor * linear_algebra.like(summand.factor, np.sqrt(weight[summand.cells]))).T
            )
            roots, vectors, proven_trace = deflation.values, deflation.vectors, deflation.proven
        else:
            gram = linear_algebra.weighted_gram(summand.factor, weight[summand.cells])
            values, vectors = linear_algebra.eigh(gram.T, overwrite=True)
            del gram
            roots, proven_trace = np.sqrt(np.maximum(values, EPSILON * values[-1])), proven_root_trace(values)
        rotated = vectors.T @ summand.factor
        diagonal[summand.cells] += summand.copies * linear_algebra.weighted_columns(rotated, 1.0 / roots)
        proven += summand.copies * proven_trace
        spectral_parts.append(SpectralPart(roots, rotated, summand))
        turned.append(vectors)
    return Point(weight, proven, tuple(spectral_parts), diagonal), tuple(turned)


def hessian_product(point: Point) -> Callable[[Matrix], Matrix]:
    """w -> -(Hessian of 2 tr K^{1/2}) w: two matrix products a part."""
    scaled = []
    for spectral_part in point.spectral_parts:
        s = linear_algebra.like(spectral_part.factor, spectral_part.roots)
        coefficients = 1.0 / (s[:, None] * s * (s[:, None] + s))
        scaled.append((spectral_part.factor, spectral_part.summand.cells, coefficients, spectral_part.summand.copies))

    def apply(direction: Matrix) -> Matrix:
        product = np.zeros(direction.size)
        for factor, cells, coefficients, copies in scaled:
            inner = linear_algebra.weighted_gram(factor, direction[cells])
            inner *= coefficients
            product[cells] += copies * linear_algebra.column_products(factor, inner @ factor)
        return product

    return apply


def _inexact_newton(point: Point, gradient: Matrix, ridge: Matrix, *, cap: int) -> tuple[Matrix, int]:
    """Relative step dv/v from (Y H Y + ridge) z = gradient, preconditioned by its approximate diagonal."""
    weight = point.weight
    product = hessian_product(point)
    precondition = 0.5 * weight * point.diagonal + ridge

    def apply(direction: Matrix) -> Matrix:
        return np.asarray(weight * product(weight * direction) + ridge * direction)

    return conjugate_gradients(apply, gradient, precondition, forcing=FORCING, cap=cap)


def _newton(point: Point, gradient: Matrix, ridge: Matrix) -> Matrix:
    """The exact Newton step, with -Hessian = sum_k w_k Q_k o Q_k, Q_k = C' diag(exp(-s t_k)/s) C."""
    hessian = linear_algebra.zeros(point.spectral_parts[0].factor, (point.weight.size, point.weight.size))
    for spectral_part in point.spectral_parts:
        s, target = spectral_part.roots, linear_algebra.block(spectral_part.summand.weight_indices)
        for node in np.arange(np.log(1e-3 / s[-1]), np.log(12.0 / s[0]) + 1.0):
            decay = np.exp(-s * np.exp(node)) / s
            active = decay * s > 1e-9
            half = linear_algebra.rows(spectral_part.factor, active)
            half = half * linear_algebra.like(half, np.sqrt(decay[active]))[:, None]
            block = half.T @ half
            block *= block
            block *= spectral_part.summand.copies * math.exp(node)
            hessian[target] += block
    weight = linear_algebra.like(hessian, point.weight)
    hessian *= weight[:, None]
    hessian *= weight
    linear_algebra.add_to_diagonal(hessian, ridge)
    return linear_algebra.on_host(
        linear_algebra.factor_matrix(hessian, overwrite=True)(linear_algebra.like(hessian, gradient))
    )
