"""Filters of the past that are split into two equal ones: measured with one half, read with the other.

Of a running sum the coefficients are b / c, b the binomial coefficients of (1 - x)^-1/2 and c their length; any number of them is
computed where they are read. What reads the rounded coefficients t, g with t * g = 1, 1, 1, ..., begins at b c, which is off by the
rounding of t alone; one step of Newton's iteration, g + (1 - t g) c (1 - x)^1/2, leaves the square of that. Roots of other filters
are found in memory, by Newton's iteration from the first coefficient on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy

from dpdist.arrays.array_workspace import ProgressCallback, Workspace
from dpdist.arrays.convolution import Steps, products
from dpdist.arrays.fourier import Spectrum, fourier, inverse_fourier, spectral
from dpdist.arrays.lazy_vector import ArrayVector, LazyVector, Vector, batches, scaled, to_array
from dpdist.errors import InvalidInput
from dpdist.operators import Matrix, Toeplitz
from dpdist.workloads.workload_kind import is_running_sum

DIRECT_COEFFICIENTS = 2**12
"""Coefficients up to here are multiplied up; later ones follow from a series in 1 / k, to the last bit."""
ROUNDED_ROOT = 1e-6
"""How far a coefficient of a rounded root is from that of the root, in units of the first, at most."""
MOST_GROWTH = 1e3
"""A root whose coefficients exceed the first one by this factor is refused."""


@dataclass(frozen=True)
class FilterSquareRoot:
    """Half of a filter of the past.

    Attributes:
        coefficients: of unit length, (n,).
        square: the squared length that they had: the standard error of the last step at noise multiplier 1.
        cost: total variance of all steps at noise multiplier 1.
    """

    coefficients: Vector
    square: float
    cost: float


def circle_size(steps: int) -> int:
    """Steps of the circle on which a filter of the past does not see its own end: a power of two."""
    return 1 << (2 * steps - 1).bit_length()


def root_of(work: Workspace, series_filter: Toeplitz) -> FilterSquareRoot:
    """A filter of the past as the product of two equal filters.

    Raises: InvalidInput when the root grows: a filter that swings more than its past has no use for one.
    """
    if is_running_sum(series_filter):
        root: Vector = LazyVector(series_filter.n, (), _binomials, 40, "binomial coefficients")
        factor = abs(_first_coefficient(series_filter))
    else:
        root, factor = ArrayVector(_series_root(series_filter)), 1.0
    sums = work.fold(partial(_sums, series_filter.n), root)
    square = math.fsum(range_sums[0] for range_sums in sums)
    cost = square * math.fsum(range_sums[1] for range_sums in sums)
    unit = LazyVector(
        series_filter.n, (root,), partial(_divide_by_length, math.sqrt(square)), root.bytes_each + 16, f"over {square!r}^1/2"
    )
    return FilterSquareRoot(unit, factor * square, factor**2 * cost)


def _divide_by_length(length: float, start: int, count: int, values: Matrix) -> Matrix:
    return values / length


def _first_coefficient(series_filter: Toeplitz) -> float:
    return float(series_filter.entries.read(0, 1)[0])


def _sums(n: int, start: int, root: Matrix) -> tuple[float, float]:
    """Sum of r_k^2, and of r_k^2 (n - k)."""
    squares = root**2
    return float(squares.sum()), float(squares @ (n - np.arange(start, start + root.size)))


def binomials(start: int, stop: int) -> Matrix:
    """Coefficients of (1 - x)^-1/2, (2 k over k) / 4^k, for k = start..stop."""
    k = np.arange(max(start, DIRECT_COEFFICIENTS), stop, dtype=np.float64)
    falling = 1 - 1 / (8 * k) + 1 / (128 * k**2) + 5 / (1024 * k**3) - 21 / (32768 * k**4)
    series_values = falling / np.sqrt(np.pi * k)
    if start >= DIRECT_COEFFICIENTS:
        return series_values
    indices = np.arange(1.0, DIRECT_COEFFICIENTS)
    product_values = np.cumprod(np.concatenate([[1.0], (2 * indices - 1) / (2 * indices)]))
    return np.concatenate([product_values[start:stop], series_values])


def _binomials(start: int, count: int) -> Matrix:
    return binomials(start, start + count)


def reading_of(
    work: Workspace,
    series_filter: Toeplitz,
    coefficients: Vector,
    report_progress: ProgressCallback | None = None,
    *,
    name: str | None = None,
) -> Vector:
    """What a measurement by the coefficients is filtered with to answer a filter of the past, (n,).

    Args:
        coefficients: those of the filter's root, as they were rounded; or of another filter, held.
        name: under which the reading of a running sum is kept.
    """
    if not (is_running_sum(series_filter) and _is_root(coefficients)):
        return ArrayVector(divide_series(padded_coefficients(series_filter, coefficients.size), to_array(coefficients)))
    value, stored = _first_coefficient(series_filter), None if name is None else work.find_vector(name)
    reading = _reading_of_sums(work, coefficients, Steps(report_progress, 6), name) if stored is None else stored[0]
    return reading if value == 1.0 else scaled(reading, value)


def _is_root(coefficients: Vector) -> bool:
    """Whether coefficients are those of a running sum's root: the first, second, third, fifth, ... and last are. A band begins alike."""
    length, last_index = float(coefficients.read(0, 1)[0]), coefficients.size - 1
    indices = {min(2**power, last_index) for power in range(last_index.bit_length() + 1)}
    sampled = np.array([float(coefficients.read(index, index + 1)[0]) for index in sorted(indices)])
    expected = np.array([float(binomials(index, index + 1)[0]) for index in sorted(indices)])
    return bool((np.abs(sampled / length - expected) < ROUNDED_ROOT).all())


