"""COA: the least-error strategy of a workload, with a proof of how close it is (Yuan et al., KDD 2016)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from dpdist.errors import InvalidInput, NotPositiveDefinite
from dpdist.operators import Dense, Matrix
from dpdist.strategies import linear_algebra
from dpdist.strategies.dense import coa_barrier, coa_fixed_point, coa_newton
from dpdist.strategies.dense.trace_problem import BasisProblem, FullRankProblem, Problem, SquareProblem, problem_of
from dpdist.strategies.lower_bounds import dual_bound
from dpdist.strategies.representations import DenseStrategy
from dpdist.strategies.strategy import OnStep, Solve, Step, Stop, check_not_empty, check_start, gram_in_place, ignore_step
from dpdist.strategies.symmetric_optimum import weights_by_symmetry
from dpdist.workloads import Gram, Workload

ARMIJO_SHRINK = 0.1
ARMIJO_SLOPE = 0.25
CG_STEPS = 5
HOMOTOPY = tuple(10.0**-i for i in range(11))
"""theta of Algorithm 3: 1 down to 1e-10."""


def solve(
    workload: Workload | Gram,
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
    check_not_empty(linear_algebra.trace(gram) > 0)
    x = linear_algebra.identity(gram, n) if start is None else linear_algebra.like(gram, check_start(start, (n, n)))
    history: list[Step] = []
    stop: Stop = "iteration limit"
    lower = dual_bound(Gram(gram), np.ones(n))
    for theta in thetas:
        x, lower, stop = _algorithm_1(gram, theta, x, tolerance, max_iterations, history, on_step, lower)
    root = linear_algebra.on_host(linear_algebra.cholesky(x))
    cost = history[-1].objective
    record = Solve("coa homotopy" if len(thetas) > 1 else "coa newton", stop, tuple(history))
    return DenseStrategy("coa", Dense(root), cost, lower, record)


def objective_and_gradient(gram: Matrix, x: Matrix) -> tuple[float, Matrix, Matrix]:
    """tr(V X^-1), its gradient -X^-1 V X^-1, and X^-1."""
    inverse = linear_algebra.factor_matrix(x)(linear_algebra.identity(x, x.shape[0]))
    inverse = (inverse + inverse.T) * 0.5
    half = gram @ inverse
    return linear_algebra.trace(half), -inverse @ half, inverse


def hessian_product(inverse: Matrix, gradient: Matrix, direction: Matrix) -> Matrix:
    """H[D] = -(G D X^-1 + X^-1 D G). The scan's line in Algorithm 2 has lost its sign and factors; see docs/mathematics.md."""
    product: Matrix = gradient @ direction @ inverse
    return -(product + product.T)


def newton_direction(inverse: Matrix, gradient: Matrix, steps: int = CG_STEPS) -> Matrix:
    """Algorithm 2: conjugate gradients for H[D] = -G on the off-diagonal entries."""
    direction = linear_algebra.zeros(gradient, gradient.shape)
    residual = -linear_algebra.hollow(gradient)
    search = linear_algebra.copy_matrix(residual)
    energy = linear_algebra.inner(residual, residual)
    for _ in range(steps):
        image = linear_algebra.hollow(hessian_product(inverse, gradient, search))
        curvature = linear_algebra.inner(search, image)
        if energy == 0.0 or curvature <= 0.0:
            break
        length = energy / curvature
        direction += length * search
        residual -= length * image
        renewed = linear_algebra.inner(residual, residual)
        search = residual + renewed / energy * search
        energy = renewed
    return direction


def _algorithm_1(
    gram: Matrix, theta: float, x: Matrix, tolerance: float, limit: int, history: list[Step], on_step: OnStep, lower: float
) -> tuple[Matrix, float, Stop]:
    ridged = gram + theta * linear_algebra.identity(gram, gram.shape[0])
    objective, gradient, inverse = objective_and_gradient(ridged, x)
    for _ in range(limit):
        direction = newton_direction(inverse, gradient)
        slope = linear_algebra.inner(gradient, direction)
        moved = _armijo(ridged, x, direction, objective, slope)
        if moved is None:
            return x, lower, "stalled"
        x = moved
        objective, gradient, inverse = objective_and_gradient(ridged, x)
        true_cost = linear_algebra.inner(gram, inverse)
        lower = max(lower, dual_bound(Gram(gram), np.maximum(-linear_algebra.diagonal(gradient), 0.0)))
        gap = true_cost / lower - 1.0
        norm = linear_algebra.norm(linear_algebra.hollow(gradient))
        history.append(Step(len(history) + 1, true_cost, gap, gradient_norm=norm))
        on_step(replace(history[-1], checkpoint=linear_algebra.on_host(x)))
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
            solve_with_trial = linear_algebra.factor_matrix(trial)
        except NotPositiveDefinite:
            length *= ARMIJO_SHRINK
            continue
        value = linear_algebra.trace(solve_with_trial(gram))
        if value <= objective + length * ARMIJO_SLOPE * slope:
            return trial
        length *= ARMIJO_SHRINK
    return None


Method = Literal["dual", "newton", "homotopy"]


