"""Quantiles and edges of bins, by private choices among whole numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import InvalidInput
from dpdist.privacy.accounting import Loss
from dpdist.privacy.exponential_mechanism import RATE_BITS, choose, choose_evenly, rate_for

POINT, END = Fraction(1, 2), Fraction(1, 4)
"""Shares of a quantile's budget: of itself, and of each end of its interval."""
MISSED = 0.025
"""The largest probability that an end lies on the wrong side of the quantile."""
CHOICES = 3
FARTHEST = 2**48
"""Parts of a record: the ranks of ends are whole numbers of 63 bits."""

Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Runs:
    """Neighbouring values of a range that have the same scores.

    Attributes:
        firsts, times: the first value of each run, and how many it has.
        below, upto: records below each value, and up to it.
    """

    firsts: Whole
    times: Whole
    below: Whole
    upto: Whole

    @staticmethod
    def of(values: Whole, counts: Whole, size: int) -> Runs:
        """The runs of 0..size-1: every value that records have, and what lies between two of them.

        Args:
            values: that records have, rising.
            counts: how many records have each.
        """
        running = np.append(0, np.cumsum(counts))
        after, next_ = np.append(0, values + 1), np.append(values, size)
        found = Runs(
            _in_turn(after, values),
            _in_turn(next_ - after, np.ones_like(values)),
            _in_turn(running, running[:-1]),
            _in_turn(running, running[1:]),
        )
        some = found.times > 0
        return Runs(found.firsts[some], found.times[some], found.below[some], found.upto[some])

    def scores(self, parts: int, target: int) -> Whole:
        """The score of every value of each run.

        Args:
            parts: of a record, in which the target is given.
        """
        return -np.maximum(parts * self.below - target, target - parts * self.upto)

    def chosen(
        self, parts: int, target: int, rate: Fraction, key: bytes, number: int, end: tuple[int, int] | None = None
    ) -> int:
        """One value, chosen by its score.

        Args:
            parts, target: as for ``scores``.
            rate: what scores are multiplied with.
            number: of the first of two draws.
            end: an end of the range once more, with the score that it has for targets beyond all records.
        """
        firsts, times, scores = self.firsts.tolist(), self.times.tolist(), self.scores(parts, target).tolist()
        if end is not None:
            firsts, times, scores = [*firsts, end[0]], [*times, 1], [*scores, end[1]]
        place = choose(scores, rate, key, number, times)
        return int(firsts[place] + choose_evenly(times[place], key, number + 1))


def _in_turn(one: Whole, other: Whole) -> Whole:
    """The first of one, the first of the other, the second of one, ..."""
    out = np.empty(one.size + other.size, dtype=np.int64)
    out[::2], out[1::2] = one, other
    return out


@dataclass(frozen=True)
class QuantileRule:
    """How one quantile of a column is chosen in every group.

    Attributes:
        at: the share of the records up to it.
        size: how many values the column can have.
        distance: how far one change moves all scores of all groups together.
        rate, end_rate: what scores are multiplied with, for the quantile and for each end of its interval.
    """

    at: Fraction
    size: int
    distance: int
    rate: Fraction
    end_rate: Fraction

    @cached_property
    def beyond(self) -> int:
        """How far beyond the quantile's rank an end aims, parts of a record."""
        return math.ceil(math.log(self.size / MISSED) / self.end_rate)

    def chosen(self, values: Whole, counts: Whole, key: bytes, number: int) -> tuple[int, int, int]:
        """The quantile of some records, and the ends of its interval.

        Args:
            values, counts: as for ``Runs.of``.
            number: of the quantile; one number for one quantile of one group.
        """
        runs, parts = Runs.of(values, counts, self.size), self.at.denominator
        everyone = int(counts.sum())
        target, last = self.at.numerator * everyone, self.size - 1
        first = CHOICES * 2 * number
        low = runs.chosen(parts, target - self.beyond, self.end_rate, key, first + 2, (0, self.beyond - target))
        over = target + self.beyond - parts * everyone
        high = runs.chosen(parts, target + self.beyond, self.end_rate, key, first + 4, (last, over))
        return runs.chosen(parts, target, self.rate, key, first), low, high


@dataclass(frozen=True)
class QuantileRules:
    """How all quantiles are chosen.

    Attributes:
        of: for each column its quantiles.
        loss: what all choices reveal of one change.
    """

    of: tuple[tuple[QuantileRule, ...], ...]
    loss: Loss


