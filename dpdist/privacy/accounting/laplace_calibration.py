"""Laplace noise: the scale that keeps to a pure epsilon, and the Gaussian that reveals at least as much."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from dpdist.privacy.accounting.exact_amounts import check_sensitivity, positive
from dpdist.privacy.accounting.gaussian_calibration import RHO_DENOMINATOR
from dpdist.privacy.numerics import brentq, log_cdf

NEWTON_STEPS = 6
"""Each doubles the digits, of which the first step has one."""


@lru_cache(maxsize=1024)
def gaussian_equivalent(epsilon: Fraction) -> Fraction:
    """Rho of a Gaussian that dominates every epsilon-DP release: mu^2 / 2 with mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)), rounded up.

    The trade-off curve of epsilon-DP is two lines that meet where both errors are 1 / (1 + e^epsilon); a Gaussian's curve is convex
    and passes through their ends, so one that passes through or below the meeting point lies below both lines. Domination is kept
    by adaptive composition (Dong, Roth, Su 2022, Theorem 4).

    Ledgers keep sums of it and compute it anew to verify them: nine digits do not depend on the machine's last bit.

    >>> round(float(gaussian_equivalent(Fraction(1, 10))), 6)
    0.007851
    """
    half = _half_distance(float(epsilon))
    rho = 2.0 * half * half * (1.0 + 1e-9) * RHO_DENOMINATOR
    digit = 10 ** max(0, math.floor(math.log10(max(rho, 1.0))) - 8)
    return Fraction(math.ceil(rho / digit) * digit, RHO_DENOMINATOR)


def epsilon_dominated_by(rho: float) -> float:
    """The epsilon whose ``gaussian_equivalent`` is rho, but for rounding: ln(Phi(mu / 2) / Phi(-mu / 2)) with mu^2 / 2 = rho."""
    return _epsilon_at(math.sqrt(rho / 2.0))


def _half_distance(epsilon: float) -> float:
    """The x with ln(Phi(x) / Phi(-x)) = epsilon, to 1e-14 of itself."""
    if epsilon < 1:
        # the logarithms nearly cancel there; 2 Phi(x) - 1 = tanh(epsilon / 2) has all digits, and Newton's steps rise to x
        target, slope = math.tanh(epsilon / 2.0), math.sqrt(2.0 / math.pi)
        half = target / slope
        for _ in range(NEWTON_STEPS):
            half -= (math.erf(half * math.sqrt(0.5)) - target) / (slope * math.exp(-half * half / 2.0))
        return half
    upper_end = math.sqrt(2.0 * epsilon)  # as Phi(-x) < exp(-x^2 / 2) / 2
    return brentq(lambda x: _epsilon_at(x) - epsilon, 0.0, upper_end, xtol=0.0)


def _epsilon_at(half: float) -> float:
    return log_cdf(half) - log_cdf(-half)


def laplace_scale(sensitivity: int, epsilon: Fraction) -> int:
    """The least whole scale s of a discrete Laplace with Delta_1 / s <= epsilon.

    Args:
        sensitivity: Delta_1, the L1 sensitivity of the integer vector that is released.
    """
    check_sensitivity(sensitivity)
    return math.ceil(Fraction(sensitivity) / positive("epsilon", epsilon))
