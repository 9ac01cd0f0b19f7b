"""From Gaussian noise and zCDP to (epsilon, delta): the accountant's proven conversions, for reports."""

from __future__ import annotations

import math
from functools import lru_cache

from dpdist.privacy.accounting.exact_amounts import probability
from dpdist.privacy.numerics import brentq, least_value, log_cdf

LOG_ERROR = 1e-14
"""Of logarithms of the normal distribution, relative to them."""


def zcdp_delta(rho: float, epsilon: float) -> float:
    """The tight delta of rho-zCDP at an epsilon.

    inf over alpha > 1 of exp((alpha - 1)(alpha rho - epsilon)) / (alpha - 1) * (1 - 1/alpha)^alpha.
    Source: Canonne, Kamath, Steinke 2020, Proposition 7.
    """
    if rho == 0:
        return 0.0

    def log_delta(log_order: float) -> float:
        order = math.exp(log_order)  # alpha - 1
        alpha = 1.0 + order
        return order * (alpha * rho - epsilon) + alpha * math.log1p(-1.0 / alpha) - math.log(order)

    centre = math.log(max((epsilon - rho) / (2 * rho), 1e-3) + 1.0 / math.sqrt(2 * rho) * 0.1 + 1e-6)
    least_log_delta = least_value(log_delta, centre - 12.0, centre + 12.0, xtol=1e-10)
    return min(1.0, math.exp(min(0.0, least_log_delta)))


@lru_cache(maxsize=1024)
def zcdp_epsilon(rho: float, delta: float) -> float:
    """The least epsilon with ``zcdp_delta(rho, epsilon) <= delta``, rounded up by 1e-12."""
    probability(delta)
    high = rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta)) + 1e-9
    if zcdp_delta(rho, 0.0) <= delta:
        return 0.0
    root = brentq(lambda e: math.log(max(zcdp_delta(rho, e), 1e-300)) - math.log(delta), 0.0, high, xtol=1e-13, rtol=1e-13)
    return float(root) * (1 + 1e-12)


def gaussian_delta(noise_multiplier: float, epsilon: float) -> float:
    """The exact delta of a continuous Gaussian of this standard deviation per unit of L2 sensitivity.

    Source: Balle & Wang 2018, Theorem 8.
    """
    half_distance = 1.0 / (2.0 * noise_multiplier)
    b = epsilon * noise_multiplier
    upper, lower = log_cdf(half_distance - b), epsilon + log_cdf(-half_distance - b)
    return math.exp(upper) * -math.expm1(min(0.0, lower - upper))


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """An epsilon of a continuous Gaussian at a delta, above the least one by rounding alone: a report, no amount is charged by it.

    Source: Balle & Wang 2018, Theorem 8.
    """
    probability(delta)
    if math.erf(math.sqrt(0.125) / noise_multiplier) * (1 + LOG_ERROR) <= delta:  # the delta of epsilon = 0
        return 0.0

    def above(epsilon: float) -> float:
        return math.log(max(_delta_at_most(noise_multiplier, epsilon), 1e-300)) - math.log(delta)

    rho = 0.5 / noise_multiplier**2
    high = rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))  # where the first of both terms alone is at most delta / 2
    epsilon = float(brentq(above, 0.0, high, xtol=1e-13, rtol=1e-13))
    step = 1e-13
    while _delta_at_most(noise_multiplier, epsilon) > delta:
        epsilon, step = epsilon * (1.0 + step), 2.0 * step
    return epsilon


def _delta_at_most(noise_multiplier: float, epsilon: float) -> float:
    """The delta of a continuous Gaussian, and what its rounding may have taken off it: two large terms may nearly cancel."""
    half_distance, b = 0.5 / noise_multiplier, epsilon * noise_multiplier
    delta = gaussian_delta(noise_multiplier, epsilon)
    for shift, point in ((0.0, half_distance - b), (epsilon, -half_distance - b)):
        logarithm = shift + log_cdf(point)
        steepest = 1.0 + max(0.0, -point)  # the derivative of the logarithm is no larger
        delta += math.exp(logarithm) * (
            LOG_ERROR * (1.0 + 2.0 * shift - logarithm) + 2.0**-50 * (half_distance + b) * steepest
        )
    return delta
