"""The non-negative counts of a tree's leaves whose sums are closest to given ones, compiled: a module of its own, as searches are."""

from __future__ import annotations

import numba
import numpy as np

from dpdist.api.mechanisms import Matrix


@numba.njit(cache=True, nogil=True)
def _run_from(start: int, numbers: Matrix, keys: Matrix) -> int:  # pragma: no cover - compiled
    """One past the last of the numbers whose keys ascend from the one at ``start`` on."""
    stop = start + 1
    while stop < numbers.size and keys[numbers[stop - 1]] <= keys[numbers[stop]]:
        stop += 1
    return min(stop, numbers.size)


@numba.njit(cache=True, nogil=True)
def _merge_sort(numbers: Matrix, keys: Matrix, spare: Matrix) -> None:  # pragma: no cover - compiled
    """Order numbers by their keys, by merging runs that are in order already; NumPy's sorting takes seven seconds to compile."""
    while _run_from(0, numbers, keys) < numbers.size:
        start = 0
        while start < numbers.size:
            middle = _run_from(start, numbers, keys)
            stop = _run_from(middle, numbers, keys)
            left_position, right_position = start, middle
            for target in range(start, stop):
                takes_left = right_position == stop or (
                    left_position < middle and keys[numbers[left_position]] <= keys[numbers[right_position]]
                )
                spare[target] = numbers[left_position if takes_left else right_position]
                left_position, right_position = left_position + takes_left, right_position + (not takes_left)
            start = stop
        for target in range(numbers.size):
            numbers[target] = spare[target]


@numba.njit(cache=True, nogil=True)
def nearest_counts(  # pragma: no cover - compiled
    first_child: Matrix, low: Matrix, high: Matrix, weights: Matrix, targets: Matrix, price: float
) -> tuple[Matrix, float]:
    """The closest counts of all nodes, column by column; and how fast their sum grows with the price.

    Nodes are numbered from the root down, level by level, the leaves last; children of a node follow each other. For a node let s(p) be
    its closest count where one record more is worth p. It is 0 up to some p, then piecewise linear, and steeper after every leaf that
    becomes positive. Going up, the breaks of a node's children are put in order, and its own square is added: for the same s, p has to be
    larger by b (s - t), so that breaks move and keep their order. Those that end below the price at the root are of the leaves that
    are positive; for these alone least squares is two passes.

    Args:
        first_child: number of the first child of every node that has children, and one past the last child of all.
        low, high: of these nodes the first leaf and one past the last, numbered among leaves.
        weights: of every node, b > 0 for leaves.
        targets: t, (columns, nodes).
        price: at the root: 0 for the closest counts.
    """
    inner, leaves = low.size, weights.size - low.size
    counts, growth = np.empty_like(targets), 0.0
    points, steps = np.empty(leaves), np.empty(leaves)
    order, spare = np.empty(leaves, dtype=np.int64), np.empty(leaves, dtype=np.int64)
    slopes, node_prices = np.empty(weights.size), np.empty(weights.size)
    for column in range(targets.shape[0]):
        goal, count = targets[column], counts[column]
        for j in range(leaves):
            points[j], steps[j], order[j] = -weights[inner + j] * goal[inner + j], 1.0 / weights[inner + j], j
        for i in range(inner - 1, -1, -1):
            leaf_start, leaf_stop, weight = low[i], high[i], weights[i]
            _merge_sort(order[leaf_start:leaf_stop], points, spare)
            slope, level, before = 0.0, 0.0, points[order[leaf_start]]
            for j in order[leaf_start:leaf_stop]:
                level += slope * (points[j] - before)
                before = points[j]
                points[j] += weight * (level - goal[i])
                wider = slope + steps[j]
                steps[j] /= (1.0 + weight * slope) * (1.0 + weight * wider)
                slope = wider
        for j in range(leaves):
            node = inner + j
            positive = points[j] < price
            count[node] = goal[node] if positive else 0.0
            slopes[node] = 1.0 / weights[node] if positive else 0.0
        for i in range(inner - 1, -1, -1):
            children = slice(first_child[i], first_child[i + 1])
            child_slope = slopes[first_child[i] : first_child[i + 1]].sum()
            scale = 1.0 + child_slope * weights[i]
            count[i] = (count[children].sum() + child_slope * weights[i] * goal[i]) / scale
            slopes[i] = child_slope / scale
        node_prices[0], growth = price, growth + slopes[0]
        for i in range(inner):
            child_price = node_prices[i] - weights[i] * (count[i] + slopes[i] * node_prices[i] - goal[i])
            node_prices[first_child[i] : first_child[i + 1]] = child_price
        for node in range(inner, weights.size):
            count[node] = max(count[node] + slopes[node] * node_prices[node], 0.0)
        for i in range(inner - 1, -1, -1):
            count[i] = count[first_child[i] : first_child[i + 1]].sum()
    return counts, growth
