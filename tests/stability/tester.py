"""A black-box test of differential privacy, in the manner of dp_auditorium (Kong et al. 2023): it knows outputs, nothing of their making.

For two neighbouring data sets and (epsilon, delta) it looks for an event whose probabilities p and q have p > e^epsilon q + delta. The
event is fixed on training samples; on fresh ones p is bounded from below and q from above (Clopper & Pearson 1934). What is private fails
with a probability of at most ``alarm``, whatever its outputs look like; ``power`` computes how often a known event is found.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from dpdist.operators import Matrix


@dataclass(frozen=True)
class Verdict:
    """What was found at one (epsilon, delta): bounds of both probabilities, and whether the promise is broken."""

    low: float
    high: float
    epsilon: float
    delta: float

    @property
    def broken(self) -> bool:
        """Whether even the cautious bounds contradict (epsilon, delta)."""
        return self.low > math.exp(self.epsilon) * self.high + self.delta


def verdict_on(one: Matrix, other: Matrix, epsilon: float, delta: float, *, alarm: float) -> Verdict:
    """The verdict about outputs of two neighbouring data sets, (samples, values) each; the first third of the samples fixes the event.

    The event: outputs that lie farther than a threshold in the direction of the difference of means.
    """
    training, rest = one.shape[0] // 3, one.shape[0] - one.shape[0] // 3
    spread = other[:training].std(axis=0) + 1e-9
    direction = (one[:training].mean(axis=0) - other[:training].mean(axis=0)) / spread**2
    here, there = (side.astype(np.float64) @ direction for side in (one, other))
    steps = np.quantile(np.concatenate([here[:training], there[:training]]), np.linspace(0.02, 0.98, 97))
    gains = [(here[:training] > t).mean() - math.exp(epsilon) * (there[:training] > t).mean() for t in steps]
    threshold = steps[int(np.argmax(gains))]
    hits = [int((side[training:] > threshold).sum()) for side in (here, there)]
    low, high = lower(hits[0], rest, alarm / 2), 1.0 - lower(rest - hits[1], rest, alarm / 2)
    return Verdict(low, high, epsilon, delta)


def lower(hits: int, of: int, alarm: float) -> float:
    """A probability is below this in at most ``alarm`` of cases."""
    return float(stats.beta.ppf(alarm, hits, of - hits + 1)) if hits else 0.0


def power(p: float, q: float, samples: int, epsilon: float, delta: float, *, alarm: float) -> float:
    """At least how often an event of probabilities p and q is found to break the promise; the sum of two binomial tails.

    It is found when both counts are within the quantiles that each exceeds with probability ``miss``.
    """
    rest = samples - samples // 3
    best = 0.0
    for miss in np.logspace(-9, -1, 60):
        hits, others = int(stats.binom.ppf(miss, rest, p)), int(stats.binom.isf(miss, rest, q))
        low, high = lower(hits, rest, alarm / 2), 1.0 - lower(rest - others, rest, alarm / 2)
        if Verdict(low, high, epsilon, delta).broken:
            best = max(best, 1.0 - 2.0 * float(miss))
    return best
