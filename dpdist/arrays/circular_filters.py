"""Filters around a circle: the filter that measures them best, and how they are read from what it measured.

Around a circle of P steps the gram of any filters has the eigenvalues v_i = sum over filters of weight^2 |lambda_i|^2. The precision
with eigenvalues P v_i^(1/2) / sum v^(1/2) costs the least, and its symmetric root is a filter, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpdist.arrays.array_workspace import OnDone, Workspace
from dpdist.arrays.fourier import Spectrum, fourier, inverse_fourier, spectral
from dpdist.arrays.lazy_vector import LazyVector, Vector
from dpdist.operators import Matrix, Toeplitz

NEGLIGIBLE = 1e-24
"""Eigenvalues of W'W below this part of the largest are rounding error; they are treated as zero."""


@dataclass(frozen=True)
class Optimum:
    """The filter of least total error.

    Attributes:
        response: its spectrum; its coefficients have unit length.
        cost: total variance of the weighted answers of one series, at noise multiplier 1.
        deviations: standard error of every filter's answers, unweighted, at noise multiplier 1.
    """

    response: Spectrum
    cost: float
    deviations: tuple[float, ...]

    def coefficients(self, work: Workspace, on_done: OnDone | None = None) -> Vector:
        """The coefficients around the circle."""
        return inverse_fourier(work, self.response, on_done=on_done)


def optimum(
    work: Workspace, filters: Sequence[Toeplitz], weights: Sequence[float], points: int, on_done: OnDone | None = None
) -> Optimum:
    """The filter that measures weighted filters around ``points`` steps with the least total error."""
    spectra = [spectrum_of(work, each, points, on_done) for each in filters]
    values = [each.values for each in spectra]
    least = NEGLIGIBLE * max(work.fold(partial(_largest, weights), *values))
    sums = work.fold(partial(_root_sums, weights, least, spectra[0].times), *values)
    total = math.fsum(part[0] for part in sums)
    # a filter's reading has squares w^2 |H|^2 / (P root / total), summed over all frequencies and divided by P
    squares = (math.fsum(part[1 + i] for part in sums) for i in range(len(filters)))
    deviations = tuple(math.sqrt(each * total) / points for each in squares)
    response = spectral(tuple(spectra), partial(_response, weights, least, points / total), "response")
    return Optimum(response, filters[0].n * (total / points) ** 2, deviations)


def spectrum_of(work: Workspace, each: Toeplitz, points: int, on_done: OnDone | None = None) -> Spectrum:
    """The transform of a filter's coefficients around the circle."""
    about = f"coefficients of {each.fingerprint}"
    return fourier(work, LazyVector(points, (), partial(_around, each, points), 3 * 8, about), on_done)


def _around(each: Toeplitz, points: int, start: int, count: int) -> Matrix:
    return each.around(points, start, start + count)


def _roots(weights: Sequence[float], least: float, spectra: Sequence[Matrix]) -> Matrix:
    """v^1/2 of W'W's eigenvalues v at some frequencies; those that are rounding error are zero."""
    values = np.zeros(spectra[0].size)
    for weight, part in zip(weights, spectra, strict=True):
        values += weight**2 * (part.real**2 + part.imag**2)
    values[values < least] = 0.0
    return np.sqrt(values)


def _largest(weights: Sequence[float], start: int, *spectra: Matrix) -> float:
    return float(_roots(weights, 0.0, spectra).max() ** 2)


def _root_sums(
    weights: Sequence[float], least: float, times: Callable[[int, int], Matrix], start: int, *spectra: Matrix
) -> list[float]:
    """Over some frequencies and their conjugates: the sum of the roots, and of |H|^2 over the roots for every filter."""
    roots = _roots(weights, least, spectra)
    often = times(start, start + roots.size)
    asked = roots > 0
    below = np.where(asked, roots, 1.0)
    out = [float(often @ roots)]
    return out + [float((often * np.where(asked, (p.real**2 + p.imag**2) / below, 0.0)).sum()) for p in spectra]


def _response(weights: Sequence[float], least: float, factor: float, start: int, count: int, *spectra: Matrix) -> Matrix:
    """The spectrum of the strategy's coefficients: (P root / total)^1/2."""
    return np.sqrt(factor * _roots(weights, least, spectra)).astype(np.complex128)


def read_around(
    work: Workspace,
    coefficients: Vector,
    filters: Sequence[Toeplitz],
    measured: Sequence[Vector],
    on_done: OnDone | None = None,
) -> Iterator[tuple[list[Vector], float]]:
    """For every filter what it answers from each measured series, and the standard error for noise of deviation 1.

    Args:
        coefficients: of the filter that measured, around its circle.
        measured: what it measured of every series.
    """
    given = fourier(work, coefficients, on_done)
    seen = [fourier(work, each, on_done) for each in measured]
    for each in filters:
        asked = spectrum_of(work, each, given.points, on_done)
        # |H|^2 up to here is rounding error
        least = NEGLIGIBLE * max(work.fold(partial(_largest, (1.0,)), asked.values))
        squares = work.fold(partial(_reading_squares, asked.times, least), asked.values, given.values)
        error = math.sqrt(math.fsum(squares) / given.points)
        through = partial(_read_through, least)
        yield (
            [inverse_fourier(work, spectral((asked, given, one), through, "reading"), on_done=on_done) for one in seen],
            error,
        )
        work.delete(asked.values)


def _reading(least: float, asked: Matrix, given: Matrix) -> Matrix:
    wanted = asked.real**2 + asked.imag**2 > least
    return np.where(wanted, asked / np.where(wanted, given, 1.0), 0.0)


def _reading_squares(times: Callable[[int, int], Matrix], least: float, start: int, asked: Matrix, given: Matrix) -> float:
    found = _reading(least, asked, given)
    return float(times(start, start + found.size) @ (found.real**2 + found.imag**2))


def _read_through(least: float, start: int, count: int, asked: Matrix, given: Matrix, seen: Matrix) -> Matrix:
    return _reading(least, asked, given) * seen
