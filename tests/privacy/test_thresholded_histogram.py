"""Thresholded histograms: every outcome of tiny ones against the dense law, draws of larger ones, and that no number is read twice."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.stats

from dpdist.errors import InvalidInput
from dpdist.privacy import noise_tails
from dpdist.privacy.accounting import Loss
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE, Kind
from dpdist.privacy.selection import thresholded_histogram as module
from dpdist.privacy.selection.thresholded_histogram import (
    Integers,
    ThresholdedHistogram,
    draw_binomial,
    draw_subset,
    in_order,
    thresholded_histogram,
)
from dpdist.stability import Distance
from tests.case_selection import always
from tests.privacy.test_noise_tails import steps_of, tail_of

KEY = bytes(range(32))
WRONG = 1e-4
TINY = [(GAUSSIAN, 2, 3), (LAPLACE, 2, 3)]
"""Kinds of noise with scales and thresholds at which every cell may be published."""


@pytest.fixture
def whole_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record is one unit, so that the noise of a few units can hide it."""
    monkeypatch.setattr(module, "UNIT_BITS", 0)


def rule_of(kind: Kind, scale: int, threshold: int, cells: int) -> ThresholdedHistogram:
    return ThresholdedHistogram(Noise(kind, scale), threshold, cells, Loss.gaussian(Fraction(1)))


def draw_rows(rule: ThresholdedHistogram, cells: Integers, counts: Integers, key: bytes) -> tuple[Integers, Integers]:
    """The published cells of all shards, with their noisy counts in units."""
    places = [cells % rule.shards == shard for shard in range(rule.shards)]
    return in_order(rule.draw_shard(shard, cells[own], counts[own], key) for shard, own in enumerate(places))


