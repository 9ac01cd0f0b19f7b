"""A histogram of which only the cells are published whose noisy count reaches a threshold, in the time of the occupied cells.

The dense mechanism adds independent discrete noise to all N cells and publishes those of at least the threshold. Of n cells without
records, K = Binomial(n, P(noise >= threshold)) reach it; given K, all sets of K of them are equally likely, and their values are
independent draws of the noise beyond the threshold. So the same distribution is drawn without the other cells (Cormode, Procopiuc,
Srivastava, Tran 2012), exactly: the binomial and the tail compare lazily drawn digits with bounds in whole numbers, and sets are drawn
evenly.

Cells are divided into shards, whose number depends on what is public alone. Each is a pure function of (key, shard, its exact counts): it
has subkeys of its own for the noise on its occupied cells, the number of others, which ones, and their values.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from dpdist.domain.key_spaces import MOST_CELLS
from dpdist.errors import InvalidInput
from dpdist.privacy.accounting import Loss
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import SCALE_LIMIT, Kind
from dpdist.privacy.noise_tails import FIRST_BITS, GUARD, Bounds, Digits, draw_tail, tail_bounds
from dpdist.privacy.selection.adaptive_weights import UNIT_BITS
from dpdist.privacy.selection.partition_selection import least_integer
from dpdist.stability import Distance

LARGEST = 2**62
"""A larger noisy count, in units, is published as this one: it has 63 bits."""
MOST_FALSE_ROWS = 10**6
FALSE_ROWS_OF_SHARD = 16
"""Expected in a shard: its chance to have none is then above e^-17, so that few digits decide."""

MEMORY_SHARDS, CELLS_OF_SHARD = 1024, 2**20
"""Of a large key space there are more shards, up to so many, so that a worker that holds a few of them holds few occupied cells."""

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class ThresholdedHistogram:
    """The noise and the threshold of a histogram, in units of 2^-24 records.

    Attributes:
        noise: of every cell.
        threshold: the least noisy count that is published, units.
        cells: how many there are, with records or without.
        loss: what it reveals of one change.
    """

    noise: Noise
    threshold: int
    cells: int
    loss: Loss

    @cached_property
    def _expected(self) -> int:
        """How many cells without records are published at most on average, in parts of 2^-128: the same on every machine."""
        return self.cells * tail_bounds(self.noise.kind, self.noise.scale, self.threshold, FIRST_BITS)[1]

    @property
    def false_rows(self) -> float:
        """How many cells without records are published on average, if no cell has one."""
        return self.cells * self.chance(0)

    def chance(self, count: int) -> float:
        """The probability that a cell with so many records is published."""
        return self.noise.kind.tail(self.threshold - (count << UNIT_BITS), self.noise.scale)

    def count_with(self, chance: float) -> int:
        """The least number of records with which a cell is published with at least this probability."""
        return least_integer(lambda count: self.chance(count) >= chance, 1)

    @cached_property
    def shards(self) -> int:
        """Into how many parts the cells are divided, by what is public alone: by the rows that are expected, and by the number of cells.

        It is odd, so that keys that are even, or end in the same digits of a power of two, are not all in a few shards.
        """
        expected_rows = 1 << (self._expected // (FALSE_ROWS_OF_SHARD << FIRST_BITS)).bit_length()
        return min(self.cells, max(expected_rows, min(MEMORY_SHARDS, self.cells // CELLS_OF_SHARD)) | 1)

    def shard_size(self, shard: int) -> int:
        """How many cells a shard has: its number, and every one that is a multiple of the number of shards further on."""
        return -(-(self.cells - shard) // self.shards)

    def draw_shard(self, shard: int, cells: Integers, counts: Integers, key: bytes) -> tuple[Integers, Integers]:
        """The published cells of one shard: a function of the key and of the records in the shard.

        Args:
            cells: of the shard, those with records, in rising order.
            counts: records of each of them, up to 2^32 as in a release.
            key: 32 secret bytes of the release.
        """
        noisy = (counts << UNIT_BITS) + self.noise.draw(_subkey(key, shard, b"occupied"), count=cells.size)
        passed = noisy >= self.threshold
        empty = self.shard_size(shard) - cells.size
        tail = partial(tail_bounds, self.noise.kind, self.noise.scale, self.threshold)
        others = draw_binomial(empty, tail, _digits(_subkey(key, shard, b"number"), b""))
        ranks = draw_subset(empty, others, partial(_digits, _subkey(key, shard, b"cells")))
        # the empty cell of rank r comes after as many occupied ones as have at most r empty ones before them
        empty_before = cells // self.shards - np.arange(cells.size)
        false_cells = shard + self.shards * (ranks + np.searchsorted(empty_before, ranks, side="right"))
        value_key = _subkey(key, shard, b"values")
        false_values = np.array(
            [
                min(
                    draw_tail(self.noise.kind, self.noise.scale, self.threshold, partial(_digits_of_pair, value_key, row)),
                    LARGEST,
                )
                for row in range(others)
            ],
            dtype=np.int64,
        )
        row_cells = np.concatenate([cells[passed], false_cells])
        values = np.concatenate([np.minimum(noisy[passed], LARGEST), false_values])
        order = np.argsort(row_cells)
        return row_cells[order], values[order]


@dataclass(frozen=True)
class UnpublishedTotals:
    """The noise of totals, by public groups, over the cells that a thresholded histogram did not publish, or over all.

    Attributes:
        noise: of every total, units.
        loss: what all totals reveal of one change, whichever cells are published.
    """

    noise: Noise
    loss: Loss

    def draw(self, totals: Integers, key: bytes) -> Integers:
        """The noisy totals in units.

        Args:
            totals: exact ones of the cells that ``draw_shard`` does not publish under the same key, or of all.
            key: 32 secret bytes of the release.
        """
        return (totals << UNIT_BITS) + self.noise.draw(_subkey(key, 0, b"unpublished"), count=totals.size)


def unpublished_totals(kind: Kind, budget: Loss, moved: Distance, groups: int) -> UnpublishedTotals:
    """The totals that a budget buys.

    Args:
        moved: how far one change of the files moves the counts of the cells.
        groups: how many totals there are; each cell is in one.
    Raises: InvalidInput where the noise is too large.
    """
    # all cells of a person may be in one total; of two persons, one replaced by the other, each moves its own
    persons, cells = 2 if moved.replaced else 1, moved.groups * (moved.participations or 1)
    length = persons * cells * moved.records << UNIT_BITS
    squared = length**2 if kind.norm == "l1" else persons * (cells * moved.records << UNIT_BITS) ** 2
    scale = kind.scale(squared, budget)
    if scale > SCALE_LIMIT:
        raise InvalidInput("the totals of unpublished rows have noise beyond 2^26 records: raise the 'share' of 'rest'")
    return UnpublishedTotals(Noise(kind, scale), kind.loss(budget, squared, scale, min(groups, persons * cells)))


def in_order(shard_rows: Iterable[tuple[Integers, Integers]]) -> tuple[Integers, Integers]:
    """The rows of all shards in rising order of their cells."""
    cells, values = (np.concatenate(columns) for columns in zip(*shard_rows, strict=True))
    order = np.argsort(cells)
    return cells[order], values[order]


def thresholded_histogram(kind: Kind, budget: Loss, moved: Distance, cells: int, at_least: Fraction) -> ThresholdedHistogram:
    """The histogram that a budget buys.

    Args:
        moved: how far one change of the files moves the counts of the cells.
        cells: how many there are, with records or without.
        at_least: the least published noisy count, in records.
    Raises: InvalidInput where there are too many cells, or too many without records would be published.
    """
    if not 1 <= cells <= MOST_CELLS:
        raise InvalidInput(f"a thresholded histogram has up to 2^62 cells, found {cells:,}: take fewer or shorter keys")
    changed_cells = moved.groups * (moved.participations or 1) * (2 if moved.replaced else 1)
    squared = changed_cells * (moved.records << UNIT_BITS) ** 2
    if kind.norm == "l1":
        squared = (moved.length << UNIT_BITS) ** 2
    scale = kind.scale(squared, budget)
    if scale > SCALE_LIMIT:
        raise InvalidInput(
            "the thresholded histogram has so little budget that its noise is beyond 2^26 records: raise its 'share'"
        )
    loss = kind.loss(budget, squared, scale, changed_cells)  # the draws of all other cells are the same on both sides
    threshold = math.ceil(at_least * 2**UNIT_BITS)
    if threshold < scale:
        raise InvalidInput(
            f"'at_least' is {float(at_least):g} records, below the noise of {scale / 2**UNIT_BITS:.3g}: nearly every sixth empty cell "
            "would be published; raise 'at_least' or the budget"
        )
    rule = ThresholdedHistogram(Noise(kind, scale), threshold, cells, loss)
    if rule.false_rows > MOST_FALSE_ROWS:
        raise InvalidInput(
            f"of {cells:,} cells about {rule.false_rows:,.3g} without records would reach 'at_least', and at most {MOST_FALSE_ROWS:,} are "
            "published: raise 'at_least' or the budget"
        )
    return rule


def draw_binomial(trials: int, chance: Callable[[int], Bounds], digits: Digits) -> int:
    """Binomial(trials, p): the number of successes, by inversion of its distribution function.

    Args:
        chance: gives bounds of 2^bits p, which is below 1.
        digits: of the uniform number that is compared.
    """
    bits = FIRST_BITS
    while (successes := _invert_binomial(trials, chance(bits), digits(bits), bits)) is None:
        bits *= 2
    return successes


def _invert_binomial(trials: int, chance: Bounds, uniform: int, bits: int) -> int | None:
    """The least number whose distribution function lies above the uniform number; None where so many digits do not tell."""
    wide = bits + GUARD
    one = 1 << wide
    low_chance, high_chance = chance[0] << GUARD, chance[1] << GUARD
    low = _power(one - high_chance, trials, wide, up=False)
    high = _power(one - low_chance, trials, wide, up=True)
    low_odds, high_odds = (low_chance << wide) // (one - low_chance), -(-(high_chance << wide) // (one - high_chance))
    low_end, high_end = uniform << GUARD, (uniform + 1) << GUARD  # the uniform number lies between
    low_sum, high_sum = low, high
    for successes in range(trials):
        if high_end <= low_sum:
            return successes
        if low_end < high_sum:
            return None
        # each term is the one before, times the odds, times (trials - successes) / (successes + 1)
        low = low * low_odds * (trials - successes) // (successes + 1) >> wide
        high = -(-high * high_odds * (trials - successes) // (successes + 1) >> wide)
        low_sum, high_sum = low_sum + low, high_sum + high
    return trials


def _power(base: int, exponent: int, bits: int, *, up: bool) -> int:
    """2^bits (base / 2^bits)^exponent, rounded down in every step, or up."""

    def multiply(one: int, other: int) -> int:
        return -(-one * other >> bits) if up else one * other >> bits

    power = 1 << bits
    for digit in bin(exponent)[2:]:
        power = multiply(power, power)
        if digit == "1":
            power = multiply(power, base)
    return power


def draw_subset(size: int, members: int, digits: Callable[[bytes], Digits]) -> Integers:
    """So many different whole numbers from zero on below ``size``, in rising order; all sets are equally likely."""
    chosen: set[int] = set()
    attempt, bits = 0, max(1, (size - 1).bit_length())
    while len(chosen) < members:
        number = digits(attempt.to_bytes(8, "big"))(64) >> (64 - bits)
        attempt += 1
        if number < size:
            chosen.add(number)
    return np.array(sorted(chosen), dtype=np.int64)


def _subkey(key: bytes, shard: int, purpose: bytes) -> bytes:
    """The key of one purpose in one shard."""
    return hmac.digest(key, b"dpdist thresholded histogram v1" + shard.to_bytes(8, "big") + purpose, "sha256")


def _digits(subkey: bytes, label: bytes) -> Digits:
    """Digits of the uniform number with a label: more digits go on with the same number."""

    def first_digits(bits: int) -> int:
        return int.from_bytes(hashlib.shake_256(subkey + label).digest(bits // 8), "big")

    return first_digits


def _digits_of_pair(subkey: bytes, row: int, step: int) -> Digits:
    return _digits(subkey, row.to_bytes(8, "big") + step.to_bytes(8, "big"))
