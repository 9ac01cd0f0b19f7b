from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdist.statistics.mean_statistics import MEAN, NO_RECORDS, Mean
from dpdist.statistics.ratio_intervals import fieller
from dpdist.statistics.variance_statistics import VARIANCE, Variance

RANGE = (0.0, 200.0)


def test_a_mean_of_hardly_any_records_has_no_standard_error() -> None:
    """The number is 0.01 with a standard error of 10: by the delta method the error of the mean is a million."""
    made = Mean().compute(MEAN, np.array([0.01, 1.0]), np.diag([100.0, 4e6]), 1.96, [RANGE])
    assert (made.standard_error, made.low, made.high, made.remark) == (None, *RANGE, NO_RECORDS)


def test_an_estimate_at_an_end_of_its_range_has_no_standard_error() -> None:
    made = Mean().compute(MEAN, np.array([100.0, 21_000.0]), np.diag([1.0, 1.0]), 1.96, [RANGE])
    assert (made.value, made.standard_error) == (200.0, None)
    made = Mean().compute(MEAN, np.array([100.0, 2_000.0]), np.diag([1.0, 1e4]), 1.96, [RANGE])
    assert made.standard_error == pytest.approx((1e4 + 20.0**2) ** 0.5 / 100)


FINITE = st.integers(-(10**8), 10**8).map(lambda number: number / 100)


@given(st.tuples(FINITE, FINITE, FINITE), st.tuples(*(st.floats(1e-3, 1e9),) * 3))
def test_no_error_is_larger_than_the_range_allows(
    values: tuple[float, float, float], variances: tuple[float, float, float]
) -> None:
    mean = Mean().compute(MEAN, np.array(values[:2]), np.diag(variances[:2]), 1.96, [RANGE])
    variance = Variance().compute(VARIANCE, np.array(values), np.diag(variances), 1.96, [RANGE])
    for made, (low, high) in ((mean, RANGE), (variance, (0.0, 1e4))):
        assert made.standard_error is None or made.standard_error <= (high - low) / 2
        if values[0] != 0:
            assert low <= made.low <= made.high <= high


@given(st.tuples(FINITE, FINITE, FINITE), st.tuples(*(st.floats(1e-3, 1e9),) * 3))
def test_an_interval_beyond_the_range_keeps_its_length_inside_and_holds_what_it_held(
    values: tuple[float, float, float], variances: tuple[float, float, float]
) -> None:
    """Cut alone, it has length 0 where it lies wholly beyond the range."""
    given, joint = np.array(values), np.diag(variances)
    alone = fieller(given[1::-1], joint[1::-1, 1::-1], 1.96)
    made = Mean().compute(MEAN, given[:2], joint[:2, :2], 1.96, [RANGE])
    if alone is not None:
        ratio = values[1] / values[0]
        side = max(alone[0] - ratio, -200.0) if ratio > 200.0 else min(alone[1] - ratio, 200.0) if ratio < 0.0 else 0.0
        assert made.high - made.low >= abs(side) * (1 - 1e-6) - 1e-6
        assert made.low <= np.clip(alone[0], *RANGE) + 1e-6
        assert made.high >= np.clip(alone[1], *RANGE) - 1e-6


def test_an_interval_wholly_beyond_the_range_is_moved_into_it() -> None:
    """A sum of 25,000 of 100 records: Fieller's interval is 250 +- 9.8, 40 and more beyond what is possible."""
    made = Mean().compute(MEAN, np.array([100.0, 25_000.0]), np.diag([1e-9, 25e4]), 1.96, [RANGE])
    assert (made.value, made.low, made.high) == pytest.approx((200.0, 190.2, 200.0))
    made = Mean().compute(MEAN, np.array([100.0, -5_000.0]), np.diag([1e-9, 25e4]), 1.96, [RANGE])
    assert (made.value, made.low, made.high) == pytest.approx((0.0, 0.0, 9.8))
    of_squares = Variance().compute(VARIANCE, np.array([100.0, 0.0, -5e5]), np.diag([1e-9, 1e-9, 25e8]), 1.96, [RANGE])
    assert (of_squares.value, of_squares.low, of_squares.high) == pytest.approx((0.0, 0.0, 980.0))


@pytest.mark.parametrize(("records", "mean"), [(0, 30.0), (10, 30.0), (40, 2.0), (100, 30.0), (1000, 199.0)])
def test_intervals_within_the_range_hold_as_often_as_they_claim(records: int, mean: float) -> None:
    """Also of groups whose number is hidden by its noise, 10: 95 of 100 intervals, or more, and never beyond the range."""
    truth, deviations = np.array([records, records * mean]), np.array([10.0, 2000.0])
    drawn = truth + deviations * np.random.default_rng(2026).standard_normal((3000, 2))
    made = [Mean().compute(MEAN, values, np.diag(deviations**2), 1.96, [RANGE]) for values in drawn]
    assert all(RANGE[0] <= each.low <= each.value <= each.high <= RANGE[1] for each in made)
    assert all(each.low < each.high for each in made)
    held = float(np.mean([each.low <= mean <= each.high for each in made]))
    assert held >= 0.938  # three standard errors of the share below 0.95
