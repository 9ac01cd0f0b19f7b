"""Private choices among whole numbers, and the edges of bins that are chosen so."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import InvalidInput
from dpdist.privacy.accounting import Loss
from dpdist.privacy.selection.exponential_mechanism import RATE_BITS, choose, choose_evenly, rate_for

MISSED = 0.025
"""The largest probability that an end of an interval, or an edge, lies on the wrong side."""
FARTHEST = 2**48
"""Parts of a record: the ranks of ends are whole numbers of 63 bits."""

Whole = NDArray[np.int64]


@dataclass(frozen=True)
class Runs:
    """Neighbouring values of a range that have the same scores.

    Attributes:
        first_values, times: the first value of each run, and how many it has.
        below, upto: records below each value, and up to it.
    """

    first_values: Whole
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
        runs = Runs(
            _interleave(after, values),
            _interleave(next_ - after, np.ones_like(values)),
            _interleave(running, running[:-1]),
            _interleave(running, running[1:]),
        )
        is_nonempty = runs.times > 0
        return Runs(runs.first_values[is_nonempty], runs.times[is_nonempty], runs.below[is_nonempty], runs.upto[is_nonempty])

    def scores(self, units_per_record: int, target: int) -> Whole:
        """The score of every value of each run.

        Args:
            units_per_record: of a record, in which the target is given.
        """
        return -np.maximum(units_per_record * self.below - target, target - units_per_record * self.upto)

    def choose_value(
        self, units_per_record: int, target: int, rate: Fraction, key: bytes, number: int, end: tuple[int, int] | None = None
    ) -> int:
        """One value, chosen by its score.

        Args:
            units_per_record, target: as for ``scores``.
            rate: what scores are multiplied with.
            number: of the first of two draws.
            end: an end of the range once more, with the score that it has for targets beyond all records.
        """
        first_values = self.first_values.tolist()
        times = self.times.tolist()
        scores = self.scores(units_per_record, target).tolist()
        if end is not None:
            first_values, times, scores = [*first_values, end[0]], [*times, 1], [*scores, end[1]]
        index = choose(scores, rate, key, number, times)
        return int(first_values[index] + choose_evenly(times[index], key, number + 1))


def _interleave(evens: Whole, odds: Whole) -> Whole:
    """The first of one, the first of the other, the second of one, ..."""
    interleaved = np.empty(evens.size + odds.size, dtype=np.int64)
    interleaved[::2], interleaved[1::2] = evens, odds
    return interleaved


def rate_within(budget: Loss, budget_share: Fraction, distance: int) -> Fraction:
    """What scores are multiplied with that one change moves by ``distance`` at most, for a share of a budget."""
    if not budget.pure:
        return rate_for(budget.rho * budget_share, distance)
    return Fraction(math.floor(budget.pure * budget_share / (2 * distance) * 2**RATE_BITS), 2**RATE_BITS)


def loss_of(budget: Loss) -> Loss:
    """What choices reveal that spend all of a rho or a pure epsilon."""
    return Loss.laplace(budget.pure) if budget.pure else Loss.gaussian(budget.rho)


@dataclass(frozen=True)
class EdgeSplit:
    """How one edge is chosen, of the records between two others.

    Attributes:
        number: of the edge, in rising order.
        level: 0 for the edge that is chosen first.
        edges_below, edges_above: the edges that are chosen in its two parts are number - edges_below .. number + edges_above.
        record_share: the share of the part's records up to the edge.
        rate: what scores are multiplied with.
    """

    number: int
    level: int
    edges_below: int
    edges_above: int
    record_share: Fraction
    rate: Fraction


@dataclass(frozen=True)
class EdgesRule:
    """How the inner edges of an attribute are chosen.

    Attributes:
        size: how many numbers are distinguished.
        splits: of all edges, each after those that bound its part.
        loss: what all choices reveal of one change.
    """

    size: int
    splits: tuple[EdgeSplit, ...]
    loss: Loss

    @property
    def largest_rank_error(self) -> int:
        """Records by which 95 times of 100 no edge lies further from its rank in its part than this.

        The number at that rank has a score of zero, and any of ``size`` numbers whose scores are T below it is chosen with probability
        at most size exp(-rate T).
        """
        tail = math.log(self.size * max(1, len(self.splits)) / (2 * MISSED))
        return max(
            (math.ceil(tail / (edge_split.rate * edge_split.record_share.denominator)) for edge_split in self.splits),
            default=0,
        )

    def choose_edges(self, counts: NDArray[np.int64], key: bytes) -> list[int]:
        """The largest number below each inner edge.

        Args:
            counts: records by their number, 0..size-1.
        """
        edges: dict[int, int] = {}
        for edge_split in self.splits:
            low = edges.get(edge_split.number - edge_split.edges_below - 1, -1) + 1
            high = edges.get(edge_split.number + edge_split.edges_above + 1, self.size - 1)
            range_counts = counts[low : high + 1]
            if range_counts.size == 0:  # all that is above the edge below is its part
                edges[edge_split.number] = high
                continue
            values = np.flatnonzero(range_counts)
            target = edge_split.record_share.numerator * int(range_counts.sum())
            runs = Runs.of(values, range_counts[values], range_counts.size)
            edges[edge_split.number] = low + runs.choose_value(
                edge_split.record_share.denominator, target, edge_split.rate, key, 2 * edge_split.number
            )
        return [edges[number] for number in range(len(self.splits))]


def edges_rule(size: int, bins: int, moved: int, budget: Loss) -> EdgesRule:
    """The edges that a budget buys, each level as much of it as the others.

    Args:
        size: how many numbers are distinguished.
        bins: how many are asked for.
        moved: how many records one change adds or removes.
        budget: a rho, or a pure epsilon.
    Raises: InvalidInput when it is too little.
    """
    levels = (bins - 1).bit_length()

    def split_range(first_edge: int, count: int, level: int) -> Iterator[EdgeSplit]:
        if count == 0:
            return
        edges_below = count // 2
        edges_above, record_share = count - edges_below - 1, Fraction(edges_below + 1, count + 1)
        distance = moved * max(record_share.numerator, record_share.denominator - record_share.numerator)
        rate = rate_within(budget, Fraction(1, levels), distance)
        if rate == 0 or math.log(size / MISSED) / rate > FARTHEST:
            raise InvalidInput(
                "the edges have so little budget that they say nothing: raise their 'share', or ask for fewer bins"
            )
        yield EdgeSplit(first_edge + edges_below, level, edges_below, edges_above, record_share, rate)
        yield from split_range(first_edge, edges_below, level + 1)
        yield from split_range(first_edge + edges_below + 1, edges_above, level + 1)

    return EdgesRule(size, tuple(split_range(0, bins - 1, 0)), loss_of(budget))
