"""Privacy losses: exact amounts that compose, and what they mean as (epsilon, delta).

The currency is rho of zero-concentrated differential privacy (zCDP, Bun & Steinke 2016): exact rationals that add up.
Pure-epsilon (Laplace) losses are kept beside it. (epsilon, delta) is a report, always by a proven conversion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_ndtr

from dpdist.errors import InvalidInput

RHO_DENOMINATOR = 10**12
"""Rho bought for an (epsilon, delta) is rounded down to a multiple of 1e-12."""


@dataclass(frozen=True)
class Loss:
    """What releases may reveal: rho of the Gaussian ones, and sum and half sum of squares of the pure epsilons.

    >>> (Loss.gaussian(Fraction(1, 8)) + Loss.gaussian(Fraction(1, 8))).rho
    Fraction(1, 4)
    """

    rho: Fraction = Fraction(0)
    pure: Fraction = Fraction(0)
    pure_as_rho: Fraction = Fraction(0)

    @staticmethod
    def gaussian(rho: Fraction) -> Loss:
        """Loss of one Gaussian release of rho-zCDP."""
        return Loss(rho=_positive("rho", rho))

    @staticmethod
    def laplace(epsilon: Fraction) -> Loss:
        """Loss of one epsilon-DP release, which is also epsilon^2/2-zCDP."""
        exact = _positive("epsilon", epsilon)
        return Loss(pure=exact, pure_as_rho=exact * exact / 2)

    def __add__(self, other: Loss) -> Loss:
        return Loss(self.rho + other.rho, self.pure + other.pure, self.pure_as_rho + other.pure_as_rho)

    @property
    def zcdp(self) -> Fraction:
        """Rho of everything together."""
        return self.rho + self.pure_as_rho

    def epsilon(self, delta: float) -> float:
        """The least epsilon that is proven for this delta; delta = 0 needs losses without Gaussian noise."""
        if self.rho == 0 and self.pure == 0:
            return 0.0
        if delta == 0.0:
            return float(self.pure) if self.rho == 0 else math.inf
        together = zcdp_epsilon(float(self.zcdp), delta)
        apart = float(self.pure) + (zcdp_epsilon(float(self.rho), delta) if self.rho else 0.0)
        return min(together, apart)


@dataclass(frozen=True)
class Cap:
    """The most that the releases of a data set may reveal together, per period or in total.

    Either ``rho``, or ``epsilon`` with ``delta`` (0 for pure epsilon).
    """

    rho: Fraction | None = None
    epsilon: Fraction | None = None
    delta: Fraction = Fraction(0)
    per: str = "total"

    def __post_init__(self) -> None:
        if (self.rho is None) == (self.epsilon is None):
            raise InvalidInput("a budget is either rho, or epsilon and delta")
        if self.per not in ("total", "day", "week", "month"):
            raise InvalidInput(f"a budget is renewed per 'day', 'week' or 'month', or is a 'total'; found {self.per!r}")
        _positive("rho" if self.rho is not None else "epsilon", self.rho if self.rho is not None else self.epsilon)
        if not 0 <= self.delta < 1:
            raise InvalidInput(f"delta lies in [0, 1), found {self.delta}")

    def allows(self, loss: Loss) -> bool:
        """Whether a composed loss stays within the cap."""
        if self.rho is not None:
            return loss.zcdp <= self.rho
        assert self.epsilon is not None
        if self.delta == 0:
            return loss.rho == 0 and loss.pure <= self.epsilon
        if loss.pure == 0:
            return loss.rho <= rho_for(float(self.epsilon), float(self.delta))
        return loss.epsilon(float(self.delta)) <= float(self.epsilon)

    @property
    def as_rho(self) -> Fraction:
        """The cap as rho of Gaussian releases; 0 for a pure-epsilon cap."""
        if self.rho is not None:
            return self.rho
        assert self.epsilon is not None
        return rho_for(float(self.epsilon), float(self.delta)) if self.delta else Fraction(0)


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
    found = minimize_scalar(log_delta, bounds=(centre - 12.0, centre + 12.0), method="bounded", options={"xatol": 1e-10})
    return min(1.0, math.exp(min(0.0, float(found.fun))))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """The least epsilon with ``zcdp_delta(rho, epsilon) <= delta``, rounded up by 1e-12."""
    _probability(delta)
    high = rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta)) + 1e-9
    if zcdp_delta(rho, 0.0) <= delta:
        return 0.0
    root = brentq(lambda e: math.log(max(zcdp_delta(rho, e), 1e-300)) - math.log(delta), 0.0, high, xtol=1e-13, rtol=1e-13)
    return float(root) * (1 + 1e-12)


def rho_for(epsilon: float, delta: float) -> Fraction:
    """The largest rho (a multiple of 1e-12) whose tight conversion stays within (epsilon, delta)."""
    _positive("epsilon", Fraction(epsilon))
    _probability(delta)
    high = epsilon + 1.0
    while zcdp_delta(high, epsilon) < delta:
        high *= 2
    root = brentq(lambda log_rho: math.log(max(zcdp_delta(math.exp(log_rho), epsilon), 1e-300)) - math.log(delta),
                  math.log(1e-30), math.log(high), xtol=1e-14, rtol=1e-14)  # fmt: skip
    rho = Fraction(math.floor(math.exp(root) * (1 - 1e-12) * RHO_DENOMINATOR), RHO_DENOMINATOR)
    if rho <= 0:
        raise InvalidInput(
            f"epsilon={epsilon:g} with delta={delta:g} buys less than rho=1e-12: nothing useful can be released"
        )
    while zcdp_delta(float(rho), epsilon) > delta:
        rho -= Fraction(1, RHO_DENOMINATOR)
    return rho


def gaussian_delta(noise_multiplier: float, epsilon: float) -> float:
    """The exact delta of a continuous Gaussian of this standard deviation per unit of L2 sensitivity.

    Source: Balle & Wang 2018, Theorem 8.
    """
    a = 1.0 / (2.0 * noise_multiplier)
    b = epsilon * noise_multiplier
    upper, lower = float(log_ndtr(a - b)), epsilon + float(log_ndtr(-a - b))
    return math.exp(upper) * -math.expm1(min(0.0, lower - upper))


def analytic_gaussian(epsilon: float, delta: float) -> float:
    """The least noise multiplier of the continuous Gaussian mechanism. Source: Balle & Wang 2018, Algorithm 1."""
    _positive("epsilon", Fraction(epsilon))
    _probability(delta)
    low, high = 1e-6, 1.0
    while gaussian_delta(high, epsilon) > delta:
        high *= 2
    return float(
        brentq(lambda s: math.log(max(gaussian_delta(s, epsilon), 1e-300)) - math.log(delta), low, high, rtol=1e-13)
    )


def zcdp_noise_multiplier(epsilon: float, delta: float) -> float:
    """The noise multiplier 1/sqrt(2 rho) that the tight zCDP conversion asks for."""
    return 1.0 / math.sqrt(2.0 * float(rho_for(epsilon, delta)))


def classic_noise_multiplier(epsilon: float, delta: float) -> float:
    """sqrt(2 ln(2/delta)) / epsilon, the calibration printed in the papers.

    Raises: InvalidInput where it does not give (epsilon, delta), as for epsilon = 12, delta = 1e-6.
    """
    _positive("epsilon", Fraction(epsilon))
    _probability(delta)
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
    if sensitivity_squared <= 0:
        raise InvalidInput("nothing depends on the records: the squared sensitivity must be positive")
    wanted = Fraction(sensitivity_squared) / (2 * _positive("rho", rho))
    scale = math.isqrt(math.ceil(wanted) - 1) + 1 if wanted > 1 else 1
    assert 2 * rho * scale * scale >= sensitivity_squared
    return scale


def _positive(name: str, amount: Fraction | None) -> Fraction:
    if amount is None or isinstance(amount, float) or Fraction(amount) <= 0:
        raise InvalidInput(f"{name} must be a positive exact number, found {amount}")
    return Fraction(amount)


def _probability(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise InvalidInput(f"delta lies in (0, 1), found {delta!r}")
