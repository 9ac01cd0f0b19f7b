"""Numbers that accounting and noise need: roots, least values, the normal distribution and exponentials of any precision."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from fractions import Fraction

MOST_STEPS = 100


def brentq(
    function: Callable[[float], float], low: float, high: float, *, xtol: float = 2e-12, rtol: float = 2.0**-50
) -> float:
    """A root between low and high, where the function changes sign: to the last bit what ``scipy.optimize.brentq`` returns.

    Raises: ArithmeticError when the signs at both ends agree, or after ``MOST_STEPS`` steps.
    Source: Brent 1973, chapter 4.
    """
    before, here = low, high
    at_before, at_here = function(before), function(here)
    if at_before == 0 or at_here == 0:
        return before if at_before == 0 else here
    if not (at_before < 0) ^ (at_here < 0):
        raise ArithmeticError(f"no change of sign between {low:g} and {high:g}")
    bracket = at_bracket = step = last_step = 0.0
    for _ in range(MOST_STEPS):
        if at_before != 0 and at_here != 0 and (at_before < 0) != (at_here < 0):
            bracket, at_bracket = before, at_before
            last_step = step = here - before
        if abs(at_bracket) < abs(at_here):
            before, here, bracket = here, bracket, here
            at_before, at_here, at_bracket = at_here, at_bracket, at_here
        tolerance = (xtol + rtol * abs(here)) / 2
        half = (bracket - here) / 2
        if at_here == 0 or abs(half) < tolerance:
            return here
        if abs(last_step) > tolerance and abs(at_here) < abs(at_before):
            tried = _interpolated_step((before, here, bracket), (at_before, at_here, at_bracket))
            if 2 * abs(tried) < min(abs(last_step), 3 * abs(half) - tolerance):
                last_step, step = step, tried
            else:
                last_step = step = half
        else:
            last_step = step = half
        before, at_before = here, at_here
        here += step if abs(step) > tolerance else math.copysign(tolerance, half)
        at_here = function(here)
    raise ArithmeticError(f"no root found within {MOST_STEPS} steps between {low:g} and {high:g}")


def _interpolated_step(points: tuple[float, float, float], values: tuple[float, float, float]) -> float:
    """The step of the secant, or of inverse quadratic interpolation through three points; infinite where there is none."""
    before, here, bracket = points
    at_before, at_here, at_bracket = values
    try:
        if before == bracket:
            return -at_here * (here - before) / (at_here - at_before)
        slope = (at_before - at_here) / (before - here)
        other_slope = (at_bracket - at_here) / (bracket - here)
        return -at_here * (at_bracket * other_slope - at_before * slope) / (other_slope * slope * (at_bracket - at_before))
    except ZeroDivisionError:
        return math.inf


GOLDEN = 0.5 * (3.0 - math.sqrt(5.0))
PRECISION = math.sqrt(2.2e-16)
MOST_CALLS = 500


def least_value(function: Callable[[float], float], low: float, high: float, *, xtol: float) -> float:
    """The least value found between low and high: to the last bit that of ``scipy.optimize.minimize_scalar(method="bounded")``.

    Source: Brent 1973, chapter 5, as in Forsythe, Malcolm, Moler 1977.
    """
    best = second = third = low + GOLDEN * (high - low)
    at_best = at_second = at_third = function(best)
    step = last_step = 0.0
    for _ in range(MOST_CALLS - 1):
        middle = 0.5 * (low + high)
        tolerance = PRECISION * abs(best) + xtol / 3.0
        if abs(best - middle) <= 2.0 * tolerance - 0.5 * (high - low):
            break
        parabola = None
        if abs(last_step) > tolerance:
            parabola = _vertex((best, second, third), (at_best, at_second, at_third), last_step, (low, high))
            last_step = step
        if parabola is None:
            last_step = low - best if best >= middle else high - best
            step = GOLDEN * last_step
        else:
            x, step = best + parabola, parabola
            if x - low < 2.0 * tolerance or high - x < 2.0 * tolerance:
                step = tolerance if middle >= best else -tolerance
        x = best + (max(abs(step), tolerance) if step >= 0 else -max(abs(step), tolerance))
        at_x = function(x)
        if at_x <= at_best:
            low, high = (best, high) if x >= best else (low, best)
            third, at_third = second, at_second
            second, at_second = best, at_best
            best, at_best = x, at_x
            continue
        low, high = (x, high) if x < best else (low, x)
        if at_x <= at_second or second == best:
            third, at_third = second, at_second
            second, at_second = x, at_x
        elif at_x <= at_third or third in (best, second):
            third, at_third = x, at_x
    return at_best


def _vertex(
    points: tuple[float, float, float], values: tuple[float, float, float], last_step: float, bounds: tuple[float, float]
) -> float | None:
    """The step to the vertex of the parabola through three points; None where it leaves the bounds or is no smaller than before."""
    best, second, third = points
    at_best, at_second, at_third = values
    r = (best - second) * (at_best - at_third)
    q = (best - third) * (at_best - at_second)
    p = (best - third) * q - (best - second) * r
    q = 2.0 * (q - r)
    p, q = -p if q > 0.0 else p, abs(q)
    low, high = bounds
    is_inside = abs(p) < abs(0.5 * q * last_step) and q * (low - best) < p < q * (high - best)
    return p / q if is_inside else None


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


def exponential(exponent: Fraction, bits: int) -> int:
    """2^bits exp(-exponent), for an exponent from zero on: a whole number less than one away from it.

    >>> exponential(Fraction(1), 10)
    376
    """
    digits = (bits + 64) // 3  # a digit is 3.3 bits
    with decimal.localcontext(decimal.Context(digits, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX, traps=[])):
        power = (-decimal.Decimal(exponent.numerator) / exponent.denominator).exp()  # rounded in its last digit alone
        return int(power * (1 << bits))
