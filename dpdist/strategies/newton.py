"""COA as published: Newton with five conjugate-gradient steps (Algorithms 1 and 2) and its homotopy (Algorithm 3)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy

from dpdist.operators import Dense, Matrix
from dpdist.strategies.base import OnStep, Solve, Step, Stop, checked_start, gram_of
from dpdist.strategies.bounds import dual_bound
from dpdist.strategies.representations import DenseStrategy
from dpdist.workloads import Workload

ARMIJO_SHRINK = 0.1
ARMIJO_SLOPE = 0.25
CG_STEPS = 5
HOMOTOPY = tuple(10.0**-i for i in range(11))
"""theta of Algorithm 3: 1 down to 1e-10."""


def solve(
    workload: Workload | Matrix,
    *,
    thetas: tuple[float, ...],
    tolerance: float,
    max_iterations: int,
    on_step: OnStep,
    start: Matrix | None = None,
) -> DenseStrategy:
    """The strategy after Algorithm 1 for each theta, each warm-started by the one before.

    The cost is that of the original gram, certified by the dual bound at v = diag of X^-1 V X^-1, which is optimal at
    the optimum. Cells without queries get no weight of their own beyond the ridge theta.
    """
    gram = gram_of(workload)
    n = gram.shape[0]
    x = np.eye(n) if start is None else checked_start(start, (n, n))
    history: list[Step] = []
    stop: Stop = "iteration limit"
    lower = dual_bound(gram, np.ones(n))
    for theta in thetas:
        x, lower, stop = _algorithm_1(gram, theta, x, tolerance, max_iterations, history, on_step, lower)
    root = scipy.linalg.cholesky(x, lower=False, check_finite=False)
    cost = history[-1].objective
    record = Solve("coa homotopy" if len(thetas) > 1 else "coa newton", stop, tuple(history))
    return DenseStrategy("coa", Dense(root), cost, lower, record)


def objective_and_gradient(gram: Matrix, x: Matrix) -> tuple[float, Matrix, Matrix]:
    """tr(V X^-1), its gradient -X^-1 V X^-1, and X^-1."""
    inverse = scipy.linalg.cho_solve(scipy.linalg.cho_factor(x, check_finite=False), np.eye(x.shape[0]), check_finite=False)
    inverse = (inverse + inverse.T) * 0.5
    half = gram @ inverse
    return float(np.trace(half)), -inverse @ half, inverse


def hessian_product(inverse: Matrix, gradient: Matrix, direction: Matrix) -> Matrix:
    """H[D] = -(G D X^-1 + X^-1 D G). The scan's line in Algorithm 2 has lost its sign and factors; see docs/mathematics.md."""
    product = gradient @ direction @ inverse
    return np.asarray(-(product + product.T))


def newton_direction(inverse: Matrix, gradient: Matrix, steps: int = CG_STEPS) -> Matrix:
    """Algorithm 2: conjugate gradients for H[D] = -G on the off-diagonal entries."""
    direction = np.zeros_like(gradient)
    residual = -_hollow(gradient)
    search = residual.copy()
    energy = float(np.vdot(residual, residual))
    for _ in range(steps):
        image = _hollow(hessian_product(inverse, gradient, search))
        curvature = float(np.vdot(search, image))
        if energy == 0.0 or curvature <= 0.0:
            break
        length = energy / curvature
        direction += length * search
        residual -= length * image
        renewed = float(np.vdot(residual, residual))
        search = residual + renewed / energy * search
        energy = renewed
    return direction


def _algorithm_1(
    gram: Matrix, theta: float, x: Matrix, tolerance: float, limit: int, history: list[Step], on_step: OnStep, lower: float
) -> tuple[Matrix, float, Stop]:
    ridged = gram + theta * np.eye(gram.shape[0])
    objective, gradient, inverse = objective_and_gradient(ridged, x)
    for _ in range(limit):
        direction = newton_direction(inverse, gradient)
        slope = float(np.vdot(gradient, direction))
        moved = _armijo(ridged, x, direction, objective, slope)
        if moved is None:
            return x, lower, "stalled"
        x = moved
        objective, gradient, inverse = objective_and_gradient(ridged, x)
        true_cost = float(np.vdot(gram, inverse))
        lower = max(lower, dual_bound(gram, np.maximum(-np.diag(gradient), 0.0)))
        gap = true_cost / lower - 1.0
        norm = float(np.linalg.norm(_hollow(gradient)))
        history.append(Step(len(history) + 1, true_cost, gap, gradient_norm=norm))
        on_step(replace(history[-1], checkpoint=x))
        if gap <= tolerance:
            return x, lower, "converged"
        if abs(slope) <= 1e-13 * objective:
            return x, lower, "stalled"
    return x, lower, "iteration limit"


def _armijo(gram: Matrix, x: Matrix, direction: Matrix, objective: float, slope: float) -> Matrix | None:
    """The first of x + D, x + beta D, ... that is positive definite and decreases enough; None if none does."""
    length = 1.0
    while length > 1e-14:
        trial = x + length * direction
        try:
            factor = scipy.linalg.cho_factor(trial, check_finite=False)
        except scipy.linalg.LinAlgError:
            length *= ARMIJO_SHRINK
            continue
        value = float(np.trace(scipy.linalg.cho_solve(factor, gram, check_finite=False)))
        if value <= objective + length * ARMIJO_SLOPE * slope:
            return np.asarray(trial)
        length *= ARMIJO_SHRINK
    return None


def _hollow(matrix: Matrix) -> Matrix:
    out = matrix.copy()
    np.fill_diagonal(out, 0.0)
    return out
