"""Quantiles by the exponential mechanism: what neighbours tell apart, by brute force, and what intervals promise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpdist.errors import InvalidInput
from dpdist.plugins.quantiles.quantile_rules import QuantileRule, quantiles
from dpdist.privacy.accounting import Loss
from dpdist.privacy.accounting.laplace_calibration import gaussian_equivalent
from dpdist.privacy.selection.private_edges import MISSED, Runs
from tests.case_selection import always
from tests.privacy.enumeration import first_choices

Records = tuple[int, ...]
SIZE = 4
BUDGETS = {"pure": Loss.laplace(Fraction(3, 2)), "rho": Loss.gaussian(Fraction(1, 4))}
ATS = (Fraction(1, 2), Fraction(1, 10), Fraction(3, 4))


def counted(records: Records) -> tuple[np.ndarray, np.ndarray]:
    values, counts = np.unique(np.array(records, dtype=np.int64), return_counts=True)
    return values, counts.astype(np.int64)


def logs(of: QuantileRule, records: Records) -> Iterator[np.ndarray]:
    """The logarithms of the probabilities of all values: of the quantile, of the lower end and of the upper one; ends of the range last."""
    low, high, value = first_choices(lambda: of.choose_quantile(*counted(records), bytes(32), 0))
    for choice in (value, low, high):
        weights = float(choice.rate) * choice.scores
        yield weights - np.logaddexp.reduce(weights)


def definition(of: QuantileRule, records: Records) -> Iterator[np.ndarray]:
    """The same by the definition of the scores."""
    data, parts = np.array(records), of.record_share.denominator
    below, upto = (
        np.array([(data < v).sum() for v in range(of.size)]),
        np.array([(data <= v).sum() for v in range(of.size)]),
    )
    rank = of.record_share.numerator * len(records)
    for target, rate, end in (
        (rank, of.rate, None),
        (rank - of.end_margin, of.end_rate, of.end_margin - rank),
        (rank + of.end_margin, of.end_rate, rank + of.end_margin - parts * len(records)),
    ):
        middle, half = (
            parts * (below + upto) / 2,
            parts * (upto - below) / 2,
        )  # how far the target lies from a value's ranks
        scores = half - np.abs(target - middle)
        weights = float(rate) * np.append(scores, [] if end is None else [end])
        yield weights - np.logaddexp.reduce(weights)


def true(at: Fraction, records: Records) -> int:
    return sorted(records)[math.ceil(at * len(records)) - 1]


def some_records(most: int) -> Iterator[Records]:
    for size in range(most + 1):
        yield from combinations_with_replacement(range(SIZE), size)


def quantile_rule(at: Fraction, budget: Loss, moved: int = 1) -> QuantileRule:
    return quantiles((SIZE,), (at,), moved, budget).by_column[0][0]


def log_ratios(of: QuantileRule, one: Records, other: Records) -> list[np.ndarray]:
    return [a - b for a, b in zip(logs(of, one), logs(of, other), strict=True)]


def keeps_to(of: QuantileRule, kind: str, pairs: Iterator[tuple[Records, Records]]) -> tuple[bool, float]:
    """Whether no pair of neighbours is told apart beyond the budget, and how much of it is used."""
    used = 0.0
    for one, other in pairs:
        found = log_ratios(of, one, other)
        if kind == "pure":
            used = max(used, sum(float(np.abs(each).max()) for each in found) / float(BUDGETS[kind].pure))
        else:  # the range of a logarithm decides which Gaussian dominates it (docs/noise.md, "Choosing by scores")
            half = (Fraction(float(each.max() - each.min()) / 2 * (1 - 1e-9)) for each in found)
            used = max(used, float(sum(map(gaussian_equivalent, half)) / BUDGETS[kind].rho))
    return used <= 1 + 1e-9, used


def neighbours(relation: str, most: int) -> Iterator[tuple[Records, Records]]:
    for records in (some * times for some in some_records(most) for times in (1, 40) if len(some) < most or times == 1):
        if relation == "add-remove":
            yield from ((records, (*records, value)) for value in range(SIZE))
        else:
            yield from ((records, (*records[1:], value)) for value in range(SIZE) if records)
            yield from ((records, (*records[:-1], value)) for value in range(SIZE) if records)


@pytest.mark.parametrize("relation", always(["replace-one"], ["add-remove", "replace-one"]))
@pytest.mark.parametrize("kind", BUDGETS)
@pytest.mark.parametrize("at", ATS)
def test_no_pair_of_neighbours_is_told_apart_beyond_the_budget(at: Fraction, kind: str, relation: str) -> None:
    moved = 1 if relation == "add-remove" else 2
    of = quantile_rule(at, BUDGETS[kind], moved)
    right, used = keeps_to(of, kind, neighbours(relation, 4))
    assert right
    assert used > 0.2  # replaced records may lie in two groups, which costs more than two in one
    if at == Fraction(1, 2):
        assert used > 0.9
        planted = quantile_rule(at, BUDGETS[kind] + BUDGETS[kind])  # half the sensitivity, or about the root of it
        assert not keeps_to(planted, kind, neighbours(relation, 4))[0]


@pytest.mark.parametrize("kind", BUDGETS)
def test_records_of_a_person_in_several_groups_add_up(kind: str) -> None:
    """Two records, in one group or in two: the logarithms of both groups' choices add up."""
    of = quantile_rule(Fraction(1, 2), BUDGETS[kind], moved=2)
    for base in some_records(3):
        for new in combinations_with_replacement(range(SIZE), 2):
            together = log_ratios(of, base, (*base, *new))
            alone = [
                a + b
                for a, b in zip(
                    *(
                        [np.array([each.min(), each.max()]) for each in log_ratios(of, base, (*base, value))]
                        for value in new
                    ),
                    strict=True,
                )
            ]
            for found, rate in [
                (f, r) for some in (together, alone) for f, r in zip(some, (of.rate, *[of.end_rate] * 2), strict=True)
            ]:
                assert found.max() - found.min() <= 2 * float(rate) * of.distance * (1 + 1e-9)


