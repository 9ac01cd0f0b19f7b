"""Noisy numbers of persons or records by their size: which bound has the least error, and what lies beyond it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dpdist.api.steps import EstimatedShare, Matrix
from dpdist.plugins.private_bounds.size_distributions import bin_shares

AMOUNT_DETECTION_NATS = 10.0
"""As ``NoisyCounts.seen``, of amounts: their bins are wider, and noise that is taken for amounts costs more."""
POWERS = np.array([1.5, 2, 3, 4, 6, 10, 20])
"""Laws by which persons may become fewer beyond the last bin in which they are seen (docs/decisions/0017-budgeted-steps.md)."""
ABSENCE_PRIOR = 10.0
"""How many times as likely as each of them it is that there is nobody, before the numbers are looked at."""
PARAMETER_NATS = 2.0
"""By so many nats a histogram is less likely for each number of it that is taken from the noisy counts, which then fit it."""
LIKELIEST = 32
"""Where both ends of a range are chosen, so many histograms of each side count."""


@dataclass(frozen=True)
class NoisyCounts:
    """Noisy numbers of persons by their number of records.

    Attributes:
        bin_starts, bin_ends: the least and the largest number of records of each bin.
        counts: noisy numbers of persons.
        deviation: of the noise in each, persons.
        width: half width of a 95 % interval, in standard errors.
        laplace: whether the noise is Laplace's; else it is Gaussian.
        detection_nats: nats by which something there has to be likelier than noise alone to be seen: 8 are four standard errors of a
        Gaussian.
    """

    bin_starts: Matrix
    bin_ends: Matrix
    counts: Matrix
    deviation: float
    width: float
    laplace: bool
    detection_nats: float = 8.0

    def _lost_records(self, bound: int | Matrix) -> tuple[Matrix, Matrix]:
        """For each bin how many records of a person lie beyond a bound: the middle, and how far that may be off."""
        low, high = (np.maximum(ends - bound, 0).astype(np.float64) for ends in (self.bin_starts, self.bin_ends))
        return (low + high) / 2, (high - low) / 2

    def _nats(self, noise: Matrix) -> Matrix:
        """How unlikely such noise is beside none."""
        errors = noise / self.deviation
        return np.asarray(math.sqrt(2) * np.abs(errors) if self.laplace else errors**2 / 2)

    @property
    def least_detected(self) -> float:
        """How many persons one bin needs at least so that they are seen, where all others are empty and noise adds nothing."""
        factor = self.detection_nats / math.sqrt(2) if self.laplace else math.sqrt(2 * self.detection_nats)
        return factor * self.deviation

    @cached_property
    def occupied_bins(self) -> int:
        """How many bins there are up to the last one in which persons are seen.

        There a number of them in all of 1, 2, 4, ... bins from it on is likelier than noise alone.
        """
        bins = 0
        for doubled in range(self.counts.size.bit_length()):
            runs = sliding_window_view(self.counts, 2**doubled)
            level = np.median(runs, axis=1) if self.laplace else runs.mean(axis=1)  # the likeliest
            likelier = self._nats(runs) - self._nats(runs - np.maximum(level, 0.0)[:, None])
            bins = max(bins, 1 + int(np.flatnonzero(likelier.sum(axis=1) > self.detection_nats).max(initial=-1)))
        return bins

    @cached_property
    def _tails(self) -> tuple[Matrix, Matrix]:
        """Persons in each bin after the last one in which they are seen, by each law of ``POWERS`` and by none, and its nats."""
        last_occupied = max(self.occupied_bins, 1) - 1
        starts = np.append(self.bin_starts[last_occupied], self.bin_ends[last_occupied:] + 1.0) - 0.5
        masses = -np.diff(starts ** -POWERS[:, None])
        masses[:, -1] = starts[-2] ** -POWERS  # whoever has more is in the last bin, too
        laws = np.append(masses[:, 1:] / masses[:, :1], np.zeros((1, starts.size - 2)), axis=0) * max(
            self.counts[last_occupied], 0.0
        )
        prior = np.append(np.ones(POWERS.size), ABSENCE_PRIOR)
        return laws, self._nats(self.counts[last_occupied + 1 :] - laws).sum(axis=1) - np.log(prior / prior.sum())

    @cached_property
    def _distributions(self) -> tuple[Matrix, Matrix]:
        """Counts under each of ``size_distributions``, as many as fit the noisy ones best, and their nats."""
        shares = bin_shares(self.bin_starts, self.bin_ends)
        fitted = np.maximum(shares @ self.counts / (shares**2).sum(axis=1), 0.0)
        counts = fitted[:, None] * shares
        return counts, self._nats(self.counts - counts).sum(axis=1) + math.log(shares.shape[0]) + 2 * PARAMETER_NATS

    def lost_records(self, bounds: Matrix) -> tuple[Matrix, Matrix]:
        """What may lie beyond each bound (in rows), and how likely that is.

        Either the noisy counts are taken as they are up to the last bin in which persons are seen, with a tail of ``POWERS``, or all
        counts follow one of ``size_distributions``.
        """
        if not self.counts.size:
            return np.zeros((bounds.size, 1)), np.ones(1)
        weights, occupied = self._lost_records(bounds[:, None])[0], max(self.occupied_bins, 1)
        (tails, tail_nats), (counts, nats) = self._tails, self._distributions
        seen = np.maximum(weights[:, :occupied] @ self.counts[:occupied], 0.0)[:, None]
        lost = np.append(seen + weights[:, occupied:] @ tails.T, weights @ counts.T, axis=1)
        all_nats = np.append(tail_nats + PARAMETER_NATS * occupied, nats)
        likely = np.exp(all_nats.min() - all_nats)
        return lost, likely / likely.sum()

    def choose_bound(self, variances: Matrix, record_loss: float) -> int:
        """The bound of least expected error: the root of the squared error of the noise and of the records beyond the bound.

        The error counts as a multiple of the least one that any bound has, so that distributions with large errors do not decide
        alone, however unlikely they are.

        Args:
            variances: total squared error that noise adds to all answers with the last number of each bin as the bound.
            record_loss: what all answers lose, squared and added, where one record is left out, wherever it would have been.
        """
        lost, likely = self.lost_records(self.bin_ends)
        return int(self.bin_ends[int(np.argmin(_expected_error(variances[:, None] + lost**2 * record_loss, likely)))])

    def person_share_above(self, bound: int | Matrix) -> EstimatedShare:
        """The share of persons with more records than a bound, which is the last number of a bin, or of each bin one."""
        weights = (self.bin_starts > bound).astype(np.float64)
        return self._ratio_of_bins(weights, np.ones(weights.size), np.zeros(weights.size))

    def record_share_above(self, bound: int | Matrix) -> EstimatedShare:
        """The share of records beyond a bound, of up to so many records of each person as the last bin says."""
        weights, half_widths = self._lost_records(bound)
        return self._ratio_of_bins(weights, self._lost_records(0)[0], half_widths)

    def _ratio_of_bins(self, above: Matrix, below: Matrix, half_widths: Matrix) -> EstimatedShare:
        """A ratio of two sums of bins, whose upper one may be off by the widths of bins, too."""
        rows = np.array([above, below])
        covariance, largest_bias = rows @ rows.T * self.deviation**2, float(half_widths @ np.maximum(self.counts, 0.0))
        return EstimatedShare.of(rows @ self.counts, covariance, self.width, largest_bias)


def _expected_error(squares: Matrix, likely: Matrix) -> Matrix:
    """For each bound (in rows) the expected root of its squared error over the least one, of histograms (in columns) so likely."""
    return np.asarray(np.sqrt(squares / np.maximum(squares.min(axis=0), np.finfo(float).tiny)) @ likely)


def _likeliest(lost: Matrix, likely: Matrix) -> tuple[Matrix, Matrix]:
    """The likeliest histograms alone."""
    first = np.argsort(-likely, kind="stable")[:LIKELIEST]
    return lost[:, first], likely[first] / likely[first].sum()


@dataclass(frozen=True)
class SignedCounts:
    """Noisy numbers of records by their amounts.

    Attributes:
        all_bins: of all bins, those beneath zero without their sign, after all others.
        above: how many bins lie above zero.
    """

    all_bins: NoisyCounts
    above: int

    def _side_counts(self, selection: slice) -> NoisyCounts:
        all_bins = self.all_bins
        return replace(
            all_bins,
            bin_starts=all_bins.bin_starts[selection],
            bin_ends=all_bins.bin_ends[selection],
            counts=all_bins.counts[selection],
        )

    @property
    def lowest(self) -> Matrix:
        """How far beneath zero a range may begin."""
        return np.append(0, self.all_bins.bin_ends[self.above :])

    @property
    def highest(self) -> Matrix:
        """Where a range may end."""
        return self.all_bins.bin_ends[: self.above]

    def choose_bound(self, variances: Matrix, record_loss: float) -> tuple[int, int]:
        """How far the range of least expected error reaches beneath zero, and how far above.

        What is cut off at both ends is added up, squared: where both are cut off in other groups, one does not make up for the other.

        Args:
            variances: total squared error that noise adds to all answers with each of ``lowest``, in rows, and each of ``highest``.
            record_loss: as for ``NoisyCounts.choose_bound``.
        """
        beneath, above = self._side_counts(slice(self.above, None)), self._side_counts(slice(self.above))
        lost_below, likely_below = _likeliest(*beneath.lost_records(self.lowest))
        lost_above, likely_above = _likeliest(*above.lost_records(self.highest))
        if not beneath.occupied_bins:  # a range begins at zero where nothing is seen beneath it
            lost_below, likely_below = np.zeros((self.lowest.size, 1)), np.ones(1)
        squares = (lost_below**2)[:, None, :, None] + (lost_above**2)[None, :, None, :]
        shape = (*variances.shape, likely_below.size * likely_above.size)
        errors = (variances[:, :, None, None] + squares * record_loss).reshape(-1, shape[2])
        expected = _expected_error(errors, np.outer(likely_below, likely_above).ravel())
        low, high = np.unravel_index(int(np.argmin(expected)), variances.shape)
        return int(self.lowest[low]), int(self.highest[high])

    def outside(self, low: int, high: int) -> tuple[EstimatedShare, EstimatedShare]:
        """The share of the amounts other than zero that lie outside a range, and of what they add up to without their signs."""
        ends = np.where(np.arange(self.all_bins.counts.size) < self.above, high, low)
        return self.all_bins.person_share_above(ends), self.all_bins.record_share_above(ends)
