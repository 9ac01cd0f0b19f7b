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

from dpdist.arrays.array_workspace import OnDone, Workspace
from dpdist.arrays.convolution import Steps, products
from dpdist.arrays.fourier import Spectrum, fourier, inverse_fourier, spectral
from dpdist.arrays.lazy_vector import Held, LazyVector, Vector, batches, held, scaled
from dpdist.errors import InvalidInput
from dpdist.operators import Matrix, Toeplitz
from dpdist.workloads.workload_kind import is_running_sum

LISTED = 2**12
"""Coefficients up to here are multiplied up; later ones follow from a series in 1 / k, to the last bit."""
ROUNDED_ROOT = 1e-6
"""How far a coefficient of a rounded root is from that of the root, in units of the first, at most."""
MOST_GROWTH = 1e3
"""A root whose coefficients exceed the first one by this factor is refused."""


@dataclass(frozen=True)
class Root:
    """Half of a filter of the past.

    Attributes:
        coefficients: of unit length, (n,).
        square: the squared length that they had: the standard error of the last step at noise multiplier 1.
        cost: total variance of all steps at noise multiplier 1.
    """

    coefficients: Vector
    square: float
    cost: float


def circle_of_past(steps: int) -> int:
    """Steps of the circle on which a filter of the past does not see its own end: a power of two."""
    return 1 << (2 * steps - 1).bit_length()


def root_of(work: Workspace, each: Toeplitz) -> Root:
    """A filter of the past as the product of two equal filters.

    Raises: InvalidInput when the root grows: a filter that swings more than its past has no use for one.
    """
    if is_running_sum(each):
        root: Vector = LazyVector(each.n, (), _binomials, 40, "binomial coefficients")
        factor = abs(_first(each))
    else:
        root, factor = Held(_series_root(each)), 1.0
    sums = work.fold(partial(_sums, each.n), root)
    square = math.fsum(part[0] for part in sums)
    cost = square * math.fsum(part[1] for part in sums)
    unit = LazyVector(each.n, (root,), partial(_over, math.sqrt(square)), root.bytes_each + 16, f"over {square!r}^1/2")
    return Root(unit, factor * square, factor**2 * cost)


def _over(length: float, start: int, count: int, values: Matrix) -> Matrix:
    return values / length


def _first(each: Toeplitz) -> float:
    return float(each.entries.read(0, 1)[0])


def _sums(n: int, start: int, root: Matrix) -> tuple[float, float]:
    """Sum of r_k^2, and of r_k^2 (n - k)."""
    squares = root**2
    return float(squares.sum()), float(squares @ (n - np.arange(start, start + root.size)))


def binomials(start: int, stop: int) -> Matrix:
    """Coefficients of (1 - x)^-1/2, (2 k over k) / 4^k, for k = start..stop."""
    k = np.arange(max(start, LISTED), stop, dtype=np.float64)
    falling = 1 - 1 / (8 * k) + 1 / (128 * k**2) + 5 / (1024 * k**3) - 21 / (32768 * k**4)
    later = falling / np.sqrt(np.pi * k)
    if start >= LISTED:
        return later
    first = np.arange(1.0, LISTED)
    listed = np.cumprod(np.concatenate([[1.0], (2 * first - 1) / (2 * first)]))
    return np.concatenate([listed[start:stop], later])


def _binomials(start: int, count: int) -> Matrix:
    return binomials(start, start + count)


def reading_of(
    work: Workspace, each: Toeplitz, coefficients: Vector, on_done: OnDone | None = None, *, name: str | None = None
) -> Vector:
    """What a measurement by the coefficients is filtered with to answer a filter of the past, (n,).

    Args:
        coefficients: those of the filter's root, as they were rounded; or of another filter, held.
        name: under which the reading of a running sum is kept.
    """
    if not (is_running_sum(each) and _is_root(coefficients)):
        return Held(divided(padded_coefficients(each, coefficients.size), held(coefficients)))
    value, kept = _first(each), None if name is None else work.kept(name)
    found = _reading_of_sums(work, coefficients, Steps(on_done, 6), name) if kept is None else kept[0]
    return found if value == 1.0 else scaled(found, value)