@pytest.mark.parametrize("at", ATS)
def test_ends_lie_on_the_right_side_as_often_as_they_say(at: Fraction) -> None:
    """Of every small data set, by its exact probabilities; and not by far less: ranks on the wrong side, a planted fault, are found."""

    def missed(of: QuantileRule) -> float:
        worst = 0.0
        for records in some_records(7):
            if records:
                _, low, high = (np.exp(each) for each in logs(of, records))
                place = true(at, records)
                worst = max(worst, low[place + 1 : SIZE].sum(), high[:place].sum())
        return worst

    assert missed(quantile_rule(at, Loss.laplace(Fraction(20)))) <= MISSED
    planted = quantile_rule(at, Loss.laplace(Fraction(20)))
    planted.__dict__["end_margin"] = -planted.end_margin
    assert missed(planted) > 5 * MISSED


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 11), max_size=12), st.integers(-40, 60), st.sampled_from(ATS))
def test_runs_have_the_score_of_each_of_their_values(records: list[int], target: int, at: Fraction) -> None:
    runs, parts, data = Runs.of(*counted(tuple(records)), 12), at.denominator, np.array(records)
    found = np.repeat(runs.scores(parts, target), runs.times)
    wanted = [-max(parts * int((data < v).sum()) - target, target - parts * int((data <= v).sum())) for v in range(12)]
    assert found.tolist() == wanted
    assert np.concatenate(
        [first + np.arange(times) for first, times in zip(runs.first_values, runs.times, strict=True)]
    ).tolist() == [*range(12)]


@pytest.mark.parametrize("at", ATS)
def test_choices_are_those_of_the_definition(at: Fraction) -> None:
    of = quantile_rule(at, Loss.laplace(Fraction(4)), moved=2)
    for records in some_records(4):
        for found, defined in zip(logs(of, records), definition(of, records), strict=True):
            np.testing.assert_allclose(found, defined, rtol=1e-9, atol=1e-12)


