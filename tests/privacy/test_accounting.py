from __future__ import annotations

import math
import random
import sys
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from benchmarks import group_privacy
from dpdist.errors import InvalidInput
from dpdist.privacy.accounting import (
    Cap,
    Loss,
    analytic_gaussian,
    classic_noise_multiplier,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_equivalent,
    gaussian_scale,
    gaussian_slack,
    laplace_scale,
    pld_epsilon,
    rho_for,
    zcdp_delta,
    zcdp_epsilon,
)
from dpdist.privacy.accounting.gaussian_calibration import Calibration


def zcdp_noise_multiplier(epsilon: float, delta: float) -> float:
    return 1.0 / math.sqrt(2.0 * float(rho_for(epsilon, delta, "zcdp")))


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


@pytest.mark.parametrize("calibration", ["analytic", "zcdp", "classic"])
@pytest.mark.parametrize("delta", [0.0, -1e-6, 1.5, math.nan])
def test_no_calibration_takes_a_delta_that_is_no_probability(calibration: Calibration, delta: float) -> None:
    with pytest.raises(InvalidInput, match="delta"):
        rho_for(0.5, delta, calibration)
    with pytest.raises(InvalidInput, match="delta"):
        analytic_gaussian(0.5, delta)


def test_a_year_of_weekly_releases() -> None:
    assert math.sqrt(52) * analytic_gaussian(1, 1e-6) == pytest.approx(30.5, abs=0.05)
    assert math.sqrt(52) * zcdp_noise_multiplier(1, 1e-6) == pytest.approx(32.7, abs=0.05)
    assert 52 * classic_noise_multiplier(1, 1e-6 / 52) == pytest.approx(316, abs=1)
    weekly = Loss.gaussian(rho_for(1, 1e-6) / 52)
    year = sum((weekly for _ in range(52)), Loss())
    assert 1 / math.sqrt(2 * float(weekly.rho)) == pytest.approx(30.5, abs=0.05)
    assert Cap(epsilon=Fraction(1), delta=Fraction(1, 10**6)).allows(year)
    assert not Cap(epsilon=Fraction(1), delta=Fraction(1, 10**6)).allows(year + Loss.gaussian(Fraction(1, 10**7)))


def test_classic_calibration_is_refused_where_it_is_wrong() -> None:
    with pytest.raises(InvalidInput, match=r"delta=3\.1"):
        classic_noise_multiplier(12, 1e-6)


@given(st.floats(0.01, 5), st.floats(1e-12, 1e-2))
def test_conversions_agree_with_each_other(epsilon: float, delta: float) -> None:
    try:
        rho = rho_for(epsilon, delta, "zcdp")
    except InvalidInput:
        return
    assert zcdp_delta(float(rho), epsilon) <= delta
    assert zcdp_epsilon(float(rho), delta) <= epsilon * (1 + 1e-6)
    assert zcdp_delta(float(rho) * 1.001, epsilon) > delta
    exact = rho_for(epsilon, delta)
    assert exact >= rho
    multiplier = 1 / math.sqrt(2 * float(exact))
    assert gaussian_delta(multiplier, epsilon) <= delta
    assert gaussian_delta(multiplier * 0.999, epsilon) > delta
    assert gaussian_epsilon(multiplier, delta) == pytest.approx(epsilon, rel=1e-5)


def test_a_reported_epsilon_has_no_more_than_its_delta() -> None:
    """In 60 digits, for noise from a hundredth to ten million: delta was exceeded by up to 2.7e-10 of it."""
    chosen, worst = random.Random(1), -math.inf
    with mpmath.workdps(60):
        for _ in range(400):
            multiplier, delta = 10 ** chosen.uniform(-2, 7), 10 ** chosen.uniform(-15, -0.5)
            found = gaussian_epsilon(multiplier, delta)
            a, b = 1 / (2 * mpmath.mpf(multiplier)), mpmath.mpf(found) * mpmath.mpf(multiplier)
            truth = mpmath.ncdf(a - b) - mpmath.exp(mpmath.mpf(found)) * mpmath.ncdf(-a - b)
            assert truth <= delta, (multiplier, delta, float(truth / delta - 1))
            worst = max(worst, float(1 - truth / delta)) if found else worst
    assert worst < 1e-3


