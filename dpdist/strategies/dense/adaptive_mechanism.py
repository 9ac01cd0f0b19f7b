"""AM, the adaptive mechanism (eigen-design): the best weights for a fixed set of design queries (Li & Miklau, VLDB 2012).

Program 1, min_u sum_i c_i / u_i subject to (Q o Q)' u <= 1, is solved through its dual in one variable a cell,

    maximise  2 sum_i sqrt(c_i s_i) - sum(y),   s = (Q o Q) y,   y >= 0,

by barrier Newton steps whose systems are solved by conjugate gradients: matrix-vector products only, those inside the
conjugate gradients in single precision. Every step gives both bounds, so the gap to Program 1's optimum is certified.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dpdist.errors import InvalidInput
from dpdist.operators import Dense, Matrix
from dpdist.strategies import linear_algebra
from dpdist.strategies.dense.coa_barrier import conjugate_gradients, damp_step
from dpdist.strategies.dense.trace_problem import EPSILON
from dpdist.strategies.representations import DenseStrategy
from dpdist.strategies.strategy import (
    OnStep,
    Solve,
    Step,
    Stop,
    check_not_empty,
    check_start,
    gram_in_place,
    ignore_step,
    matrix_mechanism_cost,
    proven_root_trace,
)
from dpdist.workloads import Gram, Workload

INITIAL_BARRIER = 0.05
FORCING = 0.3
LARGEST_STEP = 4.0
INNER_STEPS = 60
EQUAL = 1e-10
"""Eigenvalues that differ by less, relative to themselves, are one eigenvalue with an eigenspace."""


@dataclass(frozen=True)
class Weights:
    """Solution of Program 1.

    Attributes:
        weight: u, one non-negative number a design query, feasible.
        cost: sum c_i / u_i (u_i squared where lengths are weighted).
        lower_bound: no weights have a lower cost.
        dual: y, one weight a cell.
        products: products with (Q o Q) or its transpose, single-precision ones counted half.
    """

    weight: Matrix
    cost: float
    lower_bound: float
    dual: Matrix
    stop: Stop
    products: float

    @property
    def gap(self) -> float:
        """cost / lower_bound - 1."""
        return self.cost / self.lower_bound - 1.0


def eigen_design(
    workload: Workload | Gram,
    *,
    group_size: int | None = None,
    principal: int | None = None,
    design: Matrix | None = None,
    complete: bool = True,
    relative: bool = False,
    tolerance: float = 1e-6,
    on_step: OnStep = ignore_step,
    start: Matrix | None = None,
) -> DenseStrategy:
    """The strategy of AM (adaptive mechanism): eigenvector queries with the best weights, completed to columns of equal norm.

    Args:
        workload: a workload, or its gram W'W, (n, n).
        group_size: eigen-query separation: groups of so many eigen-queries in eigenvalue order are weighted
            independently, then against each other (n^(1/3) is a good size). Section 4.2 of the paper.
        principal: how many leading eigen-queries get weights of their own; the rest share one weight. Section 4.2.
        design: other design queries, (p, n), in place of the eigen-queries; their rows must span the workload.
        complete: add Program 2's completing rows.
        relative: scale every query to norm 1 first, so that relative errors are balanced; needs a Workload.
        tolerance: certified relative gap of Program 1.
        on_step: called with a ``Step`` after every iteration; may raise ``Cancelled``.
        start: checkpoint y, (n,), of an interrupted solve without groups or principal vectors.
    Returns: the strategy, its exact cost for the (scaled) workload, and the singular value bound.
    Raises: InvalidInput, NotPositiveDefinite.
    Source: Li & Miklau 2012, Programs 1 and 2, sections 3 and 4.
    """
    _check_options(group_size, principal, design, relative, workload)
    gram = _relative_gram(workload) if relative and isinstance(workload, Workload) else gram_in_place(workload)
    queries, costs, bound = eigen_queries(gram) if design is None else _given_queries(gram, np.asarray(design))
    squares = linear_algebra.namespace(gram).square(queries.T)
    if principal is not None:
        weights = _principal_weights(squares, costs, principal, tolerance, on_step)
    elif group_size is not None:
        groups = separation(costs, group_size)
        rows = (linear_algebra.contiguous(linear_algebra.columns(squares, group)) for group in groups)
        solved = [
            group_weights(group_squares, costs[group], tolerance) for group_squares, group in zip(rows, groups, strict=True)
        ]
        weights = merge_group_weights(groups, solved, tolerance, on_step)
    else:
        weights = program_1(squares, costs, tolerance=tolerance, on_step=on_step, start=start)
    return design_strategy(queries, weights, gram, bound, complete=complete)


def design_strategy(
    queries: Matrix, weights: Weights, gram: Matrix, bound: float, *, complete: bool = True
) -> DenseStrategy:
    """The strategy of weighted design queries, (p, n), with Program 2's completing rows."""
    rows = linear_algebra.like(queries, np.sqrt(weights.weight))[:, None] * queries
    if complete:
        norms = linear_algebra.column_products(rows, rows)
        missing = norms.max() - norms
        short = np.flatnonzero(missing > 1e-14 * norms.max())
        completing = np.zeros((short.size, rows.shape[1]))
        completing[np.arange(short.size), short] = np.sqrt(missing[short])
        rows = linear_algebra.concat([rows, linear_algebra.like(rows, completing)], axis=0)
    cost = matrix_mechanism_cost(rows.T @ rows, gram)
    record = Solve("eigen-design", weights.stop, (), weights.dual, 1, round(weights.products))
    return DenseStrategy("eigen", Dense(linear_algebra.on_host(rows)), cost, bound, record)


