"""A filter along an attribute as a strategy, and how another filter is read from what it measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import scipy

from dpdist.operators import Matrix, Toeplitz

NEGLIGIBLE = 1e-24
"""Eigenvalues of W'W below this part of the largest are rounding error; they are treated as zero."""


@dataclass(frozen=True)
class Coefficients:
    """A strategy that is one filter.

    Attributes:
        values: (points,) around a circle or (steps,) of the past.
        axes: the attributes of the counted table, ascending; the filter runs along ``axis``.
    """

    values: Matrix = field(repr=False)
    circular: bool
    steps: int
    axis: int
    axes: tuple[int, ...]

    @property
    def points(self) -> int:
        """Length of the circle, or number of steps."""
        return int(self.values.size)


def reading(coefficients: Coefficients, each: Toeplitz) -> Matrix:
    """What a measurement by a filter is filtered with to answer a filter: its spectrum on the circle, or its coefficients of the past."""
    if coefficients.circular:
        asked, given = each.spectrum(coefficients.points), scipy.fft.rfft(coefficients.values)
        wanted = np.abs(asked) ** 2 > NEGLIGIBLE * np.abs(asked).max() ** 2
        return np.asarray(np.where(wanted, asked / np.where(wanted, given, 1.0), 0.0))
    return _divided(padded(each), coefficients.values)


def padded(each: Toeplitz) -> Matrix:
    """The coefficients of a filter of the past, one a step, (n,)."""
    out = np.zeros(each.n)
    out[: each.coefficients.size] = each.coefficients
    return out


def _divided(series: Matrix, by: Matrix) -> Matrix:
    """The power series g with by * g = series: Newton's iteration for 1 / by, products by FFT."""
    n = series.size
    inverse = np.array([1.0 / by[0]])
    while inverse.size < n:
        size = min(2 * inverse.size, n)
        product = series_product(by[:size], inverse)[:size]
        product[0] -= 2.0
        inverse = -series_product(product, inverse)[:size]
    return series_product(series, inverse)[:n]


def series_product(a: Matrix, b: Matrix) -> Matrix:
    """The product of two power series."""
    size = scipy.fft.next_fast_len(a.size + b.size - 1, real=True)
    out = scipy.fft.irfft(scipy.fft.rfft(a, size) * scipy.fft.rfft(b, size), size)
    return np.asarray(out[: a.size + b.size - 1])


def deviations(coefficients: Coefficients, each: Toeplitz) -> Matrix:
    """Standard error of the filter at every step, (steps,) float64, for noise of deviation 1 on the measured coefficients."""
    found = reading(coefficients, each)
    if coefficients.circular:
        return np.full(
            coefficients.steps, math.sqrt(sum_over_circle(np.abs(found) ** 2, coefficients.points) / coefficients.points)
        )
    return np.asarray(np.sqrt(np.cumsum(found**2)))


def sum_over_circle(half: Matrix, points: int) -> float:
    """Sum over all frequencies of a symmetric spectrum given in rfft order."""
    doubled = half[1:-1] if points % 2 == 0 else half[1:]
    return float(half[0] + 2.0 * doubled.sum() + (half[-1] if points % 2 == 0 and points > 1 else 0.0))
