"""Slow drifts are found after some periods, and series with trends, seasons and walks have as few alarms as is stated."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.plugins.gate.drift_test import WINDOWS, _design, find_drifts

YEARS, A_YEAR = 2, 52
PERIODS = YEARS * A_YEAR


def drawn(series: int, seed: int) -> np.ndarray:
    """Answers with a trend, a season that is no harmonic, a level that walks, and chance."""
    state, time = np.random.default_rng(seed), np.arange(PERIODS)[:, None]
    season = 50 * np.exp(np.sin(2 * np.pi * (time / A_YEAR + state.random(series))))
    walk = np.cumsum(state.normal(0, 4, (PERIODS, series)), axis=0)
    return 1000 + state.normal(0, 3, series) * time + season + walk + state.normal(0, 20, (PERIODS, series))


@pytest.mark.statistical
def test_false_alarms_are_as_rare_as_stated() -> None:
    """At one in 50 of 2,000 series, 60 alarms or more have a probability below 1e-3 if the level holds."""
    answers = drawn(2000, 3)
    assert len(find_drifts(answers, np.ones(answers.shape), A_YEAR, 0.02)) < 60


def test_a_drift_is_found_with_its_size_and_a_steady_trend_is_none() -> None:
    answers = drawn(3, 5)
    answers[-16:, 1] += 40.0 * np.arange(1, 17)
    (drift,) = find_drifts(answers, np.ones(answers.shape), A_YEAR, 1e-4)
    assert drift.index == 1
    assert drift.growth == pytest.approx(40, abs=15)
    assert abs(drift.growth) > drift.half_width


def test_the_slope_is_that_of_least_squares() -> None:
    """Of answers without a walk: by NumPy's own least squares, and never surer than the noise allows."""
    state = np.random.default_rng(2)
    design = _design(PERIODS, WINDOWS[0], A_YEAR)
    answers = design @ state.normal(0, 5, (design.shape[1], 1)) + state.normal(0, 1e-3, (PERIODS, 1))
    (drift,) = find_drifts(answers, np.full(answers.shape, 1e-3), A_YEAR, 0.1) or [None]
    assert drift is not None
    assert find_drifts(answers, np.full(answers.shape, 1e6), A_YEAR, 0.1) == []


def test_less_than_a_year_says_nothing() -> None:
    answers = drawn(1, 1)[: A_YEAR + WINDOWS[0] - 1]
    answers[-8:] += 1e6 * np.arange(1, 9)[:, None]
    assert find_drifts(answers, np.ones(answers.shape), A_YEAR, 0.5) == []
    assert find_drifts(drawn(1, 1), np.ones((PERIODS, 1)), 365, 0.5) == []