def program_1(
    squares: Matrix,
    costs: Matrix,
    *,
    power: Literal[1, 2] = 1,
    tolerance: float = 1e-6,
    max_iterations: int = 100,
    on_step: OnStep = ignore_step,
    start: Matrix | None = None,
) -> Weights:
    """The optimal weights of Program 1, with a certificate.

    With ``power`` k it is the program min sum c_i / u_i^k subject to T u <= 1, whose dual bound is

        (sum_i c_i^(1/(k+1)) s_i^(k/(k+1)))^(k+1) / (sum y)^k,   s = T' y,   at u_i = (k c_i / s_i)^(1/(k+1)).

    Args:
        squares: T = (Q o Q)', (n, p): squared entries of the design queries, one column each.
        costs: c, (p,), positive.
        power: 1 where u are squares of the queries' lengths (L2), 2 where they are the lengths themselves and T = |Q|' (L1).
    """
    query_cells: Matrix = np.flatnonzero(linear_algebra.any_in_rows(squares))
    cells = int(squares.shape[0])
    table = squares if query_cells.size == cells else linear_algebra.contiguous(linear_algebra.rows(squares, query_cells))
    single = linear_algebra.to_single(table)
    single_squares = single * single
    if start is None:
        dual = linear_algebra.times(table, np.sqrt(costs))
    else:
        dual = np.maximum(check_start(start, (squares.shape[0],))[query_cells], 1e-14 * float(np.sum(start)))
    slopes = linear_algebra.times(table.T, dual)
    root: Callable[[Matrix], Matrix] = np.sqrt if power == 1 else np.cbrt

    def energy(slopes: Matrix) -> float:
        """sum c^(1/(k+1)) s^(k/(k+1))."""
        return float(root(costs * slopes**power).sum())

    scaling = float(power) ** (1.0 / (power + 1))
    factor = (scaling * energy(slopes) / float(dual.sum())) ** (power + 1)
    dual, slopes = dual * factor, slopes * factor
    mean = scaling * energy(slopes) / cells
    barrier, products, lower = (INITIAL_BARRIER if start is None else 1e-4) * mean, 2.0, 0.0
    best_cost, best_weight, best_dual = np.inf, np.zeros(costs.size), dual
    stop: Stop = "iteration limit"
    for iteration in range(1, max_iterations + 1):
        weight = root(power * costs / slopes)
        loads = linear_algebra.times(table, weight)
        bound = energy(slopes) ** (power + 1) / float(dual.sum()) ** power
        lower = max(lower, bound * (1 - 8 * EPSILON * cells**0.5))
        cost = float((costs / weight**power).sum() * loads.max() ** power)
        if cost < best_cost:
            best_cost, best_weight, best_dual = cost, weight / loads.max(), dual
        on_step(Step(iteration, best_cost, best_cost / lower - 1.0, checkpoint=_expand_weights(dual, query_cells, cells)))
        if best_cost <= lower * (1.0 + tolerance):
            stop = "converged"
            break
        gradient = dual * (loads - 1.0) + barrier
        ridge = np.maximum(dual * (1.0 - loads), barrier)
        curvature = (weight / ((power + 1) * slopes)).astype(np.float32)
        move, step_products = _newton_step(single, single_squares, dual, curvature, ridge, gradient)
        products += step_products + 2.0
        floor = 1e-3 * tolerance * mean
        dual, barrier = damp_step(dual, move, barrier, largest_step=LARGEST_STEP, floor=floor)
        slopes = linear_algebra.times(table.T, dual)
    return Weights(best_weight, best_cost, lower, _expand_weights(best_dual, query_cells, cells), stop, products)


