"""Controlled rounding: whole numbers for the cells of a table, of which also given sums are a floor or a ceiling of their values.

Sums that are ranges of the cells in one order (a tree, levels of time) are rounded by one number u: with the sums C_i of the first i cells,
the cell i is floor(C_i + u) - floor(C_(i-1) + u). Sums that make up two trees over the same cells (rows and columns of a table) are a
circulation in a network: as long as a cell or a sum has a fraction, there is a cycle of such ones, along which values are moved until one
is whole. Both are unbiased where u, or the direction in which a cycle moves, is drawn. The nearest rounding moves cycles such that the
squared error falls; for few cells it is found exactly, as a vertex of a linear programme with a totally unimodular matrix.

Source: Cox 1987 (unbiased controlled rounding); Causey, Cox & Ernst 1985 (as a flow); Madow 1949 (systematic sampling).
"""

from __future__ import annotations

import numpy as np
import scipy

from dpdist.api.rounding import Matrix

WHOLE_TOLERANCE = 1e-6
"""A value this close to a whole number is that number: sums of floating-point numbers that are known to be whole are off by less."""
COMPILED_SIZE = 5000
"""Edges or cells from which on compiling, which takes some seconds, is worth it: fewer are rounded by the same code as it stands."""


def systematic_rounding(values: Matrix, uniform: float) -> Matrix:
    """Whole numbers whose sums over every range of cells are a floor or a ceiling of the values', (n,) int64.

    Args:
        values: of the cells in order, (n,).
        uniform: from [0, 1): drawn uniformly, every sum over a range is unbiased.
    """
    sums = np.concatenate([[0.0], np.cumsum(values)])
    whole_sums = np.rint(sums)
    sums = np.where(np.abs(sums - whole_sums) <= WHOLE_TOLERANCE, whole_sums, sums)
    return np.diff(np.floor(sums + uniform)).astype(np.int64)


def split_fractions(values: Matrix) -> tuple[Matrix, Matrix]:
    """Floors and fractions; a value next to a whole number is that number."""
    whole = np.rint(values)
    exact = np.where(np.abs(values - whole) <= WHOLE_TOLERANCE, whole, values)
    floors = np.floor(exact)
    return floors, exact - floors


def nearest_vertex(sums: scipy.sparse.csr_array, values: Matrix, targets: Matrix, total: float | None = None) -> Matrix:
    """The whole numbers of least squared error of which cells and sums are a floor or a ceiling, (cells,) int64.

    A sum with the fraction f has an error f^2 as a floor and (1 - f)^2 as a ceiling, so that the squared error is linear on the vertices.

    Args:
        sums: 0 and 1, (sums, cells), totally unimodular.
        values: of the cells, (cells,).
        targets: of the sums, from which errors count, NaN for those whose errors do not, (sums,).
        total: what all cells together are to be.
    Raises: ArithmeticError where the solver finds no vertex.
    """
    low, fractions = split_fractions(values)
    sum_low, sum_fractions = split_fractions(sums @ values)
    price = sums.T @ np.where(np.isnan(targets), 0.0, 1.0 - 2.0 * np.clip(targets - sum_low, 0.0, 1.0))
    constraints = [scipy.optimize.LinearConstraint(sums, sum_low, sum_low + (sum_fractions > 0))]
    if total is not None:
        constraints.append(scipy.optimize.LinearConstraint(np.ones((1, values.size)), total, total))
    solution = scipy.optimize.milp(
        price,
        constraints=constraints,
        bounds=scipy.optimize.Bounds(low, low + (fractions > 0)),
    )
    if solution.x is None:
        raise ArithmeticError(f"the linear programme of a controlled rounding was not solved: {solution.message}")
    return np.asarray(np.rint(solution.x).astype(np.int64))


def circulation_rounding(ends: Matrix, values: Matrix, prices: Matrix, nodes: int, uniforms: Matrix | None) -> Matrix:
    """Whole numbers on the edges of a network, floors or ceilings of the values, whose flow is kept at every node, (edges,) int64.

    Args:
        ends: where every edge begins and ends, (edges, 2).
        values: a flow that is kept at every node, (edges,).
        prices: what one more on an edge costs, (edges,): cycles move to where it is cheaper, where nothing is drawn.
        uniforms: from [0, 1), (edges,): the rounding is unbiased; None: it is cheap.
    """
    floors, fractions = split_fractions(values)
    order = np.argsort(ends.T.ravel(), kind="stable")  # edges by their ends, from both sides
    starts = np.searchsorted(ends.T.ravel()[order], np.arange(nodes + 1))
    is_drawn = uniforms is not None
    draws = np.zeros(1) if uniforms is None else uniforms
    from dpdist.plugins.whole_numbers.rounding_cycles import cancel_cycles  # Numba is loaded where it is needed

    cancel = cancel_cycles if len(ends) > COMPILED_SIZE else cancel_cycles.py_func
    moved = cancel(ends, order % len(ends), starts, fractions, prices, draws, is_drawn)
    return np.asarray((floors + np.rint(moved)).astype(np.int64))
