"""The rate of false alarms, and of faults that are caught, on drawn series; closed forms of single comparisons."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from benchmarks.gate import measured
from dpdist.plugins.gate.outlier_test import comparison_level, find_outliers, periods_a_year


@pytest.mark.statistical
def test_false_alarms_are_as_rare_as_stated_and_large_faults_are_caught() -> None:
    """A Poisson law of mean 1 gives more than three in the year that is compared once in 50 seeds."""
    found = measured(52, faults=("one country gone", "half of the files", "zeros for a period"), stride=2)
    assert found.false_alarms_a_year <= 3
    assert found.caught_share["one country gone"] >= 0.9
    assert min(found.series_beyond_5_errors_caught[name] for name in ("half of the files", "zeros for a period")) >= 0.95


def test_a_constant_series_is_compared_by_the_noise_alone() -> None:
    """Its forecasts have no errors, so that the noise of the answer and of the mean of four decides."""
    history, noise = np.full((20, 1), 100.0), np.full((20, 1), 3.0)
    limit = stats.t.isf(0.005, 18) * np.sqrt(9 + 9)  # the first of equally good forecasts: the last period
    for distance, expected in ((0.99, 0), (1.01, 1)):
        found = find_outliers(history, noise, np.array([100 + distance * limit]), np.array([3.0]), 0.01)
        assert len(found) == expected
    assert found[0].half_width == pytest.approx(limit)


def test_a_season_is_no_outlier() -> None:
    season = np.tile([100.0, 50, 50, 50, 50, 50, 10], 6)[:, None] + np.random.default_rng(1).normal(0, 1, (42, 1))
    known = np.ones((42, 1))
    assert find_outliers(season[:35], known[:35], season[35], known[0], 1e-3) == []
    (found,) = find_outliers(season[:35], known[:35], np.array([50.0]), known[0], 1e-3)
    assert found.forecast == pytest.approx(100, abs=5)


def test_few_periods_say_nothing() -> None:
    history, known = np.full((5, 1), 100.0), np.ones((5, 1))
    assert find_outliers(history, known, np.array([0.0]), np.ones(1), 0.01) == []


def test_levels_and_periods() -> None:
    assert comparison_level(1.0, 52, 10) == 1 / (4 * 520)
    assert periods_a_year([0, 7, 14, 28]) == pytest.approx(52.2, abs=0.1)
    assert periods_a_year([3]) == 365.25
