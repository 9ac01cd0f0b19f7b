"""How persons may be distributed by their number of records, or records by amount: what a private bound reckons with."""

from __future__ import annotations

import numpy as np

from dpdist.api.steps import Matrix

LOGNORMAL_DEVIATIONS = (0.1, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 2.5)
WEIBULL_SHAPES = (0.5, 0.7, 1, 1.5, 2, 3)
LOMAX_POWERS = (1, 1.5, 2, 3, 5)
LEAST_SHARE = 0.2
"""A distribution counts if at least so much of it lies in the bins."""


def bin_shares(bin_starts: Matrix, bin_ends: Matrix) -> Matrix:
    """The share of each bin under lognormal, Weibull, Lomax (Pareto) and uniform distributions, one a row.

    Their scales are the powers of the root of two up to the last bin, which has whatever is larger, too.
    """
    from scipy.special import ndtr  # its import takes longer than a small release

    edges = np.maximum(bin_starts - 0.5, 0.5)
    scales = np.sqrt(2.0) ** np.arange(2 * np.log2(bin_ends[-1]) + 1)
    relative = edges / scales[:, None]
    above = [
        *(ndtr(-np.log(relative) / deviation) for deviation in LOGNORMAL_DEVIATIONS),
        *(np.exp(-(relative**shape)) for shape in WEIBULL_SHAPES),
        *((1.0 + relative) ** -power for power in LOMAX_POWERS),
        np.maximum(1.0 - relative, 0.0),
    ]
    shares_above = np.concatenate(above)
    shares = -np.diff(shares_above, axis=1, append=0.0)
    return np.asarray(shares[shares.sum(axis=1) > LEAST_SHARE])
