"""Variances, covariances and correlations of amounts: functions of a few linear ones, with intervals for the noise in all of them.

Every statistic is made of sums over the records of a group: of one, of deviations from a fixed middle, and of their squares or
products. docs/mathematics.md, section 10, derives the intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpdist.domain.numeric_columns import DEVIATION, PRESENCE, SQUARE
from dpdist.operators import Matrix
from dpdist.statistics.ratio_intervals import error_within, fieller, interval_within, ratio_error
from dpdist.statistics.statistic import Estimated, Range, Statistic

VARIANCE, STANDARD_DEVIATION, COVARIANCE, CORRELATION = "variance", "standard deviation", "covariance", "correlation"
ABOUT_MEANS = "Fieller 1954 about the measured means, within what the ranges allow"
_PAIR_SUMMANDS = ((PRESENCE, PRESENCE), (DEVIATION, PRESENCE), (PRESENCE, DEVIATION), (DEVIATION, DEVIATION))


class Variance(Statistic):
    """The variance of a column, with its root."""

    name = VARIANCE
    summands = ((PRESENCE,), (DEVIATION,), (SQUARE,))
    statistic_names = (VARIANCE, STANDARD_DEVIATION)
    published = statistic_names
    help_text = (
        "asks for the variance and the standard deviation of these amounts over the records that each query counts, each with its "
        "interval, and for the number, deviations and squares that they are made of"
    )
    plural = "counts, deviations, squares, variances and standard deviations"
    interval = ABOUT_MEANS

    def compute(
        self, statistic: str, values: Matrix, covariance: Matrix, width: float, ranges: Sequence[Range]
    ) -> Estimated:
        return variance_of(values, covariance, width, _largest_moment(ranges))[statistic == STANDARD_DEVIATION]


class Covariance(Statistic):
    """The covariance of two columns."""

    name = COVARIANCE
    columns = 2
    summands = _PAIR_SUMMANDS
    statistic_names = (COVARIANCE,)
    published = statistic_names
    help_text = (
        "asks for the covariance of two columns of amounts over the records that each query counts and that have both"
    )
    plural = "counts, deviations, products and covariances"
    interval = ABOUT_MEANS

    def compute(
        self, statistic: str, values: Matrix, covariance: Matrix, width: float, ranges: Sequence[Range]
    ) -> Estimated:
        return covariance_of(values, covariance, width, _largest_moment(ranges))


class Correlation(Statistic):
    """The correlation of two columns, published with their covariance."""

    name = CORRELATION
    columns = 2
    summands = (*_PAIR_SUMMANDS, (SQUARE, PRESENCE), (PRESENCE, SQUARE))
    statistic_names = (CORRELATION,)
    published = (CORRELATION, COVARIANCE)
    help_text = "asks for the correlation of two columns of amounts, and for their covariance"
    plural = "counts, deviations, squares, products, covariances and correlations"
    interval = f"{ABOUT_MEANS}; of correlations on Fisher's scale"

    def compute(
        self, statistic: str, values: Matrix, covariance: Matrix, width: float, ranges: Sequence[Range]
    ) -> Estimated:
        return correlation_of(values, covariance, width)


def _largest_moment(ranges: Sequence[Range]) -> float:
    """The largest absolute covariance within the ranges of two columns, or the largest variance within that of one."""
    (low, high), (other_low, other_high) = ranges[0], ranges[-1]
    return (high - low) * (other_high - other_low) / 4


def variance_of(values: Matrix, covariance: Matrix, width: float, largest_variance: float) -> tuple[Estimated, Estimated]:
    """A variance and its root, the standard deviation.

    Args:
        values: estimates of the number, the sum of deviations and the sum of squares.
        covariance: of these three, (3, 3).
        width: standard errors that an interval reaches to both sides.
        largest_variance: the largest variance within the range of the amounts.
    """
    estimate = _ratio(VARIANCE, values, covariance, width, (1, 1, 2), (0.0, largest_variance))
    root, low, high = (math.sqrt(value) for value in (estimate.value, estimate.low, estimate.high))
    error = (
        None
        if estimate.standard_error is None
        else min(estimate.standard_error / (2 * root), math.sqrt(largest_variance) / 2)
    )
    return estimate, Estimated(STANDARD_DEVIATION, root, error, low, high)


def covariance_of(values: Matrix, covariance: Matrix, width: float, largest_covariance: float) -> Estimated:
    """A covariance.

    Args:
        values: estimates of the number, the sums of deviations of both columns, and the sum of products.
        covariance: of these four, (4, 4).
        largest_covariance: the largest absolute covariance within the ranges of both.
    """
    return _ratio(COVARIANCE, values, covariance, width, (1, 2, 3), (-largest_covariance, largest_covariance))


def correlation_of(values: Matrix, covariance: Matrix, width: float) -> Estimated:
    """A correlation, with an interval on Fisher's scale.

    Args:
        values: as for ``covariance_of``, then the sums of squares of both columns.
        covariance: of these six, (6, 6).
    Source: Fisher 1915 for the scale, on which errors depend least on the correlation itself.
    """
    number = values[0]
    means = values[1:3] / number if number > 0 else np.zeros(2)
    comoment = values[3] / number - means[0] * means[1] if number > 0 else 0.0
    squares = values[4:6] / number - means**2 if number > 0 else np.zeros(2)
    if number <= 0 or (squares <= 0).any():
        return Estimated(CORRELATION, 0.0, None, -1.0, 1.0)
    value = comoment / math.sqrt(squares[0] * squares[1])
    first_slope, second_slope = _slope(means, (0, 0)), _slope(means, (1, 1))
    slope = _slope(means, (0, 1)) / math.sqrt(squares[0] * squares[1])
    slope = slope - value * (first_slope / squares[0] + second_slope / squares[1]) / 2
    slope[0] = -(slope[1:] @ values[1:]) / number  # a correlation stays the same when all sums grow alike
    error = math.sqrt(max(float(slope @ covariance @ slope), 0.0)) / number
    if abs(value) >= 1.0:
        return Estimated(CORRELATION, math.copysign(1.0, value), None, -1.0, 1.0)
    half = width * error / (1 - value**2)
    low, high = (math.tanh(math.atanh(value) + sign * half) for sign in (-1, 1))
    return Estimated(CORRELATION, value, min(error, 1.0), low, high)


def _slope(means: Matrix, pair: tuple[int, int]) -> Matrix:
    """How a covariance of two columns, times the number of records, changes with the sums it is made of; number left out."""
    slope = np.zeros(6)
    index = {(0, 1): 3, (0, 0): 4, (1, 1): 5}[pair]
    slope[index] = 1.0
    for column, other_column in (pair, pair[::-1]):
        slope[1 + column] -= means[other_column]
    return slope


def _ratio(
    statistic: str,
    values: Matrix,
    covariance: Matrix,
    width: float,
    indices: tuple[int, int, int],
    bounds: tuple[float, float],
) -> Estimated:
    """A second moment about the means of two columns, which may be the same one.

    Let a and b be the means. The statistic c is the root of products - a times one sum - b times the other + (a b - c) number, which
    is linear in the four sums. Its interval holds every c for which this is within ``width`` of its standard errors of zero: that of
    Fieller for means, with the measured means in the place of the true ones.

    Args:
        indices: of the sums of deviations of both columns, and of the sum of their products; the number comes first.
        bounds: the smallest and the largest value that the ranges of the amounts allow.
    """
    number, (first_index, second_index, product) = float(values[0]), indices
    low, high = bounds
    if number <= 0.0:
        return Estimated(statistic, max(low, 0.0), None, low, high)
    means = values[[first_index, second_index]] / number
    slope = np.zeros(values.size)
    slope[product] = 1.0
    slope[first_index] -= means[1]
    slope[second_index] -= means[0]
    slope[0] = means[0] * means[1]
    rows = np.array([slope, np.eye(values.size)[0]])
    above, joint = rows @ values, rows @ covariance @ rows.T
    interval, ratio = fieller(above, joint, width), float(above[0] / number)
    if interval is None:
        return Estimated(statistic, min(max(ratio, low), high), None, low, high)
    error = error_within(ratio_error(above, joint), ratio, bounds)
    value, interval_low, interval_high = interval_within(ratio, interval, bounds)
    return Estimated(statistic, value, error, interval_low, interval_high)
