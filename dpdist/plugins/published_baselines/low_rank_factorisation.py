"""LRM: the workload as a product W = B L of low rank, by an augmented Lagrangian (Yuan et al., VLDB 2012, TODS 2015).

    minimise  tr(B'B) / 2   subject to  W = B L,  every column of L in the unit ball,

the L2 ball for Gaussian noise, the L1 ball for Laplace noise (pure epsilon). B has a closed form, L takes accelerated
projected gradient steps, the multiplier pi follows the residual and beta doubles every few outer steps.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np

from dpdist.api import InvalidInput
from dpdist.api.mechanisms import (
    EPSILON,
    Dense,
    DenseStrategy,
    Gram,
    Matrix,
    OnStep,
    Solve,
    Step,
    Stop,
    Workload,
    check_not_empty,
    check_start,
    fit_p_identity,
    gram_in_place,
    gram_of,
    ignore_step,
    learnt_queries,
    linear_algebra,
    singular_value_bound,
)

INNER_STEPS = 20
DOUBLING = 10
RESIDUAL = 1e-4
"""Relative residual ||W - B L|| / ||W|| at which it stops."""


def low_rank(
    workload: Workload | Gram,
    *,
    norm: Literal["l2", "l1"] = "l2",
    inner: int | None = None,
    max_iterations: int = 200,
    seed: int = 0,
    on_step: OnStep = ignore_step,
    start: Matrix | None = None,
) -> DenseStrategy:
    """The strategy of the low-rank mechanism (LRM): the workload as a product of two matrices of low rank.

    Args:
        workload: a workload, or its gram W'W, (n, n). Only a factor F with F'F = W'W enters: orthogonal rows change nothing.
        norm: "l2" for Gaussian noise, "l1" for Laplace noise.
        inner: rows of L; default 1.2 rank(W), as in the paper.
        max_iterations: of the outer loop.
        seed: fixes the random start.
        on_step: called with a ``Step`` after every iteration; may raise ``Cancelled``.
        start: checkpoint L, (inner, n), of an interrupted solve.
    Returns: the strategy B^+ F (under "l1" the best start where that is better: the cells or a p-Identity strategy;
        ``solve.stop`` is then "stalled"), which spans the workload exactly (the raw L ends slightly infeasible and
        would understate the cost). The cost is Delta^2 tr(B'B), for "l1" 2 Delta_1^2 tr(B'B): total variance at epsilon = 1.
    Raises: InvalidInput, NotPositiveDefinite.
    Source: LRM, Algorithm 1; bounds: Lemmas 3 and 4 (benchmarks/papers/paper_bounds.py).
    """
    if norm not in ("l2", "l1"):
        raise InvalidInput(f"the norm is 'l2' (Gaussian noise) or 'l1' (Laplace noise), found {norm!r}")
    # L1 balls are projected onto by NumPy
    gram = gram_in_place(workload) if norm == "l2" else gram_of(workload)
    factor = _factor(gram)
    rank = int(factor.shape[0])
    rows = inner if inner is not None else max(rank, round(1.2 * rank))
    if rows < rank:
        raise InvalidInput(f"a workload of rank {rank} needs an inner dimension of at least {rank}, found {rows}")
    state = np.random.default_rng(seed)
    cells = int(gram.shape[0])
    learnable = norm == "l1" and start is None
    learnt_strategy = fit_p_identity(
        linear_algebra.on_host(gram), [state.uniform(0.0, 1.0, (learnt_queries(cells), cells))] if learnable else []
    )
    size = linear_algebra.norm(factor)
    best: tuple[float, Matrix, Stop, tuple[Step, ...]] | None = None
    if start is None:
        points = _starts(factor / size, rows, norm, state, learnt_strategy.matrix)
    else:
        strategy_matrix = linear_algebra.like(gram, check_start(start, (rows, cells)))
        points = [(factor / size @ linear_algebra.pseudo_inverse(strategy_matrix), strategy_matrix)]
    for point in points:
        reconstruction, strategy_matrix, stop, history = _augmented_lagrangian(
            factor / size, point, norm, max_iterations, on_step
        )
        strategy_matrix = linear_algebra.pseudo_inverse(reconstruction * size) @ factor
        reconstruction = factor @ linear_algebra.pseudo_inverse(strategy_matrix)
        delta = float(_lengths(strategy_matrix, norm).max())
        cost = linear_algebra.sum_of_squares(reconstruction) * delta**2 * (2.0 if norm == "l1" else 1.0)
        if best is None or cost < best[0]:
            best = (cost, strategy_matrix / delta, stop, history)
    assert best is not None
    cost, strategy_matrix, stop, history = best
    if norm == "l1" and learnt_strategy.cost < cost:  # the program is far from convex: where it started may be better
        cost, strategy_matrix, stop = learnt_strategy.cost, learnt_strategy.matrix, "stalled"
    lower = singular_value_bound(Gram(gram)) if norm == "l2" else None
    record = Solve("low rank", stop, history)
    return DenseStrategy("low-rank", Dense(linear_algebra.on_host(strategy_matrix)), cost, lower, record, norm=norm)


def _factor(gram: Matrix) -> Matrix:
    values, vectors = linear_algebra.eigh(gram)
    nonzero = values > gram.shape[0] * EPSILON * max(float(values[-1]), 0.0)
    check_not_empty(nonzero.any())
    factor_rows = linear_algebra.columns(vectors, nonzero).T
    return linear_algebra.like(factor_rows, np.sqrt(values[nonzero]))[:, None] * factor_rows


def _starts(
    factor: Matrix, rows: int, norm: str, state: np.random.Generator, learnt_matrix: Matrix
) -> list[tuple[Matrix, Matrix]]:
    """Starting points: singular vectors with small random rows, scaled into the ball; for the L1 ball also the cells, and a p-Identity
    strategy.

    The L1 program is far from convex: on ranges the singular vectors lead to twice the error of the cells themselves, from which it
    does not move.
    """
    rank, n = int(factor.shape[0]), int(factor.shape[1])
    scale = np.sqrt(linear_algebra.column_products(factor.T, factor.T))
    small = linear_algebra.like(factor, 1e-2 * state.standard_normal((max(0, rows - rank), n)))
    turned = factor / linear_algebra.like(factor, np.sqrt(np.maximum(scale, 1e-12)))[:, None]
    strategy_matrix = linear_algebra.concat([turned, small], axis=0)[:rows, :]
    strategy_matrix /= float(_lengths(strategy_matrix, norm).max())
    starting_points = [(factor @ linear_algebra.pseudo_inverse(strategy_matrix), strategy_matrix)]
    if norm == "l1" and rows >= n:
        cells = np.eye(rows, n)
        starting_points.append((factor @ cells.T, cells))
        if n < learnt_matrix.shape[0] <= rows:
            strategy_matrix = np.vstack([learnt_matrix, np.zeros((rows - learnt_matrix.shape[0], n))])
            starting_points.append((factor @ linear_algebra.pseudo_inverse(strategy_matrix), strategy_matrix))
    return starting_points


def _lengths(strategy_matrix: Matrix, norm: str) -> Matrix:
    return np.abs(strategy_matrix).sum(axis=0) if norm == "l1" else np.sqrt(linear_algebra.squared_lengths(strategy_matrix))


def _augmented_lagrangian(
    factor: Matrix, start: tuple[Matrix, Matrix], norm: str, limit: int, on_step: OnStep
) -> tuple[Matrix, Matrix, Stop, tuple[Step, ...]]:
    """B and L."""
    reconstruction, strategy_matrix = start
    multiplier = linear_algebra.zeros(factor, factor.shape)
    energy = linear_algebra.sum_of_squares(reconstruction)
    beta = 5.0 * energy
    history: list[Step] = []
    stop: Stop = "iteration limit"
    identity = linear_algebra.identity(strategy_matrix, strategy_matrix.shape[0])
    for iteration in range(1, limit + 1):
        target = beta * factor + multiplier
        reconstruction = linear_algebra.solve_definite(
            beta * strategy_matrix @ strategy_matrix.T + identity, strategy_matrix @ target.T
        ).T
        strategy_matrix = _projected_gradient(reconstruction, strategy_matrix, target, beta, norm)
        gap = factor - reconstruction @ strategy_matrix
        residual = linear_algebra.norm(gap)
        history.append(Step(iteration, linear_algebra.sum_of_squares(reconstruction), float("inf"), gradient_norm=residual))
        on_step(replace(history[-1], checkpoint=linear_algebra.on_host(strategy_matrix)))
        if residual <= RESIDUAL and iteration > DOUBLING:
            stop = "converged"
            break
        multiplier = multiplier + beta * gap
        if iteration % DOUBLING == 0:
            beta *= 2
    return reconstruction, strategy_matrix, stop, tuple(history)


def _projected_gradient(reconstruction: Matrix, strategy_matrix: Matrix, target: Matrix, beta: float, norm: str) -> Matrix:
    """Nesterov steps on beta/2 ||F - B L||^2 + <pi, F - B L> over columns of L in the unit ball."""
    quadratic = beta * reconstruction.T @ reconstruction
    slope = reconstruction.T @ target
    lipschitz = linear_algebra.largest_eigenvalue(quadratic)
    previous, ahead, momentum = strategy_matrix, strategy_matrix, 1.0
    for _ in range(INNER_STEPS):
        moved = project_columns(ahead - (quadratic @ ahead - slope) / lipschitz, norm)
        renewed = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = moved + (momentum - 1) / renewed * (moved - previous)
        previous, momentum = moved, renewed
    return previous


def project_columns(matrix: Matrix, norm: str) -> Matrix:
    """Every column projected onto the unit ball of the norm. L1: Duchi et al. 2008."""
    if norm == "l2":
        lengths = np.sqrt(linear_algebra.column_products(matrix, matrix))
        return matrix / linear_algebra.like(matrix, np.maximum(lengths, 1.0))
    sizes = np.abs(matrix)
    ordered = -np.sort(-sizes, axis=0)
    excess = (np.cumsum(ordered, axis=0) - 1.0) / np.arange(1, matrix.shape[0] + 1)[:, None]
    last_index = (ordered > excess).sum(axis=0) - 1
    threshold = np.maximum(excess[last_index, np.arange(matrix.shape[1])], 0.0)
    outside = sizes.sum(axis=0) > 1.0
    return np.asarray(np.where(outside, np.sign(matrix) * np.maximum(sizes - threshold, 0.0), matrix))