def exact_delta(scale: int, move: tuple[int, ...], epsilon: float) -> float:
    """delta(epsilon) of discrete Gaussians moved by integers, summed over every outcome in one or two dimensions."""
    y = np.arange(-12 * scale - max(map(abs, move)), 12 * scale + max(map(abs, move)) + 1).astype(float)
    mass = float(np.exp(-(y**2) / (2 * scale**2)).sum())
    here = [np.exp(-(y**2) / (2 * scale**2)) / mass for _ in move]
    there = [np.exp(-((y - v) ** 2) / (2 * scale**2)) / mass for v in move]
    p, q = here[0], there[0]
    for a, b in zip(here[1:], there[1:], strict=True):
        p, q = np.multiply.outer(p, a).ravel(), np.multiply.outer(q, b).ravel()
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@pytest.mark.parametrize(
    ("scale", "move"), [(1, (1,)), (2, (1,)), (3, (4,)), (10, (3,)), (2, (1, 1)), (4, (3, -2)), (9, (5, 7))]
)
def test_the_discrete_gaussian_is_within_its_slack_of_the_continuous_one(scale: int, move: tuple[int, ...]) -> None:
    """docs/noise.md: delta(epsilon) <= exp(slack) * continuous delta(epsilon - slack), on every lattice and move."""
    squared = sum(v * v for v in move)
    slack = float(gaussian_slack(squared, scale, len(move)))
    beyond = 0
    for epsilon in (0.0, 0.1, 0.3, 0.7, 1.0, 1.5, 2.5):
        multiplier = scale / math.sqrt(squared)
        truth = exact_delta(scale, move, epsilon)
        if truth < 1e-13:
            continue
        assert truth <= math.exp(slack) * gaussian_delta(multiplier, epsilon - slack) * (1 + 1e-9) + 1e-14
        beyond += truth > gaussian_delta(multiplier, epsilon) * (1 + 1e-9)
        loss = Loss.gaussian(Fraction(squared, 2 * scale**2), gaussian_slack(squared, scale, len(move)))
        assert exact_delta(scale, move, loss.epsilon(1e-3)) <= 1e-3 * (1 + 1e-9)
    if scale == 1:
        assert beyond  # without slack the continuous formula would be wrong on a coarse grid


def test_two_releases_chosen_one_after_the_other_keep_the_composed_guarantee() -> None:
    """Adaptive composition, by brute force: the second release's move depends on the first outcome."""
    scale, epsilon = 5, 1.0
    y = np.arange(-70, 71)
    p = np.exp(-(y**2) / (2 * scale**2))
    p /= p.sum()
    first_q = np.exp(-((y - 3) ** 2) / (2 * scale**2))
    first_q /= first_q.sum()
    total = 0.0
    for outcome, mass, other in zip(y, p, first_q, strict=True):
        move = 4 if outcome < 0 else -2  # both at most 4
        q = np.exp(-((y - move) ** 2) / (2 * scale**2))
        q /= q.sum()
        total += float(np.maximum(mass * p - math.exp(epsilon) * other * q, 0).sum())
    loss = Loss.gaussian(Fraction(9, 50), gaussian_slack(9, 5, 1)) + Loss.gaussian(
        Fraction(16, 50), gaussian_slack(16, 5, 1)
    )
    slack = float(loss.slack)
    assert total <= math.exp(slack) * gaussian_delta(1 / math.sqrt(2 * float(loss.rho)), epsilon - slack)


def test_slack_on_the_grid_is_negligible() -> None:
    assert 0 < float(gaussian_slack(2**60, 2**31, 10**4)) < 2e-8
    # an unknown slack (a ledger of the first version) leaves the zCDP conversion
    loss = Loss.gaussian(Fraction(1, 50), Fraction(1))
    assert loss.epsilon(1e-6) == zcdp_epsilon(0.02, 1e-6)
    with pytest.raises(InvalidInput, match="slack"):
        Loss.gaussian(Fraction(1, 50), Fraction(-1))


