"""Intervals of answers that are shown because they exceed a number: those of a truncated distribution.

Of the groups near the limit only those with upward noise are shown, so that the usual interval of a shown answer holds its true count
less often than it says. Given that an answer y is shown, its noise exceeds the limit t less the true count c. The adjusted interval holds
every c for which y lies between the 2.5 and the 97.5 % point of noise that is so truncated: of all shown answers, too, 95 % are covered.

Source: Lee, Sun, Sun & Taylor 2016 (inference after selection; the one-dimensional case is a truncated normal distribution).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpdist.operators import Matrix
from dpdist.privacy.noise_distributions import GAUSSIAN, Kind

TAILS = (0.025, 0.975)
FARTHEST = 40.0
"""Standard errors below the limit at which the lower end is taken for unknown: intervals are cut at 0 before that."""
UNTOUCHED = 9.0
"""Standard errors above the limit from which the usual interval is kept: there the chance to be hidden is below 1e-5."""
HALVINGS = 60
ROOT = math.sqrt(2.0)


def normal_tail(x: Matrix) -> Matrix:
    """ln P(X >= x) of a standard normal X."""
    import scipy.special

    return np.asarray(scipy.special.log_ndtr(-x))


def laplace_tail(x: Matrix) -> Matrix:
    """ln P(X >= x) of a Laplace distributed X of deviation 1."""
    falling = math.log(0.5) - ROOT * x
    return np.where(x >= 0, falling, np.log1p(-0.5 * np.exp(ROOT * np.minimum(x, 0.0))))


def truncated_end(above: Matrix, probability: float, tail: Callable[[Matrix], Matrix]) -> Matrix:
    """The m for which noise around m that exceeds 0 exceeds ``above`` with a probability; all in standard errors.

    The probability grows with m (a monotone likelihood ratio), so that halving an interval finds it.
    """
    low, high = np.full_like(above, -FARTHEST), above + 4.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        small = tail(above - middle) - tail(-middle) < math.log(probability)
        low, high = np.where(small, middle, low), np.where(small, high, middle)
    return low


def truncated_intervals(
    answers: Matrix, errors: Matrix, limits: Matrix, noise: Kind, extra: float = 0.0
) -> tuple[Matrix, Matrix]:
    """Both ends of 95 % intervals of answers, given that each is shown because it is at least its limit.

    Under Laplace noise answers hold sums of many draws, whose distribution lies between that of one draw and a normal one: the interval
    holds those of both.

    Args:
        noise: its kind.
        extra: what is added to both sides, for whole numbers.
    """
    above = np.maximum(answers - limits, 0.0) / errors
    tails = (normal_tail,) if noise is GAUSSIAN else (normal_tail, laplace_tail)
    low, high = ([truncated_end(above, probability, tail) for tail in tails] for probability in TAILS)
    lowest, highest = np.minimum.reduce(low), np.maximum.reduce(high)
    lowest = np.where(lowest <= -FARTHEST + 1e-6, -np.inf, lowest)
    return limits + lowest * errors - extra, limits + highest * errors + extra


def intervals_of_shown(
    answers: Matrix,
    errors: Matrix,
    usual: tuple[Matrix, Matrix],
    limits: Matrix,
    compared: Matrix,
    noise: Kind,
    extra: float,
) -> tuple[Matrix, Matrix]:
    """Both ends of intervals of answers, given that those which are compared are at least their limits.

    Args:
        answers: NaN where they are hidden.
        usual: the ends of the intervals of all other answers, and of those far above their limits.
    """
    low, high = (interval_end.copy() for interval_end in usual)
    is_near_limit = compared & (errors > 0) & (answers - limits < UNTOUCHED * errors)
    low[is_near_limit], high[is_near_limit] = truncated_intervals(
        answers[is_near_limit], errors[is_near_limit], limits[is_near_limit], noise, extra
    )
    return low, high
