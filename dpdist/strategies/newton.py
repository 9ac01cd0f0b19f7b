"""COA as published: Newton with five conjugate-gradient steps (Algorithms 1 and 2) and its homotopy (Algorithm 3)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpdist.errors import NotPositiveDefinite
from dpdist.operators import Dense, Matrix
from dpdist.strategies import linear
from dpdist.strategies.base import OnStep, Solve, Step, Stop, checked_start, gram_in_place
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
    gram = gram_in_place(workload)
    n = int(gram.shape[0])
    x = linear.identity(gram, n) if start is None else linear.like(gram, checked_start(start, (n, n)))
    history: list[Step] = []
    stop: Stop = "iteration limit"
    lower = dual_bound(gram, np.ones(n))
    for theta in thetas:
        x, lower, stop = _algorithm_1(gram, theta, x, tolerance, max_iterations, history, on_step, lower)
    root = linear.on_host(linear.cholesky(x))
    cost = history[-1].objective
    record = Solve("coa homotopy" if len(thetas) > 1 else "coa newton", stop, tuple(history))
    return DenseStrategy("coa", Dense(root), cost, lower, record)


def objective_and_gradient(gram: Matrix, x: Matrix) -> tuple[float, Matrix, Matrix]:
    """tr(V X^-1), its gradient -X^-1 V X^-1, and X^-1."""
    inverse = linear.factored(x).solve(linear.identity(x, x.shape[0]))
    inverse = (inverse + inverse.T) * 0.5
    half = gram @ inverse
    return linear.trace(half), -inverse @ half, inverse


def hessian_product(inverse: Matrix, gradient: Matrix, direction: Matrix) -> Matrix:
    """H[D] = -(G D X^-1 + X^-1 D G). The scan's line in Algorithm 2 has lost its sign and factors; see docs/mathematics.md."""
    product: Matrix = gradient @ direction @ inverse
    return -(product + product.T)


def newton_direction(inverse: Matrix, gradient: Matrix, steps: int = CG_STEPS) -> Matrix:
    """Algorithm 2: conjugate gradients for H[D] = -G on the off-diagonal entries."""
    direction = linear.zeros(gradient, gradient.shape)
    residual = -linear.hollow(gradient)
    search = linear.copied(residual)
    energy = linear.inner(residual, residual)
    for _ in range(steps):
        image = linear.hollow(hessian_product(inverse, gradient, search))
        curvature = linear.inner(search, image)
        if energy == 0.0 or curvature <= 0.0:
            break
        length = energy / curvature
        direction += length * search
        residual -= length * image
        renewed = linear.inner(residual, residual)
        search = residual + renewed / energy * search
        energy = renewed
    return direction


def _algorithm_1(
    gram: Matrix, theta: float, x: Matrix, tolerance: float, limit: int, history: list[Step], on_step: OnStep, lower: float
) -> tuple[Matrix, float, Stop]:
    ridged = gram + theta * linear.identity(gram, gram.shape[0])
    objective, gradient, inverse = objective_and_gradient(ridged, x)
    for _ in range(limit):
        direction = newton_direction(inverse, gradient)
        slope = linear.inner(gradient, direction)
        moved = _armijo(ridged, x, direction, objective, slope)
        if moved is None:
            return x, lower, "stalled"
        x = moved
        objective, gradient, inverse = objective_and_gradient(ridged, x)
        true_cost = linear.inner(gram, inverse)
        lower = max(lower, dual_bound(gram, np.maximum(-linear.diagonal(gradient), 0.0)))
        gap = true_cost / lower - 1.0
        norm = linear.norm(linear.hollow(gradient))
        history.append(Step(len(history) + 1, true_cost, gap, gradient_norm=norm))
        on_step(replace(history[-1], checkpoint=linear.on_host(x)))
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
            factor = linear.factored(trial)
        except NotPositiveDefinite:
            length *= ARMIJO_SHRINK
            continue
        value = linear.trace(factor.solve(gram))
        if value <= objective + length * ARMIJO_SLOPE * slope:
            return trial
        length *= ARMIJO_SHRINK
    return None
