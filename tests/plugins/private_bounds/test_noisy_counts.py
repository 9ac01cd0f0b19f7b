"""What a bound leaves out: intervals on simulated noise, and the choice of the bound beside the best one that anybody could make."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpdist.plugins.private_bounds import noisy_counts
from dpdist.plugins.private_bounds.counts_by_size import UNIT_BITS, WHOLES, CountsBySize, counts_by_size
from dpdist.plugins.private_bounds.noisy_counts import AMOUNT_DETECTION_NATS, NoisyCounts, SignedCounts
from dpdist.privacy.accounting import Loss

MOST = 200


def persons(name: str, seed: int = 1, many: int = 30_000) -> np.ndarray:
    """Persons by their number of records."""
    state = np.random.default_rng(seed)
    drawn = {
        "lognormal": lambda: np.maximum(1, np.exp(state.normal(1.5, 1, many)).round()),
        "pareto": lambda: state.pareto(1.8, many) * 3 + 1,
        "poisson": lambda: state.poisson(7, many) + 1,
    }[name]()
    return np.bincount(np.minimum(drawn.astype(np.int64), MOST), minlength=MOST + 1)


def simulated(rule: CountsBySize, counts: np.ndarray, state: np.random.Generator) -> NoisyCounts:
    deviation = rule.noise.deviation / 2.0**UNIT_BITS
    noise = state.normal(0, deviation, rule.bin_starts.size)
    if rule.loss.pure:
        noise = state.laplace(0, deviation / 2**0.5, rule.bin_starts.size)
    width = float(rule.noise.half_width_95(1.0))
    return NoisyCounts(rule.bin_starts, rule.bin_ends, rule.binned(counts) + noise, deviation, width, bool(rule.loss.pure))


@pytest.mark.parametrize("budget", [Loss.gaussian(Fraction(1, 200)), Loss.laplace(Fraction(1, 10))])
@pytest.mark.parametrize("name", ["lognormal", "pareto", "poisson"])
def test_intervals_hold_the_true_shares(name: str, budget: Loss) -> None:
    counts, rule = persons(name), counts_by_size(MOST, budget, "add-remove")
    numbers, state = np.arange(MOST + 1), np.random.default_rng(5)
    true = counts[11:].sum() / counts.sum(), (np.maximum(numbers - 10, 0) * counts).sum() / (numbers * counts).sum()
    held = np.zeros(2)
    runs = 1000
    for _ in range(runs):
        found = simulated(rule, counts, state)
        shares = found.person_share_above(10), found.record_share_above(10)
        held += [each.low <= truth <= each.high for each, truth in zip(shares, true, strict=True)]
    assert 0.935 * runs <= held[0] <= 0.985 * runs  # shares near 0 end there
    assert held[1] >= 0.94 * runs  # the bins' widths only widen it


@pytest.mark.parametrize("name", ["lognormal", "pareto", "poisson"])
def test_the_choice_is_near_the_best_bound(name: str) -> None:
    """The mean regret over simulated choices, for errors that make bounds from 3 to 40 the best ones."""
    counts, rule = persons(name), counts_by_size(MOST, Loss.gaussian(Fraction(1, 200)), "add-remove")
    numbers, state = np.arange(MOST + 1), np.random.default_rng(6)
    for variance in (1e4, 1e6, 1e8):  # the best bounds are 15 to 57, 12 to 24, and below 10
        errors = {
            k: k**2 * variance + float((np.maximum(numbers - k, 0) * counts).sum()) ** 2 for k in rule.bin_ends.tolist()
        }
        chosen = [errors[simulated(rule, counts, state).choose_bound(variance * rule.bin_ends**2.0, 1.0)] for _ in range(50)]
        assert np.mean(chosen) <= 1.5 * min(errors.values())


def test_noise_far_away_seldom_decides() -> None:
    """Nobody has over 30 records. If bins counted as seen from two errors on, up to the last bin, the error were 3.6 times the best."""
    counts, rule = persons("poisson"), counts_by_size(MOST, Loss.laplace(Fraction(1, 100)), "add-remove")
    numbers, state, variance = np.arange(MOST + 1), np.random.default_rng(8), 1e5
    errors = {k: k**2 * variance + float((np.maximum(numbers - k, 0) * counts).sum()) ** 2 for k in rule.bin_ends.tolist()}
    chosen = [errors[simulated(rule, counts, state).choose_bound(variance * rule.bin_ends**2.0, 1.0)] for _ in range(200)]
    assert np.mean(chosen) <= 2.5 * min(errors.values())


@pytest.mark.parametrize("budget", [Loss.gaussian(Fraction(1, 2000)), Loss.laplace(Fraction(1, 100))])
def test_a_tail_that_noise_hides_is_reckoned_with(budget: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    """Persons lie beyond the last bin that stands out: if they were taken for nobody, squared errors were 1.4 and 4.2 times as large."""
    counts, rule = persons("lognormal"), counts_by_size(MOST, budget, "add-remove")
    numbers, state, variance = np.arange(MOST + 1), np.random.default_rng(12), 2e4
    errors = {k: k**2 * variance + float((np.maximum(numbers - k, 0) * counts).sum()) ** 2 for k in rule.bin_ends.tolist()}
    runs = [simulated(rule, counts, state) for _ in range(100)]
    chosen = np.mean([errors[each.choose_bound(variance * rule.bin_ends**2.0, 1.0)] for each in runs])
    monkeypatch.setattr(noisy_counts, "ABSENCE_PRIOR", 1e300)
    monkeypatch.setattr(noisy_counts, "PARAMETER_NATS", -1e3)  # every number is taken as it is
    nobody = np.mean([errors[replace(each).choose_bound(variance * rule.bin_ends**2.0, 1.0)] for each in runs])
    assert chosen < 0.8 * nobody


def test_a_range_begins_at_zero_where_nothing_is_seen_beneath_it() -> None:
    """Noise in the first bin beneath zero made it begin a step below, in half of the cases."""
    counts, rule = persons("poisson"), counts_by_size(MOST, Loss.gaussian(Fraction(1, 200)), "add-remove", below=MOST)
    state, signed = np.random.default_rng(3), np.append(np.zeros(MOST, dtype=np.int64), counts)
    found = [
        SignedCounts(replace(simulated(rule, signed, state), detection_nats=AMOUNT_DETECTION_NATS), rule.above)
        for _ in range(40)
    ]
    chosen = [each.choose_bound(np.maximum.outer(each.lowest, each.highest) ** 2.0, 1.0) for each in found]
    assert {low for low, _ in chosen} == {0}


@pytest.mark.parametrize("budget", [Loss.gaussian(Fraction(1, 200)), Loss.laplace(Fraction(1, 10))])
@pytest.mark.parametrize("name", ["lognormal", "pareto"])
def test_ranges_of_amounts_are_near_the_best_and_said_with_intervals(name: str, budget: Loss) -> None:
    """Amounts up to 20,000 steps of 30,000 persons with up to three records, of which the noise hides all three."""
    state, most = np.random.default_rng(7), 20_000
    drawn = np.exp(state.normal(4, 1, 60_000)) if name == "lognormal" else 40 * (1 + state.pareto(1.8, 60_000))
    counts, sizes = np.bincount(np.minimum(drawn.round().astype(np.int64), most), minlength=most + 1), np.arange(most + 1)
    rule = counts_by_size(most, budget, "add-remove", most_per_person=3, width_divisor=WHOLES)
    runs = [simulated(rule, counts, state) for _ in range(300)]
    bound, held = int(rule.bin_ends[np.searchsorted(rule.bin_ends, 300)]), np.zeros(2)
    true = (
        counts[bound + 1 :].sum() / counts[1:].sum(),
        (np.maximum(sizes - bound, 0) * counts).sum() / (sizes * counts).sum(),
    )
    for found in runs:
        shares = found.person_share_above(bound), found.record_share_above(bound)
        held += [each.low <= truth <= each.high for each, truth in zip(shares, true, strict=True)]
    assert 0.91 * len(runs) <= held[0] <= 0.99 * len(runs)
    assert held[1] >= 0.92 * len(runs)
    for variance in (1e4, 1e6, 1e8):
        errors = {k: k**2 * variance + float((np.maximum(sizes - k, 0) * counts).sum()) ** 2 for k in rule.bin_ends.tolist()}
        chosen = [
            errors[replace(each, detection_nats=AMOUNT_DETECTION_NATS).choose_bound(variance * rule.bin_ends**2.0, 1.0)]
            for each in runs[:50]
        ]
        assert np.mean(chosen) <= 6 * min(
            errors.values()
        )  # where anything beyond two errors is seen, up to 15 times, with Gaussian noise


@pytest.mark.parametrize("budget", [Loss.gaussian(Fraction(7, 1000)), Loss.laplace(Fraction(1, 5))])
def test_a_range_of_few_records_is_not_far_too_large(budget: Loss) -> None:
    """3,452 amounts up to 150 of persons with up to four. By power laws alone half of the ranges ended at 368.63 or beyond, with 3.7
    times the error of the best fixed range under Laplace noise."""
    state, most, each = np.random.default_rng(5), 100_000, 4
    amounts = np.rint(np.exp(state.normal(1.4, 1.05, 3452)).clip(0, 150) * 100).astype(np.int64)
    counts = np.bincount(amounts, minlength=most + 1)
    rule = counts_by_size(most, budget, "add-remove", most_per_person=each, width_divisor=WHOLES)
    variance = each**2 * (
        2 / float(9 * budget.pure) ** 2 if budget.pure else 1 / float(18 * budget.rho)
    )  # nine tenths are the answers'
    errors = {k: k**2 * variance + float(np.maximum(amounts - k, 0).sum()) ** 2 for k in rule.bin_ends.tolist()}
    runs = (replace(simulated(rule, counts, state), detection_nats=AMOUNT_DETECTION_NATS) for _ in range(100))
    chosen = [errors[each_run.choose_bound(variance * rule.bin_ends**2.0, 1.0)] for each_run in runs]
    assert np.mean(np.sqrt(chosen)) <= 2.5 * np.sqrt(min(errors.values()))


@pytest.mark.parametrize("most", [2, 8, 9, 10, 37, 200, 10_000])
def test_every_number_of_records_is_in_one_bin(most: int) -> None:
    rule = counts_by_size(most, Loss.gaussian(Fraction(1)), "add-remove")
    assert rule.bin_starts[0] == 1
    assert rule.bin_ends[-1] == most
    assert (rule.bin_ends >= rule.bin_starts).all()
    assert (rule.bin_ends[:-1] + 1 == rule.bin_starts[1:]).all()
    counts = np.arange(most + 1)
    assert rule.binned(counts).sum() == counts.sum()


def test_both_ends_of_a_range_are_those_of_least_error() -> None:
    """Without noise the pair that a search over all finds; what is cut off above makes up for nothing beneath."""
    state = np.random.default_rng(2)
    amounts = np.where(state.random(5000) < 0.3, -state.exponential(20, 5000), state.exponential(80, 5000)).astype(int)
    rule = counts_by_size(2000, Loss.gaussian(Fraction(1)), "add-remove", width_divisor=WHOLES, below=500)
    counts = np.bincount(np.clip(amounts, -500, 2000) + 500, minlength=2501)
    exact = NoisyCounts(rule.bin_starts, rule.bin_ends, rule.binned(counts).astype(float), 1e-6, 1.96, laplace=False)
    found = SignedCounts(exact, rule.above)
    low, high = np.meshgrid(found.lowest, found.highest, indexing="ij")
    variances = 1e3 * np.maximum(low, high) ** 2.0

    middles, binned = {1: slice(rule.above), -1: slice(rule.above, None)}, rule.binned(counts)

    def lost(end: int, sign: int) -> float:
        some = middles[sign]
        ends = (np.maximum(each[some] - end, 0) for each in (rule.bin_starts, rule.bin_ends))
        return float(sum(ends) @ binned[some]) / 2

    best = min(
        ((int(a), int(b)) for a in found.lowest for b in found.highest),
        key=lambda ends: 1e3 * max(ends) ** 2.0 + lost(ends[0], -1) ** 2 + lost(ends[1], 1) ** 2,
    )
    assert found.choose_bound(variances, 1.0) == best
    assert 0 < best[0] < 500
    assert 8 < best[1] < 2000
    outside, cut = found.outside(*best)
    assert outside.value == pytest.approx(((amounts < -best[0]) | (amounts > best[1])).sum() / (amounts != 0).sum())
    assert cut.value == pytest.approx((lost(best[0], -1) + lost(best[1], 1)) / (lost(0, -1) + lost(0, 1)))