def _expand_weights(dual: Matrix, query_cells: Matrix, cells: int) -> Matrix:
    """Weights of the asked cells as weights of all, zero elsewhere."""
    full = np.zeros(cells)
    full[query_cells] = dual
    return full


def _newton_step(
    table: Matrix, squares: Matrix, dual: Matrix, curvature: Matrix, ridge: Matrix, gradient: Matrix
) -> tuple[Matrix, float]:
    """Relative step from (Y P diag(w) P' Y + ridge) z = gradient by conjugate gradients, diagonal preconditioner."""
    precondition = dual**2 * linear_algebra.times(squares, curvature) + ridge

    def apply(direction: Matrix) -> Matrix:
        inner = linear_algebra.times(table.T, (dual * direction).astype(np.float32))
        return np.asarray(dual * linear_algebra.times(table, curvature * inner) + ridge * direction)

    move, iterations = conjugate_gradients(apply, gradient, precondition, forcing=FORCING, cap=INNER_STEPS)
    return move, iterations + 0.5


def _principal_weights(squares: Matrix, costs: Matrix, principal: int, tolerance: float, on_step: OnStep) -> Weights:
    """Own weights for the leading queries, one common weight for the rest."""
    order = np.argsort(costs, kind="stable")[::-1]
    leading, rest = order[:principal], order[principal:]
    columns = linear_algebra.columns(squares, leading)
    if rest.size:
        xp = linear_algebra.namespace(squares)
        columns = linear_algebra.concat([columns, xp.sum(linear_algebra.columns(squares, rest), axis=1)[:, None]], axis=1)
    merged = np.concatenate([costs[leading], [costs[rest].sum()]]) if rest.size else costs[leading]
    solution = program_1(linear_algebra.contiguous(columns), merged, tolerance=tolerance, on_step=on_step)
    weight = np.empty(costs.size)
    weight[leading] = solution.weight[: leading.size]
    weight[rest] = solution.weight[-1] if rest.size else 0.0
    return Weights(weight, solution.cost, solution.lower_bound, solution.dual, solution.stop, solution.products)


def group_weights(squares: Matrix, costs: Matrix, tolerance: float) -> tuple[Matrix, Matrix, float]:
    """One group of the separation: its weights u_g, its load on every cell, and its cost. Groups are independent."""
    solution = program_1(squares, costs, tolerance=tolerance)
    return solution.weight, linear_algebra.times(squares, solution.weight), solution.cost


def separation(costs: Matrix, size: int) -> list[Matrix]:
    """Groups of so many eigen-queries in the order of their eigenvalues, the largest first."""
    order = np.argsort(costs, kind="stable")[::-1]
    return [order[start : start + size] for start in range(0, order.size, size)]


def merge_group_weights(
    groups: Sequence[Matrix],
    solved: Sequence[tuple[Matrix, Matrix, float]],
    tolerance: float,
    on_step: OnStep,
) -> Weights:
    """The weights of all groups, one factor a group. Source: Li & Miklau 2012, section 4.2."""
    loads = np.ascontiguousarray(np.column_stack([load for _, load, _ in solved]))
    factors = program_1(loads, np.array([cost for _, _, cost in solved]), tolerance=tolerance, on_step=on_step)
    weight = np.empty(sum(group.size for group in groups))
    for group, (group_weight, _, _), factor in zip(groups, solved, factors.weight, strict=True):
        weight[group] = group_weight * factor
    return Weights(weight, factors.cost, factors.lower_bound, factors.dual, factors.stop, factors.products)


