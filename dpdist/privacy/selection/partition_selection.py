"""Private selection of names: those whose noisy weight reaches a threshold that a name of one unit alone hardly ever reaches.

Every name of the records gets a weight, a whole number of 2^-24 records or persons, and a draw of discrete noise. It is selected when
the sum is at least ``threshold``. Without persons every record adds 2^24. Where persons are told apart, the weights are those of
``dpdist.privacy.selection.adaptive_weights``, and all names of a person together move them by about one person, however many they are.

Proof (docs/noise.md): of two neighbouring files call a name *own* when only one of them has it. The draws are independent, so given that
no own name is selected, what is published is a function of the noisy weights of the common names, which is rho-zCDP by their L2
sensitivity, or with Laplace noise epsilon-DP by their L1 sensitivity. An own name has the changed unit's weight alone, so one is selected
with probability at most ``delta``: together delta-approximate rho-zCDP (Bun & Steinke 2016, Definition 8.1), or (epsilon, delta)-DP. Both
amounts and the deltas add up.

Source: Gopi, Gulhane, Kulkarni, Shen, Shokouhi, Yekhanin 2020 (Differentially Private Set Union; weights and threshold).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import InvalidInput
from dpdist.privacy.accounting import Loss
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE, SCALE_LIMIT, Kind
from dpdist.privacy.numerics import log_cdf
from dpdist.privacy.selection.adaptive_weights import UNIT_BITS, AdaptiveWeights, Weights
from dpdist.stability import Distance

EXACT = 1024
"""Up to so many own names each number of them is tried out."""
SATURATION = {GAUSSIAN: 2, LAPLACE: 3}
"""Scales of the noise above the threshold: it is lower with a probability of 0.023 and 0.0249."""
MARGIN = 1e-9
"""Relative margin for the rounding of normal tails."""


@dataclass(frozen=True)
class Selection:
    """How names are selected: what it costs, its noise and its threshold.

    Attributes:
        noise: of every name, units.
        threshold: the least noisy weight that is selected, units.
        most_names: how many names are selected at most.
        loss: what it reveals of one change: rho and the grid's slack, or epsilon, and the probability of a failure.
        weights: how persons share a weight out among their names; None where records count, whosever they are.
    """

    noise: Noise
    threshold: int
    most_names: int
    loss: Loss
    weights: AdaptiveWeights | None = None

    @property
    def names_per_person(self) -> int | None:
        """How many different names of a person count at most; None where records count."""
        return None if self.weights is None else self.weights.names_per_person

    @property
    def saturation(self) -> int:
        """The shares of persons that a name takes, units: as many as select it in 97.5 of 100 times, in whole parts of shares."""
        assert self.weights is not None
        parts = self.weights.names_per_person
        return parts * -(-(self.threshold + SATURATION[self.noise.kind] * self.noise.scale) // parts)

    def select_names(
        self, blocks: Iterable[tuple[NDArray[Any], Weights]], draw: Callable[[int, int], Weights]
    ) -> NDArray[Any]:
        """The selected names: of those that reach the threshold the ``most`` with the largest noisy weights, these first.

        Args:
            blocks: names and their weights, units. Of up to 2^32 records, as in a release, they fit with the noise into 63 bits.
            draw: the samples of the noise from a number on, and how many.
        """
        drawn, selected, noisy = 0, list[NDArray[Any]](), np.zeros(0, dtype=np.int64)
        for names, weights in blocks:
            noisy = np.concatenate([noisy, weights + draw(drawn, weights.size)])
            passed = np.flatnonzero(noisy >= self.threshold)
            largest = passed[np.argsort(-noisy[passed], kind="stable")[: self.most_names]]
            selected, noisy, drawn = [np.concatenate([*selected, names])[largest]], noisy[largest], drawn + weights.size
        return selected[0] if selected else np.zeros(0, dtype=np.int64)

    def chance(self, count: int, names: int = 1) -> float:
        """The probability that a name reaches the threshold, up to 0.975 at least: the noise's tail, half a unit between two integers.

        Args:
            count: its records, or its persons, of whom none has a share left from another name.
            names: how many names each of its persons has that count.
        """
        weight = 1 << UNIT_BITS if self.weights is None else self.weights.weight(names)
        return self.noise.kind.tail(self.threshold - count * weight, self.noise.scale)

    def count_with(self, chance: float, names: int = 1) -> int:
        """The least count whose name reaches the threshold with at least this probability."""
        return least_integer(lambda count: self.chance(count, names) >= chance, 1)

    @property
    def facts(self) -> dict[str, object]:
        """What decides which names are selected, for identities."""
        return {
            "noise": self.noise.kind,
            "scale": self.noise.scale,
            "threshold": self.threshold,
            "most": self.most_names,
            "bits": UNIT_BITS,
            "per person": self.names_per_person,
        }


def selection(
    kind: Kind, budget: Loss, delta: Fraction, moved: Distance, most_names: int, names_per_person: int | None = None
) -> Selection:
    """The selection that a budget and a delta buy.

    Args:
        kind: of the noise.
        budget: rho for Gaussian noise, epsilon for Laplace noise.
        delta: bounds the probability that a name of the changed unit alone is selected.
        moved: how far one change of the files moves the counts of the names. Of persons, whose records have weights, only whether they
            are replaced matters.
        most_names: how many names are selected at most.
        names_per_person: how many different names of a person count at most; None where records count.
    Raises: InvalidInput when the noise would be too large.
    """
    sides, records = 2 if moved.replaced else 1, moved.records
    weights = None if names_per_person is None else AdaptiveWeights(names_per_person, kind.norm)
    # all records of a unit may have one name; those that replace them have another one
    squared = (records << UNIT_BITS) ** 2 if weights is None else weights.sensitivity_squared
    squared *= sides if kind.norm == "l2" else sides**2
    scale = kind.scale(squared, budget)
    if scale > SCALE_LIMIT:
        raise InvalidInput(
            "the selection of names has so little budget that its noise is beyond 2^26 records: raise its 'share'"
        )

    def failure(threshold: int) -> float:
        if weights is None:
            return failure_at(threshold, kind, scale, records)
        return failure_of_persons(threshold, kind, scale, weights)

    lowest = ((1 if weights else records) << UNIT_BITS) + 1
    enough = least_integer(lambda threshold: failure(threshold) <= float(delta), lowest)
    # the grid's slack follows from how far all weights move together: docs/noise.md
    loss = kind.loss(budget, squared, scale, sides * (names_per_person or records))
    return Selection(Noise(kind, scale), enough, most_names, replace(loss, failure=delta), weights)


def failure_of_persons(threshold: int, kind: Kind, scale: int, weights: AdaptiveWeights) -> float:
    """A bound of the probability that a name of one person alone reaches a threshold: the largest over the numbers of own names.

    Their draws are independent, so that one of k reaches the threshold with probability 1 - (1 - p)^k, where p bounds it for each.
    """
    chances = (
        -math.expm1(own * math.log1p(-_reach(threshold, weight, kind, scale)))
        for own, weight in enumerate(weights.own_weights, 1)
    )
    return max(chances) * (1 + MARGIN)


def _reach(threshold: int, weight: int, kind: Kind, scale: int) -> float:
    """A bound of P(weight + X >= threshold), which is above the weight, rounded up.

    Of a discrete Gaussian X: P(X >= m) <= P(N(0, scale^2) >= m - 1) (Canonne, Kamath, Steinke 2020, Proposition 25).
    """
    if kind is GAUSSIAN:
        return math.exp(log_cdf(-(threshold - weight - 1) / scale)) * (1 + MARGIN)
    return kind.tail(threshold - weight, scale) * (1 + MARGIN)


def failure_at(threshold: int, kind: Kind, scale: int, records: int) -> float:
    """A bound of the probability that a name of one unit's records alone reaches a threshold above all of them.

    The bound of one name is convex in its count up to the threshold, so of all ways to spread the records over j names the worst gives
    one of them all records but the others' one each; the union over the names is bounded by the sum, and j is tried out.
    """

    def reached(count: int) -> float:
        return _reach(threshold, count << UNIT_BITS, kind, scale)

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
