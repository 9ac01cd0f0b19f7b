"""What is added up by a key is what a dictionary adds up, also where keys fill all their bits or share most of them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from dpdist.counting.name_counts import NAME, PAIR, SUM, _add_up, _order_by_name_and_person
from dpdist.counting.person_histograms import count_pairs
from dpdist.counting.sparse_counts import sum_by_cell
from dpdist.domain.key_spaces import MOST_CELLS

ROWS = 400


@pytest.mark.parametrize("most", [1, 3, 2**31, 2**40])
@pytest.mark.parametrize("cells", [1, 40, 2**22, MOST_CELLS])
def test_counts_of_a_cell_are_added_up(cells: int, most: int) -> None:
    """Up to the largest key space, whose cells leave no bits beside them for counts of two records."""
    state = np.random.default_rng(1)
    some = np.unique(np.append(state.integers(0, cells, 60), [0, cells - 1]))
    chosen = np.append(state.choice(some, ROWS), [0, cells - 1])
    counts = state.integers(1, most, chosen.size, endpoint=True)
    expected = Counter[int]()
    for cell, count in zip(chosen.tolist(), counts.tolist(), strict=True):
        expected[cell] += count
    rows = sum_by_cell(chosen, counts)
    assert [tuple(row) for row in rows.tolist()] == sorted(expected.items())
    assert sum_by_cell(chosen[:0], counts[:0]).size == 0


def names_that_agree(state: np.random.Generator) -> np.ndarray:
    """Hashes of names, of which some agree in the first half, and some in the second."""
    names = np.empty(ROWS, dtype=NAME)
    names["name"], names["rest"] = state.integers(0, 12, ROWS), state.integers(0, 4, ROWS)
    return names


def test_weights_of_a_name_are_added_up_also_where_two_share_half_a_hash() -> None:
    state = np.random.default_rng(2)
    names, rows = names_that_agree(state), np.empty(ROWS, dtype=SUM)
    rows["name"], rows["rest"], rows["weight"] = names["name"], names["rest"], state.integers(0, 2**40, ROWS)
    expected = Counter[tuple[int, int]]()
    for name, rest, weight in rows.tolist():
        expected[name, rest] += weight
    assert [((name, rest), weight) for name, rest, weight in _add_up(rows).tolist()] == sorted(expected.items())
    assert _add_up(rows[:0]).size == 0


@pytest.mark.parametrize("shared", ["nothing", "names", "persons"])
def test_pairs_are_in_one_order_also_where_two_share_half_a_hash(shared: str) -> None:
    """Of names, and in it of persons: which shares come back hangs on it, and never on the order of the records."""
    state = np.random.default_rng(3)
    pairs = np.zeros(ROWS, dtype=PAIR)
    few = {"nothing": ("name", "high"), "names": ("name", "rest", "high"), "persons": ("name", "high", "low")}[shared]
    for column in few:
        pairs[column] = state.integers(0, 9, ROWS)
    pairs = np.unique(pairs)
    whole = sorted(pairs.tolist(), key=lambda pair: (pair[2], pair[3], pair[0], pair[1]))
    for _ in range(3):
        mixed = state.permutation(pairs)
        assert mixed[_order_by_name_and_person(mixed)].tolist() == whole


def test_pairs_of_keys_are_counted_and_their_numbers_added_up() -> None:
    state = np.random.default_rng(4)
    first, second, numbers = state.integers(0, 9, ROWS), state.integers(-3, 3, ROWS), state.integers(-5, 50, ROWS)
    often, together = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for one, other, number in zip(first.tolist(), second.tolist(), numbers.tolist(), strict=True):
        often[one, other] += 1
        together[one, other] += number
    for given, expected in ((None, often), (numbers, together)):
        found = zip(*(column.tolist() for column in count_pairs(first, second, given)), strict=True)
        assert [((one, other), number) for one, other, number in found] == sorted(expected.items())
    assert [column.size for column in count_pairs(first[:0], second[:0])] == [0, 0, 0]
