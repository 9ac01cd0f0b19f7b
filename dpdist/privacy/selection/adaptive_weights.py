"""How persons share a weight out among their names: what frequent names do not need goes to the other names of their persons.

A person with d of at most D names gives each of them a share, about 1 / d. A name takes shares in a fixed order of persons until they add
up to its *saturation*; what it does not take goes back to the persons. A person hands a D-th of all that came back to each of their names.
Under Gaussian noise each name also gets what a person may add to d names by the Euclidean norm, 1 / sqrt(d), beyond the share.

All are whole numbers of 2^-24 persons, and shares and saturation whole multiples of D, so that nothing is ever rounded: whatever one person
adds in shares stays the same in total. That gives the exact sensitivities below (docs/noise.md has the proof).

Source: Chen, Cohen-Addad, Epasto, Zadimoghaddam 2025 (Scalable Private Partition Selection via Adaptive Weighting). There names give
back in proportion, which no whole number expresses; here in an order, with a sensitivity of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

UNIT_BITS = 24
"""A record, or a person with one name, is 2^24 units: the grid then adds less than 1e-7 of rho to a Gaussian (``gaussian_slack``)."""

Weights = NDArray[np.int64]


@dataclass(frozen=True)
class AdaptiveWeights:
    """The weights of persons with up to ``names_per_person`` names, for noise that hides a distance in a norm.

    >>> AdaptiveWeights(2, "l1").share(2) / 2**UNIT_BITS
    0.5
    """

    names_per_person: int
    norm: Literal["l1", "l2"]

    def share(self, names: int) -> int:
        """What a person with so many names gives each of them first, units: a multiple of ``names_per_person``."""
        most = self.names_per_person
        return most * ((1 << UNIT_BITS) // (names * most))

    def weight(self, names: int) -> int:
        """What a person with so many names, of which none gives a share back, adds to each of them, units."""
        return self.share(names) if self.norm == "l1" else math.isqrt((1 << 2 * UNIT_BITS) // names)

    @cached_property
    def shares(self) -> Weights:
        """``share`` of persons with 0, 1, .. names."""
        return np.array([0, *map(self.share, range(1, self.names_per_person + 1))], dtype=np.int64)

    @cached_property
    def weights(self) -> Weights:
        """``weight`` of persons with 0, 1, .. names."""
        return np.array([0, *map(self.weight, range(1, self.names_per_person + 1))], dtype=np.int64)

    @cached_property
    def own_weights(self) -> list[int]:
        """The most that a name has that only one person has, units, if 1, 2, .. of the person's names are like that.

        Of the d names of the person the others, which are not, return all of their shares at most. Nearly always d of d own is the worst.
        """
        most, names = self.names_per_person, np.arange(1, self.names_per_person + 1)
        handed_back = self.shares[1:] // most
        return [
            int((self.weights[own:] + (names[own - 1 :] - own) * handed_back[own - 1 :]).max()) for own in range(1, most + 1)
        ]

    @cached_property
    def sensitivity_squared(self) -> int:
        """How far one person's records move the weights of all names, squared, units^2: by L1 under Laplace noise, by L2 under Gaussian.

        If y of the d shares s go to others, the names of the person have at most d b^2 + y s (s - 2 b (1 - d / D)) - y^2 s^2 / D,
        where b is ``weight``; y is where this is largest.
        """
        if self.norm == "l1":
            return int((np.arange(self.shares.size) * self.shares).max()) ** 2
        return max(map(self._squared_length, range(1, self.names_per_person + 1)))

    def _squared_length(self, names: int) -> int:
        most, share, weight = self.names_per_person, self.share(names), self.weight(names)
        slope = share * most - 2 * weight * (most - names)  # times D
        # y s (slope - y s) / D is largest for y s = slope / 2, if that is not more than all shares
        returned = min(max(0, slope), 2 * names * share)  # twice y s
        longest = names * weight**2 + -(-returned * (2 * slope - returned) // (4 * most))
        return min(longest, (names * weight) ** 2)  # no vector is longer than its entries together


def returned_shares(starts: NDArray[np.int64], shares: Weights, saturation: int) -> Weights:
    """What each name gives back of the share of each person.

    Args:
        starts: where the shares of each name begin. A name takes them in their order.
    """
    sums = np.cumsum(shares)
    before = np.repeat(sums[starts] - shares[starts], np.diff(starts, append=shares.size))
    return np.clip(sums - before - saturation, 0, shares)