def test_privacy_loss_distributions_bound_every_mixture() -> None:
    """Known values: one Gaussian is the analytic one; k equal pure releases are Kairouz-Oh-Viswanath's formula."""
    gaussian = Loss.gaussian(Fraction(1, 50))
    assert pld_epsilon([gaussian], 1e-6) == pytest.approx(gaussian_epsilon(5.0, 1e-6), abs=2e-4)
    tenth = Loss.laplace(Fraction(1, 10))
    many = sum([tenth] * 50, Loss())
    found = pld_epsilon([tenth] * 50, 1e-6)

    def optimal_delta(epsilon: float) -> float:
        total = 0.0
        for i in range(51):
            probability = math.comb(50, i) * math.exp(0.1 * (50 - i)) / (1 + math.exp(0.1)) ** 50
            total += probability * max(0.0, 1 - math.exp(epsilon - 0.1 * (50 - 2 * i)))
        return total

    assert optimal_delta(found) <= 1e-6
    assert optimal_delta(found - 0.02) > 1e-6
    assert found < many.epsilon(1e-6)
    mixed = gaussian + tenth + tenth
    together = pld_epsilon([gaussian, tenth, tenth], 1e-6)
    assert pld_epsilon([gaussian], 1e-6) < together < mixed.epsilon(1e-6)
    assert pld_epsilon([], 1e-6) == 0.0


def test_without_dp_accounting_the_cure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    with pytest.raises(InvalidInput, match=r"pip install 'dpdist\[pld\]'"):
        pld_epsilon([Loss.gaussian(Fraction(1, 50))], 1e-6)


@given(st.integers(1, 2**40), st.fractions(Fraction(1, 1000), Fraction(20)))
def test_laplace_scale_is_the_least_whole_one(sensitivity: int, epsilon: Fraction) -> None:
    scale = laplace_scale(sensitivity, epsilon)
    assert sensitivity <= epsilon * scale
    assert scale == 1 or sensitivity > epsilon * (scale - 1)


@given(st.fractions(Fraction(1, 1000), Fraction(20)), st.floats(1e-12, 0.5))
def test_a_pure_release_reveals_no_more_than_its_gaussian(epsilon: Fraction, error: float) -> None:
    """Trade-off curves: whoever errs with probability ``error`` one way errs at least so often the other way."""
    mu = math.sqrt(2.0 * float(gaussian_equivalent(epsilon)))
    gaussian = ndtr(-ndtri(error) - mu)
    pure = max(1.0 - math.exp(float(epsilon)) * error, math.exp(-float(epsilon)) * (1.0 - error), 0.0)
    assert gaussian <= pure * (1 + 1e-9)


def test_the_gaussian_of_a_pure_release_is_the_least() -> None:
    corner = 1.0 / (1.0 + math.e)
    mu = math.sqrt(2.0 * float(gaussian_equivalent(Fraction(1))))
    assert ndtr(-ndtri(corner) - mu) == pytest.approx(corner, rel=1e-8)


def test_group_rule() -> None:
    assert Loss.laplace(Fraction(1, 10)).for_group(3) == Loss.laplace(Fraction(3, 10))
    grouped = Loss.gaussian(Fraction(1, 10), Fraction(1, 100)).for_group(2)
    assert (grouped.rho, grouped.slack) == (Fraction(4, 10), Fraction(2, 100))


