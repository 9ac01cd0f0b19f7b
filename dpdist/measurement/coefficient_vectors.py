"""The whole numbers of a strategy that is one filter, or one weight a character: in memory or in the store, by size alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import numpy as np

from dpdist.arrays.array_workspace import MEMORY, Workspace
from dpdist.arrays.convolution import square_of
from dpdist.arrays.lazy_vector import ArrayVector, LazyVector, Vector, scaled, to_array
from dpdist.errors import OutOfMemory
from dpdist.measurement.integer_measurement import GRID_BITS
from dpdist.operators import Matrix, Operator
from dpdist.size_limits import SIZES

GRID_UNIT = 2.0**-GRID_BITS
"""Grid unit: coefficients have unit length, so no sum that differs from machine to machine decides it."""


class Form(IntEnum):
    """The format number of what is kept and measured. It follows from the size alone, and both forms hold the same numbers.

    IN_MEMORY: coefficients are kept as real numbers; of several series all values of a step are measured side by side, of characters
        those with a weight.
    STORED: coefficients are kept as the whole numbers that are measured; series after series, all characters.
    """

    IN_MEMORY = 1
    STORED = 2


@dataclass(frozen=True)
class Coefficients:
    """A strategy as one vector of numbers.

    Attributes:
        values: real numbers of unit length, or whole ones, ``UNIT`` times which they are.
        axes, shape: attributes of the counted table, ascending, and their sizes.
        form: how they are kept, and how measured.
        deviations: standard error of the queries of every block in the worst place, for noise of deviation 1 on the unit strategy.
        name: under which they are kept in the store; empty: nowhere.
        work: where they are worked on.
    """

    values: Vector = field(repr=False)
    axes: tuple[int, ...]
    shape: tuple[int, ...]
    form: Form
    deviations: tuple[float, ...]
    name: str = ""
    work: Workspace = field(default=MEMORY, repr=False, compare=False)

    @property
    def real_values(self) -> Matrix:
        """The real numbers, held."""
        return to_array(self.values) * (GRID_UNIT if self.values.dtype.kind == "i" else 1.0)

    @property
    def whole_values(self) -> Vector:
        """The whole numbers: rounded once."""
        numbers = whole_numbers(self.values)
        return numbers if numbers is self.values or self.form is Form.STORED else ArrayVector(to_array(numbers))

    @cached_property
    def length(self) -> float:
        """Their length, about one. It is worked out once: where they are in the store, all of them are read."""
        if self.form is Form.IN_MEMORY:
            return float(np.linalg.norm(self.real_values))
        return math.sqrt(sum(self.work.fold(_block_squares, self.whole_values))) * GRID_UNIT


class AxisSeries:
    """Series along one axis of a table.

    Attributes:
        shape: sizes of the table; ``step_axis`` is the axis of the steps in it.
    """

    shape: tuple[int, ...]
    step_axis: int

    @property
    def steps(self) -> int:
        """Steps of a series."""
        return self.shape[self.step_axis]

    @property
    def series(self) -> int:
        """How many series there are."""
        return math.prod(self.shape) // self.steps


@dataclass(frozen=True)
class FilterCoefficients(AxisSeries, Coefficients):
    """A strategy that is one filter.

    Attributes:
        circular: whether its values lie around a circle; else they are of the past.
        step_axis: the table's axis that the filter runs along.
        first_steps: steps of the first horizon of a stream that was extended, for which its noise is; None: of the only one.
    """

    circular: bool = field(kw_only=True)
    step_axis: int = field(kw_only=True)
    first_steps: int | None = field(default=None, kw_only=True)


class StoredRows(Operator):
    """The rows of a strategy whose coefficients are stored, by name: they are applied through the store alone."""

    def __init__(self, coefficients: Coefficients, rows: int) -> None:
        self.coefficients = coefficients
        self.shape = (rows, math.prod(coefficients.shape))
        self.integral = False

    def matvec(self, x: Matrix) -> Matrix:
        raise self._too_long()

    def rmatvec(self, y: Matrix) -> Matrix:
        raise self._too_long()

    def _too_long(self) -> OutOfMemory:
        cure = "measure it and read its answers through the store, with its measurement"
        return OutOfMemory("a strategy in the store", 8 * self.coefficients.values.size, 8 * SIZES.long_steps, cure)

    def description(self) -> tuple[object, ...]:
        return ("stored rows", self.coefficients.values.digest, self.coefficients.axes, self.coefficients.shape)


def whole_numbers(values: Vector) -> Vector:
    """Real numbers in grid units, rounded; whole ones as they are."""
    if values.dtype.kind == "i":
        return values
    return LazyVector(values.size, (values,), _rounded, 32, "whole numbers", np.dtype(np.int64))


def stored_form(values: Vector, work: Workspace) -> Vector:
    """Real numbers in the form in which they are kept."""
    return values if work.in_memory else whole_numbers(values)


def scale_to_unit(values: Vector) -> Vector:
    """Whole numbers times the grid unit."""
    return scaled(values, GRID_UNIT)


def _rounded(start: int, count: int, values: Matrix) -> Matrix:
    return np.rint(values / GRID_UNIT).astype(np.int64)


def _block_squares(start: int, values: Matrix) -> int:
    return square_of(values)


def sum_of_squares(work: Workspace, whole: Vector) -> int:
    """The sum of squares of whole numbers, exact."""
    return sum(work.fold(_block_squares, whole))


def smallest_value(work: Workspace, whole: Vector, ranges: list[tuple[int, int]]) -> int | None:
    """The smallest of whole numbers in some ranges, None where these hold none."""
    step = work.part_values
    blocks = [(low, min(low + step, stop)) for start, stop in ranges for low in range(start, stop, step)]
    return min(work.fold(_block_minimum, whole, ranges=blocks), default=None)


def _block_minimum(start: int, values: Matrix) -> int:
    return int(values.min())
