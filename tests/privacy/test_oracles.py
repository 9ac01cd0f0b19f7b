"""Every conversion of the accountant against accountants that others wrote: dp-accounting (Google) and OpenDP."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

from dpdist.privacy.accounting import (
    Cap,
    Loss,
    analytic_gaussian,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_equivalent,
    gaussian_scale,
    gaussian_slack,
    laplace_scale,
    rho_for,
    zcdp_delta,
    zcdp_epsilon,
)
from tests.audits.auditor_installs import OPENDP
from tests.case_selection import slow_after_first

RHOS, DELTAS, EPSILONS = (1e-4, 0.02, 0.5, 3.0), (1e-3, 1e-6, 1e-10), (0.1, 1.0, 3.0)
STEP = 1e-4
"""Distributions of dp-accounting are rounded up by as much a release."""


@pytest.fixture(scope="module")
def pld() -> Any:
    pytest.importorskip("dp_accounting")
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution


@pytest.fixture(scope="module")
def opendp() -> Iterator[Any]:
    sys.path.append(str(OPENDP.installed()))
    import opendp.prelude

    opendp.prelude.enable_features("contrib")
    yield opendp.prelude
    sys.path.pop()


def integers(opendp: Any, norm: str) -> tuple[Any, Any]:
    """Vectors of whole numbers with a distance."""
    distance = opendp.l2_distance if norm == "l2" else opendp.l1_distance
    return opendp.vector_domain(opendp.atom_domain(T="i64")), distance(T="i64")


@pytest.mark.parametrize("rho", RHOS)
def test_zcdp(rho: float, pld: Any) -> None:
    """Theirs is the least over some orders, ours over all of them: never above theirs, and close to it."""
    import dp_accounting

    orders = [1 + 10 ** (place / 100) for place in range(-300, 401)]
    accountant = dp_accounting.rdp.RdpAccountant(orders).compose(dp_accounting.ZCDpEvent(rho))
    for delta in DELTAS:
        theirs = accountant.get_epsilon(delta)
        assert theirs * (1 - 1e-3) - 1e-6 <= zcdp_epsilon(rho, delta) <= theirs * (1 + 1e-9)
    for epsilon in EPSILONS:
        theirs = accountant.get_delta(epsilon)
        assert zcdp_delta(rho, epsilon) <= theirs * (1 + 1e-9)
        assert zcdp_delta(rho, epsilon) == pytest.approx(theirs, rel=1e-2, abs=1e-280)


@pytest.mark.parametrize("delta", slow_after_first(1, DELTAS))
def test_the_gaussian(delta: float, pld: Any) -> None:
    from dp_accounting import gaussian_mechanism as theirs

    for epsilon in EPSILONS:
        assert analytic_gaussian(epsilon, delta) == pytest.approx(theirs.get_sigma_gaussian(epsilon, delta), rel=1e-6)
        assert gaussian_delta(analytic_gaussian(epsilon, delta), epsilon) == pytest.approx(delta, rel=1e-6)
    for rho in RHOS:
        sigma = 1 / math.sqrt(2 * rho)
        assert gaussian_epsilon(sigma, delta) == pytest.approx(theirs.get_epsilon_gaussian(sigma, delta), rel=1e-6, abs=1e-9)
        found = pld.from_gaussian_mechanism(sigma, value_discretization_interval=STEP).get_epsilon_for_delta(delta)
        assert gaussian_epsilon(sigma, delta) == pytest.approx(found, rel=1e-3, abs=2 * STEP)


@pytest.mark.parametrize(("moved", "rho"), [(1, "1/8"), (3, "1/2"), (7, "1/50"), (20, 2)])
def test_the_discrete_gaussian(moved: int, rho: Any, pld: Any) -> None:
    """On coarse grids: the epsilon that is reported, slack and all, is never below that of the distribution itself."""
    scale = gaussian_scale(moved**2, Fraction(rho))
    loss = Loss.gaussian(Fraction(moved**2, 2 * scale**2), gaussian_slack(moved**2, scale, 1))
    assert loss.rho <= Fraction(rho)
    exact = pld.from_discrete_gaussian_mechanism(scale, sensitivity=moved, value_discretization_interval=STEP)
    for delta in DELTAS:
        truth = exact.get_epsilon_for_delta(delta) - STEP  # theirs is rounded up
        assert truth <= loss.epsilon(delta) <= truth + float(loss.slack) + 0.05 * truth + 2 * STEP


@pytest.mark.parametrize(("moved", "epsilon"), [(1, "1/3"), (4, 1), (10, "7/5")])
def test_the_discrete_laplace(moved: int, epsilon: Any, pld: Any) -> None:
    scale = laplace_scale(moved, Fraction(epsilon))
    exact = pld.from_discrete_laplace_mechanism(1 / scale, sensitivity=moved, value_discretization_interval=STEP)
    assert (
        exact.get_epsilon_for_delta(0.0) - STEP <= float(Fraction(epsilon)) == Loss.laplace(Fraction(epsilon)).epsilon(0.0)
    )
    wider = pld.from_discrete_laplace_mechanism(1 / max(1, scale - 1), sensitivity=moved, value_discretization_interval=STEP)
    assert scale == 1 or wider.get_epsilon_for_delta(0.0) > float(Fraction(epsilon)) * (1 - 1e-9)


def response(pld: Any, epsilon: float) -> Any:
    """The pair of distributions that no mechanism of that epsilon tells apart better."""
    return pld.from_randomized_response(2 / (1 + math.exp(epsilon)), 2, value_discretization_interval=STEP)


@pytest.mark.parametrize("epsilon", slow_after_first(1, ["1/10", "1", pytest.param("4", marks=pytest.mark.slow)]))
def test_the_gaussian_that_stands_for_a_pure_release(epsilon: str, pld: Any) -> None:
    """It reveals at least as much, also where several are composed; a tenth less would not."""
    rho = float(gaussian_equivalent(Fraction(epsilon)))
    for times in (1, 3):
        pure = response(pld, float(Fraction(epsilon))).self_compose(times)
        gaussian = pld.from_gaussian_mechanism(1 / math.sqrt(2 * rho * times), value_discretization_interval=STEP)
        for at in (0.0, 0.3 * float(Fraction(epsilon)), float(Fraction(epsilon))):
            assert pure.get_delta_for_epsilon(at) <= gaussian.get_delta_for_epsilon(at) * (1 + 1e-3) + 1e-4
    smaller = pld.from_gaussian_mechanism(1 / math.sqrt(1.8 * rho), value_discretization_interval=STEP)
    assert response(pld, float(Fraction(epsilon))).get_delta_for_epsilon(0.0) > smaller.get_delta_for_epsilon(0.0) * 1.01


@pytest.mark.parametrize("size", [2, 5])
def test_groups(size: int, pld: Any) -> None:
    one = Loss.gaussian(Fraction(1, 18))
    several = pld.from_gaussian_mechanism(3.0, sensitivity=size, value_discretization_interval=STEP)
    assert one.for_group(size).epsilon(1e-6) == pytest.approx(several.get_epsilon_for_delta(1e-6), rel=1e-3)
    pure = pld.from_laplace_mechanism(4.0, sensitivity=size, value_discretization_interval=STEP)
    assert Loss.laplace(Fraction(1, 4)).for_group(size).epsilon(0.0) == pytest.approx(
        pure.get_epsilon_for_delta(1e-12), abs=2 * STEP
    )


@pytest.mark.parametrize("seed", range(6))
def test_what_a_cap_allows(seed: int, pld: Any) -> None:
    """Releases are charged until the cap refuses; what was allowed is within (epsilon, delta) by their composition."""
    chosen = random.Random(seed)
    epsilon, delta = chosen.choice([0.5, 1.0, 2.0]), chosen.choice([1e-5, 1e-8])
    cap, spent, parts = Cap(epsilon=Fraction(epsilon), delta=Fraction(delta)), Loss(), list[Any]()
    rule = "exact"
    whole = rho_for(epsilon, delta)
    while len(parts) < 60:
        if chosen.random() < 0.3:
            pure = Fraction(chosen.randint(1, 20), 100) * Fraction(epsilon)
            charge, part = Loss.laplace(pure), response(pld, float(pure))
        else:
            rho = whole * Fraction(chosen.randint(1, 30), 100)
            charge = Loss.gaussian(rho)
            part = pld.from_gaussian_mechanism(1 / math.sqrt(2 * float(rho)), value_discretization_interval=STEP)
        if not cap.allows(spent + charge, rule):
            break
        spent, parts = spent + charge, [*parts, part]
    assert parts
    together = parts[0]
    for part in parts[1:]:
        together = together.compose(part)
    assert together.get_epsilon_for_delta(delta) <= epsilon + STEP * len(parts)
    assert together.get_epsilon_for_delta(delta) <= spent.epsilon(delta) + STEP * len(parts)


@pytest.mark.slow
def test_opendp_on_noise_over_whole_numbers(opendp: Any) -> None:
    """The rho of discrete Gaussian noise, the epsilon of discrete Laplace noise, of one change and of groups."""
    for moved, scale in ((1, 3), (5, 11), (274, 10**4)):
        gaussian = opendp.m.make_gaussian(*integers(opendp, "l2"), scale=float(scale))
        laplace = opendp.m.make_laplace(*integers(opendp, "l1"), scale=float(scale))
        one, pure = Loss.gaussian(Fraction(moved**2, 2 * scale**2)), Loss.laplace(Fraction(moved, scale))
        for size in (1, 2, 7):
            assert gaussian.map(size * moved) == pytest.approx(float(one.for_group(size).rho), rel=1e-12)
            assert laplace.map(size * moved) == pytest.approx(float(pure.for_group(size).pure), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("rho", RHOS)
def test_opendp_on_zcdp_and_composition(rho: float, opendp: Any) -> None:
    def gaussian(amount: float) -> Any:
        return opendp.m.make_gaussian(*integers(opendp, "l2"), scale=1000 / math.sqrt(2 * amount))

    both = opendp.c.make_composition([gaussian(rho), gaussian(2 * rho)])
    assert both.map(1000) == pytest.approx(3 * rho, rel=1e-9)
    profile = opendp.c.make_zCDP_to_approxDP(both).map(1000)
    for delta in DELTAS:
        assert zcdp_epsilon(3 * rho, delta) == pytest.approx(profile.epsilon(delta), rel=1e-3, abs=1e-6)
        assert zcdp_epsilon(3 * rho, delta) <= profile.epsilon(delta) * (1 + 1e-9)
    for epsilon in EPSILONS:
        theirs = profile.delta(epsilon)
        assert zcdp_delta(3 * rho, epsilon) <= theirs * (1 + 1e-9)
        assert zcdp_delta(3 * rho, epsilon) == pytest.approx(theirs, rel=1e-3 if theirs < 0.5 else 0.02, abs=1e-250)
    pure = opendp.c.make_pureDP_to_zCDP(opendp.m.make_laplace(*integers(opendp, "l1"), scale=20.0))
    assert pure.map(9) == pytest.approx(float(Loss.laplace(Fraction(9, 20)).zcdp), rel=1e-9)
