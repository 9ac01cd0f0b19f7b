"""The discrete Fourier transform of real vectors: as one where they are held in memory, else in three passes.

A vector of N1 N2 values is a matrix; its rows cannot be transformed before its columns were (four-step; Bailey 1990).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy

from dpdist.arrays.array_workspace import ProgressCallback, Workspace
from dpdist.arrays.lazy_vector import ArrayVector, LazyVector, Vector
from dpdist.arrays.transpose_passes import Target, TransformPass
from dpdist.errors import InvalidInput
from dpdist.operators import Matrix

COPIES = 3
"""Complex copies of a line while it is transformed: gathered, transformed, turned."""
TWIDDLE_LINES = 2**16
"""Twiddles that are made at once."""
COMPLEX = np.dtype(np.complex128)


@dataclass(frozen=True)
class Spectrum:
    """The Fourier transform of a real vector of ``points`` values: sum of x_j exp(-2 pi i j k / N), for some k; the others are conjugates.

    Attributes:
        values: in memory k = 0..N/2; else in the order of ``stored_shape``.
    """

    values: Vector
    points: int
    in_memory: bool

    @property
    def times(self) -> Callable[[int, int], Matrix]:
        """How often the values start..stop stand in the whole spectrum."""
        return partial(_times, self.points, self.in_memory)


def _times(points: int, in_memory: bool, start: int, stop: int) -> Matrix:
    """Twice, unless they are their own conjugates."""
    n1, width = (points, 1) if in_memory else stored_shape(points)
    row = np.arange(start, stop) // width
    return np.where((row == 0) | (2 * row == n1), 1.0, 2.0)


def spectral(spectra: tuple[Spectrum, ...], make: Callable[..., Matrix], about: str) -> Spectrum:
    """A spectrum that is computed where it is read, value by value, from others of the same points."""
    template = spectra[0]
    size, bytes_each = template.values.size, COMPLEX.itemsize * (len(spectra) + 4)
    values = LazyVector(size, tuple(spectrum.values for spectrum in spectra), make, bytes_each, about, COMPLEX)
    return replace(template, values=values)


def stored_shape(n: int) -> tuple[int, int]:
    """N1, N2 of a stored spectrum: X[k1 + N1 k2] stands at (k1, k2), k1 = 0..N1/2, (N1/2 + 1, N2) complex128 in C order.

    N1 and N2 are the divisors of N next to its root, N1 even.
    Raises: InvalidInput when N has no even divisor near its root.
    """
    best = next((d for d in range(math.isqrt(n), 0, -1) if n % d == 0 and d % 2 == 0), 0)
    if best == 0 or best < math.isqrt(n) // 64:
        raise InvalidInput(f"a series of {n} steps has no even divisor near its root; pad it to a power of two")
    return best, n // best


def fourier(work: Workspace, source: Vector, report_progress: ProgressCallback | None = None) -> Spectrum:
    """The transform of a real vector. Its bytes do not depend on how slabs are cut."""
    n = source.size
    if work.in_memory:
        return Spectrum(ArrayVector(scipy.fft.rfft(source.read(0, n))), n, True)
    n1, n2 = stored_shape(n)
    sides = [
        TransformPass(n1, _turned, 8 * 4 * n2),
        TransformPass(n2, partial(_columns_forward, n), COMPLEX.itemsize * COPIES * n1),
        TransformPass(n1 // 2 + 1, _rows_forward, COMPLEX.itemsize * COPIES * n2),
    ]
    (spectrum_values,) = work.run_passes(source, sides, [Target(n2, COMPLEX, compressed=False)], report_progress)
    return Spectrum(spectrum_values, n, False)


def inverse_fourier(
    work: Workspace,
    spectrum: Spectrum,
    *,
    turn: Callable[[int, Matrix], Matrix] | None = None,
    dtype: Any = np.float64,
    report_progress: ProgressCallback | None = None,
) -> Vector:
    """The real vector of a spectrum, (N,).

    Args:
        turn: what becomes of the values before they are written, called with the number of the first one; ``dtype`` is its result's.
    """
    n = spectrum.points
    if work.in_memory:
        values = scipy.fft.irfft(spectrum.values.read(0, spectrum.values.size), n)
        return ArrayVector(values if turn is None else turn(0, values))
    n1, n2 = stored_shape(n)
    sides = [
        TransformPass(n1 // 2 + 1, partial(_rows_back, n), COMPLEX.itemsize * COPIES * n2),
        TransformPass(n2, partial(_columns_back, n1), COMPLEX.itemsize * COPIES * n1),
        TransformPass(n1, identity_slab if turn is None else partial(_turned_values, turn, n2), 8 * 5 * n2),
    ]
    return work.run_passes(spectrum.values, sides, [Target(n2, dtype, compressed=False)], report_progress)[0]


def identity_slab(start: int, slab: Matrix) -> tuple[Matrix]:
    """What was gathered, as it is."""
    return (slab,)


def _turned_values(turn: Callable[[int, Matrix], Matrix], width: int, start: int, slab: Matrix) -> tuple[Matrix]:
    return (turn(start * width, slab.reshape(-1)),)


def _turned(start: int, slab: Matrix) -> Matrix:
    return np.ascontiguousarray(slab.T)


def _columns_forward(n: int, start: int, slab: Matrix) -> Matrix:
    """Lines j2: transform over j1, then the twiddle exp(-2 pi i j2 k1 / N)."""
    transformed = scipy.fft.rfft(slab, axis=1)
    _twiddle(transformed, start, n, back=False)
    return np.ascontiguousarray(transformed.T)


def _twiddle(spectrum_rows: Matrix, start: int, n: int, *, back: bool) -> None:
    """Multiply (line, column) by exp(-+ 2 pi i line column / N), in place."""
    step = max(1, TWIDDLE_LINES // spectrum_rows.shape[1])
    columns = np.arange(spectrum_rows.shape[1])
    for first_row in range(0, spectrum_rows.shape[0], step):
        row_numbers = np.arange(first_row, min(first_row + step, spectrum_rows.shape[0]))[:, None] + start
        factors = roots(row_numbers * columns, n)
        spectrum_rows[first_row : first_row + step] *= factors if back else factors.conj()


def _rows_forward(start: int, slab: Matrix) -> tuple[Matrix]:
    return (scipy.fft.fft(slab, axis=1, overwrite_x=True),)


def _rows_back(n: int, start: int, slab: Matrix) -> Matrix:
    """Lines k1: inverse transform over k2, then the twiddle exp(2 pi i j2 k1 / N)."""
    transformed = scipy.fft.ifft(slab, axis=1)
    _twiddle(transformed, start, n, back=True)
    return np.ascontiguousarray(transformed.T)


def _columns_back(n1: int, start: int, slab: Matrix) -> Matrix:
    return np.ascontiguousarray(scipy.fft.irfft(slab, n1, axis=1).T)


def roots(powers: Matrix, n: int) -> Matrix:
    """exp(2 pi i p / n) for whole p, complex128, within an ulp: angles are reduced to an eighth of the circle in integers."""
    quarter = (4 * (powers % n) + n // 2) // n
    angle = (0.5 * np.pi) * ((4 * (powers % n) - quarter * n) / n)
    factors = np.empty(angle.shape, dtype=np.complex128)
    cosine, sine = np.cos(angle), np.sin(angle)
    turned = quarter % 4
    factors.real = np.select([turned == 0, turned == 1, turned == 2], [cosine, -sine, -cosine], sine)
    factors.imag = np.select([turned == 0, turned == 1, turned == 2], [sine, cosine, -sine], -cosine)
    return factors
