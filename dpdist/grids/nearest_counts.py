"""The non-negative counts of a tree's leaves whose sums are closest to given ones, compiled: a module of its own, as searches are."""

from __future__ import annotations

import numba
import numpy as np

from dpdist.operators import Matrix


@numba.njit(cache=True, nogil=True)
def nearest_counts(  # pragma: no cover - compiled
    first: Matrix, low: Matrix, high: Matrix, weights: Matrix, given: Matrix, price: float
) -> tuple[Matrix, float]:
    """The closest counts of all nodes, column by column; and how fast their sum grows with the price.

    Nodes are numbered from the root down, level by level, the leaves last; children of a node follow each other. For a node let s(p) be
    its closest count where one record more is worth p. It is 0 up to some p, then piecewise linear, and steeper after every leaf that
    becomes positive. Going up, the breaks of a node's children are put in order, and its own square is added: for the same s, p has to be
    larger by b (s - t), so that breaks move and keep their order. Those that end below the price at the root are of the leaves that
    are positive; for these alone least squares is two passes.

    Args:
        first: number of the first child of every node that has children, and one past the last child of all.
        low, high: of these nodes the first leaf and one past the last, numbered among leaves.
        weights: of every node, b > 0 for leaves.
        given: t, (columns, nodes).
        price: at the root: 0 for the closest counts.
    """
    inner, leaves = low.size, weights.size - low.size
    found, growth = np.empty_like(given), 0.0
    points, steps, order = np.empty(leaves), np.empty(leaves), np.empty(leaves, dtype=np.int64)
    slopes, ahead = np.empty(weights.size), np.empty(weights.size)
    for column in range(given.shape[0]):
        goal, count = given[column], found[column]
        for j in range(leaves):
            points[j], steps[j], order[j] = -weights[inner + j] * goal[inner + j], 1.0 / weights[inner + j], j
        for i in range(inner - 1, -1, -1):
            a, b, weight = low[i], high[i], weights[i]
            rank = a + np.argsort(points[a:b])
            points[a:b], steps[a:b], order[a:b] = points[rank], steps[rank], order[rank]
            slope, level, before = 0.0, 0.0, points[a]
            for j in range(a, b):
                level += slope * (points[j] - before)
                before = points[j]
                points[j] += weight * (level - goal[i])
                wider = slope + steps[j]
                steps[j] /= (1.0 + weight * slope) * (1.0 + weight * wider)
                slope = wider
        for j in range(leaves):
            node = inner + order[j]
            positive = points[j] < price
            count[node] = goal[node] if positive else 0.0
            slopes[node] = 1.0 / weights[node] if positive else 0.0
        for i in range(inner - 1, -1, -1):
            children, below = slice(first[i], first[i + 1]), slopes[first[i] : first[i + 1]].sum()
            scale = 1.0 + below * weights[i]
            count[i] = (count[children].sum() + below * weights[i] * goal[i]) / scale
            slopes[i] = below / scale
        ahead[0], growth = price, growth + slopes[0]
        for i in range(inner):
            within = ahead[i] - weights[i] * (count[i] + slopes[i] * ahead[i] - goal[i])
            ahead[first[i] : first[i + 1]] = within
        for node in range(inner, weights.size):
            count[node] = max(count[node] + slopes[node] * ahead[node], 0.0)
        for i in range(inner - 1, -1, -1):
            count[i] = count[first[i] : first[i + 1]].sum()
    return found, growth
