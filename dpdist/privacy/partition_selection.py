"""Private selection of names: those whose noisy count reaches a threshold that a name of one unit alone hardly ever reaches.

Every name of the records gets a count, a whole number of 2^24 units, and a discrete Gaussian draw. It is selected when the sum is at
least ``threshold``. Proof (docs/noise.md): of two neighbouring files call a name *own* when only one of them has it.
The draws are independent, so given that no own name is selected, what is published is a function of the noisy counts of the common
names, which is rho-zCDP by their L2 sensitivity. An own name has at most the changed unit's records, so one is selected with
probability at most ``delta``: together delta-approximate rho-zCDP (Bun & Steinke 2016, Definition 8.1), whose rhos and deltas add up.
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
"""A record is 2^24 units: the integer grid then adds less than 1e-7 of rho to a Gaussian (``gaussian_slack``)."""
EXACT = 1024
"""Up to so many own names each number of them is tried out."""
MARGIN = 1e-9
"""Relative margin for the rounding of normal tails."""

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Selection:
    """How names are selected: what it costs, its noise and its threshold.

    Attributes:
        scale: of the discrete Gaussian, units.
        threshold: the least noisy count that is selected, units.
        most_names: how many names are selected at most.
        loss: what it reveals of one change: rho, the grid's slack, and the probability of a failure.
    """

    scale: int
    threshold: int
    most_names: int
    loss: Loss

    def select_names(self, counts: Counts, draw: Callable[[int], Counts]) -> NDArray[np.intp]:
        """The numbers of the selected names, in order: of those that reach the threshold the ``most`` largest noisy counts.

        Args:
            counts: records by name, up to 2^32 as in a release: their units and the noise fit into 63 bits.
            draw: so many samples of the noise.
        """
        noisy = (counts.astype(np.int64) << UNIT_BITS) + draw(counts.size)
        passed = np.flatnonzero(noisy >= self.threshold)
        largest = passed[np.argsort(-noisy[passed], kind="stable")[: self.most_names]]
        return np.sort(largest)

    def chance(self, count: int) -> float:
        """The probability that a name with so many records reaches the threshold: the normal tail, half a unit between two integers."""
        return math.exp(log_cdf(((count << UNIT_BITS) - self.threshold + 0.5) / self.scale))

    def count_with(self, chance: float) -> int:
        """The least count whose name reaches the threshold with at least this probability."""
        return _least_integer(lambda count: self.chance(count) >= chance, 1)

    @property
    def facts(self) -> dict[str, object]:
        """What decides which names are selected, for identities."""
        return {"scale": self.scale, "threshold": self.threshold, "most": self.most_names, "bits": UNIT_BITS}


def selection(rho: Fraction, delta: Fraction, moved: Distance, most_names: int) -> Selection:
    """The selection that a rho and a delta buy.

    Args:
        delta: bounds the probability that a name of the changed unit alone is selected.
        moved: how far one change of the files moves the counts of the names.
        most_names: how many names are selected at most.
    Raises: InvalidInput when the noise would be too large.
    """
    records = moved.records
    sides = 2 if moved.replaced else 1
    squared = sides * (records << UNIT_BITS) ** 2  # all records of a unit have one name; those that replace them another one
    scale = gaussian_scale(squared, rho)
    if scale > SCALE_LIMIT:
        raise InvalidInput(
            "the selection of names has so little budget that its noise is beyond 2^26 records: raise its 'share'"
        )
    slack = gaussian_slack(squared, scale, sides * records)  # other names' draws are the same on both sides
    enough = _least_integer(
        lambda threshold: failure_at(threshold, scale, records) <= float(delta), (records << UNIT_BITS) + 1
    )
    return Selection(scale, enough, most_names, Loss(rho=rho, slack=slack, failure=delta))


def failure_at(threshold: int, scale: int, records: int) -> float:
    """A bound of the probability that a name of one unit's records alone reaches a threshold above all of them.

    P(X >= m) <= P(N(0, scale^2) >= m - 1) for a discrete Gaussian X (Canonne, Kamath, Steinke 2020, Proposition 25). The bound is
    convex in a name's count up to the threshold, so of all ways to spread the records over j names the worst gives one of them all
    records but the others' one each; the union over the names is bounded by the sum, and j is tried out.
    """

    def reached(count: int) -> float:
        """P(normal >= the deviations to the threshold), rounded up."""
        return math.exp(log_cdf(-(threshold - (count << UNIT_BITS) - 1) / scale)) * (1 + MARGIN)

    name_ranges = [(names, names) for names in range(1, min(records, EXACT) + 1)]
    while name_ranges[-1][1] < records:  # of more names both terms are bounded over ranges that double
        name_ranges.append((name_ranges[-1][1], min(records, 2 * name_ranges[-1][1])))
    return max(reached(records - fewest_names + 1) + (names - 1) * reached(1) for fewest_names, names in name_ranges)


def _least_integer(holds: Callable[[int], bool], start: int) -> int:
    """The least integer from ``start`` on for which something holds that goes on holding."""
    step = 1
    while not holds(start + step):
        step *= 2
    low, high = start - 1, start + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
