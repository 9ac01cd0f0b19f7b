"""Private selection: the threshold against brute force and exact sums, and an audit over neighbouring files whose rare names differ."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import scipy.stats

from dpdist.errors import InvalidInput
from dpdist.privacy.accounting import Loss
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE, Kind
from dpdist.privacy.selection import partition_selection as module
from dpdist.privacy.selection.adaptive_weights import UNIT_BITS, AdaptiveWeights
from dpdist.privacy.selection.partition_selection import Selection, failure_at, failure_of_persons
from dpdist.stability import Distance

KEY = bytes(range(32))
TRIALS = 20_000
WRONG = 1e-4
"""How often a test says of a private selection that it is none."""


def selection(
    rho: Fraction, delta: Fraction, moved: Distance, most: int, names: int | None = None, kind: Kind = GAUSSIAN
) -> Selection:
    """The selection that a rho buys, or with Laplace noise an epsilon of as much."""
    budget = Loss.gaussian(rho) if kind is GAUSSIAN else Loss.laplace(rho)
    return module.selection(kind, budget, delta, moved, most, names)


def weight_of(names: int) -> int:
    """What a person with so many names adds to each under Gaussian noise."""
    return AdaptiveWeights(names, "l2").weight(names)


def with_scale(rule: Selection, scale: int) -> Selection:
    """The rule with other noise."""
    return replace(rule, noise=Noise(rule.noise.kind, scale))


def partitions(records: int, least: int = 1) -> Iterator[tuple[int, ...]]:
    """All ways to spread records over names."""
    yield (records,)
    for first in range(least, records // 2 + 1):
        for rest in partitions(records - first, first):
            yield (first, *rest)


def passed(rule: Selection, counts: tuple[int, ...], trials: int = TRIALS, key: bytes = KEY) -> np.ndarray:
    """Which names of each trial reach the threshold, (trials, names): every trial has draws of its own."""
    free = replace(rule, most_names=trials * len(counts))
    return weights_passed(free, tuple(count << UNIT_BITS for count in counts), trials, key)


def weights_passed(rule: Selection, weights: tuple[int, ...], trials: int = TRIALS, key: bytes = KEY) -> np.ndarray:
    """The same for names of so many units."""
    free = replace(rule, most_names=trials * len(weights))
    numbers = np.arange(trials * len(weights))
    chosen = free.select_names(
        [(numbers, np.tile(np.array(weights), trials))],
        lambda start, count: rule.noise.draw(key, start=start, count=count),
    )
    out = np.zeros(trials * len(weights), dtype=bool)
    out[chosen] = True
    return out.reshape(trials, len(weights))


@pytest.mark.parametrize(("records", "replaced"), [(1, False), (3, False), (3, True), (8, True)])
def test_the_threshold_is_the_least_that_keeps_delta(records: int, replaced: bool) -> None:
    """Against the sum over every way to spread a unit's records over names of its own, by SciPy's normal tail."""
    delta = Fraction(1, 10**6)
    rule = selection(Fraction(1, 50), delta, Distance(records, replaced), 10)

    def worst(threshold: int) -> float:
        return max(
            sum(scipy.stats.norm.sf((threshold - (count << UNIT_BITS) - 1) / rule.noise.scale) for count in names)
            for names in partitions(records)
        )

    assert worst(rule.threshold) <= float(delta)
    assert worst(rule.threshold - (1 << (UNIT_BITS - 10))) > float(delta)
    assert rule.loss.failure == delta
    moved = (2 if replaced else 1) * (records << UNIT_BITS) ** 2
    assert Fraction(moved, 2 * rule.noise.scale**2) <= Fraction(1, 50) < Fraction(moved, 2 * (rule.noise.scale - 1) ** 2)


def test_many_records_are_bounded_over_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXACT", 4)
    rough = [failure_at(threshold << UNIT_BITS, GAUSSIAN, 20 << UNIT_BITS, 40) for threshold in (60, 90, 200)]
    monkeypatch.setattr(module, "EXACT", 1000)
    exact = [failure_at(threshold << UNIT_BITS, GAUSSIAN, 20 << UNIT_BITS, 40) for threshold in (60, 90, 200)]
    assert all(fine <= coarse <= 2.1 * fine for fine, coarse in zip(exact, rough, strict=True))


@pytest.mark.parametrize(("scale", "threshold"), [(20, 60), (40, 90), (40, 200), (80, 200)])
def test_the_bound_over_ranges_is_close(scale: int, threshold: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one name of all records is about as likely to pass as many names of one each."""
    bound = partial(failure_at, threshold << UNIT_BITS, GAUSSIAN, scale << UNIT_BITS, 40)
    exact = bound()
    monkeypatch.setattr(module, "EXACT", 4)
    assert exact <= bound() <= 1.05 * exact