def _reading_of_sums(work: Workspace, coefficients: Vector, report_progress: ProgressCallback, name: str | None) -> Vector:
    n = coefficients.size
    points = circle_size(n)
    length = 1 / float(coefficients.read(0, 1)[0])  # also of the first steps of a longer series

    def turned(vector: LazyVector) -> Spectrum:
        return fourier(work, vector, report_progress)

    def convolved(left_spectrum: Spectrum, right_spectrum: Spectrum) -> Vector:
        return inverse_fourier(
            work, spectral((left_spectrum, right_spectrum), products, "product"), report_progress=report_progress
        )

    half_spectrum = turned(LazyVector(points, (), partial(_padded, n, partial(_half, length)), 40, f"b {length!r}"))
    rounded = turned(LazyVector(points, (coefficients,), _identity_values, 32, "t"))
    product = convolved(rounded, half_spectrum)
    missing = LazyVector(points, (product,), partial(_missing, n), 40, "1 - t g")
    inverse = turned(LazyVector(points, (), partial(_padded, n, partial(_inverse_half, length)), 40, f"{length!r} / b"))
    correction = convolved(turned(missing), inverse)
    return work.write(LazyVector(n, (correction,), partial(_corrected, length), 40, "reading"), name)


def _half(length: float, start: int, stop: int) -> Matrix:
    return binomials(start, stop) * length


def _inverse_half(length: float, start: int, stop: int) -> Matrix:
    """Coefficients of (1 - x)^1/2, times the length."""
    return np.asarray(binomials(start, stop) / (1.0 - 2.0 * np.arange(start, stop)) * length)


def _padded(n: int, make: partial[Matrix], start: int, count: int) -> Matrix:
    """``make`` up to n, then zeros."""
    end = min(start + count, n)
    values = make(start, end) if start < end else np.zeros(0)
    return np.pad(values, (0, count - values.size))


def _identity_values(start: int, count: int, values: Matrix) -> Matrix:
    return values


def _missing(n: int, start: int, count: int, product: Matrix) -> Matrix:
    return np.where(np.arange(start, start + count) < n, 1.0 - product, 0.0)


def _corrected(length: float, start: int, count: int, correction: Matrix) -> Matrix:
    return _half(length, start, start + count) + correction