def eigen_queries(gram: Matrix) -> tuple[Matrix, Matrix, float]:
    """Eigen-queries as rows, their eigenvalues, and the singular value bound; zero eigenvalues dropped."""
    values, vectors = linear_algebra.eigh(gram)
    top = float(values[-1])
    nonzero = values > gram.shape[0] * EPSILON * max(top, 0.0)
    check_not_empty(nonzero.any())
    bound = proven_root_trace(values) ** 2 / gram.shape[0]
    indices = np.flatnonzero(nonzero)
    for group in np.split(indices, np.flatnonzero(np.diff(values[indices]) > EQUAL * values[indices][1:]) + 1):
        if group.size > 1:
            values[group] = values[group].mean()  # their order is that of the basis, not of rounding
            vectors[:, int(group[0]) : int(group[-1]) + 1] = _canonical_basis(linear_algebra.columns(vectors, group))
    return linear_algebra.contiguous(linear_algebra.columns(vectors, nonzero).T), values[nonzero], bound


def _canonical_basis(basis: Matrix) -> Matrix:
    """The basis of an eigenspace in which fixed weights of the cells are diagonal: it does not depend on the one that was found.

    The weights are drawn from a stream that NumPy keeps: regular ones, such as multiples of an irrational number, share symmetries
    with workloads and leave pairs of eigenvectors as they were.
    """
    weights = linear_algebra.like(basis, np.random.RandomState(20120827).uniform(size=int(basis.shape[0])))
    _, turn = linear_algebra.eigh(basis.T @ (weights[:, None] * basis))
    return basis @ turn


def _given_queries(gram: Matrix, design: Matrix) -> tuple[Matrix, Matrix, float]:
    """Given design rows with c_i = squared norm of column i of W Q^+; rows that the workload does not need are dropped."""
    if design.ndim != 2 or design.shape[1] != gram.shape[0] or not np.isfinite(design).all():
        raise InvalidInput(f"design queries are finite rows over {gram.shape[0]} cells, found shape {design.shape}")
    rows = linear_algebra.like(gram, design.astype(np.float64))
    inverse = linear_algebra.pseudo_inverse(rows)
    costs = linear_algebra.column_products(inverse, gram @ inverse)
    spanned = inverse @ rows
    if linear_algebra.inner(spanned, (gram @ spanned).T) < (1 - 1e-9) * linear_algebra.trace(gram):
        raise InvalidInput("the design queries do not span the workload; add rows")
    significant = costs > EPSILON * costs.max()
    values = linear_algebra.eigenvalues(gram)
    return linear_algebra.rows(rows, significant), costs[significant], proven_root_trace(values) ** 2 / gram.shape[0]


def _relative_gram(workload: Workload) -> Matrix:
    """W'W with every (weighted) query scaled to norm 1; empty queries are left out."""
    operator = workload.operator
    gram = np.zeros((operator.shape[1], operator.shape[1]))
    for start, stop in operator.row_blocks():
        rows = operator.rows(start, stop)
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        rows = rows[norms > 0] / norms[norms > 0, None]
        gram += rows.T @ rows
    return gram


def _check_options(
    group_size: int | None, principal: int | None, design: Matrix | None, relative: bool, workload: Workload | Gram
) -> None:
    if group_size is not None and principal is not None:
        raise InvalidInput("choose either eigen-query separation (group_size) or principal vectors (principal)")
    for name, value in (("group_size", group_size), ("principal", principal)):
        if value is not None and value < 1:
            raise InvalidInput(f"{name} must be at least 1, found {value}")
        if value is not None and design is not None:
            raise InvalidInput(f"{name} orders eigen-queries by eigenvalue and cannot be used with another design")
    if relative and not isinstance(workload, Workload):
        raise InvalidInput("relative=True scales single queries: pass the Workload, not its gram")
