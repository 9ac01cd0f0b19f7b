"""What a bound on the records of one person leaves out, estimated from noisy numbers of persons by their number of records.

Persons beyond a bound are sums of bins. Records beyond it weigh a bin by the records that each person in it has too many: its middle,
and the bin's width enters the interval. Whoever has more records than the last bin counts with as many as that has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpdist.operators import Matrix
from dpdist.quantities.intervals import fieller

SEEN = 2.0
"""Standard errors above zero from which on persons beyond some number of records are seen."""


@dataclass(frozen=True)
class Share:
    """A share of persons or of records with a 95 % interval."""

    value: float
    low: float
    high: float

    def facts(self) -> dict[str, float]:
        """For a certificate: noise decides the further digits."""
        return {"share": round(self.value, 4), "low_95": round(self.low, 4), "high_95": round(self.high, 4)}


@dataclass(frozen=True)
class NoisyCounts:
    """Noisy numbers of persons by their number of records.

    Attributes:
        firsts, lasts: the least and the largest number of records of each bin.
        persons: noisy numbers of persons.
        deviation: of the noise in each, persons.
        width: half width of a 95 % interval, in standard errors.
        seen: standard errors above zero from which on anything is seen.
    """

    firsts: Matrix
    lasts: Matrix
    counts: Matrix
    deviation: float
    width: float
    seen: float = SEEN

    def _beyond(self, bound: int) -> tuple[Matrix, Matrix]:
        """For each bin how many records of a person lie beyond a bound: the middle, and how far that may be off."""
        low, high = (np.maximum(ends - bound, 0).astype(np.float64) for ends in (self.firsts, self.lasts))
        return (low + high) / 2, (high - low) / 2

    @cached_property
    def _seen(self) -> Matrix:
        """The bins up to the last one from which on persons are seen: beyond it they are few, if there are any, and noise is not.

        Without this the choice has up to 40 times its error where few persons are far from the largest bound
        (benchmarks/results/bounds.md).
        """
        beyond = np.cumsum(self.counts[::-1])[::-1]
        seen = np.flatnonzero(beyond > self.seen * self.deviation * np.sqrt(np.arange(beyond.size, 0, -1)))
        return np.asarray(np.arange(beyond.size) <= seen.max(initial=0))

    def lost_squared(self, bound: int) -> float:
        """The expected square of the records beyond a bound, given the noisy numbers: its mean, squared, and its variance."""
        weights = self._beyond(bound)[0] * self._seen
        return max(float(weights @ self.counts), 0.0) ** 2 + float(weights @ weights) * self.deviation**2

    def chosen(self, variances: Matrix, spread: float) -> int:
        """The bound of least predicted total squared error: that of the noise, and that of the records beyond the bound.

        Args:
            variances: total squared error that noise adds to all answers with the last number of each bin as the bound.
            spread: what all answers lose, squared and added, where one record is left out, wherever it would have been.
        """
        lost = np.array([self.lost_squared(int(k)) for k in self.lasts])
        return int(self.lasts[int(np.argmin(variances + lost * spread))])

    def beyond(self, bound: int) -> Share:
        """The share of persons with more records than a bound, which is the last number of a bin."""
        weights = (self.firsts > bound).astype(np.float64)
        return self._share(weights, np.ones(weights.size), np.zeros(weights.size))

    def excess(self, bound: int) -> Share:
        """The share of records beyond a bound, of up to so many records of each person as the last bin says."""
        weights, off = self._beyond(bound)
        return self._share(weights, self._beyond(0)[0], off)

    def _share(self, above: Matrix, below: Matrix, off: Matrix) -> Share:
        """A ratio of two sums of bins, whose upper one may be off by the widths of bins, too."""
        rows = np.array([above, below])
        values = rows @ self.counts
        if values[1] <= 0.0:
            return Share(0.5, 0.0, 1.0)
        found = fieller(values, rows @ rows.T * self.deviation**2, self.width)
        within = float(off @ np.maximum(self.counts, 0.0)) / float(values[1])
        low, high = (0.0, 1.0) if found is None else (found[0] - within, found[1] + within)
        value, low, high = np.clip((values[0] / values[1], low, high), 0.0, 1.0).tolist()
        return Share(value, low, high)
