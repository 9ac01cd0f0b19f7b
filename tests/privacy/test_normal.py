"""The normal distribution that amounts and reports are converted by, against SciPy's."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.special import erfinv, log_ndtr, ndtri_exp

from dpdist.privacy import accounting, numerics
from dpdist.privacy.accounting import laplace_calibration


def test_the_tail_known_by_hand() -> None:
    assert numerics.log_cdf(0.0) == math.log(0.5)
    assert numerics.log_cdf(-1.959963984540054) == pytest.approx(math.log(0.025), rel=1e-14)
    assert numerics.log_cdf(-1e5) == pytest.approx(-5e9 - math.log(1e5) - numerics.HALF_LOG_OF_TWO_PI, rel=1e-15)


def test_the_tail_is_scipys() -> None:
    """On both sides of every border between two ways to compute it, and everywhere between; far right only tiny numbers differ."""
    borders = [border + side for border in (-1.0, numerics.FAR, -38.0) for side in (-1e-9, 0.0, 1e-9)]
    points = [*borders, *np.random.default_rng(24).uniform(-80.0, 12.0, 2000)]
    found = [numerics.log_cdf(float(x)) for x in points]
    np.testing.assert_allclose(found, log_ndtr(points), rtol=2e-14, atol=0.0)


def test_reports_are_what_scipy_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """To ten digits, of which commands print six."""
    randoms = random.Random(24)
    pairs = [(10 ** randoms.uniform(-2, 2), 10 ** randoms.uniform(-15, -2)) for _ in range(200)]
    ours = [accounting.gaussian_epsilon(multiplier, delta) for multiplier, delta in pairs]
    monkeypatch.setattr("dpdist.privacy.accounting.zcdp_conversion.log_cdf", log_ndtr)
    theirs = [accounting.gaussian_epsilon(multiplier, delta) for multiplier, delta in pairs]
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-15)


def test_budgets_buy_what_they_bought_by_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last digit: ledgers hold amounts that were converted by SciPy's distribution."""
    pairs = list(product((0.01, 0.1, 0.3, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 10.0), (1e-4, 1e-6, 1e-8, 1e-10)))
    ours = [accounting.rho_for(*pair) for pair in pairs]
    monkeypatch.setattr("dpdist.privacy.accounting.zcdp_conversion.log_cdf", log_ndtr)
    assert ours == [accounting.rho_for(*pair) for pair in pairs]


def test_the_gaussian_beside_a_pure_release_is_scipys() -> None:
    """Near nothing, on both sides of one, and where probabilities of the tail are no numbers any more."""
    for epsilon in (1e-300, 1e-9, 0.001, 0.5, math.nextafter(1.0, 0.0), 1.0, 3.0, 40.0, 2000.0, 1e6):
        if epsilon < 1:
            half = math.sqrt(2.0) * float(erfinv(math.tanh(epsilon / 2.0)))
        else:
            half = -float(ndtri_exp(-float(np.logaddexp(0.0, epsilon))))
        assert laplace_calibration._half_distance(epsilon) == pytest.approx(half, rel=1e-11)
        assert laplace_calibration.epsilon_dominated_by(2.0 * half * half) == pytest.approx(epsilon, rel=1e-9)
    steps = [Fraction(k, 100) for k in range(1, 400)]
    found = [float(laplace_calibration.gaussian_equivalent(step)) for step in steps]
    assert all(few < more for few, more in zip(found, found[1:], strict=False))
