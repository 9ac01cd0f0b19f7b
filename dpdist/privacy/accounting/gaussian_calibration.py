"""Calibration of Gaussian noise: which rho an (epsilon, delta) buys, and which scale on the integer grid keeps to a rho."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from dpdist.errors import InvalidInput
from dpdist.privacy.accounting.exact_amounts import check_sensitivity, positive, probability
from dpdist.privacy.accounting.zcdp_conversion import gaussian_delta, zcdp_delta
from dpdist.privacy.numerics import brentq

Calibration = Literal["analytic", "zcdp", "classic"]
RHO_DENOMINATOR = 10**12
"""Rho bought for an (epsilon, delta) is rounded down to a multiple of 1e-12."""
RESERVE = 1e-6
"""Part of epsilon and of delta that the analytic calibration leaves to the grid (``gaussian_slack``)."""
SLACK_DENOMINATOR = 2**90


def rho_for(epsilon: float, delta: float, calibration: Calibration = "analytic") -> Fraction:
    """The rho of Gaussian releases that (epsilon, delta) buys, a multiple of 1e-12, rounded down.

    Args:
        calibration: "analytic" (the largest: Gaussian releases of this rho together, however many, are (epsilon, delta)-DP
            with ``RESERVE`` left for the grid), "zcdp" (through the tight conversion of any rho-zCDP mechanism), or
            "classic" (the papers' formula, refused where it is wrong).
    """
    if calibration == "zcdp":
        return _zcdp_rho(epsilon, delta)
    if calibration == "classic":
        multiplier = classic_noise_multiplier(epsilon, delta)
    else:
        multiplier = analytic_gaussian(epsilon * (1.0 - RESERVE), delta * (1.0 - RESERVE))
    return _rounded_down(0.5 / multiplier**2 * (1.0 - 1e-12), epsilon, delta)


def _zcdp_rho(epsilon: float, delta: float) -> Fraction:
    """The largest rho (a multiple of 1e-12) whose tight conversion stays within (epsilon, delta)."""
    positive("epsilon", Fraction(epsilon))
    probability(delta)
    high = epsilon + 1.0
    while zcdp_delta(high, epsilon) < delta:
        high *= 2
    root = brentq(lambda log_rho: math.log(max(zcdp_delta(math.exp(log_rho), epsilon), 1e-300)) - math.log(delta),
                  math.log(1e-30), math.log(high), xtol=1e-14, rtol=1e-14)  # fmt: skip
    rho = _rounded_down(math.exp(root) * (1 - 1e-12), epsilon, delta)
    while zcdp_delta(float(rho), epsilon) > delta:
        rho -= Fraction(1, RHO_DENOMINATOR)
    return rho


def _rounded_down(rho: float, epsilon: float, delta: float) -> Fraction:
    exact = Fraction(math.floor(rho * RHO_DENOMINATOR), RHO_DENOMINATOR)
    if exact <= 0:
        raise InvalidInput(
            f"epsilon={epsilon:g} with delta={delta:g} buys less than rho=1e-12: nothing useful can be released, raise them"
        )
    return exact


def analytic_gaussian(epsilon: float, delta: float) -> float:
    """The least noise multiplier of the continuous Gaussian mechanism. Source: Balle & Wang 2018, Algorithm 1."""
    positive("epsilon", Fraction(epsilon))
    probability(delta)
    low, high = 1e-6, 1.0
    while gaussian_delta(high, epsilon) > delta:
        high *= 2
    return float(
        brentq(lambda s: math.log(max(gaussian_delta(s, epsilon), 1e-300)) - math.log(delta), low, high, rtol=1e-13)
    )


def classic_noise_multiplier(epsilon: float, delta: float) -> float:
    """sqrt(2 ln(2/delta)) / epsilon, the calibration printed in the papers.

    Raises: InvalidInput where it does not give (epsilon, delta), as for epsilon = 12, delta = 1e-6.
    """
    positive("epsilon", Fraction(epsilon))
    probability(delta)
    multiplier = math.sqrt(2.0 * math.log(2.0 / delta)) / epsilon
    real = gaussian_delta(multiplier, epsilon)
    if real > delta:
        raise InvalidInput(
            f"the classic calibration gives delta={real:.3g} at epsilon={epsilon:g}, not {delta:g}; use the analytic one"
        )
    return multiplier


def gaussian_scale(sensitivity_squared: int, rho: Fraction) -> int:
    """The least whole scale s of a discrete Gaussian with Delta^2 / (2 s^2) <= rho, proven in integers.

    Args:
        sensitivity_squared: Delta^2 of the integer vector that is released.
    """
    check_sensitivity(sensitivity_squared)
    least_square = Fraction(sensitivity_squared) / (2 * positive("rho", rho))
    scale = math.isqrt(math.ceil(least_square) - 1) + 1 if least_square > 1 else 1
    assert 2 * rho * scale * scale >= sensitivity_squared
    return scale


def gaussian_slack(sensitivity_squared: int, scale: int, rows: int) -> Fraction:
    """Upper bound of what the integer grid adds to a Gaussian release's (epsilon, delta), see ``Loss.slack``.

    max(|v|_1 / (2 s^2), p / (24 s^2)) with |v|_1 <= sqrt(p) Delta; proof in docs/noise.md.

    Args:
        sensitivity_squared: Delta^2 of the integer vector. scale: s. rows: p, the vector's length.
    """
    shift = Fraction(math.isqrt(rows * sensitivity_squared) + 1, 2 * scale * scale)
    slack = max(shift, Fraction(rows, 24 * scale * scale))
    return Fraction(math.ceil(slack * SLACK_DENOMINATOR), SLACK_DENOMINATOR)