def _is_root(coefficients: Vector) -> bool:
    """Whether coefficients are those of a running sum's root: the first, second, third, fifth, ... and last are. A band begins alike."""
    length, last = float(coefficients.read(0, 1)[0]), coefficients.size - 1
    places = {min(2**power, last) for power in range(last.bit_length() + 1)}
    found = np.array([float(coefficients.read(place, place + 1)[0]) for place in sorted(places)])
    expected = np.array([float(binomials(place, place + 1)[0]) for place in sorted(places)])
    return bool((np.abs(found / length - expected) < ROUNDED_ROOT).all())


def _reading_of_sums(work: Workspace, coefficients: Vector, on_done: OnDone, name: str | None) -> Vector:
    n = coefficients.size
    points = circle_of_past(n)
    length = 1 / float(coefficients.read(0, 1)[0])  # also of the first steps of a longer series

    def turned(vector: LazyVector) -> Spectrum:
        return fourier(work, vector, on_done)

    def convolved(left: Spectrum, right: Spectrum) -> Vector:
        return inverse_fourier(work, spectral((left, right), products, "product"), on_done=on_done)

    first = turned(LazyVector(points, (), partial(_padded, n, partial(_half, length)), 40, f"b {length!r}"))
    rounded = turned(LazyVector(points, (coefficients,), _as_they_are, 32, "t"))
    product = convolved(rounded, first)
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
    made = make(start, end) if start < end else np.zeros(0)
    return np.pad(made, (0, count - made.size))


def _as_they_are(start: int, count: int, values: Matrix) -> Matrix:
    return values


def _missing(n: int, start: int, count: int, product: Matrix) -> Matrix:
    return np.where(np.arange(start, start + count) < n, 1.0 - product, 0.0)


def _corrected(length: float, start: int, count: int, correction: Matrix) -> Matrix:
    return _half(length, start, start + count) + correction


def read_past(work: Workspace, reading: Vector, measured: Sequence[Vector], on_done: OnDone | None = None) -> list[Vector]:
    """What is measured of every series, filtered by the reading: its first n values are the answers."""
    points = circle_of_past(reading.size)
    spectrum = fourier(work, LazyVector(points, (reading,), _as_they_are, 32, "reading"), on_done)
    out = []
    for each in measured:
        seen = fourier(work, LazyVector(points, (each,), _as_they_are, 32, "seen"), on_done)
        out.append(inverse_fourier(work, spectral((seen, spectrum), products, "product"), on_done=on_done))
        work.delete(seen.values)
    return out


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


def padded_coefficients(each: Toeplitz, n: int) -> Matrix:
    """The coefficients of a filter of the past, one a step, (n,)."""
    out = np.zeros(n)
    listed = each.coefficients[:n]
    out[: listed.size] = listed
    return out


def _series_root(each: Toeplitz) -> Matrix:
    """The power series r with r * r = the filter's coefficients up to sign: Newton's iteration for 1 / r, products by FFT."""
    series, n = padded_coefficients(each, each.n), each.n
    sign = float(np.sign(series[0]))
    inverse = np.array([(series[0] * sign) ** -0.5])
    with np.errstate(over="ignore", invalid="ignore"):
        while inverse.size < n:
            size = min(2 * inverse.size, n)
            square = multiplied(inverse, inverse)[:size]
            product = -multiplied(series[:size] * sign, square)[:size]
            product[0] += 3.0
            inverse = multiplied(inverse, product)[:size] / 2.0
        root = multiplied(series * sign, inverse)[:n]
        grown = not np.isfinite(root).all() or float(np.abs(root).max()) > MOST_GROWTH * abs(float(root[0]))
    if grown:
        raise InvalidInput("the square root of this filter grows beyond all bounds; choose 'convolution' or 'auto'")
    return root


def divided(series: Matrix, by: Matrix) -> Matrix:
    """The power series g with by * g = series: Newton's iteration for 1 / by, products by FFT."""
    n = series.size
    inverse = np.array([1.0 / by[0]])
    while inverse.size < n:
        size = min(2 * inverse.size, n)
        product = multiplied(by[:size], inverse)[:size]
        product[0] -= 2.0
        inverse = -multiplied(product, inverse)[:size]
    return multiplied(series, inverse)[:n]


def multiplied(a: Matrix, b: Matrix) -> Matrix:
    """The product of two power series, by FFT."""
    size = scipy.fft.next_fast_len(a.size + b.size - 1, real=True)
    out = scipy.fft.irfft(scipy.fft.rfft(a, size) * scipy.fft.rfft(b, size), size)
    return np.asarray(out[: a.size + b.size - 1])
