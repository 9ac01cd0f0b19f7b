"""The check of standardised errors has the rate of false alarms that it states, and fails in both directions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tests.case_selection import slow_after_first
from tests.support.standardised_errors import (
    RATE,
    assert_errors_fit,
    cautious_limits,
    farthest,
    laplace_limits,
    limits,
    unmixed,
)

TRIALS = 400
MIXED = np.random.default_rng(1).integers(0, 2, (150, 72)).astype(float)
"""Rows of a workload over the 72 cells of most releases of the tests: their answers are strongly correlated."""


def alarms(scale: float, kind: str, rate: float, mixed: np.ndarray = MIXED, trials: int = TRIALS) -> int:
    """In how many of the trials errors that are ``scale`` standard errors large fail the check."""
    state = np.random.default_rng(2)
    laplace = kind == "laplace"
    standard_errors = np.linalg.norm(mixed, axis=1)
    how = {"freedom": 5.0} if kind == "freedom" else {"mixed": mixed, "laplace": laplace}
    found = 0
    for _ in range(trials):
        size = mixed.shape[1]
        draws = state.laplace(scale=np.sqrt(0.5), size=size) if laplace else state.standard_normal(size)
        try:
            assert_errors_fit(scale * (mixed @ draws), standard_errors, rate=rate, **how)
        except AssertionError:
            found += 1
    return found


@pytest.mark.statistical
@pytest.mark.parametrize(("kind", "trials"), [("gaussian", TRIALS), ("laplace", 100), ("freedom", TRIALS)])
def test_true_scales_fail_as_seldom_as_stated(kind: str, trials: int) -> None:
    rate = 0.05
    assert alarms(1.0, kind, rate, trials=trials) <= stats.binom.isf(1e-6, trials, rate)


@pytest.mark.statistical
@pytest.mark.parametrize("scale", slow_after_first(1, [0.5, 2.0]))
def test_half_and_twice_the_scale_fail(scale: float) -> None:
    assert alarms(scale, "gaussian", RATE) >= 0.97 * TRIALS


@pytest.mark.statistical
@pytest.mark.parametrize("scale", slow_after_first(1, [0.4, 2.5]))
def test_a_scale_of_laplace_noise_that_is_off_fails(scale: float) -> None:
    """Its squares vary more: half and twice the scale fail in 85 and 75 of 100 trials."""
    assert alarms(scale, "laplace", 0.001, trials=60) >= 54


def test_what_few_independent_errors_can_tell() -> None:
    """The fewest are 12, of a series of 12 steps: a quarter and four times the scale fail there, twice it mostly."""
    few = np.tril(np.ones((24, 12)))
    assert alarms(0.25, "gaussian", RATE, few) >= 0.85 * TRIALS
    assert alarms(2.0, "gaussian", RATE, few) >= 0.5 * TRIALS
    assert alarms(4.0, "gaussian", RATE, few) >= 0.97 * TRIALS


@pytest.mark.parametrize("freedom", [1, 5, 72, 1000])
def test_limits_against_chi_square(freedom: int) -> None:
    """The cautious ones hold for independent errors, too, and are hardly wider."""
    low, high = limits(freedom)
    cautious = cautious_limits(freedom)
    assert stats.chi2.cdf(low * freedom, freedom) == pytest.approx(RATE / 4)
    assert stats.chi2.sf(high * freedom, freedom) == pytest.approx(RATE / 4)
    assert cautious[0] < low < 1 < high < cautious[1]
    assert cautious[1] < 1.5 * high


def test_limits_of_correlated_errors() -> None:
    """Any weights: one large and many small ones, equal ones, decaying ones."""
    state = np.random.default_rng(3)
    for weights in (np.r_[0.2, np.full(80, 0.01)], np.full(5, 0.2), 0.2 * 0.8 ** np.arange(60)):
        low, high = cautious_limits(weights.sum() / weights.max(), rate=0.02)
        squares = state.standard_normal((20_000, weights.size)) ** 2 @ (weights / weights.sum())
        assert np.mean((squares < low) | (squares > high)) < 0.01


def test_farthest_errors() -> None:
    assert 2 * 100 * stats.norm.sf(farthest(100)) == pytest.approx(RATE / 2)
    reach = farthest(100, laplace=True)
    assert 100 * np.exp(-np.sqrt(2) * reach) < RATE / 2  # one Laplace draw each
    assert 7 < farthest(100) * 1.5 < reach < 16


def test_independent_errors_are_taken_apart() -> None:
    independent, rows = unmixed(MIXED / np.linalg.norm(MIXED, axis=1, keepdims=True) @ np.arange(72.0), MIXED)
    np.testing.assert_allclose(rows @ rows.T, np.eye(72), atol=1e-9)
    np.testing.assert_allclose(rows.T @ independent, np.arange(72.0), atol=1e-6)
    low, high = laplace_limits(rows)
    assert 0.2 < low < 0.5
    assert 2 < high < 6
