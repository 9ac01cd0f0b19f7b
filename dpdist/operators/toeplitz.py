"""Filters as matrices: every output weighs the inputs by their distance in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from dpdist.errors import InvalidInput
from dpdist.operators.dense_matrix import Dense
from dpdist.operators.linear_operator import Entries, Matrix, Operator, StoredEntries


@dataclass(frozen=True)
class PowerCoefficients(Entries):
    """(k + 1)^-power for k = 0..size: of power 0 the ones of a running sum."""

    size: int
    power: float

    def read(self, start: int, stop: int) -> Matrix:
        return np.arange(start + 1.0, stop + 1.0) ** -self.power

    @property
    def constant(self) -> bool:
        return self.power == 0

    @property
    def integral(self) -> bool:
        return self.power == 0


class Toeplitz(Operator):
    """y_t = sum over k of coefficients[k] x_{t - first_lag - k}; inputs before the first and after the last step count as zero.

    A ``first_lag`` of 0 filters the past only: the matrix is lower triangular. Products cost one FFT.
    """

    circular = False

    def __init__(self, n: int, coefficients: Matrix | Entries, first_lag: int = 0) -> None:
        if n != int(n) or n < 1:
            raise InvalidInput(f"the number of steps must be a positive whole number, found {n!r}")
        self.n = int(n)
        self.entries: Entries
        if isinstance(coefficients, Entries) and coefficients.size <= self.n and first_lag == 0:
            self.entries, self.first_lag = coefficients, 0
        else:
            values, self.first_lag = _trim_coefficients(_check_coefficients(coefficients), int(first_lag), self.n)
            self.entries = StoredEntries(values)
        self.shape = (self.n, self.n)
        self.integral = self.entries.integral

    @property
    def coefficients(self) -> Matrix:
        """All coefficients, (coefficients,) float64."""
        return self.entries.values

    def matvec(self, x: Matrix) -> Matrix:
        return self._apply_filter(x, self.coefficients, self.first_lag)

    def rmatvec(self, y: Matrix) -> Matrix:
        return self._apply_filter(y, self.coefficients[::-1], 1 - self.first_lag - self.coefficients.size)

    def _apply_filter(self, x: Matrix, coefficients: Matrix, lag: int) -> Matrix:
        full = _convolve(x, coefficients, exact=self.integral and x.dtype.kind == "i")
        filtered = np.zeros((self.n, *x.shape[1:]), dtype=full.dtype)
        low, high = max(0, lag), min(self.n, lag + full.shape[0])
        if low < high:
            filtered[low:high] = full[low - lag : high - lag]
        return filtered

    def rows(self, start: int, stop: int) -> Matrix:
        lag = np.arange(start, stop)[:, None] - np.arange(self.n) - self.first_lag
        inside = (lag >= 0) & (lag < self.coefficients.size)
        return np.where(inside, self.coefficients[np.clip(lag, 0, self.coefficients.size - 1)], 0.0)

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        names = cells[0] if cells else [str(cell) for cell in range(self.n)]
        return [f"at {name}" for name in names[start:stop]]

    def column_norms_squared(self) -> Matrix:
        return self._lag_sums(self.coefficients**2, self.first_lag)

    def column_norms_l1(self) -> Matrix:
        return self._lag_sums(np.abs(self.coefficients), self.first_lag)

    def row_norms_squared(self) -> Matrix:  # the columns of the transpose, which filters with the coefficients in reverse
        return self._lag_sums(self.coefficients[::-1] ** 2, 1 - self.first_lag - self.coefficients.size)

    def _lag_sums(self, values: Matrix, lag: int) -> Matrix:
        """For every step j, the sum over the coefficients k whose output t = j + lag + k lies in 0..n."""
        sums = np.concatenate([[0.0], np.cumsum(values)])
        j = np.arange(self.n)
        low, high = (np.clip(end - lag - j, 0, values.size) for end in (0, self.n))
        return np.asarray(sums[high] - sums[low])

    def spectrum(self, points: int) -> Matrix:
        """Eigenvalues of the circulant matrix of ``points`` steps with these coefficients, rfft order, complex128."""
        return np.asarray(scipy.fft.rfft(_wrap_values(self.coefficients, self.first_lag, points)))

    @property
    def entry_range(self) -> tuple[float, float]:
        values = self.coefficients
        return min(float(values.min()), 0.0), max(float(values.max()), 0.0)

    @property
    def padding_steps(self) -> int:
        """Steps that a circle needs beyond n so that the filter does not see its own other end."""
        last_lag = self.first_lag + self.entries.size - 1
        return max(last_lag, 0) + max(-self.first_lag, 0)

    def description(self) -> tuple[object, ...]:
        return (type(self).__name__.lower(), self.n, self.first_lag, self.entries)

    def wrap_coefficients(self, points: int, start: int, stop: int) -> Matrix:
        """Coefficients laid around a circle of ``points`` steps, positions start..stop, float64."""
        wrapped = np.zeros(stop - start)
        first_position = self.first_lag % points
        for low in range(first_position - points, stop, points):
            begin, end = max(start, low), min(stop, low + self.entries.size)
            if begin < end:
                wrapped[begin - start : end - start] += self.entries.read(begin - low, end - low)
        return wrapped


class StepMeans(Dense):
    """Means of the steps that a filter holds: each row divided by its sum, which is smaller at the ends of a series.

    The rows are held one by one, (steps, steps) numbers.
    """

    def __init__(self, filtered: Toeplitz) -> None:
        rows = filtered.rows(0, filtered.n)
        super().__init__(rows / rows.sum(axis=1, keepdims=True))
        self.filtered = filtered

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        return self.filtered.row_names(start, stop, *cells)


class Circulant(Toeplitz):
    """The same filter around a circle of n steps: after the last step comes the first."""

    circular = True

    def __init__(self, n: int, coefficients: Matrix | Entries, first_lag: int = 0) -> None:
        self.n = int(n)
        self.first_lag = 0
        if isinstance(coefficients, Entries) and coefficients.size <= self.n and first_lag == 0:
            self.entries = coefficients
        else:
            self.entries = StoredEntries(_wrap_values(_check_coefficients(coefficients), int(first_lag), self.n))
        self.shape = (self.n, self.n)
        self.integral = self.entries.integral

    def _apply_filter(self, x: Matrix, coefficients: Matrix, lag: int) -> Matrix:
        full = _convolve(x, coefficients, exact=self.integral and x.dtype.kind == "i")
        return _wrap_values(full, lag, self.n)

    def rows(self, start: int, stop: int) -> Matrix:
        return np.asarray(self.coefficients[(np.arange(start, stop)[:, None] - np.arange(self.n)) % self.n])

    def _lag_sums(self, values: Matrix, lag: int) -> Matrix:
        return np.full(self.n, float(values.sum()))

    @property
    def padding_steps(self) -> int:
        return 0


DIRECT_PRODUCTS = 2**20
"""Products of steps and coefficients that are summed one by one."""


def _convolve(x: Matrix, coefficients: Matrix, *, exact: bool) -> Matrix:
    """The full convolution along the first axis; integers exactly."""
    shaped_coefficients = (coefficients.astype(np.int64) if exact else coefficients).reshape(-1, *(1,) * (x.ndim - 1))
    if exact or x.size * coefficients.size <= DIRECT_PRODUCTS:
        return np.asarray(scipy.signal.convolve(x, shaped_coefficients, method="direct"))
    return np.asarray(scipy.signal.oaconvolve(x, shaped_coefficients, axes=0))


def _wrap_values(values: Matrix, lag: int, points: int) -> Matrix:
    """Values that begin at a lag, laid around a circle of so many points."""
    wrapped = np.zeros((points, *values.shape[1:]), dtype=values.dtype)
    np.add.at(wrapped, (lag + np.arange(values.shape[0])) % points, values)
    return wrapped


def _check_coefficients(coefficients: Matrix | Entries) -> Matrix:
    values = coefficients.values if isinstance(coefficients, Entries) else np.asarray(coefficients)
    if np.iscomplexobj(values):
        raise InvalidInput(
            "a filter has real coefficients, found complex ones; filter real and imaginary parts by themselves"
        )
    if values.ndim != 1 or values.size == 0:
        raise InvalidInput(f"a filter is a list of at least one coefficient, found shape {values.shape}")
    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        raise InvalidInput("a filter holds NaN or infinite coefficients; replace them")
    if not values.any():
        raise InvalidInput("a filter whose coefficients are all zero asks for nothing; leave it out")
    return values


def _trim_coefficients(coefficients: Matrix, first_lag: int, n: int) -> tuple[Matrix, int]:
    """The coefficients that reach a step of the series from another one: lags beyond n - 1 never do.

    Raises: InvalidInput when none does.
    """
    lags = first_lag + np.arange(coefficients.size)
    in_reach = (
        (np.abs(lags) < n)
        & (np.maximum.accumulate(coefficients != 0))
        & (np.maximum.accumulate((coefficients != 0)[::-1])[::-1])
    )
    if not in_reach.any():
        raise InvalidInput(f"no coefficient of the filter reaches any of the {n} steps: its lags begin at {first_lag}")
    return coefficients[in_reach], int(lags[in_reach][0])


class Ring(Operator):
    """The first n columns of a circulant matrix of ``points`` >= n steps: a series laid on a larger circle, (points, n)."""

    def __init__(self, points: int, n: int, coefficients: Matrix) -> None:
        self.circulant = Circulant(points, coefficients)
        if not 1 <= n <= points:
            raise InvalidInput(f"a series of {n} steps does not fit on a circle of {points}")
        self.n = int(n)
        self.shape = (self.circulant.n, self.n)
        self.integral = self.circulant.integral

    def matvec(self, x: Matrix) -> Matrix:
        return self.circulant.matvec(np.concatenate([x, np.zeros((self.shape[0] - self.n, *x.shape[1:]), dtype=x.dtype)]))

    def rmatvec(self, y: Matrix) -> Matrix:
        return self.circulant.rmatvec(y)[: self.n]

    def rows(self, start: int, stop: int) -> Matrix:
        return self.circulant.rows(start, stop)[:, : self.n]

    def column_norms_squared(self) -> Matrix:
        return self.circulant.column_norms_squared()[: self.n]

    def column_norms_l1(self) -> Matrix:
        return self.circulant.column_norms_l1()[: self.n]

    def description(self) -> tuple[object, ...]:
        return ("ring", self.n, self.circulant)
