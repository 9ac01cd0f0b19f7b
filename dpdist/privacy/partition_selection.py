"""Private selection of names: those whose noisy weight reaches a threshold that a name of one unit alone hardly ever reaches.

Every name of the records gets a weight, a whole number of 2^-24 records or persons, and a discrete Gaussian draw. It is selected when
the sum is at least ``threshold``. Where persons are told apart, a person with d different names adds 2^24 / sqrt(d) to each of them, so
that all names of a person together move the weights by one person, however many they are. Without persons every record adds 2^24.

Proof (docs/noise.md): of two neighbouring files call a name *own* when only one of them has it. The draws are independent, so given that
no own name is selected, what is published is a function of the noisy weights of the common names, which is rho-zCDP by their L2
sensitivity. An own name has the changed unit's weight alone, so one is selected with probability at most ``delta``: together
delta-approximate rho-zCDP (Bun & Steinke 2016, Definition 8.1), whose rhos and deltas add up.

Source: Gopi, Gulhane, Kulkarni, Shen, Shokouhi, Yekhanin 2020 (Differentially Private Set Union; weights and threshold).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import InvalidInput
from dpdist.privacy.accounting import Loss, gaussian_scale, gaussian_slack
from dpdist.privacy.noise_distributions import SCALE_LIMIT
from dpdist.privacy.numerics import log_cdf
from dpdist.stability import Distance

UNIT_BITS = 24
"""A record, or a person with one name, is 2^24 units: the grid then adds less than 1e-7 of rho to a Gaussian (``gaussian_slack``)."""
EXACT = 1024
"""Up to so many own names each number of them is tried out."""
MARGIN = 1e-9
"""Relative margin for the rounding of normal tails."""

Weights = NDArray[np.int64]


@dataclass(frozen=True)
class Selection:
    """How names are selected: what it costs, its noise and its threshold.

    Attributes:
        scale: of the discrete Gaussian, units.
        threshold: the least noisy weight that is selected, units.
        most_names: how many names are selected at most.
        loss: what it reveals of one change: rho, the grid's slack, and the probability of a failure.
        names_per_person: how many different names of a person count at most; None where records count, whosever they are.
    """

    scale: int
    threshold: int
    most_names: int
    loss: Loss
    names_per_person: int | None = None

    def select_names(self, weights: Weights, draw: Callable[[int], Weights]) -> NDArray[np.intp]:
        """The numbers of the selected names, in order: of those that reach the threshold the ``most`` largest noisy weights.

        Args:
            weights: of the names, units. Of up to 2^32 records, as in a release, they fit with the noise into 63 bits.
            draw: so many samples of the noise.
        """
        noisy = weights + draw(weights.size)
        passed = np.flatnonzero(noisy >= self.threshold)
        largest = passed[np.argsort(-noisy[passed], kind="stable")[: self.most_names]]
        return np.sort(largest)

    def chance(self, count: int, names: int = 1) -> float:
        """The probability that a name reaches the threshold: the normal tail, half a unit between two integers.

        Args:
            count: its records, or its persons.
            names: how many names each of its persons has that count.
        """
        return math.exp(log_cdf((count * weight_of(names) - self.threshold + 0.5) / self.scale))

    def count_with(self, chance: float, names: int = 1) -> int:
        """The least count whose name reaches the threshold with at least this probability."""
        return least_integer(lambda count: self.chance(count, names) >= chance, 1)

    @property
    def facts(self) -> dict[str, object]:
        """What decides which names are selected, for identities."""
        return {
            "scale": self.scale,
            "threshold": self.threshold,
            "most": self.most_names,
            "bits": UNIT_BITS,
            "per person": self.names_per_person,
        }


def weight_of(names: int) -> int:
    """What a person adds to each of so many names, units: 2^24 / sqrt(names), rounded down, so that the squares add up to 2^48 at most."""
    return math.isqrt((1 << 2 * UNIT_BITS) // names)


def selection(
    rho: Fraction, delta: Fraction, moved: Distance, most_names: int, names_per_person: int | None = None
) -> Selection:
    """The selection that a rho and a delta buy.

    Args:
        delta: bounds the probability that a name of the changed unit alone is selected.
        moved: how far one change of the files moves the counts of the names. Of persons, whose records have weights, only whether they
            are replaced matters.
        most_names: how many names are selected at most.
        names_per_person: how many different names of a person count at most; None where records count.
    Raises: InvalidInput when the noise would be too large.
    """
    records = moved.records
    sides = 2 if moved.replaced else 1
    # all records of a unit have one name, or a person has one name; those that replace them another one
    squared = sides * ((records if names_per_person is None else 1) << UNIT_BITS) ** 2
    scale = gaussian_scale(squared, rho)
    if scale > SCALE_LIMIT:
        raise InvalidInput(
            "the selection of names has so little budget that its noise is beyond 2^26 records: raise its 'share'"
        )
    # other names' draws are the same on both sides
    slack = gaussian_slack(squared, scale, sides * (names_per_person or records))

    def failure(threshold: int) -> float:
        if names_per_person is None:
            return failure_at(threshold, scale, records)
        return failure_of_persons(threshold, scale, names_per_person)

    lowest = ((1 if names_per_person else records) << UNIT_BITS) + 1
    enough = least_integer(lambda threshold: failure(threshold) <= float(delta), lowest)
    return Selection(scale, enough, most_names, Loss(rho=rho, slack=slack, failure=delta), names_per_person)


def failure_of_persons(threshold: int, scale: int, names_per_person: int) -> float:
    """A bound of the probability that a name of one person alone reaches a threshold: the largest over the numbers d of their names.

    Each of d own names has a person's weight for d names. Their draws are independent, so that one of them reaches the threshold with
    probability 1 - (1 - p)^d, where p bounds it for each. With fewer own names, or common ones among the d, it is less likely.
    """
    return max(
        -math.expm1(names * math.log1p(-_reach(threshold, weight_of(names), scale)))
        for names in range(1, names_per_person + 1)
    ) * (1 + MARGIN)


def _reach(threshold: int, weight: int, scale: int) -> float:
    """A bound of P(weight + X >= threshold) of a discrete Gaussian X, rounded up.

    P(X >= m) <= P(N(0, scale^2) >= m - 1) (Canonne, Kamath, Steinke 2020, Proposition 25).
    """
    return math.exp(log_cdf(-(threshold - weight - 1) / scale)) * (1 + MARGIN)


def failure_at(threshold: int, scale: int, records: int) -> float:
    """A bound of the probability that a name of one unit's records alone reaches a threshold above all of them.

    The bound of one name is convex in its count up to the threshold, so of all ways to spread the records over j names the worst gives
    one of them all records but the others' one each; the union over the names is bounded by the sum, and j is tried out.
    """

    def reached(count: int) -> float:
        return _reach(threshold, count << UNIT_BITS, scale)

    name_ranges = [(names, names) for names in range(1, min(records, EXACT) + 1)]
    while name_ranges[-1][1] < records:  # of more names both terms are bounded over ranges that double
        name_ranges.append((name_ranges[-1][1], min(records, 2 * name_ranges[-1][1])))
    return max(reached(records - fewest_names + 1) + (names - 1) * reached(1) for fewest_names, names in name_ranges)


def least_integer(holds: Callable[[int], bool], start: int) -> int:
    """The least integer from ``start`` on for which something holds that goes on holding."""
    step = 1
    while not holds(start + step):
        step *= 2
    low, high = start - 1, start + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
