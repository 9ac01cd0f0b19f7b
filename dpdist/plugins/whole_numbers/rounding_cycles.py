"""Cycles and steps of controlled rounding, compiled: a module of its own, as searches are."""

from __future__ import annotations

import numba
import numpy as np

from dpdist.api.rounding import Matrix


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
def cancel_cycles(  # pragma: no cover - compiled
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