def coa(
    workload: Workload | Gram,
    *,
    tolerance: float = 1e-6,
    method: Method = "dual",
    max_iterations: int | None = None,
    theta: float = 1e-3,
    on_step: OnStep = ignore_step,
    start: Matrix | None = None,
) -> DenseStrategy:
    """The strategy of least total squared error under Gaussian noise.

    Args:
        workload: a workload, or its gram (``dpdist.workloads.gram``) W'W, (n, n). A gram of CuPy or PyTorch keeps matrices on
            its device.
            Of a workload that treats many cells alike the weights are found over their orbits first.
        tolerance: certified relative gap at which the solve stops; 1e-9 is reachable with ``method="dual"``.
        method: "dual" solves for n dual variables and certifies; "newton" is the paper's Algorithms 1 and 2 on
            W'W + theta I; "homotopy" its Algorithm 3.
        max_iterations: default 200 (dual), 100 (newton; the paper runs 10), 100 for each theta (homotopy).
        theta: absolute size of the ridge of "newton"; the paper's tables use 1e-3.
        on_step: called after every iteration; may raise ``Cancelled``.
        start: checkpoint of an earlier, interrupted solve: dual weights, (n,), or X, (n, n), for the published methods.
    Returns: the strategy with its cost, a lower bound that no strategy can beat, and the record of the solve. When the
        tolerance was not reached, ``strategy.solve.stop`` says so and ``strategy.gap`` says by how much.
    Raises: InvalidInput, NotPositiveDefinite.
    Source: KDD 2016, Program (9) and Algorithms 1-3; dual and certificate: docs/mathematics.md, section 2.
    """
    if not 0 < tolerance < 1:
        raise InvalidInput(f"the tolerance is a relative gap in (0, 1), found {tolerance!r}")
    if method not in ("dual", "newton", "homotopy"):
        raise InvalidInput(f"method {method!r} is unknown; allowed are 'dual', 'newton' and 'homotopy'")
    if method != "dual":
        thetas = HOMOTOPY if method == "homotopy" else (theta,)
        return solve(
            workload, thetas=thetas, tolerance=tolerance, max_iterations=max_iterations or 100, on_step=on_step, start=start
        )
    if start is None and isinstance(workload, Workload):
        start = weights_by_symmetry(workload, tolerance=tolerance / 2)
    problem = problem_of(workload, start)
    restricted = None if start is None else problem.restrict(start)
    return _solve_dual(problem, tolerance=tolerance, max_iterations=max_iterations or 200, on_step=on_step, start=restricted)


def _solve_dual(
    problem: Problem,
    *,
    tolerance: float,
    max_iterations: int = 200,
    on_step: OnStep = ignore_step,
    start: Matrix | None = None,
) -> DenseStrategy:
    """The certified optimum of a reduced problem: by fixed point at full rank, by Newton if ill-conditioned, else by barrier Newton.

    A solve that stalls (cells whose constraint is nearly slack) hands its weights to the barrier.
    """
    if isinstance(problem, FullRankProblem):
        root, cost, lower, record = coa_fixed_point.solve(
            problem, tolerance=tolerance, max_iterations=max_iterations, on_step=on_step, start=start
        )
        if record.stop == "converged":
            return DenseStrategy("coa", problem.expand_rows(root), cost * problem.scale, lower * problem.scale, record)
        if problem.chain is not None and record.stop == "stalled":  # its bound is rounded down further than LAPACK's
            assert record.dual is not None
            start, problem = problem.restrict(record.dual), replace(problem, chain=None)
            return _solve_dual(problem, tolerance=tolerance, max_iterations=max_iterations, on_step=on_step, start=start)
        if problem.nullity:  # a constraint may be slack, whose weight is zero
            problem = problem.thin_problem()
    if isinstance(problem, SquareProblem):
        root, cost, lower, record = coa_newton.solve(
            problem, tolerance=tolerance, max_iterations=max_iterations, on_step=on_step, start=start
        )
        if record.stop != "stalled":
            return DenseStrategy("coa", problem.expand_rows(root), cost * problem.scale, lower * problem.scale, record)
        assert record.dual is not None
        start = problem.restrict(record.dual)
    first_record = None
    nearly_full = problem.nearly_full_problem() if isinstance(problem, BasisProblem) and start is None else None
    if nearly_full is not None:
        first_record = coa_fixed_point.solve(
            nearly_full, tolerance=tolerance, max_iterations=max_iterations, on_step=on_step
        )[3]
        assert first_record.dual is not None
        start = problem.restrict(first_record.dual)
        del nearly_full
    (mixing,), cost, lower, record = coa_barrier.solve(
        problem, tolerance=tolerance, max_iterations=max_iterations, on_step=on_step, start=start
    )
    if first_record is not None:
        record = replace(
            record,
            history=first_record.history + record.history,
            eigendecompositions=first_record.eigendecompositions + record.eigendecompositions,
            products=first_record.products + record.products,
        )
    return DenseStrategy("coa", problem.expand_mixing(mixing), cost * problem.scale, lower * problem.scale, record)
