"""Certified optimum for ill-conditioned grams of full rank: damped Newton steps in the logarithm of the dual weights.

Cells of very different scale, or queries that nearly repeat each other, give K = D_v^1/2 V D_v^1/2 eigenvalues over 16 decades and
more. Its roots are therefore found by deflation, from V's factor. X is rescaled to unit diagonal, as in ``coa_fixed_point.py``.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dpdist.operators import Matrix
from dpdist.strategies import linear_algebra
from dpdist.strategies.dense.coa_barrier import conjugate_gradients
from dpdist.strategies.dense.deflation import Roots, deflated_roots
from dpdist.strategies.dense.trace_problem import SquareProblem
from dpdist.strategies.strategy import OnStep, Solve, Step, Stop

DAMPING = 0.1
"""Ridge of a Newton step over the residual's root mean square and the diagonal of K^1/2: it fades as the residual does."""
FORCING, EXACT = 0.05, 1e-3
"""Largest and smallest relative residual of the conjugate gradients of a Newton step."""
INNER_STEPS = 30
LARGEST_STEP = 6.0
"""Of a Newton step, in the logarithm of a weight."""
MIN_START_WEIGHT = 1e-20
"""Least weight to start from, in parts of their sum."""
PATIENCE = 12
"""Steps without progress of the gap before the solver hands over."""


def damped_step(decomposition: Roots, residual: Matrix, *, ridge: Matrix, forcing: float) -> tuple[Matrix, int]:
    """The step of the logarithms of the weights towards log diag X(v) = 0, and the products that it took.

    The preconditioner is the exact diagonal of the system, for half a product: where a weight hardly matters it is far below
    half of diag K^1/2.
    """
    turned = linear_algebra.to_single(decomposition.vectors.T)
    roots = decomposition.values.astype(np.float32)
    coefficients = roots[:, None] * roots / (roots[:, None] + roots)
    squares = turned * turned
    system_diagonal = linear_algebra.column_products(squares, coefficients @ squares).astype(np.float64)

    def apply(direction: Matrix) -> Matrix:
        inner = (turned * direction.astype(np.float32)) @ turned.T
        inner *= coefficients
        return np.asarray(linear_algebra.column_products(turned, inner @ turned) + ridge * direction)

    target = decomposition.diagonal * residual
    move, products = conjugate_gradients(apply, target, system_diagonal + ridge, forcing=forcing, cap=INNER_STEPS)
    return np.clip(move, -LARGEST_STEP, LARGEST_STEP), products


def _unit_diagonal_cost(factor: Matrix, roots: Roots) -> float:
    """tr(V X^-1) for X(v) rescaled to unit diagonal: a sum of squares, without cancellation."""
    scaled_rows = (factor * np.sqrt(roots.diagonal)) @ roots.vectors
    return float((linear_algebra.squared_lengths(scaled_rows) / roots.values).sum())


def solve(
    problem: SquareProblem, *, tolerance: float, max_iterations: int, on_step: OnStep, start: Matrix | None = None
) -> tuple[Matrix, float, float, Solve]:
    """The optimal strategy of an ill-conditioned problem of full rank.

    Returns: A over the kept cells; its cost and the lower bound, both of the scaled problem; the record.
    """
    factor, weight = problem.thin, problem.initial_dual if start is None else start
    weight = np.maximum(weight, MIN_START_WEIGHT * weight.sum())
    history: list[Step] = []
    lower, upper, relative_time, products, since = 0.0, np.inf, 0.0, 0, 0
    best, squares = None, weight  # squared, what the columns of the best rows are divided by
    stop: Stop = "iteration limit"
    while len(history) < max_iterations:
        decomposition = deflated_roots(factor * np.sqrt(weight))
        relative_time += decomposition.relative_time
        lower = max(lower, decomposition.proven**2 / float(weight.sum()))
        weight, decomposition = _balance(weight, decomposition)
        diagonal, before = decomposition.diagonal, upper / lower
        largest = float((diagonal / weight).max())
        for cost, lengths in (
            (largest * float(decomposition.values.sum()), largest * weight),
            (_unit_diagonal_cost(factor, decomposition), diagonal),
        ):
            if cost < upper:
                upper, best, squares = cost, decomposition, lengths
        gap = upper / lower - 1.0
        history.append(Step(len(history) + 1, upper * problem.scale, gap, checkpoint=problem.expand(weight)))
        on_step(history[-1])
        since = 0 if gap < 0.9 * (before - 1.0) else since + 1
        if gap <= tolerance or since >= PATIENCE:
            stop = "converged" if gap <= tolerance else "stalled"
            break
        residual = np.log(diagonal / weight)
        size = math.sqrt(float(weight @ residual**2 / weight.sum()))
        forcing = max(EXACT, min(FORCING, size))
        move, step_products = damped_step(decomposition, residual, ridge=DAMPING * size * diagonal, forcing=forcing)
        products += step_products + 1
        weight = weight * np.exp(move)
        del decomposition  # only the best strategy's eigenvectors stay in memory
    assert best is not None
    rows = np.sqrt(best.values)[:, None] * best.vectors.T / np.sqrt(squares)
    record = Solve("dual Newton", stop, tuple(history), history[-1].checkpoint, round(relative_time, 2), products)
    return rows, upper, lower, record


def _balance(weight: Matrix, decomposition: Roots) -> tuple[Matrix, Roots]:
    """The same point scaled so that sum(v) = tr K^1/2, which every fixed point satisfies."""
    ratio = float(decomposition.values.sum() / weight.sum())
    return weight * ratio**2, replace(
        decomposition, values=decomposition.values * ratio, proven=decomposition.proven * ratio
    )
