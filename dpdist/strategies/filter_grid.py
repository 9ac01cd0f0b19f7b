"""Filters on the integer grid: the strategy's coefficients are rounded once, convolved exactly, and their sensitivity is an exact integer.

An integer convolution is a sum of floating-point ones over limbs of both sides, small enough that every result is within 1/8 of an
integer, so rounding gives it exactly (``exact_convolution``).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import scipy

from dpdist.errors import InvalidInput
from dpdist.operators import Matrix
from dpdist.stability import Neighbours
from dpdist.strategies.base import Strategy
from dpdist.strategies.coefficients import StoredCoefficients
from dpdist.strategies.grid import GRID_BITS, Grid, TableGrid

ROUNDINGS = 16.0
"""A floating-point convolution of length N = 2^k is off by at most 16 (k + 1) u ||a|| ||b|| in every value, u = 2^-53.

Percival 2003 (Brent & Zimmermann 2010, Theorem 3.6): ||a|| ||b|| ((1 + u)^3k (1 + 5^1/2 u)^(3k+1) (1 + mu)^3k - 1) for twiddles
within mu <= u, which is below (12.8 k + 2.3) u ||a|| ||b||. A butterfly of radix 4 or 8 is two or three levels with fewer products.
Lengths that are no power of two are folded out of one that is. Tests find less than 0.3 of the bound.
"""


@dataclass(frozen=True)
class FilterGrid(TableGrid):
    """A filter with whole coefficients along one axis of a counted table.

    Attributes:
        coefficients: (points,) int64.
        circular: whether the series is laid on a circle of ``points`` steps; else it filters the past.
        shape: of the counted table; ``place`` is the filter's axis in it.
        axes: the table's attributes.
        spacing: grid unit: the strategy's own are spacing times these.
        sensitivity_squared: exact for add-remove; for replace-one around a circle exact, for filters of the past a bound.
    """

    coefficients: Matrix = field(repr=False)
    circular: bool
    shape: tuple[int, ...]
    place: int
    axes: tuple[int, ...]
    spacing: float
    sensitivity_squared: int
    norm: Literal["l2"] = "l2"

    @property
    def steps(self) -> int:
        """Steps of the series."""
        return self.shape[self.place]

    @property
    def series(self) -> int:
        """Series that are filtered side by side."""
        return math.prod(self.shape) // self.steps

    @property
    def rows(self) -> int:
        """Number of measured values."""
        return int(self.coefficients.size) * self.series

    @property
    def digest(self) -> str:
        """SHA-256 of the coefficients and of how they are applied."""
        facts = (self.circular, self.shape, self.place, self.axes, self.spacing, self.sensitivity_squared)
        return hashlib.sha256(repr(facts).encode() + np.ascontiguousarray(self.coefficients).tobytes()).hexdigest()

    def measure(self, table: Matrix) -> Matrix:
        """z for an integer table, (points * series,) int64, exact: steps first, series by series within a step."""
        lines = np.moveaxis(table.reshape(self.shape), self.place, 0).reshape(self.steps, -1)
        if self.circular:
            return exact_convolution(self.coefficients, lines, self.coefficients.size).ravel()
        return exact_convolution(self.coefficients, lines, 2 * self.steps)[: self.steps].ravel()


def filter_grid(strategy: Strategy, shape: tuple[int, ...], *, neighbours: Neighbours, most_records: int) -> FilterGrid:
    """The integer grid of a filter.

    Args:
        shape: of the whole domain.
    """
    given = strategy.coefficients
    assert given is not None
    spacing = 2.0**-GRID_BITS  # coefficients have unit length: no sum that differs from machine to machine decides the grid
    coefficients = np.rint(given.values / spacing).astype(np.int64)
    column = square_of(coefficients)
    distance = column
    if neighbours == "replace-one":
        distance = _farthest(coefficients, column, given.steps) if given.circular else 4 * column
    table = tuple(shape[axis] for axis in given.axes)
    squares = max(column, distance) * most_records**2
    return FilterGrid(coefficients, given.circular, table, given.axes.index(given.axis), given.axes, spacing, squares)


@dataclass(frozen=True)
class LongGrid(Grid):
    """Whole coefficients of a filter, or whole weights of characters, that are too many for memory.

    Attributes:
        coefficients: where they are stored.
        sensitivity_squared: exact.
    """

    coefficients: StoredCoefficients
    spacing: float
    sensitivity_squared: int
    norm: Literal["l2"] = "l2"

    @property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        """The attribute sets whose tables are needed."""
        return (self.coefficients.axes,)

    @property
    def rows(self) -> int:
        """Number of measured values."""
        return self.coefficients.points * self.coefficients.series

    @property
    def digest(self) -> str:
        """SHA-256 of the numbers and of how they are applied."""
        stored = self.coefficients
        facts = (
            stored.kind,
            stored.digest,
            stored.points,
            stored.shape,
            stored.place,
            stored.axes,
            self.spacing,
            self.sensitivity_squared,
        )
        return hashlib.sha256(repr(facts).encode()).hexdigest()


def long_grid(stored: StoredCoefficients, *, neighbours: Neighbours, most_records: int) -> LongGrid:
    """The integer grid of a stored strategy. A record that moves, of which more is not known, leaves and enters: twice the length."""
    apart = 0 if stored.series == 1 else 2 * stored.square  # from one series to another
    moved = 4 * stored.square if stored.farthest is None else max(stored.square, stored.farthest, apart)
    distance = stored.square if neighbours == "add-remove" else moved
    return LongGrid(stored, stored.spacing, distance * most_records**2)


def square_of(coefficients: Matrix) -> int:
    """Sum of squares, exact: 16-bit halves whose sums stay below 2^63."""
    high, low = coefficients >> 16, coefficients & 0xFFFF
    return int(high @ high) * 2**32 + int(high @ low) * 2**17 + int(low @ low)


def _farthest(coefficients: Matrix, column: int, steps: int) -> int:
    """Largest squared distance of a record that moves from one step to another, leaves, or moves to another series."""
    if steps == 1:
        return 2 * column
    size = coefficients.size
    around = exact_convolution(coefficients, np.roll(coefficients[::-1], 1)[:, None], size)[:, 0]
    lags = np.unique(np.concatenate([np.arange(1, min(steps, size)), size - np.arange(1, min(steps, size))]))
    return 2 * column - 2 * min(0, int(around[lags].min()))


def exact_convolution(a: Matrix, b: Matrix, length: int) -> Matrix:
    """The convolution of whole a, (k,), with every column of whole b, (n, s), around a circle of ``length``; int64, exact.

    Results must fit into 62 bits; a sum check modulo 2^64 guards against faulty arithmetic.
    Raises: InvalidInput when even single bits would not be exact (lengths beyond 2^40).
    """
    size = a.size + b.shape[0] - 1
    points = length if length & (length - 1) == 0 else 1 << (size - 1).bit_length()
    width, left, right = _limbs(a, b, points)
    spectra = [scipy.fft.rfft(limb.astype(np.float64), points)[:, None] for limb in left]
    others = [scipy.fft.rfft(limb.astype(np.float64), points, axis=0) for limb in right]
    full = np.zeros((points, b.shape[1]), dtype=np.int64)
    for shift in range(len(left) + len(right) - 1):
        pairs = [(i, shift - i) for i in range(len(left)) if 0 <= shift - i < len(right)]
        product = spectra[pairs[0][0]] * others[pairs[0][1]]
        for i, j in pairs[1:]:
            product += spectra[i] * others[j]
        full += np.rint(scipy.fft.irfft(product, points, axis=0)).astype(np.int64) << np.int64(width * shift)
    if (full.sum(axis=0) != a.sum() * b.sum(axis=0)).any():
        raise FloatingPointError("an exact convolution failed its sum check: this processor's arithmetic cannot be trusted")
    if points == length:
        return full
    out = np.zeros((length, b.shape[1]), dtype=np.int64)
    for start in range(0, min(size, points), length):
        part = full[start : min(start + length, points)]
        out[: part.shape[0]] += part
    return out


def _limbs(a: Matrix, b: Matrix, length: int) -> tuple[int, list[Matrix], list[Matrix]]:
    """The widest limbs whose convolutions are within 1/8 of an integer: their width, limbs of a, limbs of b."""

    def lengths(width: int) -> tuple[float, float]:
        left = sum(float(np.linalg.norm(limb.astype(np.float64))) for limb in digits(a, width))
        right = (float(np.sqrt((limb.astype(np.float64) ** 2).sum(axis=0).max(initial=0.0))) for limb in digits(b, width))
        return left, sum(right)

    width = limb_width(max(_bits(a), _bits(b)), length, lengths)
    return width, digits(a, width), digits(b, width)


def limb_width(widest: int, length: int, lengths: Callable[[int], tuple[float, float]]) -> int:
    """The widest limbs whose convolutions around ``length`` steps are within 1/8 of an integer.

    Args:
        widest: bits of the widest value.
        lengths: sums of the L2 norms of the limbs of both sides, for a width.
    Raises: InvalidInput when even single bits would not be exact (lengths beyond 2^40).
    """
    unit = ROUNDINGS * math.log2(2 * length) * 2.0**-53
    for count in range(1, widest + 1):
        width = -(-widest // count)
        if unit * math.prod(lengths(width)) < 0.125:
            return width
    raise InvalidInput(f"an exact convolution of {length} steps needs limbs below one bit; use fewer steps")


def _bits(values: Matrix) -> int:
    """Bits of the largest value and its sign."""
    return max(int(values.max(initial=0)), -int(values.min(initial=0))).bit_length() + 1


def digits(values: Matrix, width: int) -> list[Matrix]:
    """Digits in [-2^(width-1), 2^(width-1)), lowest first: values = sum of digit_i 2^(width i)."""
    out, rest, half = [], values.astype(np.int64), np.int64(2 ** (width - 1))
    while True:
        digit = ((rest + half) & np.int64(2**width - 1)) - half
        out.append(digit)
        rest = (rest - digit) >> np.int64(width)
        if not rest.any():
            return out
