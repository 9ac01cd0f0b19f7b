"""What several synthetic sets of one release say together: estimates, and intervals from how far the sets differ.

Each set (``synthetic_records.MeasuredTableEstimates.model`` with a number) is a draw of the counted records themselves, given
what was measured, from a posterior that is estimated (``posterior_tables``). So with m sets, b the variance of an estimate between
them, the mean of the estimates is off from the value in the *counted* records by a variance of (1 + 1/m) b: the records are all there
is, as where a sample happens to be the whole population. Of a *population* of which these records are a sample, the variance that an
analyst would state for complete data, u in the mean over the sets, is added. The first has m - 1 degrees of freedom, the second
(m - 1) (1 + u / ((1 + 1/m) b))^2. Both hold as far as the posterior does; docs/guides/synthetic.md says how often they held on real data.

Source: Rubin 1987, for the rules; Vink & van Buuren 2014, without u; Raisa, Jalko, Kaski & Honkela 2023 (NAPSU-MQ), for noise-aware sets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from dpdist.api import InvalidInput


@dataclass(frozen=True)
class CombinedEstimate:
    """An estimate from several sets.

    Attributes:
        value: the mean over the sets.
        standard_error: of the mean, from how far the sets differ, and from the variances that were given.
        degrees: of freedom, of Student's distribution.
        low_95, high_95: ends of its interval of 95 %.
    """

    value: float
    standard_error: float
    degrees: float
    low_95: float
    high_95: float


def combine_estimates(estimates: Sequence[float], variances: Sequence[float] | None = None) -> CombinedEstimate:
    """The estimate of several synthetic sets together, with its interval of 95 %.

    Args:
        estimates: of each set, made with ``--sets``; at least two.
        variances: of each estimate, as if the set were a sample; None for a number of the counted records, which are no sample.
    Raises: InvalidInput.
    Source: Rubin 1987, section 3.3.

    >>> found = combine_estimates([10.0, 12.0, 14.0])
    >>> found.value, round(found.low_95, 3), round(found.high_95, 3)
    (12.0, 2.063, 21.937)
    """
    estimate_array = np.asarray(estimates, dtype=np.float64)
    variance_array = np.zeros_like(estimate_array) if variances is None else np.asarray(variances, dtype=np.float64)
    sets = estimate_array.size
    if (
        sets < 2
        or variance_array.shape != estimate_array.shape
        or not np.isfinite([estimate_array, variance_array]).all()
        or variance_array.min() < 0
    ):
        raise InvalidInput(
            f"estimates are two numbers or more, with a variance of zero or more each, found {sets} and {variance_array.size}"
        )
    between_variance, within_variance = (1 + 1 / sets) * float(estimate_array.var(ddof=1)), float(variance_array.mean())
    degrees = (sets - 1) * (1 + within_variance / between_variance) ** 2 if between_variance > 0 else math.inf
    error, value = math.sqrt(between_variance + within_variance), float(estimate_array.mean())
    half = float(scipy.special.stdtrit(min(degrees, 1e9), 0.975)) * error
    return CombinedEstimate(value, error, degrees, value - half, value + half)
