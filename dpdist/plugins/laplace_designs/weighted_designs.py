"""Weighted designs for Laplace noise: the best lengths for known queries (Li & Miklau, VLDB 2012, section 3.5).

For design queries Q (rows) and a left inverse G of them, rows of lengths u answer the workload with the variance

    2 sum_i c_i / u_i^2,   c_i = ||column i of W G||^2,   under the L1 sensitivity max_j sum_i |Q_ij| u_i <= 1:

a convex program in u, solved with a certified gap as Program 1 is. Where there are more queries than cells, least squares under the
lengths found gives a better G, and the lengths are found again, until the error no longer falls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import scipy

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
    Weights,
    Workload,
    check_not_empty,
    eigen_queries,
    gram_of,
    hierarchical,
    ignore_step,
    laplace_bound,
    laplace_cost,
    left_inverse,
    linear_algebra,
    matrix_mechanism_cost,
    program_1,
    wavelet,
)

ROUNDS = 30
"""Times that lengths and left inverse take turns."""
ROUNDING = 1e-9
"""Share of the workload that a design may leave out before it is refused, and by which a later design has to be better."""


def weighted_design(
    workload: Workload | Gram, *, design: Matrix | None = None, tolerance: float = 1e-6, on_step: OnStep = ignore_step
) -> DenseStrategy:
    """The strategy of weighted design queries for Laplace noise, completed to columns of equal L1 length.

    Args:
        workload: a workload, or its gram W'W, (n, n).
        design: design queries, (p, n), whose rows span the workload; by default the best of eigen-queries, Haar wavelets, the
            best tree of counts, Fourier queries and the cells themselves.
        tolerance: certified relative gap of the lengths, and the decrease of the error at which left inverses stop.
        on_step: called with a ``Step`` after every iteration; may raise ``Cancelled``.
    Returns: a strategy for Laplace noise, with its cost at epsilon = 1 and a lower bound.
    Raises: InvalidInput.
    Source: Li & Miklau 2012, section 3.5, which leaves out the program.
    """
    gram = gram_of(workload)
    check_not_empty(gram.any())
    designs = _designs(workload, gram) if design is None else iter([("given", np.asarray(design, dtype=np.float64))])
    best: tuple[float, Matrix, str, Weights] | None = None
    history: list[Step] = []
    for name, queries in designs:
        rows, weights = weight_design(gram, queries, tolerance)
        cost = laplace_cost(matrix_mechanism_cost(precision := rows.T @ rows, gram), precision, _length(rows))
        if best is None or cost < best[0] * (1 - ROUNDING):
            best = cost, rows, name, weights
        history.append(Step(len(history) + 1, best[0], best[3].gap))
        on_step(history[-1])
    assert best is not None
    cost, rows, name, weights = best
    record = Solve(f"lengths of {name}", weights.stop, tuple(history), weights.dual, 0, round(weights.products))
    return DenseStrategy("weighted-design", Dense(rows), cost, laplace_bound(Gram(gram)), record, norm="l1")


def weight_design(gram: Matrix, design: Matrix, tolerance: float = 1e-6) -> tuple[Matrix, Weights]:
    """Design queries of the best lengths with completing rows, every column of L1 length 1, and what is known of the lengths.

    Raises: InvalidInput where the queries are not finite rows over the cells, or do not span the workload.
    """
    cells = gram.shape[0]
    if design.ndim != 2 or design.shape[1] != cells or not np.isfinite(design).all():
        raise InvalidInput(f"design queries are finite rows over {cells} cells, found shape {design.shape}")
    inverse = np.linalg.pinv(design)
    spanned = gram @ (inverse @ design)
    if float(np.abs(spanned - gram).max()) > ROUNDING * float(np.abs(gram).max()):
        raise InvalidInput("the design queries do not span the workload; add rows")
    lowest_cost, best_weights, best = np.inf, None, design
    for _ in range(ROUNDS):
        costs = linear_algebra.column_products(inverse, gram @ inverse)
        significant = costs > EPSILON * costs.max()
        weights = program_1(
            np.ascontiguousarray(np.abs(design[significant]).T), costs[significant], power=2, tolerance=tolerance
        )
        rows = weights.weight[:, None] * design[significant]
        if weights.cost >= lowest_cost:
            break
        falls, lowest_cost, best_weights, best = weights.cost < lowest_cost * (1 - tolerance), weights.cost, weights, rows
        if design.shape[0] <= cells or not falls:
            break
        design = design[significant]
        inverse = _left_inverse(rows) * weights.weight
    assert best_weights is not None
    return _complete_columns(best), best_weights


def _left_inverse(rows: Matrix) -> Matrix:
    """The pseudo-inverse; of more rows than cells that determine every cell in a fraction of the time."""
    if rows.shape[0] > rows.shape[1]:
        with contextlib.suppress(InvalidInput):
            return left_inverse(rows)
    return np.asarray(np.linalg.pinv(rows))


def _length(rows: Matrix) -> float:
    return float(np.abs(rows).sum(axis=0).max())


def _complete_columns(rows: Matrix) -> Matrix:
    """Program 2 for L1 lengths: a single cell more for every column that is shorter than the longest, which costs no sensitivity."""
    lengths = np.abs(rows).sum(axis=0)
    missing = lengths.max() - lengths
    short = np.flatnonzero(missing > 1e-14 * lengths.max())
    completing = np.zeros((short.size, rows.shape[1]))
    completing[np.arange(short.size), short] = missing[short]
    return np.asarray(np.vstack([rows, completing]) / lengths.max())


def _designs(workload: Workload | Gram, gram: Matrix) -> Iterator[tuple[str, Matrix]]:
    """Designs that are compared, by name. A gram alone is taken as one ordered attribute."""
    full_workload = workload if isinstance(workload, Workload) else None
    shape = (gram.shape[0],) if full_workload is None else full_workload.domain.shape
    yield "the cells", np.eye(gram.shape[0])
    yield "eigen-queries", eigen_queries(gram.copy())[0]
    ordered = None if full_workload is None else [not attribute.categories for attribute in full_workload.domain.attributes]
    yield "Haar wavelets", wavelet(shape, ordered=ordered, norm="l1").matrix()
    if full_workload is None:
        yield "a tree", hierarchical(shape, norm="l1").matrix()
    else:
        yield "a tree", hierarchical(shape, full_workload, branching=None, norm="l1").matrix()
    fourier: Matrix = np.ones((1, 1))
    for size in shape:
        fourier = np.kron(fourier, fourier_queries(size))
    yield "Fourier queries", fourier


def fourier_queries(size: int) -> Matrix:
    """The real orthonormal Fourier basis of an attribute, one frequency after the other; for two values the Hadamard matrix."""
    rows = scipy.fft.rfft(np.eye(size), norm="ortho", axis=0)
    halves = np.vstack([rows[:1].real, *(np.vstack([row.real, row.imag]) * np.sqrt(2.0) for row in rows[1:])])
    if size % 2 == 0:
        halves = np.vstack([halves[:-2], rows[-1:].real])
    return np.asarray(halves)