def read_causal_filters(
    work: Workspace, reading: Vector, measured: Sequence[Vector], report_progress: ProgressCallback | None = None
) -> list[Vector]:
    """What is measured of every series, filtered by the reading: its first n values are the answers."""
    points = circle_size(reading.size)
    spectrum = fourier(work, LazyVector(points, (reading,), _identity_values, 32, "reading"), report_progress)
    answers = []
    for series in measured:
        series_spectrum = fourier(work, LazyVector(points, (series,), _identity_values, 32, "seen"), report_progress)
        answers.append(
            inverse_fourier(
                work, spectral((series_spectrum, spectrum), products, "product"), report_progress=report_progress
            )
        )
        work.delete(series_spectrum.values)
    return answers


def deviations_past(work: Workspace, reading: Vector) -> Vector:
    """Standard error of every step for noise of deviation 1: (g_0^2 + ... + g_k^2)^1/2."""
    ranges = list(batches(reading.size, work.part_values))
    before = np.concatenate([[0.0], np.cumsum(work.fold(_squared, reading))])
    return LazyVector(reading.size, (reading,), partial(_deviations, ranges, before, reading), 40, "deviations")


def _squared(start: int, values: Matrix) -> float:
    return float(values @ values)


def _deviations(
    ranges: list[tuple[int, int]], before: Matrix, reading: Vector, start: int, count: int, values: Matrix
) -> Matrix:
    """Sums up to the range that ``start`` lies in are known."""
    number = start // (ranges[0][1] - ranges[0][0])
    low = ranges[number][0]
    head = before[number] + (float(np.square(reading.read(low, start)).sum()) if low < start else 0.0)
    return np.asarray(np.sqrt(head + np.cumsum(values**2)))


def padded_coefficients(series_filter: Toeplitz, n: int) -> Matrix:
    """The coefficients of a filter of the past, one a step, (n,)."""
    padded = np.zeros(n)
    stored = series_filter.coefficients[:n]
    padded[: stored.size] = stored
    return padded


def _series_root(series_filter: Toeplitz) -> Matrix:
    """The power series r with r * r = the filter's coefficients up to sign: Newton's iteration for 1 / r, products by FFT."""
    series, n = padded_coefficients(series_filter, series_filter.n), series_filter.n
    sign = float(np.sign(series[0]))
    inverse = np.array([(series[0] * sign) ** -0.5])
    with np.errstate(over="ignore", invalid="ignore"):
        while inverse.size < n:
            size = min(2 * inverse.size, n)
            square = multiply_series(inverse, inverse)[:size]
            product = -multiply_series(series[:size] * sign, square)[:size]
            product[0] += 3.0
            inverse = multiply_series(inverse, product)[:size] / 2.0
        root = multiply_series(series * sign, inverse)[:n]
        grown = not np.isfinite(root).all() or float(np.abs(root).max()) > MOST_GROWTH * abs(float(root[0]))
    if grown:
        raise InvalidInput("the square root of this filter grows beyond all bounds; choose 'convolution' or 'auto'")
    return root


def divide_series(series: Matrix, divisor: Matrix) -> Matrix:
    """The power series g with by * g = series: Newton's iteration for 1 / by, products by FFT."""
    n = series.size
    inverse = np.array([1.0 / divisor[0]])
    while inverse.size < n:
        size = min(2 * inverse.size, n)
        product = multiply_series(divisor[:size], inverse)[:size]
        product[0] -= 2.0
        inverse = -multiply_series(product, inverse)[:size]
    return multiply_series(series, inverse)[:n]


def multiply_series(first_series: Matrix, second_series: Matrix) -> Matrix:
    """The product of two power series, by FFT."""
    size = scipy.fft.next_fast_len(first_series.size + second_series.size - 1, real=True)
    product = scipy.fft.irfft(scipy.fft.rfft(first_series, size) * scipy.fft.rfft(second_series, size), size)
    return np.asarray(product[: first_series.size + second_series.size - 1])
