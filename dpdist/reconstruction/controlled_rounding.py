"""Controlled rounding: whole numbers for the cells of a table, of which also given sums are a floor or a ceiling of their values.

Sums that are ranges of the cells in one order (a tree, levels of time) are rounded by one number u: with the sums C_i of the first i cells,
the cell i is floor(C_i + u) - floor(C_(i-1) + u). Sums that make up two trees over the same cells (rows and columns of a table) are a
circulation in a network: as long as a cell or a sum has a fraction, there is a cycle of such ones, along which values are moved until one
is whole. Both are unbiased where u, or the direction in which a cycle moves, is drawn. The nearest rounding moves cycles such that the
squared error falls; for few cells it is found exactly, as a vertex of a linear programme with a totally unimodular matrix.

Source: Cox 1987 (unbiased controlled rounding); Causey, Cox & Ernst 1985 (as a flow); Madow 1949 (systematic sampling).
"""

from __future__ import annotations

import numba
import numpy as np
import scipy

from dpdist.operators import Matrix

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
    cancel = _cancel_cycles if len(ends) > COMPILED_SIZE else _cancel_cycles.py_func
    moved = cancel(ends, order % len(ends), starts, fractions, prices, draws, is_drawn)
    return np.asarray((floors + np.rint(moved)).astype(np.int64))


@numba.njit(cache=True, nogil=True)
def _move_cycle(  # pragma: no cover - compiled
    ends: Matrix, nodes: Matrix, edges: Matrix, moved: Matrix, prices: Matrix, uniform: float
) -> None:
    """Move the values along a cycle until one is whole: up or down as is drawn, so that none changes on average; -1: as is cheaper."""
    up, down, price = 1.0, 1.0, 0.0
    for step in range(edges.size):
        edge = edges[step]
        sign = 1.0 if ends[edge, 0] == nodes[step] else -1.0
        up = min(up, 1.0 - moved[edge] if sign > 0 else moved[edge])
        down = min(down, moved[edge] if sign > 0 else 1.0 - moved[edge])
        price += sign * prices[edge]
    forward = price < 0.0 if uniform < 0.0 else uniform * (up + down) < down
    shift = up if forward else -down
    for step in range(edges.size):
        edge = edges[step]
        value = moved[edge] + (shift if ends[edge, 0] == nodes[step] else -shift)
        moved[edge] = 0.0 if value < 1e-9 else 1.0 if value > 1.0 - 1e-9 else value


@numba.njit(cache=True, nogil=True)
def _cancel_cycles(  # pragma: no cover - compiled
    ends: Matrix, incident: Matrix, starts: Matrix, fractions: Matrix, prices: Matrix, uniforms: Matrix, is_drawn: bool
) -> Matrix:
    """Fractions that became 0 or 1: a walk over edges with a fraction closes cycles, each of which makes an edge whole.

    Every node of such an edge has another one, since the flow is kept. The walk goes on where its last cycle began.
    """
    moved, nodes = fractions.copy(), starts.size - 1
    pointers, place = starts[:-1].copy(), np.full(nodes, -1)
    path_nodes, path_edges = np.empty(nodes + 1, dtype=np.int64), np.empty(nodes + 1, dtype=np.int64)
    cycles = 0
    for first in range(nodes):
        length = 0  # edges on the path
        path_nodes[0], place[first] = first, 0
        while True:
            node, arrived = path_nodes[length], (path_edges[length - 1] if length else -1)
            while pointers[node] < starts[node + 1]:
                edge = incident[pointers[node]]
                if 0.0 < moved[edge] < 1.0:
                    break
                pointers[node] += 1
            position = pointers[node]
            if position < starts[node + 1] and incident[position] == arrived:
                position += 1
                while position < starts[node + 1] and not 0.0 < moved[incident[position]] < 1.0:
                    position += 1
                pointers[node] = position - 1  # what lies between is whole, and is never looked at again
                incident[position - 1] = arrived
            if position == starts[node + 1]:
                if length == 0:
                    break
                moved[arrived] = np.rint(moved[arrived])  # only what floating-point numbers left of a whole one
                place[node] = -1
                length -= 1
                continue
            edge = incident[position]
            other = ends[edge, 0] + ends[edge, 1] - node
            path_edges[length] = edge
            if place[other] < 0:
                length += 1
                path_nodes[length], place[other] = other, length
                continue
            begin = place[other]
            _move_cycle(
                ends,
                path_nodes[begin : length + 1],
                path_edges[begin : length + 1],
                moved,
                prices,
                uniforms[cycles] if is_drawn else -1.0,
            )
            cycles += 1
            for step in range(begin + 1, length + 1):
                place[path_nodes[step]] = -1
            length = begin
        place[first] = -1
    return moved


@numba.njit(cache=True, nogil=True)
def descend(  # pragma: no cover - compiled
    cells: Matrix, low: Matrix, high: Matrix, labels: Matrix, gaps: Matrix, rounds: int
) -> None:
    """Move cells by one between their floor and ceiling, in place, as long as the squared error of the sums over all groups falls.

    Args:
        labels: of every partition the group of each cell, numbered through, -1 for none, (partitions, cells).
        gaps: of every group its sum less its target.
    """
    for _ in range(rounds):
        changed = False
        for cell in range(cells.size):
            step = 1 if cells[cell] < high[cell] else -1
            if step < 0 and cells[cell] <= low[cell]:
                continue
            change = 0.0
            for part in range(labels.shape[0]):
                if labels[part, cell] >= 0:
                    change += 2.0 * step * gaps[labels[part, cell]] + 1.0
            if change < -1e-9:
                cells[cell] += step
                changed = True
                for part in range(labels.shape[0]):
                    if labels[part, cell] >= 0:
                        gaps[labels[part, cell]] += step
        if not changed:
            break
