"""Intervals of ratios of two estimates."""

from __future__ import annotations

import math

from dpdist.operators import Matrix


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
    spread = math.sqrt(max(middle**2 - square * constant, 0.0))
    return (middle - spread) / square, (middle + spread) / square


def ratio_error(values: Matrix, covariance: Matrix) -> float:
    """The standard error of a ratio by the delta method."""
    above, below = (float(value) for value in values)
    ratio = above / below
    variance = covariance[0, 0] - 2 * ratio * covariance[0, 1] + ratio**2 * covariance[1, 1]
    return math.sqrt(max(float(variance), 0.0)) / abs(below)
