"""Persons by their number of records, or records by their amount, with exact noise: what a bound is chosen from.

A person is in exactly one bin, whatever they did, so that a person who comes or goes moves one count by one, and one who is replaced
two. Of the amounts of a person as many are in bins as records of theirs count (docs/stability.md). Bins are of one number each up to
eight, then each is a quarter as wide as its first number, or for amounts as wide. Amounts beneath zero have bins of their own, so that
a record is in one bin of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpdist.api.steps import GAUSSIAN, Loss, Neighbours, Noise, noise_for

UNIT_BITS = 24
"""A person is 2^24 units: the integer grid then adds less than 1e-7 of rho to a Gaussian (``gaussian_slack``)."""
SINGLE = 8
"""Up to so many records each number has a bin of its own."""
QUARTERS, WHOLES = 4, 1

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class CountsBySize:
    """How persons are counted by their number of records, or records by their amount in steps.

    Attributes:
        largest_size: K: whatever is larger is counted with those of this size.
        below: the same beneath zero; 0: nothing is.
        width_divisor: a bin is as wide as its first size divided by this: the wider, the less noise has what lies beyond a bound.
        noise: in units.
        loss: what it reveals of one change.
    """

    largest_size: int
    width_divisor: int
    noise: Noise
    loss: Loss
    below: int = 0

    @cached_property
    def _starts(self) -> tuple[Counts, Counts]:
        """The least size in each bin above zero, and in each beneath it."""
        return _starts(self.largest_size, self.width_divisor), _starts(self.below, self.width_divisor)

    @property
    def bin_starts(self) -> Counts:
        """The least size in each bin, of those beneath zero without their sign, after all others."""
        return np.concatenate(self._starts)

    @property
    def bin_ends(self) -> Counts:
        """The largest size in each bin."""
        above, beneath = self._starts
        return np.concatenate([above[1:] - 1, [self.largest_size], beneath[1:] - 1, [self.below][: beneath.size]])

    @property
    def above(self) -> int:
        """How many bins lie above zero."""
        return self._starts[0].size

    def binned(self, counts: Counts) -> Counts:
        """Counts by bin; what has the size 0 is in none.

        Args:
            counts: of each size from ``-below`` to ``most``.
        """
        (above, beneath), zero = self._starts, self.below
        counts_below_zero = np.add.reduceat(counts[zero::-1], beneath) if beneath.size else counts[:0]
        return np.append(np.add.reduceat(counts[zero:], above), counts_below_zero)

    def noisy(self, counts: Counts, draw: Callable[[int], Counts]) -> Counts:
        """Noisy counts of each bin, in units.

        Args:
            counts: of each size, up to 2^32 in all.
            draw: so many samples of the noise.
        """
        return (self.binned(counts) << UNIT_BITS) + draw(self.bin_starts.size)


def _starts(largest_size: int, width_divisor: int) -> Counts:
    """The least size in each bin up to the largest size."""
    starts = [1][:largest_size]
    while starts and starts[-1] < largest_size:
        last_start = starts[-1]
        starts.append(
            last_start + 1 if last_start <= SINGLE else min(largest_size, last_start + last_start // width_divisor)
        )
    return np.array(starts, dtype=np.int64)


def counts_by_size(
    largest_size: int,
    budget: Loss,
    neighbours: Neighbours,
    *,
    most_per_person: int = 1,
    width_divisor: int = QUARTERS,
    below: int = 0,
) -> CountsBySize:
    """Counts by size, with the noise that a budget buys.

    Args:
        below: the largest size beneath zero that is distinguished.
        width_divisor: ``QUARTERS``, or ``WHOLES`` for doubling bins.
        most_per_person: how many of what is counted one person has at most: they may all be in one bin.
        budget: a rho (Gaussian noise) or a pure epsilon (Laplace noise).
    Raises: InvalidInput when the noise would be too large.
    """
    times = 2 if neighbours == "replace-one" else 1
    bins = CountsBySize(largest_size, width_divisor, Noise(GAUSSIAN, 1), budget, below).bin_starts.size
    absolute, squared = times * most_per_person << UNIT_BITS, times * most_per_person**2 << 2 * UNIT_BITS
    return CountsBySize(
        largest_size, width_divisor, *noise_for(budget, absolute, squared, bins, "the choice of a bound"), below
    )
