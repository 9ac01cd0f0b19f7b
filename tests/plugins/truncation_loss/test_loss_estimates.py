"""What bounds leave out: intervals on simulated noise, and numbers that are computed by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpdist.plugins.truncation_loss.loss_estimates import (
    DETECTION_ERRORS,
    LAPLACE_DETECTION_ERRORS,
    BoundLossEstimate,
    LossHistogram,
    estimate_bound_loss,
)
from dpdist.plugins.truncation_loss.noisy_loss import UNIT, NoisyBoundLoss, calibrate_bound_loss, size_bin_ends
from dpdist.privacy.accounting import Loss
from tests.case_selection import slow_after_first

BOUND, MOST = 10, 1000


def numbers(name: str, many: int = 30_000) -> np.ndarray:
    """Records of every person, at most as many as bins tell of: the claims are said to hold if nobody has more."""
    state = np.random.default_rng(1)
    drawn = {
        "lognormal": lambda: np.maximum(1, np.exp(state.normal(1.5, 1, many)).round()),
        "pareto": lambda: state.pareto(1.8, many) * 3 + 1,
        "poisson": lambda: state.poisson(7, many) + 1,
    }[name]()
    return np.minimum(drawn.astype(np.int64), BOUND + MOST)


def estimate_loss(rule: NoisyBoundLoss, values: np.ndarray, deviation: float | None = None) -> BoundLossEstimate:
    scales, ends = (UNIT, UNIT, UNIT / rule.records), size_bin_ends(MOST).astype(np.float64)
    detection = float(rule.noise.half_width_95(1.0)), LAPLACE_DETECTION_ERRORS if rule.loss.pure else DETECTION_ERRORS
    return estimate_bound_loss(
        values, rule.noise.deviation if deviation is None else deviation, scales, ends, 2 * UNIT, *detection
    )


LEAST, MOST_COVERED, ALARM, RELEASES = 0.95, 0.97, 1e-6, 1000
"""Intervals are a little wider than 95 % need: ends are rounded outwards, and what a bin hides is added. Each count of covered releases is
compared with the binomial law of both ends, which a right interval leaves in one of a million runs of the test."""


def covered(name: str, budget: Loss, taken_for: float = 1.0) -> dict[str, np.ndarray]:
    """Which of many simulated releases an interval holds for: the persons beyond, the records of those who are seen, and all records.

    Args:
        taken_for: what the reader takes the deviation of the noise for, as a part of it.
    """
    own, rule = numbers(name), calibrate_bound_loss(MOST, BOUND, (), budget, "add-remove")
    counted, lost = np.minimum(own, BOUND), np.maximum(own - BOUND, 0)
    exact, state = rule.person_totals(counted, lost).astype(np.float64), np.random.default_rng(7)
    draw = state.laplace if budget.pure else state.normal
    held: dict[str, list[bool]] = {"beyond": [], "records": [], "all_records": [], "far": []}
    for _ in range(RELEASES):
        noisy = exact + draw(0, rule.noise.scale, exact.size)
        found = estimate_loss(rule, noisy, taken_for * rule.noise.deviation).persons()
        seen = lost[lost <= found["up_to"]].sum()
        for claim, true in (("beyond", (lost > 0).mean()), ("records", seen / (seen + counted.sum()))):
            held[claim].append(found[claim]["low_95"] - 5e-5 <= true <= found[claim]["high_95"] + 5e-5)
        if "all_records" in found:
            held["all_records"].append(found["all_records"]["low_95"] <= own.sum() <= found["all_records"]["high_95"])
        held["far"].append(found["up_to"] > 4 * lost.max())
    return {claim: np.array(cases) for claim, cases in held.items()}


FEWEST, MOST_HELD = stats.binom.ppf(ALARM, RELEASES, LEAST), stats.binom.isf(ALARM, RELEASES, MOST_COVERED)


@pytest.mark.statistical
@pytest.mark.parametrize("budget", slow_after_first(1, [Loss.gaussian(Fraction(1, 200)), Loss.laplace(Fraction(1, 10))]))
@pytest.mark.parametrize("name", ["lognormal", "pareto", "poisson"])
def test_intervals_hold_what_they_say(name: str, budget: Loss) -> None:
    """Between 95 and 97 of a hundred; that of all records, which adds what every bin hides, at least 95."""
    held = covered(name, budget)
    for claim in ("beyond", "records"):
        assert FEWEST <= held[claim].sum() <= MOST_HELD, claim
    assert held["all_records"].size in (0, RELEASES)  # noise does not decide whether it is said
    assert held["all_records"].size == 0 or held["all_records"].sum() >= FEWEST
    assert held["far"].sum() <= stats.binom.isf(ALARM, RELEASES, 0.01)


@pytest.mark.statistical
@pytest.mark.parametrize(("taken_for", "fails"), [(0.6, "too few"), (1.8, "too many")])
def test_intervals_of_another_noise_are_found(taken_for: float, fails: str) -> None:
    """Planted: a reader who takes the noise for less, or for more."""
    held = covered("lognormal", Loss.gaussian(Fraction(1, 200)), taken_for)
    for claim in ("beyond", "records"):
        assert (held[claim].sum() < FEWEST) if fails == "too few" else (held[claim].sum() > MOST_HELD), claim


def test_without_noise_all_is_exact() -> None:
    """By hand: five persons with 1, 10, 11, 13 and 30 records, of which 10 count."""
    rule = calibrate_bound_loss(MOST, BOUND, (), Loss.gaussian(Fraction(1)), "add-remove")
    own = np.array([1, 10, 11, 13, 30])
    exact = rule.person_totals(np.minimum(own, 10), np.maximum(own - 10, 0)).astype(np.float64)
    found = estimate_loss(rule, exact, deviation=1e-9).persons()
    assert found["beyond"] == {"share": 0.6, "low_95": 0.6, "high_95": 0.6}
    assert found["up_to"] == 32
    assert found["records"]["share"] == round(24 / 65, 4)
    assert found["all_records"] == {"estimate": 65.0, "low_95": 65.0, "high_95": 65.0}


@pytest.mark.parametrize("seen", [DETECTION_ERRORS, LAPLACE_DETECTION_ERRORS])
def test_noise_alone_is_seldom_seen(seen: float) -> None:
    """On an empty ladder, in one draw of thousands. With the threshold of a Gaussian, Laplace noise is seen in three of a thousand."""
    state, ends = np.random.default_rng(9), size_bin_ends(2**11).astype(np.float64)
    noise = (
        state.normal(0, 1, (20_000, ends.size))
        if seen == DETECTION_ERRORS
        else state.laplace(0, 0.5**0.5, (20_000, ends.size))
    )
    reached = [LossHistogram(ends, each * ends, 1.0, seen).last_occupied_bin for each in noise]
    assert np.count_nonzero(reached) <= 20


def test_amounts_by_hand() -> None:
    """Amounts from 0 to 160, a sixteenth of which is 10: one is 5 above, one 800 above, one 20 below."""
    rule = calibrate_bound_loss(None, 1, ("amount",), Loss.gaussian(Fraction(1)), "add-remove")
    exact = rule.amount_totals(np.array([0.0, 0.0, 0.0, 0.5, 80.0, -2.0])).astype(np.float64)
    found = estimate_bound_loss(
        exact, 1e-9, (UNIT, UNIT, UNIT), size_bin_ends(2**11).astype(np.float64), 2 * UNIT, 1.96, DETECTION_ERRORS
    ).amounts(10.0)
    assert [found[name]["share"] for name in ("outside", "above", "below")] == [0.5, 0.3333, 0.1667]
    assert found["excess"]["estimate"] == pytest.approx(5 + 800 - 20, abs=1e-3)
    assert found["up_to"] == [1280.0, 20.0]


def test_all_records_are_said_where_noise_is_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers, with a limit just below and just above what the noise of all rungs comes to."""
    rule = calibrate_bound_loss(MOST, BOUND, (), Loss.gaussian(Fraction(1, 200)), "add-remove")
    own = numbers("poisson")
    counted = np.minimum(own, BOUND)
    exact = estimate_loss(rule, rule.person_totals(counted, np.maximum(own - BOUND, 0)).astype(np.float64))
    whole = exact.histograms[0].total(exact.width, whole=True)
    share = (whole.high - whole.value) / counted.sum()
    for limit, said in ((share * 0.999, False), (share * 1.001, True)):
        monkeypatch.setattr("dpdist.plugins.truncation_loss.loss_estimates.WIDEST", limit)
        assert ("all_records" in exact.persons()) == said
