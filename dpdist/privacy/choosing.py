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
from collections.abc import Sequence
from fractions import Fraction

from dpdist.privacy.accounting.gaussian import RHO_DENOMINATOR
from dpdist.privacy.accounting.laplace import epsilon_dominated_by, gaussian_equivalent

FIRST_BITS = 128
RATE_BITS = 40
"""Rates are whole multiples of 2^-40."""


def rate_for(rho: Fraction, distance: int) -> Fraction:
    """A rate of choosing whose loss is at most a Gaussian rho, where one change moves every score by at most ``distance``.

    >>> gaussian_equivalent(3 * rate_for(Fraction(1, 100), 3)) <= Fraction(1, 100)
    True
    """
    below = max(float(rho) - 2.0 / RHO_DENOMINATOR, 0.0)  # whose equivalent is rounded up
    found = math.floor(epsilon_dominated_by(below) * (1 - 1e-6) / distance * 2**RATE_BITS)
    rate = Fraction(found, 2**RATE_BITS)
    assert rate == 0 or gaussian_equivalent(rate * distance) <= rho
    return rate


def choose(scores: Sequence[int], rate: Fraction, key: bytes, number: int) -> int:
    """The place of the chosen score.

    Args:
        rate: what a score is multiplied with, exact.
        key: 32 secret bytes of a release.
        number: of the choice; one number for one choice.
    """
    best, bits = max(scores), FIRST_BITS
    exponents = [rate * (best - score) for score in scores]
    while True:
        drawn = _uniform(key, number, bits)
        ends = list(itertools.accumulate(_power(exponent, bits) for exponent in exponents))
        # every weight lies between its whole number and 2 more: the number times their sum between these
        low, high = drawn * ends[-1] >> bits, -(-(drawn + 1) * (ends[-1] + 2 * len(ends)) >> bits)
        place = bisect.bisect_right(ends, low)
        if place < len(ends) and high <= ends[place] and (place == 0 or low >= ends[place - 1] + 2 * place):
            return place
        bits *= 2


def _power(exponent: Fraction, bits: int) -> int:
    """2^bits exp(-exponent), rounded down."""
    import mpmath

    with mpmath.workprec(bits + 64):
        scaled = mpmath.ldexp(mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator), bits)
        return int(mpmath.floor(scaled * (1 - mpmath.ldexp(1, -bits - 32))))


def _uniform(key: bytes, number: int, bits: int) -> int:
    """The first binary digits of the choice's uniform number."""
    subkey = hashlib.sha256(b"dpdist choice" + key).digest()
    return int.from_bytes(hashlib.shake_256(subkey + number.to_bytes(8, "little")).digest(bits // 8), "big")
