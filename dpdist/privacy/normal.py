"""The normal distribution's tail by the standard library, for reports: importing SciPy's takes longer than ``dpdist ledger`` may."""

from __future__ import annotations

import math

FAR = -30.0
"""Below it the tail is a continued fraction: the complementary error function underflows at -38."""
TERMS = 60
HALF_LOG_OF_TWO_PI = 0.5 * math.log(2.0 * math.pi)


def log_cdf(x: float) -> float:
    """Logarithm of the standard normal distribution function, to 1e-14 of itself.

    Source: Laplace's continued fraction of Mills' ratio, x + 1/(x + 2/(x + ...)), far out.

    >>> round(log_cdf(-40.0), 6)
    -804.608442
    """
    root = math.sqrt(0.5)
    if x >= -1.0:
        return math.log1p(-math.erfc(x * root) / 2.0)
    if x > FAR:
        return math.log(math.erfc(-x * root) / 2.0)
    fraction = 0.0
    for k in range(TERMS, 0, -1):
        fraction = k / (fraction - x)
    return -0.5 * x * x - math.log(fraction - x) - HALF_LOG_OF_TWO_PI
