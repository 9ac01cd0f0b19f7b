"""COA: the least-error strategy of a workload, with a proof of how close it is (Yuan et al., KDD 2016)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from dpdist.errors import InvalidInput
from dpdist.operators import Matrix
from dpdist.strategies import barrier, fixed_point, newton
from dpdist.strategies.base import OnStep, Solve, ignore
from dpdist.strategies.problem import Problem, problem_of
from dpdist.strategies.representations import DenseStrategy
from dpdist.workloads import Workload

Method = Literal["dual", "newton", "homotopy"]


def coa(
    workload: Workload | Matrix,
    *,
    tolerance: float = 1e-6,
    method: Method = "dual",
    max_iterations: int | None = None,
    theta: float = 1e-3,
    on_step: OnStep = ignore,
    start: Matrix | None = None,
) -> DenseStrategy:
    """The strategy of least total squared error under Gaussian noise.

    Args:
        workload: a workload, or its gram W'W, (n, n). A gram may be an array of CuPy or PyTorch: matrices then stay on its device.
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
        thetas = newton.HOMOTOPY if method == "homotopy" else (theta,)
        return newton.solve(
            workload, thetas=thetas, tolerance=tolerance, max_iterations=max_iterations or 100, on_step=on_step, start=start
        )
    problem = problem_of(workload)
    restricted = None if start is None else problem.restrict(start)
    return solve_dual(problem, tolerance=tolerance, max_iterations=max_iterations or 200, on_step=on_step, start=restricted)


def solve_dual(
    problem: Problem, *, tolerance: float, max_iterations: int = 200, on_step: OnStep = ignore, start: Matrix | None = None
) -> DenseStrategy:
    """The certified optimum of a reduced problem; full-rank ones by fixed point, others by barrier Newton.

    A fixed point that stalls (cells whose constraint is nearly slack) hands its weights to the barrier.
    """
    if problem.full_rank:
        root, cost, lower, record = fixed_point.solve(
            problem, tolerance=tolerance, max_iterations=max_iterations, on_step=on_step, start=start
        )
        if record.stop == "converged":
            return _strategy(problem, root, cost, lower, record, on_cells=True)
        if problem.chain is not None and record.stop == "stalled":  # its bound is rounded down further than LAPACK's
            assert record.dual is not None
            start, problem = problem.restrict(record.dual), replace(problem, chain=None)
            return solve_dual(problem, tolerance=tolerance, max_iterations=max_iterations, on_step=on_step, start=start)
    (mixing,), cost, lower, record = barrier.solve(
        problem, tolerance=tolerance, max_iterations=max_iterations, on_step=on_step, start=start
    )
    return _strategy(problem, mixing, cost, lower, record, on_cells=False)


def _strategy(
    problem: Problem, mixing: Matrix, cost: float, lower: float, record: Solve, *, on_cells: bool
) -> DenseStrategy:
    operator = problem.strategy_operator(mixing, on_cells=on_cells)
    return DenseStrategy("coa", operator, cost * problem.scale, lower * problem.scale, record)
