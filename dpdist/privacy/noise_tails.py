"""Tails of the discrete noise, exactly: bounds of their probability to any number of digits, and values beyond a threshold.

P(X >= t) of the discrete Laplace is exp(-t / s) / (1 + exp(-1 / s)). That of the discrete Gaussian is a quotient of sums of
exp(-z^2 / 2 s^2). Up to the scale ``SUMMED_SCALE`` they are added up term by term. Beyond, the sum over all integers is s sqrt(2 pi)
but for a share below 2^-100000 (Poisson summation), and the sum from t on is an Euler-Maclaurin series, whose remainder is bounded by
Cramer's inequality for Hermite polynomials. The integral in it is Mills' ratio, between two ends of Laplace's continued fraction. All are
whole numbers that are rounded outwards (docs/noise.md, "Thresholded histograms").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache

from dpdist.privacy.noise_distributions import GAUSSIAN, Kind
from dpdist.privacy.numerics import exponential

SUMMED_SCALE = 64
"""The largest scale at which the terms of a Gaussian's tail are added up one by one."""
GUARD = 64
"""Further binary digits in which bounds are rounded."""
FIRST_BITS = 128

Digits = Callable[[int], int]
"""Gives the first so many binary digits of a uniform random number."""
Bounds = tuple[int, int]
"""A number lies between these whole numbers of 2^-bits."""


