"""Laplace noise: the scale that keeps to a pure epsilon, and the Gaussian that reveals at least as much."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from dpdist.errors import InvalidInput
from dpdist.privacy.accounting.amounts import positive
from dpdist.privacy.accounting.gaussian import RHO_DENOMINATOR


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
    import numpy as np
    from scipy.special import erfinv, ndtri_exp

    if (
        epsilon < 1
    ):  # near a half the logarithm of a probability has too few digits; 2 Phi(x) - 1 = tanh(epsilon / 2) has all
        mu = 2.0 * math.sqrt(2.0) * float(erfinv(math.tanh(float(epsilon) / 2.0)))
    else:
        mu = -2.0 * float(ndtri_exp(-float(np.logaddexp(0.0, float(epsilon)))))
    rho = mu * mu / 2.0 * (1.0 + 1e-9) * RHO_DENOMINATOR
    digit = 10 ** max(0, math.floor(math.log10(max(rho, 1.0))) - 8)
    return Fraction(math.ceil(rho / digit) * digit, RHO_DENOMINATOR)


def epsilon_dominated_by(rho: float) -> float:
    """The epsilon whose ``gaussian_equivalent`` is rho, but for rounding: ln(Phi(mu / 2) / Phi(-mu / 2)) with mu^2 / 2 = rho."""
    from scipy.special import log_ndtr

    half = math.sqrt(rho / 2.0)
    return float(log_ndtr(half) - log_ndtr(-half))


def laplace_scale(sensitivity: int, epsilon: Fraction) -> int:
    """The least whole scale s of a discrete Laplace with Delta_1 / s <= epsilon.

    Args:
        sensitivity: Delta_1, the L1 sensitivity of the integer vector that is released.
    """
    if sensitivity <= 0:
        raise InvalidInput(
            "the sensitivity is zero, so nothing that is measured depends on the records; ask for a query that counts records"
        )
    return math.ceil(Fraction(sensitivity) / positive("epsilon", epsilon))
