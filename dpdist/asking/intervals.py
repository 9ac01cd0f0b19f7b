"""Critical values of many comparisons at once."""

from __future__ import annotations

import numpy as np
import scipy

from dpdist.operators import Matrix

DRAWS = 20_000
SIMULATED = 64
"""Up to so many things compared the critical value is simulated; beyond it is Bonferroni's."""


def critical_value(covariance: Matrix, level: float = 0.95) -> float:
    """The number of standard errors within which all differences of normal estimates lie at once with a given probability.

    Args:
        covariance: of the estimates, (k, k).
    For up to ``SIMULATED`` estimates it is simulated with a fixed seed, with an error of about 0.01; for more it is Bonferroni's.
    """
    count = covariance.shape[0]
    if count < 2:
        return float(scipy.stats.norm.isf((1 - level) / 2))
    if count > SIMULATED:
        return float(scipy.stats.norm.isf((1 - level) / (count * (count - 1))))
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    draws = np.random.default_rng(2026).standard_normal((DRAWS, count)) @ root.T
    error = difference_errors(covariance)
    largest = np.zeros(DRAWS)
    for place in range(count - 1):
        apart = np.abs(draws[:, place + 1 :] - draws[:, place, None]) / error[place, place + 1 :]
        largest = np.maximum(largest, apart.max(axis=1))
    return float(np.quantile(largest, level))


def difference_errors(covariance: Matrix) -> Matrix:
    """Standard errors of all differences, (k, k), each kept above zero."""
    squares = np.diag(covariance)
    return np.asarray(np.sqrt(np.maximum(squares[:, None] + squares[None, :] - 2 * covariance, 1e-300)))
