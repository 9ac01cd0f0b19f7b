"""The exponential mechanism on whole scores: exact probabilities, what they reveal of neighbours, and the digits that decide."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpdist.privacy.accounting.laplace_calibration import gaussian_equivalent
from dpdist.privacy.selection import exponential_mechanism
from dpdist.privacy.selection.exponential_mechanism import choose, choose_evenly, rate_for
from tests.case_selection import slow_after_first


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def chances(scores: tuple[int, ...], rate: Fraction) -> np.ndarray:
    weights = np.exp(float(rate) * (np.array(scores, dtype=float) - max(scores)))
    return weights / weights.sum()


@pytest.mark.statistical
def test_each_is_chosen_as_often_as_its_weight_says() -> None:
    scores, rate, draws = (0, 3, 3, -40, 7), Fraction(1, 5), 4000
    found = np.bincount([choose(scores, rate, key(i), 2) for i in range(draws)], minlength=5)
    assert stats.chisquare(found, chances(scores, rate) * draws).pvalue > 1e-4
    wrong = chances(scores, rate * Fraction(4, 5)) * draws
    assert stats.chisquare(found, wrong).pvalue < 1e-4


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=9),
    st.fractions(0, 3, max_denominator=2**40),
    st.integers(0, 2**64),
)
def test_the_choice_is_that_of_a_thousand_digits(scores: list[int], rate: Fraction, seed: int) -> None:
    with mpmath.workprec(4096):
        weights = [mpmath.exp(mpmath.mpf(rate.numerator) * (s - max(scores)) / rate.denominator) for s in scores]
        wanted = mpmath.ldexp(exponential_mechanism._uniform(key(seed), 1, 4096), -4096) * sum(weights)
        expected = next(place for place in range(len(scores)) if wanted < sum(weights[: place + 1]))
    assert choose(scores, rate, key(seed), 1) == expected


def test_few_digits_are_followed_by_more_until_the_choice_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, rate = tuple(range(12)), Fraction(1, 7)
    expected = [choose(scores, rate, key(i), 0) for i in range(300)]
    monkeypatch.setattr(exponential_mechanism, "FIRST_BITS", 8)
    assert [choose(scores, rate, key(i), 0) for i in range(300)] == expected


def test_even_choices_are_the_digits_of_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few digits are looked at first: the whole part of the uniform number times how many there are."""
    for count in (1, 2, 3, 255, 256, 257, 10**6, 2**40 + 1):
        expected = [exponential_mechanism._uniform(key(i), 2, 1024) * count >> 1024 for i in range(100)]
        assert [choose_evenly(count, key(i), 2) for i in range(100)] == expected
        with monkeypatch.context() as patch:
            patch.setattr(exponential_mechanism, "FIRST_BITS", 8)
            assert [choose_evenly(count, key(i), 2) for i in range(100)] == expected


def test_choices_of_other_numbers_are_drawn_anew() -> None:
    assert len({tuple(choose([0] * 8, Fraction(0), key(i), number) for i in range(20)) for number in range(50)}) == 50


def least_beta(one: np.ndarray, other: np.ndarray) -> list[tuple[float, float]]:
    """The corners of the trade-off curve: both errors of the best tests that tell two distributions apart."""
    order = np.argsort(-other / one)
    return [(float(one[order[:k]].sum()), float(other[order[k:]].sum())) for k in range(1, one.size)]


def dominated(rate: Fraction, distance: int, rho: Fraction) -> bool:
    """Whether a Gaussian of rho reveals at least as much as a choice, whichever way a change moves four scores by up to a distance."""
    mu = math.sqrt(2 * float(rho))
    for base in ((0, 0, 0, 0), (5, 0, 0, -5), (0, 9, 1, 2)):
        one = chances(base, rate)
        for moved in product((-distance, 0, distance), repeat=4):
            other = chances(tuple(a + b for a, b in zip(base, moved, strict=True)), rate)
            for alpha, beta in least_beta(one, other):
                if beta < stats.norm.cdf(stats.norm.isf(alpha) - mu) - 1e-12:
                    return False
    return True


@pytest.mark.parametrize("rho", slow_after_first(1, [Fraction(1, 1000), Fraction(1, 20), Fraction(2)]))
@pytest.mark.parametrize("distance", [1, 3])
def test_a_choice_reveals_no_more_than_the_gaussian_that_it_is_charged_as(rho: Fraction, distance: int) -> None:
    rate = rate_for(rho, distance)
    assert gaussian_equivalent(rate * distance) <= rho <= gaussian_equivalent(rate * distance * Fraction(1001, 1000))
    assert dominated(rate, distance, rho)
    half = rate_for(rho, distance) * 2 if distance == 1 else rate_for(rho, distance // 2)
    assert not dominated(half, distance, rho)  # a planted fault: half the sensitivity


def test_no_pair_within_a_range_is_easier_to_tell_apart_than_the_symmetric_one() -> None:
    """The lemma of docs/noise.md: of p and q whose logits are ``wide`` apart, Phi^-1(p) - Phi^-1(q) is largest around a half."""
    for wide in (0.01, 0.5, 3.0, 12.0):
        centres = np.linspace(-20, 20, 4001)
        ends = [stats.norm.ppf(1 / (1 + np.exp(-(centres + side * wide / 2)))) for side in (1, -1)]
        apart = ends[0] - ends[1]
        assert apart[2000] >= apart[np.isfinite(apart)].max() - 1e-12


@pytest.mark.parametrize("rho", [Fraction(77, 10**8), Fraction(1, 3 * 10**6), Fraction(1, 10**9), Fraction(1, 10**13)])
def test_very_small_budgets_are_kept_to_although_ledgers_round_them_up(rho: Fraction) -> None:
    rate = rate_for(rho, 1)
    assert rate == 0 or gaussian_equivalent(rate) <= rho
    assert rate > 0 or rho < Fraction(1, 10**12)
