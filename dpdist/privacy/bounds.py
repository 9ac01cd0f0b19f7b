"""Persons by their number of records, with exact noise: what a bound on the records of one person is chosen from.

A person is in exactly one bin, whatever they did, so that a person who comes or goes moves one count by one, and one who is replaced
two (docs/stability.md). Bins are of one number each up to eight, then each is a quarter as wide as its first number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import InvalidInput
from dpdist.privacy.accounting import Loss, gaussian_scale, gaussian_slack, laplace_scale
from dpdist.privacy.distributions import GAUSSIAN, LAPLACE, SCALE_LIMIT
from dpdist.privacy.noise import Noise
from dpdist.stability import Neighbours

UNIT_BITS = 24
"""A person is 2^24 units: the integer grid then adds less than 1e-7 of rho to a Gaussian (``gaussian_slack``)."""
SINGLE = 8
"""Up to so many records each number has a bin of its own."""

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class PersonsByRecords:
    """How persons are counted by their number of records.

    Attributes:
        most: K: whoever has more records is counted with those who have so many.
        noise: in units.
        loss: what it reveals of one change.
    """

    most: int
    noise: Noise
    loss: Loss

    @cached_property
    def firsts(self) -> Counts:
        """The least number of records in each bin."""
        found = [1]
        while found[-1] < self.most:
            last = found[-1]
            found.append(last + 1 if last <= SINGLE else min(self.most, last + last // 4))
        return np.array(found, dtype=np.int64)

    @property
    def lasts(self) -> Counts:
        """The largest number of records in each bin."""
        return np.append(self.firsts[1:] - 1, self.most)

    def binned(self, persons: Counts) -> Counts:
        """Persons by bin.

        Args:
            persons: by their number of records, from 0 to ``most``.
        """
        return np.add.reduceat(persons, self.firsts)

    def noisy(self, persons: Counts, draw: Callable[[int], Counts]) -> Counts:
        """Noisy numbers of persons in each bin, in units.

        Args:
            persons: by their number of records, up to 2^32 in all.
            draw: so many samples of the noise.
        """
        return (self.binned(persons) << UNIT_BITS) + draw(self.firsts.size)


def persons_by_records(most: int, budget: Loss, neighbours: Neighbours) -> PersonsByRecords:
    """Persons by records, with the noise that a budget buys.

    Args:
        budget: a rho (Gaussian noise) or a pure epsilon (Laplace noise).
    Raises: InvalidInput when the noise would be too large.
    """
    moved = 2 if neighbours == "replace-one" else 1
    bins = PersonsByRecords(most, Noise(GAUSSIAN, 1), budget).firsts.size
    if budget.pure:
        noise, loss = Noise(LAPLACE, laplace_scale(moved << UNIT_BITS, budget.pure)), budget
    else:
        squared = moved << 2 * UNIT_BITS
        noise = Noise(GAUSSIAN, gaussian_scale(squared, budget.rho))
        loss = Loss.gaussian(budget.rho, gaussian_slack(squared, noise.scale, bins))
    if noise.scale > SCALE_LIMIT:
        raise InvalidInput(
            "the choice of 'most_records' has so little budget that its noise is beyond 2^26 persons: raise its 'share'"
        )
    return PersonsByRecords(most, noise, loss)


def shares(budget: Loss, share: Fraction) -> tuple[Loss, Loss]:
    """A part of a budget, and the rest of it."""
    if budget.pure:
        return Loss.laplace(budget.pure * share), Loss.laplace(budget.pure * (1 - share))
    return Loss.gaussian(budget.rho * share), Loss.gaussian(budget.rho * (1 - share))
