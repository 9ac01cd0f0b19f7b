"""Orthogonal transforms: Fourier over a circle, Walsh-Hadamard over binary attributes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy

from dpdist.errors import InvalidInput
from dpdist.operators.linear_operator import Entries, Matrix, Operator, StoredEntries
from dpdist.operators.range_operators import Orthonormal


class Fourier(Orthonormal):
    """The real orthonormal Fourier basis of n points, n rows: the mean, then a cosine and a sine a frequency.

    Row 0 is n^-1/2; rows 2k-1 and 2k are (2/n)^1/2 cos(2 pi k j / n) and (2/n)^1/2 sin(2 pi k j / n); for even n the last
    row is n^-1/2 (-1)^j. Products cost one FFT.
    """

    def __init__(self, n: int) -> None:
        if n != int(n) or n < 1:
            raise InvalidInput(f"the number of points must be a positive whole number, found {n!r}")
        self.n = int(n)
        self.shape = (self.n, self.n)
        self.integral = self.n == 1

    def matvec(self, x: Matrix) -> Matrix:
        if self.n == 1:
            return x
        spectrum = scipy.fft.rfft(x.astype(np.float64), axis=0, norm="ortho")
        coefficients = np.empty(x.shape)
        coefficients[0] = spectrum[0].real
        pairs = (self.n - 1) // 2
        coefficients[1 : 2 * pairs : 2] = np.sqrt(2.0) * spectrum[1 : pairs + 1].real
        coefficients[2 : 2 * pairs + 1 : 2] = -np.sqrt(2.0) * spectrum[1 : pairs + 1].imag
        if self.n % 2 == 0:
            coefficients[-1] = spectrum[-1].real
        return coefficients

    def rmatvec(self, y: Matrix) -> Matrix:
        if self.n == 1:
            return y
        pairs = (self.n - 1) // 2
        spectrum = np.zeros((self.n // 2 + 1, *y.shape[1:]), dtype=np.complex128)
        spectrum[0] = y[0]
        spectrum[1 : pairs + 1] = (y[1 : 2 * pairs : 2] - 1j * y[2 : 2 * pairs + 1 : 2]) / np.sqrt(2.0)
        if self.n % 2 == 0:
            spectrum[-1] = y[-1]
        return np.asarray(scipy.fft.irfft(spectrum, self.n, axis=0, norm="ortho"))

    def rows(self, start: int, stop: int) -> Matrix:
        row = np.arange(start, stop)[:, None]
        angle = 2.0 * np.pi * ((row + 1) // 2 * np.arange(self.n) % self.n) / self.n
        basis_rows = np.sqrt(2.0 / self.n) * np.where(row % 2 == 1, np.cos(angle), np.sin(angle))
        basis_rows[(row[:, 0] == 0)] = self.n**-0.5
        if self.n % 2 == 0:
            basis_rows[row[:, 0] == self.n - 1] *= np.sqrt(0.5) if self.n > 1 else 1.0
        return np.asarray(basis_rows)

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        kinds = ("sine", "cosine")
        return ["mean" if row == 0 else f"{kinds[row % 2]} {(row + 1) // 2}" for row in range(start, stop)]

    def description(self) -> tuple[object, ...]:
        return ("fourier", self.n)


class Hadamard(Operator):
    """The unnormalised Walsh-Hadamard matrix of d binary attributes, 2^d rows of +1 and -1: row s is (-1)^(s . x).

    Bits are those of the cell number, first attribute highest. Products cost d 2^d additions and are exact on integers.
    """

    def __init__(self, bits: int) -> None:
        if bits != int(bits) or not 0 <= bits <= 62:
            raise InvalidInput(f"a Hadamard matrix has 0 to 62 bits, found {bits!r}")
        self.bits = int(bits)
        self.n = 2**self.bits
        self.shape = (self.n, self.n)

    def matvec(self, x: Matrix) -> Matrix:
        transformed = x.copy()
        for bit in range(self.bits):
            pairs = transformed.reshape(2**bit, 2, -1)
            pairs[:, 0] += pairs[:, 1]
            pairs[:, 1] *= -2
            pairs[:, 1] += pairs[:, 0]
        return transformed

    def rmatvec(self, y: Matrix) -> Matrix:
        return self.matvec(y)

    def rows(self, start: int, stop: int) -> Matrix:
        common = np.arange(start, stop)[:, None] & np.arange(self.n)
        return np.asarray(1.0 - 2.0 * (np.bitwise_count(common) % 2))

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        names = []
        for row in range(start, stop):
            picked = [str(bit) for bit in range(self.bits) if row >> (self.bits - 1 - bit) & 1]
            names.append("parity of " + ", ".join(picked) if picked else "all")
        return names

    def gram_block(self, rows: slice, columns: slice) -> Matrix:
        index = np.arange(self.n)
        return np.asarray(self.n * (index[rows, None] == index[columns]), dtype=np.float64)

    def row_norms_squared(self) -> Matrix:
        return np.full(self.n, float(self.n))

    def column_norms_squared(self) -> Matrix:
        return np.full(self.n, float(self.n))

    def column_norms_l1(self) -> Matrix:
        return np.full(self.n, float(self.n))

    @property
    def l2_sensitivity(self) -> float:
        return float(np.sqrt(self.n))

    @property
    def l1_sensitivity(self) -> float:
        return float(self.n)

    def description(self) -> tuple[object, ...]:
        return ("hadamard", self.bits)


class Dyadic(Operator):
    """Row s asks for sum over x of h(s + x) count(x), cells being bit strings and + their exclusive or: 2^d x 2^d.

    The Hadamard transform makes it diagonal; products cost three transforms, and are exact on integers where h is whole.
    """

    def __init__(self, values: Matrix | Entries) -> None:
        """``values``: h, (2^d,); entries that are computed are taken as they are."""
        self.entries = values if isinstance(values, Entries) else StoredEntries(self._check_values(values))
        self.n = self.entries.size
        self.bits = self.n.bit_length() - 1
        self.shape = (self.n, self.n)
        self.integral = self.entries.integral

    @staticmethod
    def _check_values(values: Matrix) -> Matrix:
        values = np.asarray(values, dtype=np.float64)
        if values.ndim != 1 or values.size == 0 or values.size & (values.size - 1) or not np.isfinite(values).all():
            raise InvalidInput(f"a function of bit strings has 2^d finite values, found shape {values.shape}")
        if not values.any():
            raise InvalidInput("a function that is zero everywhere asks for nothing; leave it out")
        return values

    @property
    def values(self) -> Matrix:
        """h, (2^d,)."""
        return self.entries.values

    @property
    def spectrum(self) -> Matrix:
        """H h, the eigenvalues, (2^d,)."""
        return Hadamard(self.bits).matvec(self.values)

    def matvec(self, x: Matrix) -> Matrix:
        if x.dtype.kind == "i" and self.integral:
            cells = np.arange(self.n)
            answers = np.zeros_like(x)
            for cell in np.flatnonzero(self.values):
                answers += int(self.values[cell]) * x[cells ^ cell]
            return answers
        transform = Hadamard(self.bits)
        spectrum = self.spectrum.reshape(-1, *(1,) * (x.ndim - 1))
        return np.asarray(transform.matvec(spectrum * transform.matvec(x.astype(np.float64))) / self.n)

    def rmatvec(self, y: Matrix) -> Matrix:
        return self.matvec(y)

    def rows(self, start: int, stop: int) -> Matrix:
        return np.asarray(self.values[np.arange(start, stop)[:, None] ^ np.arange(self.n)])

    def row_norms_squared(self) -> Matrix:
        return np.full(self.n, float(self.values @ self.values))

    def column_norms_squared(self) -> Matrix:
        return self.row_norms_squared()

    def column_norms_l1(self) -> Matrix:
        return np.full(self.n, float(np.abs(self.values).sum()))

    @property
    def entry_range(self) -> tuple[float, float]:
        return float(self.values.min()), float(self.values.max())

    def description(self) -> tuple[object, ...]:
        return ("dyadic", self.entries)
