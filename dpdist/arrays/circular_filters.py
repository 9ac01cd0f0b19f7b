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

from dpdist.arrays.array_workspace import ProgressCallback, Workspace
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

    def coefficients(self, work: Workspace, report_progress: ProgressCallback | None = None) -> Vector:
        """The coefficients around the circle."""
        return inverse_fourier(work, self.response, report_progress=report_progress)


def optimum(
    work: Workspace,
    filters: Sequence[Toeplitz],
    weights: Sequence[float],
    points: int,
    report_progress: ProgressCallback | None = None,
) -> Optimum:
    """The filter that measures weighted filters around ``points`` steps with the least total error."""
    spectra = [_spectrum_of(work, entry, points, report_progress) for entry in filters]
    values = [entry.values for entry in spectra]
    threshold = NEGLIGIBLE * max(work.fold(partial(_largest, weights), *values))
    sums = work.fold(partial(_root_sums, weights, threshold, spectra[0].times), *values)
    total = math.fsum(frequency_sums[0] for frequency_sums in sums)
    # a filter's reading has squares w^2 |H|^2 / (P root / total), summed over all frequencies and divided by P
    squares = (math.fsum(frequency_sums[1 + i] for frequency_sums in sums) for i in range(len(filters)))
    deviations = tuple(math.sqrt(entry * total) / points for entry in squares)
    response = spectral(tuple(spectra), partial(_response, weights, threshold, points / total), "response")
    return Optimum(response, filters[0].n * (total / points) ** 2, deviations)


def _spectrum_of(
    work: Workspace, series_filter: Toeplitz, points: int, report_progress: ProgressCallback | None = None
) -> Spectrum:
    """The transform of a filter's coefficients around the circle."""
    about = f"coefficients of {series_filter.fingerprint}"
    return fourier(
        work, LazyVector(points, (), partial(_circular_coefficients, series_filter, points), 3 * 8, about), report_progress
    )


def _circular_coefficients(series_filter: Toeplitz, points: int, start: int, count: int) -> Matrix:
    return series_filter.wrap_coefficients(points, start, start + count)


def _roots(weights: Sequence[float], threshold: float, spectra: Sequence[Matrix]) -> Matrix:
    """v^1/2 of W'W's eigenvalues v at some frequencies; those that are rounding error are zero."""
    values = np.zeros(spectra[0].size)
    for weight, spectrum in zip(weights, spectra, strict=True):
        values += weight**2 * (spectrum.real**2 + spectrum.imag**2)
    values[values < threshold] = 0.0
    return np.sqrt(values)


def _largest(weights: Sequence[float], start: int, *spectra: Matrix) -> float:
    return float(_roots(weights, 0.0, spectra).max() ** 2)


def _root_sums(
    weights: Sequence[float], threshold: float, times: Callable[[int, int], Matrix], start: int, *spectra: Matrix
) -> list[float]:
    """Over some frequencies and their conjugates: the sum of the roots, and of |H|^2 over the roots for every filter."""
    roots = _roots(weights, threshold, spectra)
    often = times(start, start + roots.size)
    is_significant = roots > 0
    below = np.where(is_significant, roots, 1.0)
    result = [float(often @ roots)]
    return result + [float((often * np.where(is_significant, (p.real**2 + p.imag**2) / below, 0.0)).sum()) for p in spectra]


def _response(weights: Sequence[float], threshold: float, factor: float, start: int, count: int, *spectra: Matrix) -> Matrix:
    """The spectrum of the strategy's coefficients: (P root / total)^1/2."""
    return np.sqrt(factor * _roots(weights, threshold, spectra)).astype(np.complex128)


def read_circular_filters(
    work: Workspace,
    coefficients: Vector,
    filters: Sequence[Toeplitz],
    measured: Sequence[Vector],
    report_progress: ProgressCallback | None = None,
) -> Iterator[tuple[list[Vector], float]]:
    """For every filter what it answers from each measured series, and the standard error for noise of deviation 1.

    Args:
        coefficients: of the filter that measured, around its circle.
        measured: what it measured of every series.
    """
    measurement_spectrum = fourier(work, coefficients, report_progress)
    series_spectra = [fourier(work, entry, report_progress) for entry in measured]
    for entry in filters:
        filter_spectrum = _spectrum_of(work, entry, measurement_spectrum.points, report_progress)
        # |H|^2 up to here is rounding error
        threshold = NEGLIGIBLE * max(work.fold(partial(_largest, (1.0,)), filter_spectrum.values))
        squares = work.fold(
            partial(_reading_squares, filter_spectrum.times, threshold), filter_spectrum.values, measurement_spectrum.values
        )
        error = math.sqrt(math.fsum(squares) / measurement_spectrum.points)
        make_reading = partial(_apply_reading, threshold)
        yield (
            [
                inverse_fourier(
                    work,
                    spectral((filter_spectrum, measurement_spectrum, series_spectrum), make_reading, "reading"),
                    report_progress=report_progress,
                )
                for series_spectrum in series_spectra
            ],
            error,
        )
        work.delete(filter_spectrum.values)


def _reading(threshold: float, filter_spectrum: Matrix, measurement_spectrum: Matrix) -> Matrix:
    is_significant = filter_spectrum.real**2 + filter_spectrum.imag**2 > threshold
    return np.where(is_significant, filter_spectrum / np.where(is_significant, measurement_spectrum, 1.0), 0.0)


def _reading_squares(
    times: Callable[[int, int], Matrix], threshold: float, start: int, filter_spectrum: Matrix, measurement_spectrum: Matrix
) -> float:
    reading = _reading(threshold, filter_spectrum, measurement_spectrum)
    return float(times(start, start + reading.size) @ (reading.real**2 + reading.imag**2))


def _apply_reading(
    threshold: float, start: int, count: int, filter_spectrum: Matrix, measurement_spectrum: Matrix, series_spectrum: Matrix
) -> Matrix:
    return _reading(threshold, filter_spectrum, measurement_spectrum) * series_spectrum
