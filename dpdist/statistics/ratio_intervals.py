"""Intervals of ratios of two estimates."""

from __future__ import annotations

import math

import numpy as np

from dpdist.operators import Matrix

ROUNDING_SHARE = 1e-9
"""Estimates below this share of their standard errors are zero but for rounding."""


def without_rounding_errors(values: Matrix, covariance: Matrix) -> Matrix:
    """Estimates, of which those that rounding alone moved from zero are zero: on which side decides at which end of its range a ratio lies.

    Args:
        covariance: (values, values).
    """
    return np.where(np.abs(values) <= ROUNDING_SHARE * np.sqrt(np.diagonal(covariance)), 0.0, values)


def fieller(values: Matrix, covariance: Matrix, width: float) -> tuple[float, float] | None:
    """The interval of a ratio of two estimates; None where it is unbounded because the denominator may be zero.

    It holds every ratio r for which numerator - r denominator lies within ``width`` standard errors of zero.

    Args:
        values: numerator and denominator.
        covariance: of both, (2, 2).
    Source: Fieller 1954.
    """
    above, below = (float(value) for value in values)
    square = below**2 - width**2 * covariance[1, 1]
    middle = above * below - width**2 * covariance[0, 1]
    constant = above**2 - width**2 * covariance[0, 0]
    if square <= 0:
        return None
    discriminant_root = math.sqrt(max(middle**2 - square * constant, 0.0))
    return (middle - discriminant_root) / square, (middle + discriminant_root) / square


def ratio_error(values: Matrix, covariance: Matrix) -> float:
    """The standard error of a ratio by the delta method."""
    above, below = (float(value) for value in values)
    ratio = above / below
    variance = covariance[0, 0] - 2 * ratio * covariance[0, 1] + ratio**2 * covariance[1, 1]
    return math.sqrt(max(float(variance), 0.0)) / abs(below)


def interval_within(value: float, interval: tuple[float, float], bounds: tuple[float, float]) -> tuple[float, float, float]:
    """An estimate and its interval, moved into the range that its true value lies in.

    An estimate beyond the range becomes the end of it, and its interval moves along with it, before it is cut to the range. So it holds all
    that the interval alone would hold after it is cut, and does not shrink to nothing at the end of the range.

    Args:
        value: within the interval.

    >>> interval_within(80.0, (70.0, 90.0), (0.0, 200.0)), interval_within(230.0, (210.0, 250.0), (0.0, 200.0))
    ((80.0, 70.0, 90.0), (200.0, 180.0, 200.0))
    """
    (low, high), moved = bounds, min(max(value, bounds[0]), bounds[1])
    shift = moved - value
    return moved, max(interval[0] + shift, low), min(interval[1] + shift, high)


def error_within(error: float, value: float, bounds: tuple[float, float]) -> float | None:
    """The standard error of an estimate that is moved into a range; None where it lies at an end.

    Args:
        error: by the delta method, which knows of no range.
        value: the estimate before it is moved.

    >>> error_within(155_626.0, 80.0, (0.0, 200.0)), error_within(3.0, 80.0, (0.0, 200.0)), error_within(3.0, 210.0, (0.0, 200.0))
    (100.0, 3.0, None)
    """
    low, high = bounds
    return min(error, (high - low) / 2) if low < value < high else None  # Popoviciu 1935: nothing in a range varies by more
