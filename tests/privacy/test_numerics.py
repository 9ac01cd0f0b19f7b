"""Roots and minima by Brent's methods against SciPy's, to the last bit: ledgers keep what budgets were converted to."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from scipy import optimize

from dpdist.errors import InvalidInput
from dpdist.privacy import accounting, numerics


def scipys_least(function: Callable[[float], float], low: float, high: float, xtol: float) -> float:
    found = optimize.minimize_scalar(function, bounds=(low, high), method="bounded", options={"xatol": xtol})
    return float(found.fun)


def test_budgets_are_converted_as_by_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search of the accounting, over budgets from useless to absurd."""
    compared = 0

    def compare_root(function: Callable[[float], float], low: float, high: float, **options: Any) -> float:
        nonlocal compared
        root = numerics.brentq(function, low, high, **options)
        assert root == optimize.brentq(function, low, high, **options)
        compared += 1
        return root

    def compare_minimum(function: Callable[[float], float], low: float, high: float, *, xtol: float) -> float:
        nonlocal compared
        minimum = numerics.least_value(function, low, high, xtol=xtol)
        assert minimum == scipys_least(function, low, high, xtol)
        compared += 1
        return minimum

    monkeypatch.setattr("dpdist.privacy.accounting.zcdp_conversion.brentq", compare_root)
    monkeypatch.setattr("dpdist.privacy.accounting.zcdp_conversion.least_value", compare_minimum)
    chosen = random.Random(24)
    for turn in range(200):
        epsilon, delta = 10 ** chosen.uniform(-3, 2), 10 ** chosen.uniform(-15, -1)
        accounting.gaussian_epsilon(10 ** chosen.uniform(-1, 3), delta)
        calibrations: list[accounting.Calibration] = ["analytic", "zcdp"] if turn % 20 == 0 else ["analytic"]
        for calibration in calibrations:
            try:
                accounting.rho_for(epsilon, delta, calibration)
            except InvalidInput:
                assert epsilon < 0.01
    assert compared > 300


def test_other_functions_and_what_has_no_root() -> None:
    """Steps, flat and steep ones: every branch of the method, and as many steps as SciPy takes before it gives up."""
    chosen = random.Random(25)
    for _ in range(400):
        at, power, waves = chosen.uniform(-3, 3), chosen.choice([0.2, 1, 3, 5]), chosen.uniform(0, 0.9)

        def bent(x: float, at: float = at, power: float = power, waves: float = waves) -> float:
            return math.copysign(abs(x - at) ** power, x - at) * (1 + waves * math.sin(9 * x))

        low, high = -4.0, 4.0 + chosen.random()
        try:
            found = numerics.brentq(bent, low, high)
        except ArithmeticError:
            with pytest.raises(RuntimeError):
                optimize.brentq(bent, low, high)
        else:
            assert found == optimize.brentq(bent, low, high)
        for wavy in (bent, lambda x, at=at, waves=waves: abs(x - at) ** 1.5 + waves * math.cos(5 * x), abs):
            xtol = chosen.choice([1e-10, 1e-5, 0.1])
            assert numerics.least_value(wavy, low, high, xtol=xtol) == scipys_least(wavy, low, high, xtol)
    for at in (-0.3, 0.0, 1.0, 2.7):  # as far from zero on either side: the ends of the bracket are as good as each other

        def stepped(x: float, at: float = at) -> float:
            return math.copysign(1.0, x - at)

        assert numerics.brentq(stepped, -1.0, 3.0) == optimize.brentq(stepped, -1.0, 3.0)
    assert numerics.brentq(lambda x: x, 0.0, 1.0) == 0.0
    assert numerics.brentq(lambda x: x - 1, 0.0, 1.0) == 1.0
    with pytest.raises(ArithmeticError, match="no change of sign between 1 and 2"):
        numerics.brentq(lambda x: x, 1.0, 2.0)


def test_exponentials_of_any_precision() -> None:
    """Less than one from the true number, for exponents from nothing to where nothing is left."""
    chosen = random.Random(26)
    exponents = [Fraction(0), Fraction(1, 10**30), Fraction(10**12)]
    exponents += [Fraction(chosen.randrange(10 ** chosen.randrange(1, 20)), chosen.randrange(1, 10**19)) for _ in range(300)]
    for exponent in exponents:
        for bits in (64, 192, 1312):
            with mpmath.workprec(bits + 200):
                power = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator)
                assert abs(mpmath.ldexp(power, bits) - numerics.exponential(exponent, bits)) < 1
    assert numerics.exponential(Fraction(0), 64) == 2**64
