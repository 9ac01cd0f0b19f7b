"""Binary attributes on the integer grid: every character is measured with a whole weight, exactly."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Literal

import numpy as np
import scipy

from dpdist.arrays.array_workspace import MEMORY, ProgressCallback, Workspace
from dpdist.arrays.kronecker_transform import hadamard
from dpdist.arrays.lazy_vector import ArrayVector, LazyVector, Vector, interleave_vectors, to_array
from dpdist.arrays.transpose_passes import slab_bytes
from dpdist.domain import Layout
from dpdist.measurement.coefficient_vectors import GRID_UNIT, Coefficients, Form, smallest_value, sum_of_squares
from dpdist.measurement.integer_measurement import (
    MEMORY_COPIES,
    Counts,
    StageBytes,
    answer_bytes,
    check_published_size,
    check_record_limit,
    shard_bytes,
)
from dpdist.measurement.transformed_answers import TransformedAnswers, TransformedMeasurement
from dpdist.operators import Dyadic, Matrix
from dpdist.reconstruction.measured_space import MeasuredSpace
from dpdist.reconstruction.row_space import RowSpace
from dpdist.stability import Neighbours
from dpdist.workloads import Workload

INT64 = np.dtype(np.int64)


@dataclass(frozen=True)
class HadamardMeasurement(TransformedMeasurement):
    """z_i = weight_i (H x)_i for characters i: in memory for those whose weight is not zero, in the store for all.

    Attributes:
        weights: of all characters, (2^d,) int64.
        axes: the binary attributes of the counted table, ascending.
        spacing: grid unit.
        sensitivity_squared: exact: every column of the measured rows has the same length.
        form: the format number.
    """

    weights: Vector = field(repr=False)
    axes: tuple[int, ...]
    spacing: float
    sensitivity_squared: int
    norm: Literal["l2"] = "l2"
    form: Form = Form.IN_MEMORY

    @property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        """The attribute set whose table is counted."""
        return (self.axes,)

    @property
    def characters(self) -> Matrix:
        """Which ones are measured in memory, (p,) int64."""
        return np.flatnonzero(to_array(self.weights))

    @property
    def rows(self) -> int:
        """Number of measured values."""
        return self.weights.size if self.form is Form.STORED else int(self.characters.size)

    @property
    def digest(self) -> str:
        """SHA-256 of the measured characters and their weights."""
        cells = self.weights.size
        if self.form is Form.STORED:
            facts: tuple[object, ...] = ("characters", self.weights.digest, cells, (2,) * len(self.axes), 0, self.axes)
            return hashlib.sha256(repr((*facts, self.spacing, self.sensitivity_squared)).encode()).hexdigest()
        content = hashlib.sha256(repr(("hadamard", self.axes, self.spacing, self.sensitivity_squared)).encode())
        content.update(self.characters.tobytes())
        content.update(np.ascontiguousarray(to_array(self.weights)[self.characters]).tobytes())
        return content.hexdigest()

    def memory(self, workload: Workload, layout: Layout, worker_bytes: int) -> StageBytes:
        if self.form is Form.STORED:
            return StageBytes(
                shard_bytes(max(layout.size, self.rows)), slab_bytes(worker_bytes, max(layout.size, self.rows))
            )
        return StageBytes(MEMORY_COPIES * 8 * (layout.size + 6 * self.rows), answer_bytes(workload))

    def exact_values(self, counts: Counts, work: Workspace, report_progress: ProgressCallback | None = None) -> Vector:
        if self.form is Form.STORED:
            counts.check(work)
            return self._weight_characters(counts.values, work, report_progress)
        table = counts.table(self.axes)
        check_record_limit(int(table.sum()))
        return ArrayVector(self.measure(table))

    def measure(self, table: Matrix) -> Matrix:
        """z for an integer table that is held, (rows,) int64, exact."""
        return to_array(self._weight_characters(ArrayVector(table.astype(np.int64).ravel()), MEMORY, None))[self.characters]

    def _weight_characters(self, table: Vector, work: Workspace, report_progress: ProgressCallback | None) -> Vector:
        with work.scratch() as inner:
            turned = hadamard(inner, table, report_progress=report_progress)
            return work.write(LazyVector(self.weights.size, (self.weights, turned), _multiply, 32, "weighted", INT64))

    def measured_space(self, measured: Vector, shape: tuple[int, ...], most_bytes: int) -> MeasuredSpace:
        """The measured characters as rows over all cells."""
        cells = math.prod(shape)
        check_published_size(self.rows * (cells + 2), most_bytes)
        signs = scipy.linalg.hadamard(self.weights.size, dtype=np.int64)
        sizes = [2 if axis in self.axes else 1 for axis in range(len(shape))]
        characters = self.characters
        rows = np.broadcast_to(signs[characters].reshape(-1, *sizes), (characters.size, *shape)).reshape(
            characters.size, cells
        )
        values = to_array(measured) if self.form is Form.IN_MEMORY else to_array(measured)[characters]
        return RowSpace(to_array(self.weights)[characters], rows, shape, values)

    @cached_property
    def column_squared(self) -> int | None:
        return sum_of_squares(MEMORY, self.weights) if self.form is Form.IN_MEMORY else None

    def total_variance(self, workload: Workload, work: Workspace) -> float:
        """Of every formula by what is read from each character."""
        total, cells = 0.0, self.weights.size
        with work.scratch() as inner:
            for block, spectrum in zip(workload.blocks, spectra_of(inner, workload), strict=True):
                squares = inner.fold(partial(_reading_squares, cells), spectrum, self.weights)
                total += block.weight**2 * cells * math.fsum(squares)
                inner.delete(spectrum)
        return total

    def transform_answers(
        self, workload: Workload, work: Workspace, measured: Vector, report_progress: ProgressCallback | None = None
    ) -> TransformedAnswers:
        """Answers of all formulas over binary attributes."""
        weights, cells = self.weights, self.weights.size
        if self.form is Form.IN_MEMORY:
            whole = np.zeros(cells)
            whole[self.characters] = to_array(measured)
            measured = ArrayVector(whole)
        answers, errors = [], []
        for spectrum in spectra_of(work, workload, report_progress):
            squares = work.fold(partial(_reading_squares, cells), spectrum, weights)
            errors.append(math.sqrt(math.fsum(squares)))
            scaled_characters = LazyVector(
                cells, (spectrum, weights, measured), partial(_scale_measured, cells), 64, "reading"
            )
            answers.append((hadamard(work, scaled_characters, kind=np.float64, report_progress=report_progress),))
            work.delete(spectrum)
        return TransformedAnswers(interleave_vectors(tuple(answers), cells), tuple(errors))


def _multiply(start: int, count: int, weights: Matrix, turned: Matrix) -> Matrix:
    return weights * turned


def spectra_of(work: Workspace, workload: Workload, report_progress: ProgressCallback | None = None) -> Iterator[Vector]:
    """Eigenvalues of every formula, whole where the formula is."""
    for block in workload.blocks:
        formula = block.factors[0]
        assert isinstance(formula, Dyadic)
        kind = INT64 if formula.integral else np.dtype(np.float64)
        yield hadamard(work, formula.entries, kind=kind, report_progress=report_progress)


def _read_weights(cells: int, spectrum: Matrix, weights: Matrix) -> Matrix:
    return np.where(weights != 0, spectrum / np.where(weights != 0, weights, 1), 0.0) / cells


def _reading_squares(cells: int, start: int, spectrum: Matrix, weights: Matrix) -> float:
    read_weights = _read_weights(cells, spectrum, weights)
    return float(read_weights @ read_weights)


def _scale_measured(cells: int, start: int, count: int, spectrum: Matrix, weights: Matrix, measured: Matrix) -> Matrix:
    return _read_weights(cells, spectrum, weights) * measured


def hadamard_measurement(coefficients: Coefficients, *, neighbours: Neighbours, most_records: int) -> HadamardMeasurement:
    """A strategy in whole numbers, over the characters of some attributes, each times its scale."""
    weights, work = coefficients.whole_values, coefficients.work
    column = sum_of_squares(work, weights)
    distance = column
    if neighbours == "replace-one" and weights.size > 1:
        # cells x and y differ by 4 sum of the squares where the characters differ: 2 (all - (H squares)(x + y))
        with work.scratch() as inner:
            turned = hadamard(inner, LazyVector(weights.size, (weights,), _squared, 24, "squares", INT64))
            lowest = smallest_value(inner, turned, [(1, weights.size)])
        assert lowest is not None
        distance = max(column, 2 * (column - lowest))
    return HadamardMeasurement(weights, coefficients.axes, GRID_UNIT, distance * most_records**2, form=coefficients.form)


def _squared(start: int, count: int, values: Matrix) -> Matrix:
    return values * values
