"""Certified optimum for rank-deficient grams: barrier Newton on the dual, in the thin factor.

    maximise  2 tr (F D_v F')^{1/2} - sum(v) + mu * sum(log v),   mu -> 0.

Singular grams leave some constraints slack (v_i -> 0 there), which the barrier handles. A Newton step is solved by
preconditioned conjugate gradients on exact Hessian products; where those need too many, the whole Hessian is formed
from an exponential sum for 1/(s_a + s_b) and factored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from dpdist.operators import Matrix
from dpdist.strategies.base import OnStep, Solve, Step, Stop, proven_root_trace
from dpdist.strategies.interior import conjugate_gradients, damped
from dpdist.strategies.problem import EPSILON, Problem

INITIAL_BARRIER = 0.1
LARGEST_STEP = 1.5
FORCING = 0.03
"""Relative residual of the inner conjugate gradients."""
PATIENCE = 15


@dataclass(frozen=True)
class Point:
    """The dual function at v: spectrum s, C = U'F, diag X, and both bounds.

    Tiny s are raised to a floor: any s > 0 gives a strategy of cost max diag X * sum(s); only the lower bound needs care.
    """

    weight: Matrix
    proven_total: float
    roots: Matrix
    factor: Matrix
    diagonal: Matrix

    @property
    def total(self) -> float:
        """tr K^{1/2}."""
        return float(self.roots.sum())

    def balanced(self) -> Point:
        """The same direction scaled so that sum(v) = tr K^1/2: everything scales with a power of v."""
        f = self.total / float(self.weight.sum())
        return Point(self.weight * f**2, self.proven_total * f, self.roots * f, self.factor, self.diagonal / f)

    @property
    def lower(self) -> float:
        """LB(v) of docs/mathematics.md, section 2."""
        return self.proven_total**2 / float(self.weight.sum())

    @property
    def upper(self) -> float:
        """Cost of the strategy K^{-1/4} F, scaled to sensitivity 1."""
        return float(self.diagonal.max()) * self.total


def solve(
    problem: Problem, *, tolerance: float, max_iterations: int, on_step: OnStep, start: Matrix | None = None
) -> tuple[Matrix, float, float, Solve]:
    """The optimal strategy of a problem of any rank.

    Returns: the mixing M with A = M F; its cost and the lower bound, both of the scaled problem; the record.
    """
    factor = problem.factor
    weight = np.maximum(problem.initial_dual if start is None else start, 0.0)
    weight = np.maximum(weight, 1e-14 * weight.sum())
    point, vectors = evaluate(factor, weight)
    point = point.balanced()
    mean = point.total / problem.cells
    barrier = INITIAL_BARRIER * mean if start is None else 1e-3 * mean
    best, best_upper, lower = point.weight, point.upper, point.lower
    history: list[Step] = []
    hessian_products, eighs, dense, since, smallest = 0, 2, False, 0, np.inf
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
        if since > PATIENCE:
            stop = "stalled"
            break
        del vectors  # memory: the inner products need the room
        gradient = point.weight * (point.diagonal - 1.0) + barrier
        # primal-dual: the multiplier of a slack cell is its slack 1 - X_ii, so that its weight goes to mu / slack at once
        ridge = np.maximum(point.weight * (1.0 - point.diagonal), barrier)
        if not dense:
            cap = int(5 * problem.cells / problem.rank) + 5
            move, used = _inexact_newton(point, gradient, ridge, cap=max(cap, 12))
            hessian_products += used
            dense = used >= max(cap, 12) and problem.cells * problem.rank > 10_000
        else:
            move = _newton(point, gradient, ridge)
            hessian_products += 20
        floor = 1e-3 * tolerance * mean
        weight, barrier = damped(point.weight, move, barrier, largest_step=LARGEST_STEP, floor=floor)
        del point
        point, vectors = evaluate(factor, weight)
        eighs += 1
    record = Solve(
        "dual barrier Newton",
        stop,
        tuple(history),
        history[-1].checkpoint,
        eighs,
        hessian_products,
    )
    if best is not point.weight:
        point, vectors = evaluate(factor, best)
    mixing = vectors.T / np.sqrt(point.roots * float(point.diagonal.max()))[:, None]
    return mixing, best_upper, lower, record


def evaluate(factor: Matrix, weight: Matrix) -> tuple[Point, Matrix]:
    """The dual at v, and the eigenvectors of K = F D_v F'."""
    gram = (factor * weight) @ factor.T
    values, vectors = scipy.linalg.eigh(gram.T, driver="evd", overwrite_a=True, check_finite=False)
    roots = np.sqrt(np.maximum(values, EPSILON * values[-1]))
    rotated = vectors.T @ factor
    diagonal = np.einsum("ai,ai,a->i", rotated, rotated, 1.0 / roots)
    return Point(weight, proven_root_trace(values), roots, rotated, diagonal), vectors


def hessian_product(point: Point) -> Callable[[Matrix], Matrix]:
    """w -> -(Hessian of 2 tr K^{1/2}) w: two matrix products."""
    s = point.roots
    coefficients = 1.0 / (s[:, None] * s * (s[:, None] + s))

    def apply(direction: Matrix) -> Matrix:
        inner = (point.factor * direction) @ point.factor.T
        inner *= coefficients
        return np.asarray(np.einsum("ai,ai->i", point.factor, inner @ point.factor))

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
    s, factor = point.roots, point.factor
    grid = np.arange(np.log(1e-3 / s[-1]), np.log(12.0 / s[0]) + 1.0)
    hessian = np.zeros((factor.shape[1], factor.shape[1]))
    for node in grid:
        decay = np.exp(-s * np.exp(node)) / s
        active = decay * s > 1e-9
        half = factor[active] * np.sqrt(decay[active])[:, None]
        block = half.T @ half
        block *= block
        block *= np.exp(node)
        hessian += block
    hessian *= point.weight[:, None]
    hessian *= point.weight
    hessian[np.diag_indices_from(hessian)] += ridge
    lower = scipy.linalg.cho_factor(hessian, overwrite_a=True, check_finite=False)
    return np.asarray(scipy.linalg.cho_solve(lower, gradient, check_finite=False))
