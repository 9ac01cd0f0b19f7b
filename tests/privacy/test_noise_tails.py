"""Tails of the noise: bounds against sums of many digits, and values beyond a threshold against their exact distribution."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

from dpdist.privacy import noise_tails
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE, Kind
from dpdist.privacy.noise_tails import Digits, draw_tail, is_below_exponential, mills_bounds, tail_bounds
from tests.case_selection import always

CASES = [(1, 1), (2, 3), (10, 30), (63, 100), (65, 100), (100, 900), (1000, 2500)]


def tail_of(kind: Kind, scale: int, threshold: int) -> float:
    """P(X >= threshold) by sums of floating-point numbers of 64 bits."""
    values = np.arange(-40 * scale, 40 * scale + 1).astype(np.longdouble)
    weights = np.exp(-(values**2) / (2 * scale**2)) if kind is GAUSSIAN else np.exp(-abs(values) / scale)
    return float(weights[values >= threshold].sum() / weights.sum())


@pytest.mark.parametrize("kind", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize(("scale", "threshold"), CASES)
def test_bounds_of_tails_hold_the_sum(kind: Kind, scale: int, threshold: int) -> None:
    low, high = tail_bounds(kind, scale, threshold, 192)
    assert 0 <= high - low <= 2
    assert low / 2**192 == pytest.approx(tail_of(kind, scale, threshold), rel=1e-14)
    assert kind.tail(threshold, scale) == pytest.approx(low / 2**192, rel=0.1 if scale < 10 else 2e-2)
    assert kind.tail(threshold, scale) + kind.tail(1 - threshold, scale) == pytest.approx(1)


@pytest.mark.parametrize(("scale", "threshold"), [(40, 80), (64, 300)])
def test_the_series_of_large_scales_agrees_with_the_sum(scale: int, threshold: int) -> None:
    """To sixty digits, in the scales at which both are there."""
    summed = tail_bounds(GAUSSIAN, scale, threshold, 200)
    series = noise_tails._smooth_tail(scale, threshold, 200)
    assert series[0] <= summed[1]
    assert summed[0] <= series[1]
    assert series[1] - series[0] <= 16


def test_more_digits_lie_between_fewer() -> None:
    few, many = (tail_bounds(GAUSSIAN, 10 << 24, 90 << 24, bits) for bits in (128, 1024))
    assert few[0] << 896 <= many[0] <= many[1] <= few[1] << 896
    assert many[0] / 2**1024 == pytest.approx(scipy.stats.norm.sf(9, loc=-0.5 / (10 << 24)), rel=1e-6)


def test_mills_ratio() -> None:
    for x in (Fraction(1), Fraction(7, 3), Fraction(12)):
        low, high = mills_bounds(x, 60)
        assert low / 2**60 == pytest.approx(scipy.stats.norm.sf(float(x)) / scipy.stats.norm.pdf(float(x)), rel=1e-12)
        assert high - low <= 3


def numbered(seed: int) -> Callable[[int], Digits]:
    """Uniform numbers by their number."""
    return lambda number: (
        lambda bits: int.from_bytes(hashlib.shake_256(f"{seed},{number}".encode()).digest(bits // 8), "big")
    )


def steps_of(rule: Callable[[Digits], int], most: int, bits: int = 192) -> list[float]:
    """The probability with which a rule of one uniform number that falls as it rises gives 0, 1, ..., by bisection of the number."""
    ends = []
    for value in range(most + 1):
        low, high = 0, (1 << bits) - 1  # the least number that gives at most this value
        while low < high:
            middle = (low + high) // 2
            given = rule(lambda wanted, middle=middle: middle << wanted >> bits)
            low, high = (low, middle) if given <= value else (middle + 1, high)
        ends.append(low / 2**bits)
    return [1 - ends[0], *(before - here for before, here in zip(ends, ends[1:], strict=False))]


@pytest.mark.parametrize(
    ("kind", "scale", "threshold"),
    always([(GAUSSIAN, 2, 3), (LAPLACE, 2, 5)], [(GAUSSIAN, 2, 3), (GAUSSIAN, 3, 3), (LAPLACE, 2, 5)]),
)
def test_values_beyond_a_threshold_have_the_exact_distribution(kind: Kind, scale: int, threshold: int) -> None:
    """The product's proposals and decisions, whose probabilities are found by bisection, give the dense law to 1e-12."""
    rate = Fraction(threshold, scale**2) if kind is GAUSSIAN else Fraction(1, scale)
    proposed = np.array(steps_of(lambda digits: noise_tails._draw_geometric(digits, rate), 60))
    values = np.arange(threshold, threshold + 61)
    if kind is GAUSSIAN:
        accepted = [
            steps_of(lambda digits, g=g: int(is_below_exponential(digits, Fraction(g**2, 2 * scale**2))), 0)[0]
            for g in range(61)
        ]
        proposed = proposed * (1 - np.array(accepted))
        dense = np.exp(-(values.astype(np.longdouble) ** 2) / (2 * scale**2))
    else:
        dense = np.exp(-values.astype(np.longdouble) / scale)
        dense *= (1 - np.exp(-np.longdouble(1) / scale)) / dense[0] * proposed.sum() / proposed.sum()
        assert np.abs(proposed - dense.astype(float)).max() < 1e-12
        return
    assert np.abs(proposed / proposed.sum() - (dense / dense.sum()).astype(float)).max() < 1e-12


@pytest.mark.parametrize(("kind", "scale", "threshold"), [(GAUSSIAN, 2, 3), (GAUSSIAN, 30 << 24, 45 << 24), (LAPLACE, 3, 4)])
def test_drawn_values_agree_with_the_distribution(kind: Kind, scale: int, threshold: int) -> None:
    """Chi-square of 3,000 draws at 1e-4; draws beyond another threshold are found."""
    draws = np.array([draw_tail(kind, scale, threshold, numbered(seed)) for seed in range(3000)])
    assert draws.min() >= threshold
    width = max(1, scale // 4)
    edges = threshold + width * np.arange(9)
    tails = np.array([tail_bounds(kind, scale, int(edge), 128)[0] / 2**128 for edge in edges])
    expected = -np.diff([*tails, 0.0]) / tails[0]
    seen = np.bincount(np.minimum((draws - threshold) // width, 8), minlength=9)
    assert scipy.stats.chisquare(seen, expected * 3000).pvalue > 1e-4
    shifted = np.bincount(np.minimum((draws + width // 2 + 1 - threshold) // width, 8), minlength=9)
    assert scipy.stats.chisquare(shifted, expected * 3000).pvalue < 1e-4


def test_values_are_whole_numbers_of_any_size() -> None:
    """Beyond 63 bits, and of uniform numbers that begin with 999 zeros."""
    assert draw_tail(LAPLACE, 2**50, 2**62 - 1, numbered(1)) > 2**62
    tiny = draw_tail(LAPLACE, 2**20, 1, lambda number: lambda bits: 1 << bits >> 1000)
    assert tiny == pytest.approx(2**20 * 1000 * np.log(2), rel=1e-2)
