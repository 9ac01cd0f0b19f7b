"""Numbers and shares with 95 % intervals, as certificates have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dpdist.operators import Matrix
from dpdist.statistics.ratio_intervals import fieller, interval_within


@dataclass(frozen=True)
class IntervalEstimate:
    """A number with a 95 % interval."""

    value: float
    low: float
    high: float

    kind: ClassVar[str] = "estimate"

    def facts(self) -> dict[str, float]:
        """For a certificate: noise decides the further digits."""
        return {self.kind: round(self.value, 4), "low_95": round(self.low, 4), "high_95": round(self.high, 4)}


class EstimatedShare(IntervalEstimate):
    """A share of persons or of records."""

    kind = "share"

    @staticmethod
    def of(values: Matrix, covariance: Matrix, width: float, bias: float = 0.0) -> EstimatedShare:
        """A ratio of two estimates.

        Args:
            width: half width of a 95 % interval, in standard errors.
            bias: how far the first one may be off beside its noise.
        """
        if values[1] <= 0.0:
            return EstimatedShare(0.5, 0.0, 1.0)
        ratio, interval = float(values[0] / values[1]), fieller(values, covariance, width)
        if interval is None:
            return EstimatedShare(min(max(ratio, 0.0), 1.0), 0.0, 1.0)
        margin = bias / float(values[1])
        return EstimatedShare(*interval_within(ratio, (interval[0] - margin, interval[1] + margin), (0.0, 1.0)))
