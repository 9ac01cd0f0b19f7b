"""What bounds leave out, estimated from noisy numbers with their intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpdist.api.steps import EstimatedShare, IntervalEstimate, Matrix

DETECTION_ERRORS, LAPLACE_DETECTION_ERRORS = 4.0, 32**0.5
"""Standard errors above zero from which on anybody is seen on a ladder. At 2, Gaussian noise takes late rungs for occupied in one draw of
ten, and intervals of what it chose hold in 88 to 94 of 100 cases in place of 94 to 96 (docs/decisions/0017-budgeted-steps.md). Of Laplace
noise
as many as are as unlikely as four of a Gaussian, 8 nats: at four, intervals of sums outside a range hold in 94.1 cases in place of 95.5."""
WIDEST = 1 / 3
"""An estimate for all records is said where its interval goes up by at most so much of the records that count."""


@dataclass(frozen=True)
class LossHistogram:
    """Noisy sums of what lies on each rung.

    Attributes:
        ends: of the rungs.
        sums: noisy, in the unit of the ends.
        deviation: of the noise in the sum of a rung over its end: in units that lie on it.
        detection_errors: standard errors above zero from which on anybody is seen.
    """

    ends: Matrix
    sums: Matrix
    deviation: float
    detection_errors: float

    @cached_property
    def last_occupied_bin(self) -> int:
        """The last rung from which on anybody is seen."""
        counts_above = np.cumsum((self.sums / self.ends)[::-1])[::-1]
        return int(
            np.flatnonzero(
                counts_above > self.detection_errors * self.deviation * np.sqrt(np.arange(counts_above.size, 0, -1))
            ).max(initial=0)
        )

    @property
    def largest_counted(self) -> float:
        """The end of the last rung that is added up."""
        return float(self.ends[self.last_occupied_bin])

    @property
    def weights(self) -> Matrix:
        """Which sums are added up."""
        return (np.arange(self.ends.size) <= self.last_occupied_bin).astype(np.float64)

    def total(self, width: float, *, whole: bool = False) -> IntervalEstimate:
        """What is beyond, up to the last rung that is seen, or on the whole ladder."""
        weights = np.ones(self.ends.size) if whole else self.weights
        value, error = float(weights @ self.sums), float(np.linalg.norm(weights * self.ends)) * self.deviation
        return IntervalEstimate(value, value - width * error, value + width * error)


@dataclass(frozen=True)
class BoundLossEstimate:
    """Noisy numbers of one block: three before its ladders, of which the last is a sum of parts of a bound, or a number of records.

    Attributes:
        head: in persons and records.
        deviations: of the noise in the head.
        histograms: what lies beyond; of amounts above the range and below it.
        width: half width of a 95 % interval, in standard errors.
    """

    head: Matrix
    deviations: Matrix
    histograms: tuple[LossHistogram, ...]
    width: float

    def head_share(self, *numerator: int, denominator: tuple[int, ...]) -> EstimatedShare:
        """Some numbers of the head as a share of some."""
        rows = np.array(
            [np.isin(np.arange(self.head.size), indices) for indices in (numerator, denominator)], dtype=np.float64
        )
        return EstimatedShare.of(rows @ self.head, rows @ np.diag(self.deviations**2) @ rows.T, self.width)

    def persons(self) -> dict[str, Any]:
        """What is said of persons: who has more than counts, which share of records that is, and how many records there are in all."""
        (histogram,) = self.histograms
        lost, counted = histogram.total(self.width), float(self.head[2])
        errors = (histogram.weights * histogram.ends * histogram.deviation, self.deviations[2])
        above, below = float(errors[0] @ errors[0]), float(errors[1]) ** 2
        records = EstimatedShare.of(
            np.array([lost.value, lost.value + counted]),
            np.array([[above, above], [above, above + below]]),
            self.width,
        )
        everything = self._all_records(counted)
        facts = {
            "beyond": self.head_share(1, denominator=(0, 1)).facts(),
            "records": records.facts(),
            "up_to": int(histogram.largest_counted),
        }
        return facts if everything is None else {**facts, "all_records": everything.facts()}

    def _all_records(self, counted: float) -> IntervalEstimate | None:
        """The number of all records of the file, None where little is known of it."""
        (histogram,), count_margin = self.histograms, self.width * float(self.deviations[2])
        detected, whole = histogram.total(self.width), histogram.total(self.width, whole=True)
        if (
            whole.high - whole.value > WIDEST * counted
        ):  # decided by what has little noise: else intervals would be chosen by theirs
            return None
        value = counted + detected.value
        low = value - math.hypot(detected.value - detected.low, count_margin)
        return IntervalEstimate(
            value, low, max(value, counted + whole.value) + math.hypot(whole.high - whole.value, count_margin)
        )

    def amounts(self, unit: float) -> dict[str, Any]:
        """What is said of a column: the shares of amounts above and below its range, and what these add to the sum of all.

        Args:
            unit: of the ladders, in that of the amounts.
        """
        above, below = (histogram.total(self.width) for histogram in self.histograms)
        margin = math.hypot(above.high - above.value, below.high - below.value)
        value = above.value - below.value
        return {
            "outside": self.head_share(1, 2, denominator=(0, 1, 2)).facts(),
            "above": self.head_share(1, denominator=(0, 1, 2)).facts(),
            "below": self.head_share(2, denominator=(0, 1, 2)).facts(),
            "excess": IntervalEstimate(value * unit, (value - margin) * unit, (value + margin) * unit).facts(),
            "up_to": [self.histograms[0].largest_counted * unit, self.histograms[1].largest_counted * unit],
        }


def estimate_bound_loss(
    values: Matrix,
    deviation: float,
    scales: tuple[float, float, float],
    ends: Matrix,
    bin_units: float,
    width: float,
    detection_errors: float,
) -> BoundLossEstimate:
    """A block of noisy numbers in units, read.

    Args:
        deviation: of the noise, units.
        scales: units of each number of the head.
        ends: of the rungs of each ladder.
        bin_units: units of one that lies on the end of a rung.
        width, detection_errors: of intervals and ladders.
    """
    head, rest = values[: len(scales)] / np.array(scales), values[len(scales) :].reshape(-1, ends.size)
    histograms = tuple(
        LossHistogram(ends, block_sums / bin_units * ends, deviation / bin_units, detection_errors) for block_sums in rest
    )
    return BoundLossEstimate(head, deviation / np.array(scales), histograms, width)
