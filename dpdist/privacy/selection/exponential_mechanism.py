"""The exponential mechanism on whole scores, exactly: one of several is chosen with probability proportional to exp(rate score).

The choice is a pure function of (key, number). A uniform number is compared with the cumulative weights, both to so many digits as the
comparison takes; the digits come from SHAKE-256 under a subkey, apart from those of the noise.

If one change of the data moves every score by at most D, the logarithms of all probabilities move within a range of 2 rate D, and the
choice reveals no more than a Gaussian release of rho = ``gaussian_equivalent(rate D)`` (docs/noise.md, "Choosing by scores").

Source: McSherry & Talwar 2007; Dong, Durfee & Rogers 2020 (bounded range).
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from fractions import Fraction

from dpdist.privacy.accounting.gaussian_calibration import RHO_DENOMINATOR
from dpdist.privacy.accounting.laplace_calibration import epsilon_dominated_by, gaussian_equivalent
from dpdist.privacy.numerics import exponential

FIRST_BITS = 128
GUARD = 64
"""Further digits of weights, which products of up to 64 factors round in."""
RATE_BITS = 40
"""Rates are whole multiples of 2^-40."""


def rate_for(rho: Fraction, distance: int) -> Fraction:
    """A rate of choosing whose loss is at most a Gaussian rho, where one change moves every score by at most ``distance``.

    >>> gaussian_equivalent(3 * rate_for(Fraction(1, 100), 3)) <= Fraction(1, 100)
    True
    """
    below = max(float(rho) - 2.0 / RHO_DENOMINATOR, 0.0)  # whose equivalent is rounded up
    numerator = math.floor(epsilon_dominated_by(below) * (1 - 1e-6) / distance * 2**RATE_BITS)
    rate = Fraction(numerator, 2**RATE_BITS)
    assert rate == 0 or gaussian_equivalent(rate * distance) <= rho
    return rate


def choose(scores: Sequence[int], rate: Fraction, key: bytes, number: int, times: Sequence[int] | None = None) -> int:
    """The place of the chosen score.

    Args:
        rate: what a score is multiplied with, exact.
        key: 32 secret bytes of a release.
        number: of the choice; one number for one choice.
        times: how many are chosen from that have each score; None: one.
    """
    best, bits, times = max(scores), FIRST_BITS, times or [1] * len(scores)
    upto = [0, *itertools.accumulate(times)]
    gaps = [best - score for score in scores]
    while True:
        drawn = _uniform(key, number, bits)
        ends = list(itertools.accumulate(map(operator.mul, _powers(rate, gaps, bits), times)))
        # every weight lies between its whole number and 2 more: the number times their sum between these
        low, high = drawn * ends[-1] >> bits, -(-(drawn + 1) * (ends[-1] + 2 * upto[-1]) >> bits)
        index = bisect.bisect_right(ends, low)
        if index < len(ends) and high <= ends[index] and (index == 0 or low >= ends[index - 1] + 2 * upto[index]):
            return index
        bits *= 2


def choose_evenly(count: int, key: bytes, number: int) -> int:
    """One of so many whole numbers from zero on, each with the same probability."""
    bits = FIRST_BITS
    while True:
        drawn = _uniform(key, number, bits)
        low, high = drawn * count >> bits, (drawn + 1) * count - 1 >> bits
        if low == high:
            return low
        bits *= 2


def _powers(rate: Fraction, gaps: Sequence[int], bits: int) -> Iterator[int]:
    """2^bits exp(-rate gap) of every gap, down to 2 less: products of the numbers exp(-rate 2^j), each rounded down."""
    wide = bits + GUARD
    doubled = [max(0, exponential(rate * 2**j, wide) - 1) for j in range(max(gaps).bit_length())]
    for gap in gaps:
        power = 1 << wide
        for bit in range(gap.bit_length()):
            if gap >> bit & 1:
                power = power * doubled[bit] >> wide
        yield power >> GUARD


def _uniform(key: bytes, number: int, bits: int) -> int:
    """The first binary digits of the choice's uniform number."""
    subkey = hashlib.sha256(b"dpdist choice" + key).digest()
    return int.from_bytes(hashlib.shake_256(subkey + number.to_bytes(8, "little")).digest(bits // 8), "big")
