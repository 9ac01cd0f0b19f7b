"""A lower triangular strategy on the integer grid: every step is measured from itself and earlier ones, so a series can grow."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from dpdist.api.mechanisms import (
    GRID_UNIT,
    MEMORY_COPIES,
    ArrayVector,
    Counts,
    Crossing,
    Form,
    Identity,
    Layout,
    Matrix,
    MatrixFactor,
    MeasuredSpace,
    Neighbours,
    ProgressCallback,
    SeriesMeasurement,
    Sizes,
    StageBytes,
    TransformedAnswers,
    Vector,
    Workload,
    Workspace,
    answer_bytes,
    check_published_size,
    check_record_limit,
    gram_squared_bound,
    lapack,
    sensitivity_squared,
    to_array,
)
from dpdist.plugins.streams.step_chains import CHAINS, band_of, chains_squared, number_of_chains, rows_squared_bound

MEASURE_SQUARES, ANSWER_SQUARES = 3, 6
"""Arrays over pairs of steps that measuring and answering hold at once."""


@dataclass(frozen=True)
class TriangularMeasurement(SeriesMeasurement):
    """A lower triangular matrix of whole numbers along one axis of a counted table.

    Attributes:
        factor: (steps, steps) int64.
        shape: of the counted table; ``place`` is the axis of the steps in it.
        axes: the table's attributes.
        spacing: grid unit: the strategy's own entries are spacing times these.
        sensitivity_squared: exact for add-remove; for replace-one exact up to ``Sizes.pair_cells`` steps, beyond them a bound.
        first_steps, first_squared: see ``SeriesMeasurement``.
    """

    factor: Matrix = field(repr=False)
    shape: tuple[int, ...]
    step_axis: int
    axes: tuple[int, ...]
    sensitivity_squared: int
    spacing: float = GRID_UNIT
    norm: Literal["l2"] = "l2"
    form: Form = Form.IN_MEMORY
    first_steps: int | None = None
    first_squared: int | None = None

    @property
    def rows(self) -> int:
        """Number of measured values."""
        return self.steps * self.series

    @property
    def digest(self) -> str:
        """SHA-256 of the whole numbers and of how they are applied."""
        applied = ("triangular", self.shape, self.step_axis, self.axes, self.spacing, self.sensitivity_squared)
        return hashlib.sha256(repr(applied).encode() + np.ascontiguousarray(self.factor).tobytes()).hexdigest()

    def memory(self, workload: Workload, layout: Layout, worker_bytes: int) -> StageBytes:
        square, values = 8 * self.steps**2, MEMORY_COPIES * 8 * (layout.size + 2 * self.rows)
        return StageBytes(values + MEASURE_SQUARES * square, values + ANSWER_SQUARES * square + answer_bytes(workload))

    @property
    def adds_up_steps(self) -> bool:
        return True

    def exact_values(self, counts: Counts, work: Workspace, report_progress: ProgressCallback | None = None) -> Vector:
        """z, all values of a step side by side; sums of up to 2^32 records times 2^30 fit into int64."""
        table = counts.table(self.axes)
        check_record_limit(int(table.sum()))
        by_step = np.moveaxis(table.reshape(self.shape), self.step_axis, 0).reshape(self.steps, self.series)
        return ArrayVector((self.factor @ by_step).ravel())

    @property
    def column_squared(self) -> int:
        return sensitivity_squared(self.factor, Identity(self.steps), "add-remove")

    def total_variance(self, workload: Workload, work: Workspace) -> float:
        return self.series * workload.blocks[0].weight ** 2 * float(np.square(work.largest(self.errors, workload)).sum())

    def errors(self, workload: Workload) -> Matrix:
        """The standard error of every step for noise of deviation 1."""
        factor, (stream_filter,) = self.factor.astype(np.float64), workload.kind.filters
        inverse = lapack.solve_triangular(factor, np.eye(self.steps), lower=True, overwrite_b=True)
        error_rows = np.tril(stream_filter.matvec(inverse))
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", error_rows, error_rows)))

    def transform_answers(
        self, workload: Workload, work: Workspace, measured: Vector, report_progress: ProgressCallback | None = None
    ) -> TransformedAnswers:
        """Answers of all steps, and the error of each."""
        (stream_filter,) = workload.kind.filters
        factor = self.factor.astype(np.float64)
        z = to_array(measured).reshape(self.steps, self.series).astype(np.float64)
        step_answers = stream_filter.matvec(lapack.solve_triangular(factor, z, lower=True))
        answers_and_errors = (step_answers, np.repeat(self.errors(workload)[:, None], self.series, axis=1))
        answers, deviations = (ArrayVector(self._in_order(values)) for values in answers_and_errors)
        return TransformedAnswers(answers, deviations=deviations)

    def _in_order(self, values: Matrix) -> Matrix:
        """Values of steps and series in the order of the queries."""
        other_sizes = tuple(size for i, size in enumerate(self.shape) if i != self.step_axis)
        return np.ascontiguousarray(np.moveaxis(values.reshape(self.steps, *other_sizes), 0, self.step_axis)).ravel()

    def measured_space(self, measured: Vector, shape: tuple[int, ...], most_bytes: int) -> MeasuredSpace:
        check_published_size(self.rows + self.factor.size, most_bytes)
        return self.space_of(MatrixFactor(self.factor), self.steps_first(to_array(measured)), shape)

    @property
    def stream(self) -> TriangularMeasurement:
        return self

    def joint_sensitivity_squared(self, participations: int, separation: int, crossing: Crossing) -> int:
        """Exact for bands of up to two separations, and where all choices of steps can be gone through; else a bound over the gram."""
        if band_of(self.factor) <= 2 * separation:
            return rows_squared_bound(self.factor, participations, separation, crossing)
        if number_of_chains(self.steps, participations, separation) <= CHAINS:
            return chains_squared(self.factor, participations, separation, crossing)
        over_rows = rows_squared_bound(self.factor, participations, separation, crossing)
        return min(over_rows, gram_squared_bound(self.factor, participations, separation))

    @property
    def has_both_signs(self) -> bool:
        """Whether two steps can add values whose product is below zero."""
        return bool((self.factor < 0).any())

    def with_sensitivities(self, whole: int, first_squared: int | None) -> TriangularMeasurement:
        return replace(self, sensitivity_squared=whole, first_squared=first_squared)

    def measurement_of_steps(self, steps: int) -> TriangularMeasurement:
        """The grid of the first steps."""
        return replace(self, factor=self.factor[:steps, :steps], shape=self.shape_of(steps))


def triangular_measurement(
    factor: Matrix,
    shape: tuple[int, ...],
    step_axis: int,
    axes: tuple[int, ...],
    *,
    neighbours: Neighbours,
    most_records: int,
    sizes: Sizes,
    first_steps: int | None = None,
) -> TriangularMeasurement:
    """The integer grid of a lower triangular strategy whose first horizon has unit sensitivity."""
    whole = np.rint(np.tril(factor) / GRID_UNIT).astype(np.int64)
    series = math.prod(shape) // whole.shape[0]
    distance = _distance(whole, series, neighbours, sizes) * most_records**2
    first_squared = None
    if first_steps is not None:
        first_squared = _distance(whole[:first_steps, :first_steps], series, neighbours, sizes) * most_records**2
    return TriangularMeasurement(
        whole, shape, step_axis, axes, distance, first_steps=first_steps, first_squared=first_squared
    )


def _distance(whole: Matrix, series: int, neighbours: Neighbours, sizes: Sizes) -> int:
    """The squared sensitivity to one record, which may change into one of another series where it is replaced."""
    cells = Identity(whole.shape[0])
    distance = sensitivity_squared(whole, cells, neighbours, sizes)
    if neighbours == "replace-one" and series > 1:
        return max(distance, 2 * sensitivity_squared(whole, cells, "add-remove", sizes))
    return distance
