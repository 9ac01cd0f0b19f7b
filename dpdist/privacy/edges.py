"""Edges of bins that hold about as many records each: quantiles by the exponential mechanism, each of a part of the records.

The middle edge is chosen first. It divides the records into those up to it and those above; in each of both the next edge is chosen, and
so on. Every record is in one part of each level, so that a level costs what one choice does, and k bins cost log2(k) choices in place of
k - 1 (docs/noise.md, "Edges of bins").

Source: Kaplan, Schnapp & Stemmer 2022.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import InvalidInput
from dpdist.privacy.accounting import Loss
from dpdist.privacy.quantiles import FARTHEST, MISSED, Runs, loss_of, rate_within


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