def quantiles(sizes: tuple[int, ...], at: tuple[Fraction, ...], moved: int, budget: Loss) -> QuantileRules:
    """The quantiles that a budget buys, each as much of it as the others.

    All groups are chosen of together: the sum of their scores is that of an exponential mechanism over all choices at once, and one
    change moves it by no more than the records that it moves.

    Args:
        sizes: how many values each column can have.
        at: shares of the records, the same for every column.
        moved: how many records of all groups one change adds or removes.
        budget: a rho, or a pure epsilon.
    Raises: InvalidInput when it is too little.
    """
    each = Fraction(1, len(sizes) * len(at))

    def of(size: int, share: Fraction) -> QuantileRule:
        distance = moved * max(share.numerator, share.denominator - share.numerator)
        rates = (rate_within(budget, each * part, distance) for part in (POINT, END))
        found = QuantileRule(share, size, distance, *rates)
        if found.end_rate == 0 or found.beyond > FARTHEST:
            raise InvalidInput(
                "the quantiles have so little budget that they say nothing: raise their 'share', or ask for fewer"
            )
        return found

    return QuantileRules(tuple(tuple(of(size, share) for share in at) for size in sizes), loss_of(budget))


def rate_within(budget: Loss, share: Fraction, distance: int) -> Fraction:
    """What scores are multiplied with that one change moves by ``distance`` at most, for a share of a budget."""
    if not budget.pure:
        return rate_for(budget.rho * share, distance)
    return Fraction(math.floor(budget.pure * share / (2 * distance) * 2**RATE_BITS), 2**RATE_BITS)


def loss_of(budget: Loss) -> Loss:
    """What choices reveal that spend all of a rho or a pure epsilon."""
    return Loss.laplace(budget.pure) if budget.pure else Loss.gaussian(budget.rho)


@dataclass(frozen=True)
class EdgeSplit:
    """How one edge is chosen, of the records between two others.

    Attributes:
        number: of the edge, in rising order.
        level: 0 for the edge that is chosen first.
        fewer, more: the edges that are chosen in its two parts are number - fewer .. number + more.
        at: the share of the part's records up to the edge.
        rate: what scores are multiplied with.
    """

    number: int
    level: int
    fewer: int
    more: int
    at: Fraction
    rate: Fraction


@dataclass(frozen=True)
class EdgesRule:
    """How the inner edges of an attribute are chosen.

    Attributes:
        size: how many numbers are told apart.
        splits: of all edges, each after those that bound its part.
        loss: what all choices reveal of one change.
    """

    size: int
    splits: tuple[EdgeSplit, ...]
    loss: Loss

    @property
    def farthest(self) -> int:
        """Records by which 95 times of 100 no edge lies further from its rank in its part than this.

        The number at that rank has a score of zero, and any of ``size`` numbers whose scores are T below it is chosen with probability
        at most size exp(-rate T).
        """
        tail = math.log(self.size * max(1, len(self.splits)) / (2 * MISSED))
        return max((math.ceil(tail / (each.rate * each.at.denominator)) for each in self.splits), default=0)

    def chosen(self, counts: NDArray[np.int64], key: bytes) -> list[int]:
        """The largest number below each inner edge.

        Args:
            counts: records by their number, 0..size-1.
        """
        found: dict[int, int] = {}
        for split in self.splits:
            low = found.get(split.number - split.fewer - 1, -1) + 1
            high = found.get(split.number + split.more + 1, self.size - 1)
            own = counts[low : high + 1]
            if own.size == 0:  # all that is above the edge below is its part
                found[split.number] = high
                continue
            values = np.flatnonzero(own)
            target = split.at.numerator * int(own.sum())
            runs = Runs.of(values, own[values], own.size)
            found[split.number] = low + runs.chosen(split.at.denominator, target, split.rate, key, 2 * split.number)
        return [found[number] for number in range(len(self.splits))]


def edges_rule(size: int, bins: int, moved: int, budget: Loss) -> EdgesRule:
    """The edges that a budget buys, each level as much of it as the others.

    Args:
        size: how many numbers are told apart.
        bins: how many are asked for.
        moved: how many records one change adds or removes.
        budget: a rho, or a pure epsilon.
    Raises: InvalidInput when it is too little.
    """
    levels = (bins - 1).bit_length()

    def within(first: int, count: int, level: int) -> Iterator[EdgeSplit]:
        if count == 0:
            return
        fewer = count // 2
        more, at = count - fewer - 1, Fraction(fewer + 1, count + 1)
        distance = moved * max(at.numerator, at.denominator - at.numerator)
        rate = rate_within(budget, Fraction(1, levels), distance)
        if rate == 0 or math.log(size / MISSED) / rate > FARTHEST:
            raise InvalidInput(
                "the edges have so little budget that they say nothing: raise their 'share', or ask for fewer bins"
            )
        yield EdgeSplit(first + fewer, level, fewer, more, at, rate)
        yield from within(first, fewer, level + 1)
        yield from within(first + fewer + 1, more, level + 1)

    return EdgesRule(size, tuple(within(0, bins - 1, 0)), loss_of(budget))
