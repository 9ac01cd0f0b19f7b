"""Models of a few tables, against tables that are worked out by hand or made to fit."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from dpdist.plugins.adaptive.junction_tree import TableModel, fit_model
from dpdist.plugins.nonnegative_answers.posterior_tables import margin
from dpdist.reconstruction.table_reduction import Axes

SHAPE = (2, 3, 2, 3)


def joint(*parts: tuple[Axes, int]) -> np.ndarray:
    """Cells whose logarithms are sums of random tables of some attributes each: 1,000 records."""
    out = np.zeros(SHAPE)
    for axes, seed in parts:
        table = np.random.default_rng(seed).standard_normal([SHAPE[axis] for axis in axes])
        out = out + table.reshape([SHAPE[axis] if axis in axes else 1 for axis in range(4)])
    return np.exp(out) / np.exp(out).sum() * 1000


def model(cells: np.ndarray, *measured: Axes) -> TableModel:
    axes = [*combinations(range(4), 1), *measured]
    return TableModel({each: margin(cells, (0, 1, 2, 3), each) for each in axes}, 1000.0)


def test_attributes_are_independent_given_those_between_them() -> None:
    """Measured along the chain 0 - 1 - 2, and 3 by itself: the truth is such a chain."""
    cells = joint(((0, 1), 1), ((1, 2), 2), ((3,), 3))
    found = model(cells, (0, 1), (1, 2))
    for pair in combinations(range(4), 2):
        np.testing.assert_allclose(found.table(pair), margin(cells, (0, 1, 2, 3), pair), rtol=1e-9)


def test_by_hand() -> None:
    """Of 8 records, x = y in 6 and y = z in 6: x = z in (6/8)^2 + (2/8)^2 of them, 5."""
    like = np.array([[3.0, 1.0], [1.0, 3.0]])
    alone: dict[Axes, np.ndarray] = {(axis,): np.array([4.0, 4.0]) for axis in range(3)}
    found = TableModel({**alone, (0, 1): like, (1, 2): like}, 8.0)
    np.testing.assert_allclose(found.table((0, 2)), [[2.5, 1.5], [1.5, 2.5]])
    np.testing.assert_allclose(found.table(()), 8.0)


def test_the_tree_takes_the_pairs_that_say_most() -> None:
    """Of a measured triangle the weakest pair is left out of the tree, and is answered as it was measured."""
    cells = joint(((0, 1), 1), ((1, 2), 2), ((0, 2), 9), ((2, 3), 4))
    found = model(cells, (0, 1), (1, 2), (0, 2), (2, 3))
    for pair in ((0, 1), (1, 2), (0, 2), (2, 3)):
        np.testing.assert_allclose(found.table(pair), margin(cells, (0, 1, 2, 3), pair))


def test_a_table_of_three_attributes_has_the_tables_of_two() -> None:
    """Cells without an interaction of all three are those of largest entropy with their tables of two."""
    cells = joint(((0, 1), 1), ((1, 2), 2), ((0, 2), 3))
    found = model(cells, (0, 1), (1, 2), (0, 2)).table((0, 1, 2))
    np.testing.assert_allclose(found, margin(cells, (0, 1, 2, 3), (0, 1, 2)), rtol=2e-3)
    np.testing.assert_allclose(margin(found, (0, 1, 2), (1, 2)), margin(cells, (0, 1, 2, 3), (1, 2)), rtol=1e-9)


def test_tables_within_a_measured_one_are_its_sums() -> None:
    cells = joint(((0, 1, 2), 1))
    found = model(cells, (0, 1, 2))
    np.testing.assert_allclose(found.table((0, 1)), margin(cells, (0, 1, 2, 3), (0, 1)))


def test_noisy_tables_become_non_negative_ones_that_agree() -> None:
    state, cells = np.random.default_rng(5), joint(((0, 1), 1), ((1, 2), 2))
    axes = [*combinations(range(4), 1), (0, 1), (1, 2)]
    noisy = {each: margin(cells, (0, 1, 2, 3), each) + 30 * state.standard_normal([SHAPE[a] for a in each]) for each in axes}
    found = fit_model(SHAPE, noisy, dict.fromkeys(axes, 1 / 30**2))
    for each in (*axes, (0, 2), (0, 1, 2), (0, 1, 2, 3)):
        table = found.table(each)
        assert table.min() >= 0
        np.testing.assert_allclose(table.sum(), found.total, rtol=2e-2)
    for axis in range(4):
        for each in axes[4:]:
            if axis in each:
                np.testing.assert_allclose(margin(found.table(each), each, (axis,)), found.table((axis,)), atol=30)


def test_attributes_that_nobody_asks_for_are_not_needed() -> None:
    found = TableModel({(1,): np.array([2.0, 6.0]), (3,): np.array([4.0, 4.0])}, 8.0)
    np.testing.assert_allclose(found.table((1, 3)), [[1, 1], [3, 3]])
