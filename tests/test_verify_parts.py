"""Parts of the verifier, each against the same number found without it."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

from dpdist import verify


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("more", [0, 1], ids=["as many as are compared", "one more"])
def test_columns_are_compared_up_to_the_limit_and_bounded_above_it(power: int, more: int) -> None:
    """Of a single row of numbers all that is recomputed is known; a bound on it promises no more than is true."""
    count = verify.MOST_PAIRS + more
    row = np.arange(count) - count // 2
    longest, least, farthest = verify.columns_of(row[None, :], power)
    true_least, true_farthest = int(row[0] * row[-1]) if power == 2 else 0, int(row[-1] - row[0]) ** power
    assert longest == int(np.abs(row).max()) ** power
    if more:
        assert least <= true_least
        assert farthest >= true_farthest
    else:
        assert (least, farthest) == (true_least, true_farthest)


def test_what_queries_can_count_has_the_signs_of_their_entries() -> None:
    state, seen = np.random.default_rng(37), set()
    for _ in range(60):
        sizes = tuple(state.integers(1, 4, 2).tolist())
        entries = [state.integers(*ends, (2, size)) for ends, size in zip(state.permutation(SIGNS)[:2], sizes, strict=True)]
        factors = tuple(verify.Along(size, 2, lambda each=each: each) for each, size in zip(entries, sizes, strict=True))
        dense = reduce(np.kron, entries)
        low, high = verify.Rows((0, 1), factors, (), 1.0).ends
        assert low == (0 if dense.min() >= 0 else -np.inf)
        assert high == (0 if dense.max() <= 0 else np.inf)
        seen.add((low, high))
    assert len(seen) == 4


SIGNS = [(-2, 0), (0, 3), (-2, 3), (1, 3), (-1, 1), (0, 1)]
"""Ranges of entries, the upper end excluded: no sign, one, or both."""


@pytest.mark.parametrize("number", [400.0, -3.0], ids=["records", "less than none"])
def test_the_covariance_with_a_negated_column_is_the_negated_covariance(number: float) -> None:
    """Its interval is mirrored: the range of a covariance reaches as far below zero as above."""
    values, root = np.array([number, 30.0, -50.0, 9000.0]), np.random.default_rng(1).normal(size=(4, 4))
    joint, flip, spans = root @ root.T * 9.0, np.array([1.0, 1.0, -1.0, -1.0]), [(-10.0, 10.0), (-20.0, 20.0)]
    value, error, low, high = verify.statistic("covariance", values, joint, 1.96, spans)
    mirrored = verify.statistic("covariance", values * flip, joint * np.outer(flip, flip), 1.96, spans)
    assert mirrored == pytest.approx((-value, error, -high, -low))
    assert low < value < high