@lru_cache(maxsize=256)
def tail_bounds(kind: Kind, scale: int, threshold: int, bits: int) -> Bounds:
    """Bounds of 2^bits P(X >= threshold) of the noise X, for a threshold above zero."""
    wide = bits + GUARD
    if kind is not GAUSSIAN:
        top, step = exponential(Fraction(threshold, scale), wide), exponential(Fraction(1, scale), wide)
        one = 1 << wide
        bounds = ((top - 1) * one // (one + step + 1), -(-(top + 1) * one // (one + step - 1)))
    elif scale <= SUMMED_SCALE:
        one_sided, tail = (_add_terms(scale, first, wide) for first in (1, threshold))
        whole = ((1 << wide) + 2 * one_sided[0], (1 << wide) + 2 * one_sided[1])
        bounds = ((tail[0] << wide) // whole[1], -(-(tail[1] << wide) // whole[0]))
    else:
        bounds = _smooth_tail(scale, threshold, wide)
    return max(bounds[0], 0) >> GUARD, -(-bounds[1] >> GUARD)


def _add_terms(scale: int, first: int, bits: int) -> Bounds:
    """Bounds of 2^bits times the sum of exp(-z^2 / 2 scale^2) over the whole numbers from ``first`` > 0 on."""
    low = high = 0
    number = first
    while True:
        term = exponential(Fraction(number**2, 2 * scale**2), bits)
        if term <= 1:  # the rest is at most this term times 1 + scale^2 / number
            return low, high + 2 * (1 + -(-(scale**2) // number))
        low, high, number = low + term - 1, high + term + 1, number + 1


def _smooth_tail(scale: int, threshold: int, bits: int) -> Bounds:
    """Bounds of 2^bits P(X >= threshold) of a discrete Gaussian of a large scale."""
    x, one = Fraction(threshold, scale), 1 << bits
    top = exponential(x**2 / 2, bits)
    if top <= 1:  # the tail is below exp(-x^2 / 2)
        return 0, top + 1
    series, hermite, bernoulli = Fraction(1, 2 * scale), (Fraction(1), x), _bernoulli_numbers()
    order, factorial = 0, 1
    growth = math.ceil(x**2 / 4 * Fraction(3, 2))  # e^(x^2 / 4) < 2^growth
    while True:
        order += 2
        factorial *= (order - 1) * order
        # 8 sqrt(order!) e^(x^2 / 4) / (x (6 scale)^order) bounds what the terms beyond this one add up to
        series += next(bernoulli) / factorial * hermite[1] / scale**order
        remainder = 8 * (math.isqrt(factorial) + 1) * Fraction(2**growth, (6 * scale) ** order) / x
        if remainder * one < 1:
            break
        for degree in (order - 1, order):
            hermite = hermite[1], x * hermite[1] - degree * hermite[0]
    low, high = mills_bounds(x, bits)
    added = math.floor(series * one)
    low, high = low + added - 1, high + added + 2
    root = math.isqrt(2 * _pi_near(2 * bits))  # 2^bits sqrt(2 pi) lies between root - 1 and root + 2
    return (top - 1) * low // (root + 2) - 1, -(-(top + 1) * high // (root - 1)) + 1


def mills_bounds(x: Fraction, bits: int) -> Bounds:
    """Bounds of 2^bits times Mills' ratio of the normal distribution at x > 0, (1 - Phi(x)) / phi(x), less than four apart.

    Source: Laplace's continued fraction 1 / (x + 1 / (x + 2 / (x + ...))), whose tail from the number n on lies between x and x + n / x.
    """
    wide = bits + GUARD
    one, terms = 1 << wide, 64
    low_x, high_x = math.floor(x * one), math.floor(x * one) + 1
    while True:
        low, high = low_x, math.ceil((x + terms / x) * one)
        for number in range(terms - 1, -1, -1):
            numerator = max(number, 1) << 2 * wide
            low, high = numerator // high, -(-numerator // low)
            if number:
                low, high = low + low_x, high + high_x
        if (high - low) >> GUARD == 0:
            return low >> GUARD, (high >> GUARD) + 1
        terms *= 2


def _bernoulli_numbers() -> Iterator[Fraction]:
    """B_2, B_4, ... Source: the recurrence of the sums of powers."""
    numbers, size = [Fraction(1)], 0
    while True:
        size += 1
        numbers.append(-sum((math.comb(size + 1, k) * numbers[k] for k in range(size)), Fraction(0)) / (size + 1))
        if size % 2 == 0:
            yield numbers[-1]


@lru_cache(maxsize=16)
def _pi_near(bits: int) -> int:
    """2^bits pi, less than two away. Source: Machin, pi = 16 arctan(1/5) - 4 arctan(1/239)."""
    one = 1 << bits + GUARD

    def arctan(inverse: int) -> int:
        power, total, odd = one // inverse, 0, 1
        while power:
            total += power // odd if odd % 4 == 1 else -(power // odd)
            power, odd = power // inverse**2, odd + 2
        return total

    return 16 * arctan(5) - 4 * arctan(239) >> GUARD


def is_below_exponential(digits: Digits, exponent: Fraction) -> bool:
    """Whether a uniform number lies below exp(-exponent)."""
    if exponent == 0:
        return True
    bits = FIRST_BITS
    while True:
        value, target = digits(bits), exponential(exponent, bits)
        if value < target - 2:
            return True
        if value > target + 2:
            return False
        bits *= 2


def draw_tail(kind: Kind, scale: int, threshold: int, digits: Callable[[int], Digits]) -> int:
    """A value of the noise, given that it is at least the threshold, which is above zero.

    Of the Laplace noise the excess g is proportional to exp(-g / s). Of the Gaussian, exp(-(t + g)^2 / 2 s^2) is proportional to
    exp(-g t / s^2) exp(-g^2 / 2 s^2): g is proposed by the first factor and accepted with the second.

    Args:
        digits: gives the uniform number of each step of this draw: proposals have even, decisions odd numbers.
    """
    rate = Fraction(threshold, scale**2) if kind is GAUSSIAN else Fraction(1, scale)
    attempt = 0
    while True:
        excess = _draw_geometric(digits(attempt), rate)
        if kind is not GAUSSIAN or is_below_exponential(digits(attempt + 1), Fraction(excess**2, 2 * scale**2)):
            return threshold + excess
        attempt += 2


def _draw_geometric(digits: Digits, rate: Fraction) -> int:
    """The largest g for which a uniform number lies below exp(-rate g). A floating-point logarithm says where to look."""
    bits = FIRST_BITS
    while (value := digits(bits)) == 0:
        bits *= 2
    low = max(0, int((bits * math.log(2.0) - math.log(value)) / float(rate)))
    high, step = low + 1, 1
    while not is_below_exponential(digits, rate * low):
        low, high, step = max(0, low - step), low, 2 * step
    while is_below_exponential(digits, rate * high):
        low, high, step = high, high + step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_below_exponential(digits, rate * middle) else (low, middle)
    return low
