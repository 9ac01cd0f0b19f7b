"""The normal distribution of reports against SciPy's, which amounts are converted by."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from scipy.special import log_ndtr

from dpdist.privacy import accounting, roots


def test_the_tail_known_by_hand() -> None:
    assert roots.log_cdf(0.0) == math.log(0.5)
    assert roots.log_cdf(-1.959963984540054) == pytest.approx(math.log(0.025), rel=1e-14)
    assert roots.log_cdf(-1e5) == pytest.approx(-5e9 - math.log(1e5) - roots.HALF_LOG_OF_TWO_PI, rel=1e-15)


def test_the_tail_is_scipys() -> None:
    """On both sides of every border between two ways to compute it, and everywhere between; far right only tiny numbers differ."""
    borders = [border + side for border in (-1.0, roots.FAR, -38.0) for side in (-1e-9, 0.0, 1e-9)]
    points = [*borders, *np.random.default_rng(24).uniform(-80.0, 12.0, 2000)]
    found = [roots.log_cdf(float(x)) for x in points]
    np.testing.assert_allclose(found, log_ndtr(points), rtol=2e-14, atol=0.0)


def test_reports_are_what_scipy_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """To ten digits, of which commands print six."""
    randoms = random.Random(24)
    pairs = [(10 ** randoms.uniform(-2, 2), 10 ** randoms.uniform(-15, -2)) for _ in range(200)]
    ours = [accounting.gaussian_epsilon(multiplier, delta) for multiplier, delta in pairs]
    monkeypatch.setattr("dpdist.privacy.accounting.conversion.log_cdf", log_ndtr)
    theirs = [accounting.gaussian_epsilon(multiplier, delta) for multiplier, delta in pairs]
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-15)