@pytest.mark.parametrize("scale", [1, 3, 20])
def test_the_tail_of_the_discrete_gaussian_is_below_the_normal_one(scale: int) -> None:
    """Proposition 25 of Canonne, Kamath & Steinke 2020 by exact sums, to eight standard deviations."""
    weights = np.exp(-(np.arange(-12 * scale, 12 * scale + 1) ** 2) / (2.0 * scale**2))
    tails = np.cumsum(weights[::-1])[::-1] / weights.sum()
    for height in range(1, 8 * scale):
        assert tails[12 * scale + height] <= scipy.stats.norm.sf((height - 1) / scale) * (1 + 1e-12)


@pytest.mark.statistical
@pytest.mark.parametrize("deviations", [-2, -1, 0, 1, 2])
def test_the_probability_of_a_selection_is_the_closed_form(deviations: int) -> None:
    """Exact binomial test of 100,000 real draws at each count, two-sided at 1e-4; a threshold off by a tenth of a deviation moves the share
    by more than ten standard errors, so that it is missed less than once in 10^6 runs."""
    rule, trials = selection(Fraction(1, 200), Fraction(1, 10**4), Distance(1, False), 10), 5 * TRIALS
    count = round((rule.threshold + deviations * rule.noise.scale) / 2**UNIT_BITS)
    selected = int(passed(rule, (count,), trials).sum())
    assert scipy.stats.binomtest(selected, trials, rule.chance(count)).pvalue > WRONG
    wrong = replace(rule, threshold=rule.threshold - rule.noise.scale // 10)
    assert scipy.stats.binomtest(int(passed(wrong, (count,), trials).sum()), trials, rule.chance(count)).pvalue < WRONG


def audited(rule: Selection, own: tuple[int, ...], delta: float) -> bool:
    """Whether a file and its neighbour, which lacks the unit with these own names, look alike but for delta.

    The event is that any own name is published, which never happens without the unit: its probability is delta at most. A private
    selection is refused with probability ``WRONG`` at most.
    """
    shown = int(passed(rule, own).any(axis=1).sum())
    return shown <= scipy.stats.binom.ppf(1 - WRONG, TRIALS, delta)


@pytest.mark.statistical
@pytest.mark.parametrize("records", [1, 4])
def test_an_audit_over_files_whose_rare_names_differ(records: int) -> None:
    """Delta is 0.02, so that 20,000 trials see it: every way to spread a unit's records passes."""
    delta = Fraction(1, 50)
    rule = selection(Fraction(1, 10), delta, Distance(records, False), 10)
    for own in partitions(records):
        assert audited(rule, own, float(delta))


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("planted", "own"),
    [
        ("one record where a person has four", (4,)),
        ("the union of names is forgotten", (1, 1, 1, 1)),
        ("half the deviation of the noise", (4,)),
    ],
)
def test_the_audit_finds_a_threshold_that_is_too_low(planted: str, own: tuple[int, ...]) -> None:
    """Each fault raises the event's probability so far that 20,000 trials miss it with a probability below 1e-3, computed here."""
    delta, moved = Fraction(1, 50), Distance(4, False)
    right = selection(Fraction(1, 10), delta, moved, 10)
    tail = scipy.stats.norm.isf(float(delta))
    wrong = {
        "one record where a person has four": replace(right, threshold=int((1 << UNIT_BITS) + tail * right.noise.scale)),
        "the union of names is forgotten": replace(right, threshold=int((1 << UNIT_BITS) + tail * right.noise.scale)),
        "half the deviation of the noise": replace(right, threshold=int((4 << UNIT_BITS) + tail * right.noise.scale / 2)),
    }[planted]
    chance = 1 - math.prod(1 - wrong.chance(count) for count in own)
    assert scipy.stats.binom.cdf(scipy.stats.binom.ppf(1 - WRONG, TRIALS, float(delta)), TRIALS, chance) < 1e-3
    assert not audited(wrong, own, float(delta))