@pytest.mark.statistical
def test_choices_have_their_probabilities() -> None:
    """Quantile and ends as they are drawn; with twice the rate they would not fit."""
    of, records, draws = quantile_rule(Fraction(1, 2), Loss.laplace(Fraction(4))), (0, 0, 1, 3, 3, 3), 1000
    found = np.array([of.choose_quantile(*counted(records), number.to_bytes(32, "big"), 7) for number in range(draws)])
    chances = [np.exp(each) for each in logs(of, records)]
    for place, end in ((0, None), (1, 0), (2, SIZE - 1)):
        expected = chances[place][:SIZE].copy()
        if end is not None:
            expected[end] += chances[place][SIZE]
        seen = np.bincount(found[:, place], minlength=SIZE)
        assert stats.chisquare(seen, expected * draws).pvalue > 1e-4
    wrong = np.exp(next(logs(replace(of, rate=2 * of.rate), records)))
    assert stats.chisquare(np.bincount(found[:, 0], minlength=SIZE), wrong * draws).pvalue < 1e-4


def test_a_value_that_most_records_have_is_their_median() -> None:
    """Of 1,000 records 600 have no amount: a score by middle ranks would choose one of the others."""
    values, counts = np.arange(101), np.array([600, *[4] * 100])
    of = quantiles((101,), (Fraction(1, 2),), 1, Loss.laplace(Fraction(1))).by_column[0][0]
    assert {of.choose_quantile(values, counts, number.to_bytes(32, "big"), 0)[0] for number in range(50)} == {0}


def test_a_range_far_too_wide_changes_little() -> None:
    state = np.random.default_rng(2)
    values, counts = counted(tuple(state.lognormal(5, 1, 3000).astype(int).tolist()))
    truth = np.searchsorted(np.cumsum(counts) / counts.sum(), 0.5)
    for size in (10**4, 2**20):
        of = quantiles((size,), (Fraction(1, 2),), 1, Loss.gaussian(Fraction(1, 10))).by_column[0][0]
        value, low, high = of.choose_quantile(values, counts, bytes(32), 1)
        assert low <= values[truth] <= high
        assert abs(value - values[truth]) < 10
        assert high - low < 60


def test_nobody_has_an_interval_of_everything() -> None:
    of = quantile_rule(Fraction(1, 2), Loss.laplace(Fraction(8)))
    found = of.choose_quantile(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), bytes(32), 0)
    assert found[1:] == (0, SIZE - 1)


def test_ends_too_far_for_whole_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpdist.plugins.quantiles.quantile_rules.FARTHEST", 4)
    with pytest.raises(InvalidInput, match="so little budget"):
        quantile_rule(Fraction(1, 2), Loss.laplace(Fraction(1)))


def test_too_little_budget_is_refused() -> None:
    with pytest.raises(InvalidInput, match="so little budget"):
        quantiles((10,), (Fraction(1, 2),), 2**20, Loss.laplace(Fraction(1, 10**9)))


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.parametrize("kind", BUDGETS)
def test_intervals_hold_in_simulated_releases(kind: str) -> None:
    """1,000 draws of each of three distributions: at least 95 of 100 intervals hold."""
    state = np.random.default_rng(8)
    for data in (state.gamma(6, 7, 400), state.lognormal(10, 0.6, 400), state.pareto(1.5, 400) * 100):
        values, counts = counted(tuple(data.astype(int).tolist()))
        for at in (Fraction(1, 2), Fraction(9, 10)):
            of = quantiles((2**20,), (at,), 1, BUDGETS[kind]).by_column[0][0]
            place = int(values[np.searchsorted(np.cumsum(counts) * at.denominator, at.numerator * int(counts.sum()))])
            found = np.array([of.choose_quantile(values, counts, number.to_bytes(32, "big"), 3) for number in range(1000)])
            assert ((found[:, 1] <= place) & (place <= found[:, 2])).mean() >= 0.95