def test_caps_tell_their_unit() -> None:
    assert str(Cap(rho=Fraction(1, 4), per="week")) == "rho=0.25 per week"
    assert str(Cap(epsilon=Fraction(1), delta=Fraction(1, 10**6))) == "epsilon=1, delta=1e-06"
    pure = Cap(epsilon=Fraction(1))
    assert (str(pure), pure.unit, pure.limit) == ("epsilon=1", "epsilon", 1)
    assert pure.remaining(Loss.laplace(Fraction(1, 3))) == Fraction(2, 3)
    assert not pure.allows(Loss.gaussian(Fraction(1, 10**9)))
    mixed = Cap(epsilon=Fraction(4), delta=Fraction(1, 10**9))
    left = mixed.remaining(Loss.laplace(Fraction(1, 4)))
    assert mixed.allows(Loss.laplace(Fraction(1, 4)) + Loss.gaussian(left))
    assert not mixed.allows(Loss.laplace(Fraction(1, 4)) + Loss.gaussian(left + Fraction(1, 10**12)))
    assert left == rho_for(4, 1e-9) - gaussian_equivalent(Fraction(1, 4))
    assert mixed.allows(Loss.laplace(Fraction(4)))  # pure releases alone need no delta
    assert not mixed.allows(Loss.laplace(Fraction(4)) + Loss.gaussian(Fraction(1, 10**12)))
    assert Cap(rho=Fraction(1, 2)).allows(Loss.laplace(Fraction(1)))
    assert not Cap(rho=Fraction(1, 2)).allows(Loss.laplace(Fraction(1)) + Loss.gaussian(Fraction(1, 10**9)))


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
    assert loss.as_gaussian == 2 * gaussian_equivalent(Fraction(1, 10))
    assert loss.epsilon(1e-6) == min(zcdp_epsilon(0.03, 1e-6), 0.2 + gaussian_epsilon(5.0, 1e-6))
    assert gaussian_epsilon(5.0, 1e-6) < zcdp_epsilon(0.02, 1e-6)
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
        lambda: laplace_scale(0, Fraction(1)),
        lambda: Loss.laplace(Fraction(0)),
    ],
)
def test_refusals(build: object) -> None:
    with pytest.raises(InvalidInput):
        build()


@pytest.mark.parametrize(
    "epsilon", [Fraction(1, 10**power) for power in range(8)] + [Fraction(3, 10**6), Fraction(7), Fraction(40)]
)
def test_the_gaussian_of_a_pure_release_does_not_hang_on_the_last_bit(epsilon: Fraction) -> None:
    """Ledgers keep sums of it, and ``verify`` computes it anew, perhaps on another machine."""
    found = gaussian_equivalent(epsilon)
    digits = str(found * 10**12)
    assert digits.isdigit()
    assert len(digits.rstrip("0")) <= 9
    if epsilon <= Fraction(1, 1000):  # mu^2 / 2 = pi epsilon^2 / 4 (1 - epsilon^2 (2 - pi/4) / 24 ...)
        exact = math.pi / 4 * float(epsilon) ** 2
        assert exact * (1 - float(epsilon) ** 2) <= found <= exact * (1 + 1e-8) + 1e-12


def test_the_documented_losses_of_several_records_are_those_of_group_privacy() -> None:
    """docs/explanation/neighbours.md has the table that ``benchmarks.group_privacy`` prints: at epsilon 1 and delta 1e-6."""
    text = (Path(__file__).parents[2] / "docs/explanation/neighbours.md").read_text()
    given = group_privacy.arguments().parse_args([])
    assert group_privacy.table(given.epsilon, given.delta, given.changes) in text
    first = float(rho_for(1.0, 1e-6, "analytic"))
    for row in group_privacy.rows(1.0, 1e-6, [1, 2, 5, 10, 50]):
        changes, pure, rho, epsilon, any_epsilon, any_delta = (float(cell.replace("nothing", "1")) for cell in row)
        assert pure == any_epsilon == changes
        assert rho == pytest.approx(changes**2 * first, rel=1e-3)
        mu = changes * math.sqrt(2 * first)  # Balle & Wang 2018, Theorem 8
        near = [epsilon - 0.01, epsilon + 0.01]
        low, high = (float(ndtr(mu / 2 - each / mu) - math.exp(each) * ndtr(-mu / 2 - each / mu)) for each in near)
        assert low > 1e-6 > high
        steps = sum(math.exp(step) for step in range(int(changes)))
        assert any_delta == pytest.approx(min(1.0, 1e-6 * steps), rel=0.05)
