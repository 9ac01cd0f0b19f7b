"""Filters on the integer grid: coefficients are rounded once and convolved exactly, so their sensitivity is an exact integer."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import scipy

from dpdist.arrays.convolution import exact_convolution, square_of
from dpdist.arrays.vector import Held, Strided, Vector, held
from dpdist.arrays.workspace import MEMORY, OnDone, Workspace
from dpdist.grids.base import GRID_BITS, Answers, Reader, TableGrid, Wanted
from dpdist.grids.coefficients import Coefficients, deviations, reading
from dpdist.grids.estimate import stored_answers
from dpdist.operators import Matrix, Toeplitz
from dpdist.privacy.noise import Noise
from dpdist.stability import Neighbours
from dpdist.workloads import Workload
from dpdist.workloads.kinds import filters_of


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
            return _convolved(self.coefficients, lines.T, self.coefficients.size).T.ravel()
        return _convolved(self.coefficients, lines.T, 2 * self.steps)[:, : self.steps].T.ravel()

    def reader(self, workload: Workload) -> Reader:
        return FilterReader(workload, self)

    @property
    def stream(self) -> FilterGrid | None:
        return None if self.circular else self

    def steps_of(self, exact: Vector, start: int, stop: int) -> Vector:
        """The measured values of some steps."""
        return Strided(exact, start * self.series, 1, (stop - start) * self.series)

    def counted(self, table: Matrix, stop: int) -> Matrix:
        """The counts of the first steps."""
        return np.take(table.reshape(self.shape), range(stop), axis=self.place)

    def begun(self, steps: int) -> FilterGrid:
        """The grid of the first steps."""
        shape = tuple(steps if i == self.place else size for i, size in enumerate(self.shape))
        return replace(self, coefficients=self.coefficients[:steps], shape=shape)


@dataclass(frozen=True)
class FilterReader:
    """What was measured, filtered once more."""

    workload: Workload
    grid: FilterGrid

    def answers(
        self, measured: Vector, noise: Noise, wanted: Wanted, work: Workspace, on_done: OnDone | None = None
    ) -> Answers:
        answer, error = work.largest(self.filtered, held(measured), noise)
        return stored_answers(answer, error, error * noise.half_width_95(0.0), wanted, work)

    def filtered(self, measured: Matrix, noise: Noise) -> tuple[Matrix, Matrix]:
        """Answers of all filters and their standard errors, both (queries,) float64."""
        grid = self.grid
        coefficients = Coefficients(
            grid.coefficients * grid.spacing,
            grid.circular,
            grid.steps,
            grid.axes[grid.place],
            grid.axes,
        )
        lines = measured.astype(np.float64).reshape(grid.coefficients.size, -1) * grid.spacing
        answers: list[Matrix] = []
        errors: list[Matrix] = []
        for each in filters_of(self.workload):
            found = reading(coefficients, each)
            if grid.circular:
                values = scipy.fft.irfft(scipy.fft.rfft(lines, axis=0) * found[:, None], coefficients.points, axis=0)[
                    : grid.steps
                ]
            else:
                values = Toeplitz(grid.steps, found).matvec(lines)
            spread = deviations(coefficients, each) * noise.deviation * grid.spacing
            for column, rows in ((answers, values), (errors, np.repeat(spread[:, None], grid.series, axis=1))):
                others = [size for position, size in enumerate(grid.shape) if position != grid.place]
                column.append(np.moveaxis(rows.reshape(grid.steps, *others), 0, grid.place).ravel())
        return np.concatenate(answers), np.concatenate(errors)


def filter_grid(
    coefficients: Coefficients, shape: tuple[int, ...], *, neighbours: Neighbours, most_records: int
) -> FilterGrid:
    """The integer grid of a filter.

    Args:
        shape: of the whole domain.
    """
    spacing = 2.0**-GRID_BITS  # coefficients have unit length: no sum that differs from machine to machine decides the grid
    whole_numbers = np.rint(coefficients.values / spacing).astype(np.int64)
    column = square_of(whole_numbers)
    distance = column
    if neighbours == "replace-one":
        distance = _farthest(whole_numbers, column, coefficients.steps) if coefficients.circular else 4 * column
    table = tuple(shape[axis] for axis in coefficients.axes)
    squares = max(column, distance) * most_records**2
    place = coefficients.axes.index(coefficients.axis)
    return FilterGrid(whole_numbers, coefficients.circular, table, place, coefficients.axes, spacing, squares)


def _farthest(coefficients: Matrix, column: int, steps: int) -> int:
    """Largest squared distance of a record that moves from one step to another, leaves, or moves to another series."""
    if steps == 1:
        return 2 * column
    size = coefficients.size
    around = _convolved(coefficients, np.roll(coefficients[::-1], 1), size)
    lags = np.unique(np.concatenate([np.arange(1, min(steps, size)), size - np.arange(1, min(steps, size))]))
    return 2 * column - 2 * min(0, int(around[lags].min()))


def _convolved(left: Matrix, right: Matrix, length: int) -> Matrix:
    """The exact convolution of whole numbers with every row of others."""
    return held(exact_convolution(MEMORY, Held(left), Held(np.ascontiguousarray(right)), length))
