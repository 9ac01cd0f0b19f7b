"""Ranks of groups that all hold at once, by the critical value of all their differences."""

from __future__ import annotations

import numpy as np
import scipy

from dpdist.api.queries import GAUSSIAN, Matrix, NoiseKind, simultaneous_half_widths

LEVEL = 0.95
DRAWS = 20_000
MOST_SIMULATED = 64
"""Up to so many things compared the critical value is simulated; beyond it is Bonferroni's."""


def critical_value(covariance: Matrix, kind: NoiseKind = GAUSSIAN) -> float:
    """The number of standard errors within which all differences of estimates lie at once in 95 of 100 releases.

    Args:
        covariance: of the estimates, (k, k).
        kind: of the draws that the noise of each estimate is a sum of.
    With Gaussian noise it is simulated for up to ``MOST_SIMULATED`` estimates, with a fixed seed and an error of about 0.01; for more it is
    Bonferroni's. Sums of Laplace draws have heavier tails, which ``simultaneous_half_widths`` bounds for any weights.
    """
    count = covariance.shape[0]
    if count < 2:
        return float(kind.half_width_95(1.0))
    if kind is not GAUSSIAN:
        return float(simultaneous_half_widths(np.broadcast_to(kind.half_width_95(1.0), count * (count - 1) // 2))[0])
    if count > MOST_SIMULATED:
        return float(scipy.stats.norm.isf((1 - LEVEL) / (count * (count - 1))))
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    draws = np.random.default_rng(2026).standard_normal((DRAWS, count)) @ root.T
    error = difference_errors(covariance)
    largest = np.zeros(DRAWS)
    for index in range(count - 1):
        standardized_gaps = np.abs(draws[:, index + 1 :] - draws[:, index, None]) / error[index, index + 1 :]
        largest = np.maximum(largest, standardized_gaps.max(axis=1))
    return float(np.quantile(largest, LEVEL))


def difference_errors(covariance: Matrix) -> Matrix:
    """Standard errors of all differences, (k, k), each kept above zero."""
    squares = np.diag(covariance)
    return np.asarray(np.sqrt(np.maximum(squares[:, None] + squares[None, :] - 2 * covariance, 1e-300)))


def rank_ranges(values: Matrix, covariance: Matrix, critical: float) -> tuple[Matrix, Matrix]:
    """The best and the worst rank of each estimate (the largest has rank 1); with 95 % probability all hold at once.

    An estimate ranks below every estimate that is significantly larger; all differences share one critical value.

    Args:
        critical: ``critical_value`` of the covariance.
    Source: Mogstad, Romano, Shaikh & Wilhelm 2024, simultaneous confidence sets for ranks.
    """
    standardized_gaps = (values[:, None] - values[None, :]) / difference_errors(covariance)
    larger, smaller = (standardized_gaps < -critical).sum(axis=1), (standardized_gaps > critical).sum(axis=1)
    return 1 + larger, values.size - smaller
