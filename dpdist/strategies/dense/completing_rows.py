"""Eigen-queries whose weights are chosen for the design that is measured in the end: with its completing rows.

Program 1 of Li & Miklau 2012 chooses weights u for the eigen-queries alone; Program 2 then adds to every cell what it lacks of the longest
column, which costs no privacy. On prefix sums the weights that are best before are not so after: separated ones had 8 % less error.

With the loads l = (Q o Q)' u and the longest one m the measured precision is X(u) = Q' diag(u) Q + diag(m - l), linear in u but for m. Its
error m tr(V X(u)^-1) is followed down by L-BFGS in the logarithms of u; a norm of the loads of growing power stands for their maximum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import scipy

from dpdist.operators import Matrix
from dpdist.strategies.dense.adaptive_mechanism import (
    Weights,
    design_strategy,
    eigen_queries,
    group_weights,
    merge_group_weights,
    program_1,
    separation,
)
from dpdist.strategies.representations import DenseStrategy
from dpdist.strategies.strategy import gram_of, ignore_step
from dpdist.workloads import Gram, Workload

POWERS = (50.0, 400.0, 3000.0)
"""Of the norms that stand for the longest column, in turn."""
STEPS, WORK = 15, 2**31
"""Steps of L-BFGS for each at most, and the cube of the number of cells times the steps: for 512 cells all, for 1,024 two."""
DECREASE = 1e-9
"""Part of the error by which another way has to be better to be taken."""


def completion_steps(cells: int) -> int:
    """Steps of L-BFGS for each power, each of which takes time by the cube of the number of cells."""
    return min(STEPS, WORK // cells**3)


def completed_design(workload: Workload | Gram, *, tolerance: float = 1e-6) -> DenseStrategy:
    """The best of three designs of weighted eigen-queries with completing rows.

    Their weights are those of Program 1 for all of them, for groups of them (section 4.2), and those that L-BFGS finds for the completed
    design from the better of both. ``solve.method`` says which was the best.

    Args:
        workload: a workload, (m, n), or its gram, (n, n).
        tolerance: certified relative gap of Program 1.
    Returns: the strategy, its exact cost, and the singular value bound.
    Source: Li & Miklau 2012, Programs 1 and 2; docs/mathematics.md.
    """
    gram = gram_of(workload)
    queries, costs, bound = eigen_queries(gram)
    squares = np.ascontiguousarray(np.square(queries.T))
    groups = separation(costs, max(2, round(gram.shape[0] ** (1 / 3))))
    solved = [group_weights(np.ascontiguousarray(squares[:, group]), costs[group], tolerance) for group in groups]
    ways: Mapping[str, Weights] = {
        "weights of all eigen-queries": program_1(squares, costs, tolerance=tolerance),
        f"weights of groups of {groups[0].size} eigen-queries": merge_group_weights(groups, solved, tolerance, ignore_step),
    }
    best, start = _least_error_design(
        {how: design_strategy(queries, weights, gram, bound) for how, weights in ways.items()}, ways
    )
    steps = completion_steps(gram.shape[0])
    if not steps:
        return best
    weights = replace(start, weight=_descended(queries, squares, gram, start.weight, steps))
    more = {"weights of eigen-queries with their completion": design_strategy(queries, weights, gram, bound)}
    assert best.solve is not None
    return _least_error_design({best.solve.method: best, **more}, dict.fromkeys((best.solve.method, *more), weights))[0]


def _least_error_design(found: Mapping[str, DenseStrategy], ways: Mapping[str, Weights]) -> tuple[DenseStrategy, Weights]:
    """The design of the least error, the first of those that tie, with how its weights were chosen."""
    least = min(each.workload_cost or math.inf for each in found.values())
    how = next(how for how, each in found.items() if (each.workload_cost or math.inf) <= least * (1 + DECREASE))
    solve = found[how].solve
    assert solve is not None
    return replace(found[how], solve=replace(solve, method=how)), ways[how]


def _descended(queries: Matrix, squares: Matrix, gram: Matrix, weight: Matrix, steps: int) -> Matrix:
    """The weights at which L-BFGS stops."""
    logs = np.log(np.maximum(weight, np.finfo(float).eps * weight.max()))
    for power in POWERS:
        objective = _completed_error(queries, squares, gram, power)
        options = {"maxiter": steps, "maxcor": 20}
        logs = scipy.optimize.minimize(objective, logs, jac=True, method="L-BFGS-B", options=options).x
    return np.asarray(np.exp(logs - logs.max()))


def _completed_error(
    queries: Matrix, squares: Matrix, gram: Matrix, power: float
) -> Callable[[Matrix], tuple[float, Matrix]]:
    """The logarithm of the completed design's error, and its gradient, as a function of the logarithms of the weights."""

    def objective(logs: Matrix) -> tuple[float, Matrix]:
        weight = np.exp(logs - logs.max())
        loads = squares @ weight
        norm = float(loads.max() * ((loads / loads.max()) ** power).sum() ** (1.0 / power)) * (1 + 1e-9)
        precision = (queries.T * weight) @ queries
        precision[np.diag_indices_from(precision)] += norm - loads
        factor = scipy.linalg.cho_factor(precision, overwrite_a=True)
        half = scipy.linalg.cho_solve(factor, gram)
        slope = scipy.linalg.cho_solve(factor, half.T)  # X^-1 V X^-1
        error, own = float(np.trace(half)), np.diag(slope)
        lengthened = squares.T @ ((loads / norm) ** (power - 1.0))
        along = np.einsum("ij,ij->i", queries @ slope, queries)
        gradient = lengthened * error + norm * (squares.T @ own - along - lengthened * float(own.sum()))
        return math.log(norm * error), gradient * weight / (norm * error)

    return objective