def published_sets(rule: ThresholdedHistogram, empty: int) -> dict[tuple[int, ...], float]:
    """The probability of every set of ranks of empty cells, by the product's binomial and sets."""
    chance = partial(module.tail_bounds, rule.noise.kind, rule.noise.scale, rule.threshold)
    # inversion rises with the uniform number: read it from its upper end
    numbers = steps_of(lambda digits: draw_binomial(empty, chance, lambda bits: (1 << bits) - 1 - digits(bits)), empty)
    found: dict[tuple[int, ...], float] = {}
    for members, probability in enumerate(numbers[: empty + 1]):
        if empty <= 5:
            orders = list(itertools.permutations(range(empty), members))
        else:  # of every set one order: they are equally likely
            orders = [
                (*chosen[members // 2 :], *chosen[: members // 2])
                for chosen in itertools.combinations(range(empty), members)
            ]
        for order in orders:
            chosen = tuple(draw_subset(empty, members, numbers_in_turn(order, empty)).tolist())
            found[chosen] = found.get(chosen, 0.0) + probability / len(orders)
    return found


def numbers_in_turn(order: tuple[int, ...], size: int) -> Any:
    """Digits of attempts: each number of an order, after a number that is none and the numbers that came before once more."""
    bits = max(1, (size - 1).bit_length())
    attempts: list[int] = []
    for place, number in enumerate(order):
        attempts += [*([size] if size < 1 << bits else []), *order[:place], number]
    return lambda label: lambda wanted: attempts[int.from_bytes(label, "big")] << (wanted - bits)


def outcomes(empty: int) -> Iterator[tuple[int, ...]]:
    for members in range(empty + 1):
        yield from itertools.combinations(range(empty), members)


@pytest.mark.parametrize("cells", [1, 2, 5, 8])
@pytest.mark.parametrize(("kind", "scale", "threshold"), TINY)
def test_every_set_of_empty_cells_has_its_dense_probability(kind: Kind, scale: int, threshold: int, cells: int) -> None:
    """Of all 2^N outcomes, to 1e-12. The values of published cells are drawn by themselves (``test_noise_tails``)."""
    empty = cells
    chance = tail_of(kind, scale, threshold)
    found = published_sets(rule_of(kind, scale, threshold, cells), empty)
    assert found.keys() == {*outcomes(empty)}
    for chosen, probability in found.items():
        assert probability == pytest.approx(chance ** len(chosen) * (1 - chance) ** (empty - len(chosen)), abs=1e-12)


@pytest.mark.parametrize("planted", ["one trial more", "the tail of the next threshold", "sets that begin at one"])
def test_a_fault_in_the_law_of_empty_cells_is_found(monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    if planted == "one trial more":
        binomial = draw_binomial
        monkeypatch.setattr(
            "tests.privacy.test_thresholded_histogram.draw_binomial",
            lambda trials, *rest: min(trials, binomial(trials + 1, *rest)),
        )
    elif planted == "the tail of the next threshold":
        bounds = noise_tails.tail_bounds
        monkeypatch.setattr(
            module, "tail_bounds", lambda kind, scale, threshold, bits: bounds(kind, scale, threshold + 1, bits)
        )
    else:
        subset = draw_subset
        monkeypatch.setattr(
            "tests.privacy.test_thresholded_histogram.draw_subset",
            lambda size, members, digits: np.maximum(subset(size, members, digits), min(1, size - 1)),
        )
    with pytest.raises(AssertionError):
        test_every_set_of_empty_cells_has_its_dense_probability(GAUSSIAN, 2, 3, 5)


@pytest.mark.usefixtures("whole_records")
@pytest.mark.parametrize("shards", always([4], [1, 4]))
@pytest.mark.parametrize(("kind", "scale", "threshold"), TINY)
def test_draws_of_all_cells_have_the_dense_law(
    kind: Kind, scale: int, threshold: int, shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight cells, three of them occupied, 3,000 keys: how often each cell and each pair of cells is published, and the values."""
    monkeypatch.setattr(ThresholdedHistogram, "shards", shards)
    rule = rule_of(kind, scale, threshold, 8)
    cells, counts = np.array([0, 3, 7]), np.array([2, 1, 5])
    true = np.zeros(8, dtype=np.int64)
    true[cells] = counts
    trials, published, values = 3000, np.zeros((3000, 8), dtype=bool), []
    for trial in range(trials):
        rows, noisy = draw_rows(rule, cells, counts, trial.to_bytes(32, "big"))
        assert rows.tolist() == sorted({*rows.tolist()})
        published[trial, rows] = True
        values.append(noisy[~np.isin(rows, cells)])
    chances = np.array([tail_of(kind, scale, threshold - count) for count in true])
    for place in range(8):
        assert scipy.stats.binomtest(int(published[:, place].sum()), trials, chances[place]).pvalue > WRONG
    for one, other in itertools.combinations(range(8), 2):
        both = int((published[:, one] & published[:, other]).sum())
        assert scipy.stats.binomtest(both, trials, chances[one] * chances[other]).pvalue > WRONG
    drawn = np.concatenate(values)
    edges = threshold + np.arange(4)
    tails = np.array([tail_of(kind, scale, int(edge)) for edge in edges])
    expected = -np.diff([*tails, 0.0]) / tails[0] * drawn.size
    assert scipy.stats.chisquare(np.bincount(np.minimum(drawn - threshold, 3), minlength=4), expected).pvalue > WRONG


def test_every_empty_cell_and_no_occupied_one_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """All ranks of all sets of occupied cells of a shard that does not begin at zero and skips the cells of the other."""
    monkeypatch.setattr(ThresholdedHistogram, "shards", 2)
    monkeypatch.setattr(module, "draw_binomial", lambda trials, *rest: trials)
    rule = rule_of(GAUSSIAN, 1 << 24, 1 << 30, 12)
    for size in range(7):
        for occupied in itertools.combinations(range(1, 12, 2), size):
            rows, _ = rule.draw_shard(1, np.array(occupied, dtype=np.int64), np.zeros(size, dtype=np.int64), KEY)
            assert [*rows] == [cell for cell in range(1, 12, 2) if cell not in occupied]


def test_the_number_of_false_rows_agrees_with_the_dense_one() -> None:
    """2 x 10^5 cells of scale 10 and threshold 30 as in the prototype, 60 keys: mean and spread of the number of rows that are false."""
    rule = rule_of(GAUSSIAN, 10 << 24, 30 << 24, 200_000)
    none = np.zeros(0, dtype=np.int64)
    sizes = [draw_rows(rule, none, none, key.to_bytes(32, "big"))[0].size for key in range(60)]
    mean = 200_000 * scipy.stats.norm.sf(3)
    assert rule.false_rows == pytest.approx(mean, rel=1e-6)
    assert abs(np.mean(sizes) - mean) < 4 * math.sqrt(mean / 60)
    assert 0.6 < np.var(sizes) / mean < 1.6


def test_rows_are_the_same_in_any_order_of_shards_and_depend_on_their_shard_alone() -> None:
    rule = rule_of(GAUSSIAN, 10 << 24, 30 << 24, 200_000)
    state = np.random.default_rng(0)
    cells = np.unique(state.integers(0, rule.cells, 3000))
    counts = state.integers(1, 60, cells.size)
    whole = draw_rows(rule, cells, counts, KEY)
    assert rule.shards == 33
    for shard in reversed(range(33)):
        inside = cells % 33 == shard
        rows, values = rule.draw_shard(shard, cells[inside], counts[inside], KEY)
        shown = whole[0] % 33 == shard
        assert (rows.tolist(), values.tolist()) == (whole[0][shown].tolist(), whole[1][shown].tolist())
    assert [part.tolist() for part in draw_rows(rule, cells, counts, KEY)] == [part.tolist() for part in whole]
    assert draw_rows(rule, cells, counts, bytes(32))[0].tolist() != whole[0].tolist()


@pytest.mark.parametrize("cells", [1, 2, 7, 8, 2**20, 3 * 2**20, 10**9, 2**62])
def test_shards_follow_from_public_numbers_and_hold_every_cell_once(cells: int) -> None:
    rule = rule_of(GAUSSIAN, 10 << 24, 200 << 24, cells)
    assert rule.shards == min(cells, min(1024, cells // 2**20) | 1)
    assert sum(rule.shard_size(shard) for shard in range(rule.shards)) == cells
    assert rule_of(GAUSSIAN, 10 << 24, 30 << 24, 10**6).shards > rule_of(GAUSSIAN, 10 << 24, 200 << 24, 10**6).shards == 1


def test_no_two_draws_read_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorder under all draws: the uniform numbers of all purposes, shards, rows and steps are different ones, as is the noise's key."""
    read: list[bytes] = []
    noise_keys: list[bytes] = []
    digits, draw = module._digits, Noise.draw

    def record_digits(subkey: bytes, label: bytes) -> Any:
        read.append(subkey + label)
        return digits(subkey, label)

    def record_noise(self: Noise, key: bytes, *, start: int = 0, count: int) -> Any:
        noise_keys.append(key)
        return draw(self, key, start=start, count=count)

    monkeypatch.setattr(module, "_digits", record_digits)
    monkeypatch.setattr(Noise, "draw", record_noise)
    rule = rule_of(GAUSSIAN, 10 << 24, 25 << 24, 20_000)
    cells = np.arange(0, 20_000, 40)
    rows, _ = draw_rows(rule, cells, np.full(cells.size, 20), KEY)
    assert rows.size > 100
    assert rule.shards > 4
    assert len({*read}) == len(read) > 300
    assert len({*noise_keys}) == rule.shards
    assert not {KEY, *noise_keys} & {each[:32] for each in read}
    assert KEY not in noise_keys


def test_values_that_do_not_fit_are_published_as_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "draw_tail", lambda *given: 2**70)
    rule = rule_of(GAUSSIAN, 10 << 24, 12 << 24, 100)
    _, values = draw_rows(rule, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), KEY)
    assert {*values.tolist()} == {2**62}


@pytest.mark.parametrize(
    ("kind", "moved", "squared"),
    [
        (GAUSSIAN, Distance(1, False, groups=10), 10),
        (GAUSSIAN, Distance(3, False, groups=10), 90),
        (GAUSSIAN, Distance(3, True, groups=10), 180),
        (LAPLACE, Distance(3, True, groups=10), 60**2),
        (LAPLACE, Distance(2, False), 4),
    ],
)
def test_the_noise_is_that_of_the_distance(kind: Kind, moved: Distance, squared: int) -> None:
    budget = Loss.gaussian(Fraction(1, 20)) if kind is GAUSSIAN else Loss.laplace(Fraction(1, 2))
    rule = thresholded_histogram(kind, budget, moved, 10**12, Fraction(3000))
    if kind is GAUSSIAN:
        spent = [Fraction(squared << 48, 2 * (rule.noise.scale - step) ** 2) for step in (0, 1)]
        assert spent[0] <= Fraction(1, 20) < spent[1]
    else:
        spent = [Fraction(math.isqrt(squared) << 24, rule.noise.scale - step) for step in (0, 1)]
        assert spent[0] <= Fraction(1, 2) < spent[1]
    assert (rule.loss.rho, rule.loss.pure) == (budget.rho, budget.pure)


@pytest.mark.parametrize(
    ("cells", "at_least", "message"),
    [
        (2**62 + 1, 90, "up to 2\\^62 cells"),
        (10**6, 2, "raise 'at_least'"),
        (10**12, 31, "without records would reach 'at_least'"),
    ],
)
def test_histograms_that_cannot_be_published_are_refused(cells: int, at_least: int, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        thresholded_histogram(
            GAUSSIAN, Loss.gaussian(Fraction(1, 20)), Distance(1, False, groups=10), cells, Fraction(at_least)
        )