def separation(rule: Selection, common: tuple[int, int], key: bytes = KEY) -> float:
    """How far apart two counts of a common name look, in standard deviations, less what the simulation may be off."""
    shares = [passed(rule, (count,), key=key).mean() for count in common]
    spreads = [
        math.sqrt(share * (1 - share) / TRIALS) / scipy.stats.norm.pdf(scipy.stats.norm.ppf(share)) for share in shares
    ]
    high, low = (scipy.stats.norm.ppf(share) for share in shares)
    return float(high - low - scipy.stats.norm.isf(WRONG) * math.hypot(*spreads))


@pytest.mark.statistical
def test_common_names_tell_no_more_than_rho() -> None:
    """A count and one that a unit's four records raise: on a Gaussian's trade-off curve they are sqrt(2 rho) apart, not more.

    A noise of 0.7 times the scale is found: it puts them 1.43 times as far apart, and the simulation is off by a tenth of that.
    """
    rule = selection(Fraction(1, 2), Fraction(1, 50), Distance(4, False), 10)
    centre = rule.threshold >> UNIT_BITS
    counts = (centre + 2, centre - 2)
    assert separation(rule, counts) <= 1.0
    weak = with_scale(rule, 7 * rule.noise.scale // 10)
    assert separation(weak, counts) > 1.0


@pytest.mark.parametrize("sizes", [(5,), (2, 3), (1, 1, 1, 2), (0, 5, 0)])
def test_the_largest_noisy_counts_are_kept(sizes: tuple[int, ...]) -> None:
    """However many names come at a time."""
    rule = replace(selection(Fraction(1, 2), Fraction(1, 10**6), Distance(1, False), 2), most_names=2)
    noise = np.array([0, 5, 0, -1, 0], dtype=np.int64) << UNIT_BITS
    counts, numbers = np.array([100, 96, 3, 101, 102]) << UNIT_BITS, np.arange(5)

    def draw(start: int, count: int) -> np.ndarray:
        return noise[start : start + count]

    ends = np.cumsum(sizes)[:-1]
    blocks = list(zip(np.split(numbers, ends), np.split(counts, ends), strict=True))
    assert sorted(rule.select_names(blocks, draw).tolist()) == [1, 4]
    assert rule.select_names([], draw).size == 0
    largest = np.array([2**32 << UNIT_BITS])  # as many as a release counts
    assert rule.select_names([(numbers[:1], largest)], draw).tolist() == [0]


def test_counts_at_which_names_are_selected() -> None:
    rule = selection(Fraction(1, 200), Fraction(1, 10**6), Distance(2, True), 10)
    for chance in (0.5, 0.975):
        count = rule.count_with(chance)
        assert rule.chance(count) >= chance > rule.chance(count - 1)
    with pytest.raises(InvalidInput, match="raise its 'share'"):
        selection(Fraction(1, 10**20), Fraction(1, 10**6), Distance(1, False), 10)


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("names", [1, 3, 40])
def test_the_threshold_of_persons_is_the_least_that_keeps_delta(names: int, replaced: bool, kind: Kind) -> None:
    """For every number d of a person's names and k of own ones, by SciPy's tails: one of them is hardly ever selected.

    An own name has the person's weight for d names and a part of what the other d - k give back.
    """
    delta = Fraction(1, 10**6)
    rule = selection(Fraction(1, 50), delta, Distance(7, replaced), 10, names, kind)
    tail = scipy.stats.norm.sf if kind is GAUSSIAN else scipy.stats.laplace.sf

    def worst(threshold: int) -> float:
        chances = []
        for count in range(1, names + 1):
            weight = 1 / math.sqrt(count) if kind is GAUSSIAN else 1 / count
            for own in range(1, count + 1):
                most = math.floor(2**UNIT_BITS * (weight + (count - own) / count / names))
                chances.append(-math.expm1(own * math.log1p(-tail((threshold - most - 1) / rule.noise.scale))))
        return max(chances)

    assert worst(rule.threshold) <= float(delta) * (1 + 1e-6)
    assert worst(rule.threshold - (1 << (UNIT_BITS - 10))) > float(delta)
    sides = 2 if replaced else 1
    if kind is GAUSSIAN:
        moved = sides * AdaptiveWeights(names, "l2").sensitivity_squared
        assert Fraction(moved, 2 * rule.noise.scale**2) <= Fraction(1, 50) < Fraction(moved, 2 * (rule.noise.scale - 1) ** 2)
    else:
        length = sides * math.isqrt(AdaptiveWeights(names, "l1").sensitivity_squared)
        assert Fraction(length, rule.noise.scale) <= Fraction(1, 50) < Fraction(length, rule.noise.scale - 1)
        assert (rule.loss.pure, rule.loss.rho, rule.loss.failure) == (Fraction(1, 50), 0, delta)
    one_name, all_names = (
        failure_of_persons(rule.threshold, kind, rule.noise.scale, AdaptiveWeights(count, kind.norm)) for count in (1, names)
    )
    if kind is GAUSSIAN:
        assert (one_name < all_names) == (names > 1)  # a threshold of one d alone would be too low


@pytest.mark.statistical
@pytest.mark.parametrize("planted", [False, True])
def test_an_audit_of_laplace_noise(planted: bool) -> None:
    """Delta is 0.02: four records of one name of its own, and a scale of half as much, which 20,000 trials find but for 1e-3."""
    delta = Fraction(1, 50)
    rule = selection(Fraction(1), delta, Distance(4, False), 10, kind=LAPLACE)
    if planted:
        rule = replace(rule, threshold=(rule.threshold + (4 << UNIT_BITS)) // 2)
        chance = rule.chance(4)
        assert scipy.stats.binom.cdf(scipy.stats.binom.ppf(1 - WRONG, TRIALS, float(delta)), TRIALS, chance) < 1e-3
    assert audited(rule, (4,), float(delta)) != planted


@pytest.mark.parametrize("own", [1, 2, 4, 9])
def test_an_audit_over_persons_whose_names_are_rare(own: int) -> None:
    """Delta is 0.02, so that 20,000 trials see it."""
    rule = selection(Fraction(1, 10), Fraction(1, 50), Distance(1, False), 10, 9)
    shown = int(weights_passed(rule, (weight_of(own),) * own).any(axis=1).sum())
    assert shown <= scipy.stats.binom.ppf(1 - WRONG, TRIALS, 0.02)


@pytest.mark.parametrize("planted", ["the threshold of one name alone", "each name twice"])
def test_the_audit_of_persons_finds_a_fault(planted: str) -> None:
    """Nine own names: each fault raises the event's probability so far that 20,000 trials miss it with a probability below 1e-3."""
    one_name = selection(Fraction(1, 10), Fraction(1, 50), Distance(1, False), 10, 1)
    right = selection(Fraction(1, 10), Fraction(1, 50), Distance(1, False), 10, 9)
    rule, weight = {
        "the threshold of one name alone": (one_name, weight_of(9)),
        "each name twice": (right, 2 * weight_of(9)),
    }[planted]
    chance = 1 - (1 - float(scipy.stats.norm.sf((rule.threshold - weight) / rule.noise.scale))) ** 9
    assert scipy.stats.binom.cdf(scipy.stats.binom.ppf(1 - WRONG, TRIALS, 0.02), TRIALS, chance) < 1e-3
    shown = int(weights_passed(rule, (weight,) * 9).any(axis=1).sum())
    assert shown > scipy.stats.binom.ppf(1 - WRONG, TRIALS, 0.02)


def test_partitions_are_all() -> None:
    assert sorted(partitions(4)) == [(1, 1, 1, 1), (1, 1, 2), (1, 3), (2, 2), (4,)]
    assert len(list(itertools.islice(partitions(8), 100))) == 22
