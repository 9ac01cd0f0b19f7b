"""Periods that equal an earlier one are found, and different ones are not more often than is stated."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dpdist.plugins.gate import repeated_period
from dpdist.plugins.gate.repeated_period import closeness_probability, find_repeated_period

SERIES, NOISE, LEVEL = 9, 10.0, 1e-3


def drawn(periods: int, state: np.random.Generator, chance: float = 0.03) -> np.ndarray:
    """Answers of which all depend on each other, without a season; their noise is independent."""
    level = np.linspace(2000, 20_000, SERIES)
    common = state.normal(0, chance, (periods, 1))
    return level * (1 + common + state.normal(0, chance, (periods, SERIES))) + state.normal(0, NOISE, (periods, SERIES))


def repeated(answers: np.ndarray, level: float = LEVEL) -> int | None:
    """The place of the earlier period that the last one is again."""
    found = find_repeated_period(answers, np.full(answers.shape, NOISE), level)
    return None if found is None else found.index


@pytest.mark.statistical
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_the_probability_of_closeness_is_a_bound_whatever_the_covariance_is(shift: float) -> None:
    """Of 4,000 drawn differences a probability below 0.05 has 0.05 where nothing is foretold, and less where something is.

    A right bound is taken for a wrong one once in 1,000 times; without a shift the rate is exact, so too small a one fails, too.
    """
    state, draws = np.random.default_rng(3), 4000
    mixing = state.normal(0, 1, (4, 4)) * np.array([1, 10, 100, 1000])
    found = 0
    for _ in range(draws):
        rows = state.normal(0, 1, (13, 4)) @ mixing
        found += closeness_probability(rows[0] + shift * mixing.sum(axis=0), rows[1:]) <= 0.05
    low, high = stats.binom.interval(0.998, draws, 0.05)
    assert found <= high
    assert shift or found >= low


def test_of_one_answer_it_is_the_law_of_f() -> None:
    pairs = np.array([[3.0], [4.0]])
    assert closeness_probability(np.array([1.0]), pairs) == pytest.approx(stats.f.cdf(1 / 12.5, 1, 2))
    assert closeness_probability(np.array([0.0]), np.zeros((2, 1))) == 1.0


@pytest.mark.statistical
def test_false_alarms_are_as_rare_as_stated() -> None:
    """At one in 20 of 400 series, 35 alarms or more have a probability below 1e-3 if the level holds.

    Chance is as small as the noise, so that all periods are near each other and the law alone decides.
    """
    state = np.random.default_rng(5)
    assert sum(repeated(drawn(21, state, chance=0.0005), 0.05) is not None for _ in range(400)) < 35


@pytest.mark.statistical
def test_an_old_period_is_found_again() -> None:
    """Of 50 repetitions in a series of 30 periods, at a level of 1e-3, all but 5 at most are found: with each at 0.98, 2e-4 fail."""
    state, found = np.random.default_rng(7), 0
    for _ in range(50):
        answers = drawn(31, state)
        old = int(state.integers(22, 30))
        answers[-1] = answers[old] + state.normal(0, np.sqrt(2) * NOISE, SERIES)
        answers[old] += state.normal(0, 1e-9, SERIES)
        found += repeated(answers) == old
    assert found >= 45


def test_alike_periods_say_nothing() -> None:
    """Of records that hardly change nobody knows which period they are of."""
    state = np.random.default_rng(9)
    assert all(repeated(drawn(31, state, chance=0.0)) is None for _ in range(40))


def test_a_season_is_no_repetition() -> None:
    """Weekdays come again every seven periods, as far apart as they always are."""
    state = np.random.default_rng(11)
    week = np.tile(state.normal(0, 300, (7, SERIES)), (15, 1))[:100]
    answers = np.linspace(2000, 5000, SERIES) + week + state.normal(0, NOISE, (100, SERIES))
    assert [repeated(answers[:end]) for end in range(30, 100)] == [None] * 70


def test_few_periods_and_answers_that_others_determine(monkeypatch: pytest.MonkeyPatch) -> None:
    state = np.random.default_rng(13)
    answers = drawn(31, state)
    assert all(repeated(np.repeat(answers[:1], periods, axis=0)) is None for periods in (2, 3, 4, 5))
    doubled = np.hstack([answers, answers.sum(axis=1, keepdims=True), answers[:, :3]])
    doubled[-1] = doubled[-4]
    found = find_repeated_period(doubled, np.full(doubled.shape, NOISE), LEVEL)
    assert found is not None
    assert (found.index, found.answers, found.distance) == (27, 7, 0.0)
    assert found.low < 1 < found.high < found.usual
    monkeypatch.setattr(repeated_period, "MOST_ANSWERS", 4)
    fewer = find_repeated_period(doubled, np.full(doubled.shape, NOISE), LEVEL)
    assert fewer is not None
    assert fewer.answers == 4
