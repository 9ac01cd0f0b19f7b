"""The peer that rounds as TopDown does: whole numbers that add up, each a floor or a ceiling, with the least distance."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from benchmarks.peers.topdown import closest_children, round_families, topdown_tables


def test_children_are_the_closest_numbers_with_the_parents_sum() -> None:
    """By hand: 5, 1 and -1 with a sum of 3 become 3, 0 and 0; 4 and 2 with a sum of 4 become 3 and 1."""
    np.testing.assert_allclose(closest_children(np.array([[[5.0], [1], [-1]]]), np.array([[3.0]])), [[[3], [0], [0]]])
    np.testing.assert_allclose(closest_children(np.array([[[4.0], [2]]]), np.array([[4.0]])), [[[3], [1]]])


def test_a_family_is_rounded_to_the_least_distance() -> None:
    """Against all ways to round six cells up or down."""
    state = np.random.default_rng(1)
    for _ in range(20):
        parent = state.integers(0, 9, 3).astype(float)
        values = closest_children(state.normal(2, 3, (1, 2, 3)), parent[None])
        rounded = round_families(values, parent[None])[0]
        costs = []
        for raised in product((0, 1), repeat=6):
            whole = np.floor(values[0] + 1e-9) + np.reshape(raised, (2, 3))
            if (whole.sum(axis=0) == parent).all():
                costs.append(distance(whole, values[0]))
        assert (rounded.sum(axis=0) == parent).all()
        assert distance(rounded, values[0]) == pytest.approx(min(costs))


def distance(whole: np.ndarray, values: np.ndarray) -> float:
    """The sum of absolute distances of cells and of totals of children."""
    return float(np.abs(whole - values).sum() + np.abs((whole - values).sum(axis=1)).sum())


def test_levels_add_up() -> None:
    state = np.random.default_rng(2)
    tables = topdown_tables([state.normal(9, 3, (size, 2)) for size in (1, 3, 12)], [3, 4])
    assert (tables[0] == tables[1].sum(axis=0)).all()
    assert (tables[1] == tables[2].reshape(3, 4, 2).sum(axis=1)).all()
    assert min(table.min() for table in tables) >= 0
