"""The rate of false alarms, and of faults that are caught, on drawn series; closed forms of single comparisons."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from benchmarks.gate import SERIES, best_power, caught_by_history, measured
from dpdist.plugins.gate.linear_forecasts import linear_forecasts
from dpdist.plugins.gate.outlier_test import comparison_level, find_outliers, periods_a_year

A_YEAR = 365.25 / 7


@pytest.mark.statistical
def test_false_alarms_are_as_rare_as_stated_and_large_faults_are_caught() -> None:
    """A Poisson law of mean 1 gives more than three in the year that is compared once in 50 seeds."""
    found = measured(52, faults=("one country gone", "half of the files", "a tenth more everywhere"), stride=2)
    assert found.false_alarms_a_year <= 3
    assert found.caught["half of the files"].periods == 1
    for name in ("one country gone", "half of the files"):  # of 100 answers or more
        shares = found.caught[name]
        assert shares.answers is not None
        assert shares.best_answers is not None
        assert shares.answers >= shares.best_answers - 0.06
    assert found.caught["a tenth more everywhere"].periods >= 0.7  # the last answer as the forecast catches 0.4


@pytest.mark.statistical
def test_what_is_caught_after_few_and_many_periods_is_near_the_best() -> None:
    """Of 520 answers each a share is known to 0.02."""
    found = caught_by_history(52, (16, 40, 104), draws=100)
    assert found[16]["caught_at_7_errors"] >= 0.45
    assert found[40]["caught_at_7_errors"] >= 0.9
    assert found[104]["caught_at_5_errors"] >= found[104]["best_at_5_errors"] - 0.25
    assert found[104]["caught_at_7_errors"] >= 0.95


def test_the_best_test_is_that_of_noncentral_t() -> None:
    """Of 15 periods at a level of 0.01, by drawing the law itself: 100,000 draws know it to 0.002."""
    state, level = np.random.default_rng(3), 0.01
    sizes = np.sqrt(state.chisquare(14, 100_000) / 14)
    drawn = (np.abs(state.normal(3, 1, 100_000)) > stats.t.isf(level / 2, 14) * sizes).mean()
    assert best_power(np.array(3.0), 15, 52, level * 52 * SERIES) == pytest.approx(drawn, abs=0.01)
    assert best_power(np.array(0.0), 15, 52, level * 52 * SERIES) == pytest.approx(level, rel=0.01)


def test_a_constant_series_is_compared_by_the_noise_alone() -> None:
    """Its forecasts have no errors, so that the noise decides: of the answer and of the mean of all others, or of the last one at most."""
    least, most = stats.t.isf(0.005, 18) * np.sqrt(9 + 9 / 20), stats.t.isf(0.005, 14) * np.sqrt(9 + 9)
    for distance, expected in ((0.99 * least, 0), (1.01 * most, 1)):
        answers = np.r_[np.full(20, 100.0), 100 + distance][:, None]
        found = find_outliers(answers, np.full((21, 1), 3.0), A_YEAR, 0.01)
        assert len(found) == expected
    assert least <= found[0].half_width <= most
    assert found[0].forecast == pytest.approx(100)


def test_recursive_residuals_are_those_of_least_squares() -> None:
    """Of a model without a walk: each error by NumPy's own least squares over the periods before."""
    answers = np.random.default_rng(1).normal(1e4, 3, (70, 1))
    season = next(f for f in linear_forecasts(70, A_YEAR)[3:4])
    errors, time = season.errors @ (answers - answers[0]), np.arange(70)
    columns = np.column_stack([np.ones(70), np.cos(2 * np.pi * time / A_YEAR), np.sin(2 * np.pi * time / A_YEAR)])
    for row in (-1, -20):
        period = 70 + row
        coefficients = np.linalg.lstsq(columns[:period], answers[:period, 0], rcond=None)[0]
        leverage = columns[period] @ np.linalg.inv(columns[:period].T @ columns[:period]) @ columns[period]
        assert season.scales[row] == pytest.approx(np.sqrt(1 + leverage), rel=1e-5)
        own_error = answers[period, 0] - columns[period] @ coefficients
        assert errors[row, 0] * season.scales[row] == pytest.approx(own_error, rel=1e-4, abs=1e-4)


def test_errors_in_proportion_to_the_answers_are_compared_as_such() -> None:
    """In the low half of a season an answer is an outlier that would be none in the high half."""
    state, time = np.random.default_rng(8), np.arange(100)
    season = 1000 * (1 + 0.8 * np.sin(2 * np.pi * time / A_YEAR))[:, None]
    answers = season * (1 + state.normal(0, 0.05, (100, 1)))
    low, high = (int(end) for end in (season[60:].argmin() + 60, season[60:].argmax() + 60))
    found = dict[int, int]()
    for period in (low, high):
        changed = answers[: period + 1].copy()
        changed[-1] = season[period] + 150
        found[period] = len(find_outliers(changed, np.ones(changed.shape), A_YEAR, 1e-3))
    assert found == {low: 1, high: 0}


def test_a_season_is_no_outlier() -> None:
    season = np.tile([100.0, 50, 50, 50, 50, 50, 10], 6)[:, None] + np.random.default_rng(1).normal(0, 1, (42, 1))
    known = np.ones((42, 1))
    assert find_outliers(season[:36], known[:36], 365.25, 1e-3) == []
    season[35] = 50
    (found,) = find_outliers(season[:36], known[:36], 365.25, 1e-3)
    assert found.forecast == pytest.approx(100, abs=5)


def test_few_periods_say_nothing() -> None:
    answers = np.r_[np.full(5, 100.0), 0.0][:, None]
    assert find_outliers(answers, np.ones((6, 1)), A_YEAR, 0.01) == []


@pytest.mark.parametrize("periods_a_year", [1.0, 4.0, 12.0, A_YEAR, 365.25, 8766.0])
def test_series_of_any_step_have_forecasts(periods_a_year: float) -> None:
    """Whose errors no level changes, and no season that the model has."""
    for periods in (2, 5, 7, 30, 111):
        for forecast in linear_forecasts(periods, periods_a_year):
            assert np.isfinite(forecast.errors).all()
            assert len(forecast.errors) == len(forecast.scales) > 5
            assert np.abs(forecast.errors[-1].sum()) < 1e-5


def test_levels_and_periods() -> None:
    assert comparison_level(1.0, 52, 10) == 1 / (1.5 * 520)
    assert periods_a_year([0, 7, 14, 28]) == pytest.approx(52.2, abs=0.1)
    assert periods_a_year([3]) == 365.25
