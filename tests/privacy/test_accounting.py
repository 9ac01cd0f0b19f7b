from __future__ import annotations

import doctest
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdist.errors import InvalidInput
from dpdist.privacy import accounting
from dpdist.privacy.accounting import (
    Cap,
    Loss,
    analytic_gaussian,
    classic_noise_multiplier,
    gaussian_delta,
    gaussian_scale,
    rho_for,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_noise_multiplier,
)


def test_doctests() -> None:
    assert doctest.testmod(accounting).failed == 0


@pytest.mark.parametrize(
    ("epsilon", "delta", "classic", "zcdp", "analytic"),
    [
        (0.1, 1e-4, 44.51, 27.77, 24.51),
        (0.1, 1e-6, 53.87, 39.46, 36.30),
        (1, 1e-6, 5.387, 4.531, 4.225),
        (1, 1e-9, 6.545, 5.779, 5.495),
        (4, 1e-6, 1.347, 1.268, 1.194),
    ],
)
def test_table_of_the_design_note(epsilon: float, delta: float, classic: float, zcdp: float, analytic: float) -> None:
    assert classic_noise_multiplier(epsilon, delta) == pytest.approx(classic, abs=6e-3)
    assert zcdp_noise_multiplier(epsilon, delta) == pytest.approx(zcdp, abs=6e-3)
    assert analytic_gaussian(epsilon, delta) == pytest.approx(analytic, abs=6e-3)


def test_a_year_of_weekly_releases() -> None:
    assert math.sqrt(52) * analytic_gaussian(1, 1e-6) == pytest.approx(30.5, abs=0.05)
    assert math.sqrt(52) * zcdp_noise_multiplier(1, 1e-6) == pytest.approx(32.7, abs=0.05)
    weekly = Loss.gaussian(rho_for(1, 1e-6) / 52)
    year = sum((weekly for _ in range(52)), Loss())
    assert Cap(epsilon=Fraction(1), delta=Fraction(1, 10**6)).allows(year)
    assert not Cap(epsilon=Fraction(1), delta=Fraction(1, 10**6)).allows(year + Loss.gaussian(Fraction(1, 10**9)))


def test_classic_calibration_is_refused_where_it_is_wrong() -> None:
    with pytest.raises(InvalidInput, match=r"delta=3\.1"):
        classic_noise_multiplier(12, 1e-6)


@given(st.floats(0.01, 5), st.floats(1e-12, 1e-2))
def test_conversions_agree_with_each_other(epsilon: float, delta: float) -> None:
    try:
        rho = rho_for(epsilon, delta)
    except InvalidInput:
        return
    assert zcdp_delta(float(rho), epsilon) <= delta
    assert zcdp_epsilon(float(rho), delta) <= epsilon * (1 + 1e-6)
    assert zcdp_delta(float(rho) * 1.001, epsilon) > delta


@given(st.floats(1e-4, 2), st.floats(0.05, 5))
def test_zcdp_delta_is_the_infimum_over_orders(rho: float, epsilon: float) -> None:
    orders = 1 + np.exp(np.linspace(-8, 8, 4001))
    logs = (orders - 1) * (orders * rho - epsilon) - np.log(orders - 1) + orders * np.log1p(-1 / orders)
    grid = math.exp(min(0.0, logs.min()))
    assert zcdp_delta(rho, epsilon) == pytest.approx(grid, rel=1e-3)
    assert zcdp_delta(rho, epsilon) <= grid * (1 + 1e-9)


@given(st.floats(0.3, 50), st.floats(0.05, 4))
def test_zcdp_is_never_better_than_the_truth(multiplier: float, epsilon: float) -> None:
    assert zcdp_delta(1 / (2 * multiplier**2), epsilon) >= gaussian_delta(multiplier, epsilon) * (1 - 1e-9)


@given(st.integers(1, 10**30), st.fractions(Fraction(1, 10**6), Fraction(100)))
def test_scale_is_the_least_whole_one(sensitivity_squared: int, rho: Fraction) -> None:
    scale = gaussian_scale(sensitivity_squared, rho)
    assert 2 * rho * scale**2 >= sensitivity_squared
    assert scale == 1 or 2 * rho * (scale - 1) ** 2 < sensitivity_squared


def test_mixed_losses_compose_both_ways() -> None:
    loss = Loss.gaussian(Fraction(1, 50)) + Loss.laplace(Fraction(1, 10)) + Loss.laplace(Fraction(1, 10))
    assert loss.zcdp == Fraction(1, 50) + 2 * Fraction(1, 200)
    assert loss.pure == Fraction(1, 5)
    assert loss.epsilon(1e-6) == min(zcdp_epsilon(0.03, 1e-6), 0.2 + zcdp_epsilon(0.02, 1e-6))
    assert loss.epsilon(0.0) == math.inf
    assert Loss.laplace(Fraction(1, 2)).epsilon(0.0) == 0.5
    assert Loss().epsilon(0.0) == 0.0


@pytest.mark.parametrize(
    "build",
    [
        lambda: Cap(),
        lambda: Cap(rho=Fraction(1), epsilon=Fraction(1)),
        lambda: Cap(rho=Fraction(0)),
        lambda: Cap(rho=Fraction(1), per="year"),
        lambda: Cap(epsilon=Fraction(1), delta=Fraction(1)),
        lambda: Loss.gaussian(Fraction(-1)),
        lambda: Loss.gaussian(0.5),
        lambda: rho_for(1, 0),
        lambda: rho_for(0, 1e-6),
        lambda: rho_for(1e-9, 1e-9),
        lambda: gaussian_scale(0, Fraction(1)),
    ],
)
def test_refusals(build: object) -> None:
    with pytest.raises(InvalidInput):
        build()  # type: ignore[operator]
