"""Filters on the integer grid: coefficients are rounded once and convolved exactly, so their sensitivity is an exact integer."""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Literal, Self

import numpy as np
import scipy

from dpdist.arrays.array_workspace import MEMORY, ProgressCallback, Workspace
from dpdist.arrays.causal_filters import circle_size, deviations_past, read_causal_filters, reading_of
from dpdist.arrays.circular_filters import read_circular_filters
from dpdist.arrays.convolution import Steps, exact_convolution
from dpdist.arrays.lazy_vector import (
    ArrayVector,
    Vector,
    interleave_vectors,
    repeat_values,
    reverse_circle,
    rows_of,
    scaled,
    slice_vector,
    to_array,
)
from dpdist.arrays.transpose_passes import slab_bytes
from dpdist.domain import Layout
from dpdist.measurement.coefficient_vectors import (
    GRID_UNIT,
    AxisSeries,
    FilterCoefficients,
    Form,
    scale_to_unit,
    smallest_value,
    sum_of_squares,
)
from dpdist.measurement.integer_measurement import (
    MEMORY_COPIES,
    Counts,
    IntegerMeasurement,
    StageBytes,
    answer_bytes,
    check_published_size,
    check_record_limit,
    shard_bytes,
)
from dpdist.measurement.sensitivity.participation import (
    GRAM_STEPS,
    Crossing,
    band_squared,
    falling_squared,
    fitting_participations,
    gram_squared_bound,
    is_falling,
    width_of,
)
from dpdist.measurement.transformed_answers import TransformedAnswers, TransformedMeasurement
from dpdist.operators import Matrix
from dpdist.privacy.accounting import Loss, gaussian_slack
from dpdist.privacy.noise import Noise
from dpdist.reconstruction.axis_factors import CausalFilter, CircularFilter, Factor, IdentityFactor, MatrixFactor
from dpdist.reconstruction.measured_space import MeasuredSpace
from dpdist.reconstruction.product_space import ProductSpace, SpaceTerm
from dpdist.stability import Distance, Neighbours
from dpdist.workloads import Workload


class SeriesMeasurement(AxisSeries, TransformedMeasurement):
    """A measurement of series: all measured values of a step lie side by side.

    Attributes:
        axes: the counted table's attributes.
        first_steps, first_squared: of a stream that was extended, the steps of its first horizon and their sensitivity, which decided
            the noise.
    """

    axes: tuple[int, ...]
    first_steps: int | None
    first_squared: int | None

    @property
    @abstractmethod
    def has_both_signs(self) -> bool:
        """Whether measured values have coefficients of both signs."""

    @abstractmethod
    def measurement_of_steps(self, steps: int) -> Self:
        """The measurement of the first steps."""

    @abstractmethod
    def with_sensitivities(self, whole: int, first_squared: int | None) -> Self:
        """The same integers with the noise of other sensitivities."""

    def with_participations(self, distance: Distance) -> Self:
        """The same integers with the noise for one person in several steps."""
        first_squared = (
            None
            if self.first_steps is None
            else self.measurement_of_steps(self.first_steps).participation_squared(
                distance, has_both_signs=self.has_both_signs
            )
        )
        return self.with_sensitivities(
            self.participation_squared(distance, has_both_signs=self.has_both_signs), first_squared
        )

    def noise(self, budget: Loss) -> Noise:
        """That of the first horizon: what was measured stays as it is."""
        first_horizon = self if self.first_squared is None else self.with_sensitivities(self.first_squared, None)
        return IntegerMeasurement.noise(first_horizon, budget)

    def loss(self, budget: Loss, noise: Noise) -> Loss:
        """What the whole stream reveals: after an extension more than its first horizon, whose loss ``budget`` is."""
        if self.first_squared is None:
            return super().loss(budget, noise)
        rho = round_up_decimal(budget.rho * Fraction(self.sensitivity_squared, self.first_squared))
        return Loss.gaussian(rho, gaussian_slack(self.sensitivity_squared, noise.scale, self.rows))

    @property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        """The attribute set whose table is counted."""
        return (self.axes,)

    @abstractmethod
    def joint_sensitivity_squared(self, participations: int, separation: int, crossing: Crossing) -> int:
        """At most what one record in each of up to so many steps, so far apart, moves the measured values, squared."""

    def participation_squared(self, distance: Distance, *, has_both_signs: bool) -> int:
        """The squared sensitivity to one person in several steps, with up to ``distance.records`` in each.

        Args:
            has_both_signs: whether measured values have coefficients of both signs. Else what two persons add does not cancel, and one who
            is
                replaced by another moves z by no more than both lengths, squared and added.
        """
        assert distance.participations is not None
        max_participations = fitting_participations(distance.participations, distance.separation, self.steps)
        sides = (4 if has_both_signs else 2) if distance.replaced else 1
        crossing = Crossing.ABSOLUTE if distance.signed else Crossing.UNCHANGED if self.series == 1 else Crossing.POSITIVE
        return (
            sides * distance.records**2 * self.joint_sensitivity_squared(max_participations, distance.separation, crossing)
        )

    def steps_of(self, exact: Vector, start: int, stop: int) -> Vector:
        """The measured values of some steps."""
        return slice_vector(exact, start * self.series, 1, (stop - start) * self.series)

    def first_step_counts(self, table: Matrix, stop: int) -> Matrix:
        """The counts of the first steps."""
        return np.take(table.reshape(self.shape), range(stop), axis=self.step_axis)

    def shape_of(self, steps: int) -> tuple[int, ...]:
        """The sizes of the table of the first steps."""
        return tuple(steps if i == self.step_axis else size for i, size in enumerate(self.shape))

    def space_of(self, factor: Factor, values: Matrix, shape: tuple[int, ...]) -> ProductSpace:
        """The measurement of every series by one factor.

        Args:
            values: (measured values of a series, series), or of one series each, (series, values), as a table with the steps' axis
                in its place.
        """
        factors = tuple(factor if i == self.step_axis else IdentityFactor(size) for i, size in enumerate(self.shape))
        return ProductSpace((SpaceTerm(self.axes, factors),), shape, np.ascontiguousarray(values).ravel())

    def steps_first(self, values: Matrix) -> Matrix:
        """Values whose series lie side by side as a table with the steps' axis in its place."""
        other_sizes = tuple(size for i, size in enumerate(self.shape) if i != self.step_axis)
        return np.moveaxis(values.reshape(-1, *other_sizes), 0, self.step_axis)


def round_up_decimal(amount: Fraction) -> Fraction:
    """An amount in decimals of nine digits or more, no less than it: the same wherever it is computed.

    >>> round_up_decimal(Fraction(1, 3))
    Fraction(166666667, 500000000)
    """
    scale = 1
    while amount * scale < 10**8:
        scale *= 10
    return Fraction(math.ceil(amount * scale), scale)


@dataclass(frozen=True)
class FilterMeasurement(SeriesMeasurement):
    """A filter with whole coefficients along one axis of a counted table.

    Attributes:
        coefficients: (points,) int64.
        circular: whether the series is laid on a circle of ``points`` steps; else it filters the past.
        shape: of the counted table; ``place`` is the filter's axis in it.
        axes: the table's attributes.
        spacing: grid unit: the strategy's own are spacing times these.
        sensitivity_squared: exact for add-remove; for replace-one around a circle exact or, held in memory, that of a record that may
            leave; for filters of the past a bound.
        form: the format number.
        name: under which the coefficients are kept in the store.
        first_steps, first_squared: of a stream that was extended, the steps of its first horizon and their sensitivity, which decided
            the noise.
    """

    coefficients: Vector = field(repr=False)
    circular: bool
    shape: tuple[int, ...]
    step_axis: int
    axes: tuple[int, ...]
    spacing: float
    sensitivity_squared: int
    norm: Literal["l2"] = "l2"
    form: Form = Form.IN_MEMORY
    name: str = ""
    first_steps: int | None = None
    first_squared: int | None = None

    @property
    def rows(self) -> int:
        """Number of measured values."""
        return self.coefficients.size * self.series

    @property
    def digest(self) -> str:
        """SHA-256 of the coefficients and of how they are applied."""
        applied = (self.shape, self.step_axis, self.axes, self.spacing, self.sensitivity_squared)
        if self.form is Form.IN_MEMORY:
            coefficient_bytes = np.ascontiguousarray(to_array(self.coefficients)).tobytes()
            return hashlib.sha256(repr((self.circular, *applied)).encode() + coefficient_bytes).hexdigest()
        kind = "filter" if self.circular else "past"
        return hashlib.sha256(repr((kind, self.coefficients.digest, self.coefficients.size, *applied)).encode()).hexdigest()

    def memory(self, workload: Workload, layout: Layout, worker_bytes: int) -> StageBytes:
        if self.form is Form.STORED:
            return StageBytes(shard_bytes(max(layout.size, self.rows)), slab_bytes(worker_bytes, 4 * self.rows))
        # limbs and their spectra
        return StageBytes(MEMORY_COPIES * 8 * (layout.size + 6 * self.rows), answer_bytes(workload))

    @property
    def adds_up_steps(self) -> bool:
        return self.form is not Form.STORED

    def exact_values(self, counts: Counts, work: Workspace, report_progress: ProgressCallback | None = None) -> Vector:
        if self.form is Form.STORED:
            counts.check(work)
            return self._convolve_table(counts.values, work, report_progress)
        table = counts.table(self.axes)
        check_record_limit(
            int(table.sum()), unit_name="records" if counts.layout.shares_per_record == 1 else "steps of all amounts"
        )
        return ArrayVector(self.measure(table))

    def measure(self, table: Matrix) -> Matrix:
        """z for an integer table that is held, (rows,) int64, exact."""
        return to_array(self._convolve_table(ArrayVector(table.reshape(-1)), MEMORY, None))

    def _convolve_table(self, table: Vector, work: Workspace, report_progress: ProgressCallback | None) -> Vector:
        """z of a table: the exact convolution of every series."""
        points = self.coefficients.size
        circle_points = points if self.circular else circle_size(self.steps)
        series = series_of(table, self.shape, self.step_axis, together=work.in_memory)
        progress = Steps(report_progress, len(series))
        if len(series) == 1 and circle_points == points and self.series == 1:
            return exact_convolution(work, self.coefficients, series[0], circle_points, progress)
        with work.scratch() as inner:
            convolved = [exact_convolution(inner, self.coefficients, vector, circle_points, progress) for vector in series]
            return work.write(table_of(convolved, points, self.series if self.form is Form.IN_MEMORY else 1))

    def measured_series(self, measured: Vector, *, together: bool) -> list[Vector]:
        """What was measured of every series."""
        points = self.coefficients.size
        shape, step_axis = ((points, self.series), 0) if self.form is Form.IN_MEMORY else ((self.series, points), 1)
        return series_of(measured, shape, step_axis, together=together)

    @cached_property
    def column_squared(self) -> int | None:
        return sum_of_squares(MEMORY, self.coefficients) if self.form is Form.IN_MEMORY else None

    def total_variance(self, workload: Workload, work: Workspace) -> float:
        """From the coefficients alone: around a circle all steps of a filter have one error, and of the past each has its own."""
        filters, unit_coefficients = workload.kind.filters, scale_to_unit(self.coefficients)
        if self.form is Form.IN_MEMORY:
            work = MEMORY
        with work.scratch() as inner:
            if self.circular:
                errors = [error for _, error in read_circular_filters(inner, unit_coefficients, filters, [])]
                squares = [self.steps * error**2 for error in errors]
            else:
                reading = reading_of(inner, filters[0], unit_coefficients, name=self.reading_name)
                squares = [math.fsum(inner.fold(partial(_over_steps, self.steps), reading))]
        weights = (block.weight for block in workload.blocks)
        return (
            GRID_UNIT**2 * self.series * sum(w**2 * error_square for w, error_square in zip(weights, squares, strict=True))
        )

    @property
    def reading_name(self) -> str | None:
        """Under which what reads a running sum is kept."""
        return f"{self.name}-reading" if self.name else None

    def transform_answers(
        self, workload: Workload, work: Workspace, measured: Vector, report_progress: ProgressCallback | None = None
    ) -> TransformedAnswers:
        """Answers of all filters."""
        filters = workload.kind.filters
        series = [scale_to_unit(vector) for vector in self.measured_series(measured, together=work.in_memory)]
        after, unit_coefficients = math.prod(self.shape[self.step_axis + 1 :]), scale_to_unit(self.coefficients)
        if not self.circular:
            progress = Steps(report_progress, 7 + 2 * len(series))
            reading = reading_of(work, filters[0], unit_coefficients, progress, name=self.reading_name)
            answers = table_of(read_causal_filters(work, reading, series, progress), self.steps, after)
            deviations = scaled(deviations_past(work, reading), GRID_UNIT)
            return TransformedAnswers(answers, deviations=repeat_values(deviations, after, self.series // after))
        progress = Steps(report_progress, 1 + len(series) + (1 + len(series)) * len(filters))
        series_answers, errors = [], []
        for filter_answers, error in read_circular_filters(work, unit_coefficients, filters, series, progress):
            series_answers += filter_answers
            errors.append(error * GRID_UNIT)
        return TransformedAnswers(table_of(series_answers, self.steps, after), tuple(errors))

    def measured_space(self, measured: Vector, shape: tuple[int, ...], most_bytes: int) -> MeasuredSpace:
        """One filter along the steps; a circle of more points than steps as the rows that it has over them."""
        points = self.coefficients.size
        padded = self.circular and points > self.steps
        check_published_size(self.rows + points, most_bytes)
        coefficients, values = to_array(self.coefficients), to_array(measured)
        if self.form is Form.IN_MEMORY:
            table = self.steps_first(values)
        else:
            other_sizes = tuple(size for i, size in enumerate(self.shape) if i != self.step_axis)
            table = np.moveaxis(values.reshape(*other_sizes, points), -1, self.step_axis)
        if padded and 8 * (self.rows + points * self.steps) > most_bytes:
            return self.space_of(CircularFilter(coefficients, self.steps), table, shape)
        if padded:
            lags = (np.arange(points)[:, None] - np.arange(self.steps)[None, :]) % points
            return self.space_of(MatrixFactor(coefficients[lags]), table, shape)
        return self.space_of(CircularFilter(coefficients) if self.circular else CausalFilter(coefficients), table, shape)

    @property
    def stream(self) -> FilterMeasurement | None:
        return None if self.circular or self.form is Form.STORED else self

    def joint_sensitivity_squared(self, participations: int, separation: int, crossing: Crossing) -> int:
        """Exact for coefficients that fall, and for those of a band of up to two separations; else a bound."""
        filter_coefficients = to_array(self.coefficients)
        width = width_of(filter_coefficients)
        if is_falling(filter_coefficients) or width <= separation:
            return falling_squared(filter_coefficients, participations, separation)
        if width <= 2 * separation:
            return band_squared(filter_coefficients, participations, separation, crossing)
        if filter_coefficients.size <= GRAM_STEPS:
            return gram_squared_bound(
                scipy.linalg.toeplitz(filter_coefficients, np.zeros_like(filter_coefficients)), participations, separation
            )
        return participations**2 * sum_of_squares(MEMORY, self.coefficients)

    @property
    def has_both_signs(self) -> bool:
        """Whether coefficients have both signs."""
        return bool((to_array(self.coefficients) < 0).any())

    def with_sensitivities(self, whole: int, first_squared: int | None) -> FilterMeasurement:
        return replace(self, sensitivity_squared=whole, first_squared=first_squared)

    def measurement_of_steps(self, steps: int) -> FilterMeasurement:
        """The measurement of the first steps."""
        return replace(self, coefficients=ArrayVector(self.coefficients.read(0, steps)), shape=self.shape_of(steps))


def _over_steps(steps: int, start: int, reading: Matrix) -> float:
    """The part of some coefficients in the variances of all steps, each of which is read from itself and earlier ones."""
    return float(reading**2 @ np.arange(steps - start, steps - start - reading.size, -1))


def series_of(vector: Vector, shape: tuple[int, ...], axis: int, *, together: bool) -> list[Vector]:
    """The series along an axis of a table, in C order of the other axes; ``together``: as one vector of all."""
    steps, after = shape[axis], math.prod(shape[axis + 1 :])
    if together:
        series = np.moveaxis(to_array(vector).reshape(shape), axis, -1).reshape(-1, steps)
        return [ArrayVector(series[0] if len(series) == 1 else np.ascontiguousarray(series))]
    starts = [i * steps * after + j for i in range(math.prod(shape[:axis])) for j in range(after)]
    return [slice_vector(vector, start, after, steps) for start in starts]


def table_of(series: Sequence[Vector], steps: int, after: int) -> Vector:
    """The first steps of every series, ``after`` of them side by side."""
    rows = [row for vector in series for row in rows_of(vector)]
    return interleave_vectors(tuple(tuple(rows[i : i + after]) for i in range(0, len(rows), after)), steps)


def filter_measurement(coefficients: FilterCoefficients, *, neighbours: Neighbours, most_records: int) -> FilterMeasurement:
    """A filter in whole numbers."""
    whole = coefficients.whole_values
    column = sum_of_squares(coefficients.work, whole)
    distance = column
    if neighbours == "replace-one":
        distance = max(column, _farthest_distance(coefficients, whole, column)) if coefficients.circular else 4 * column
    first_steps, first_squared = coefficients.first_steps, None
    if first_steps is not None:  # a filter of the past that was continued, and held
        first_squared = (
            sum_of_squares(MEMORY, ArrayVector(whole.read(0, first_steps))) * (distance // column) * most_records**2
        )
    return FilterMeasurement(
        whole,
        coefficients.circular,
        coefficients.shape,
        coefficients.step_axis,
        coefficients.axes,
        GRID_UNIT,
        distance * most_records**2,
        form=coefficients.form,
        name=coefficients.name if coefficients.form is Form.STORED else "",
        first_steps=first_steps,
        first_squared=first_squared,
    )


def _farthest_distance(coefficients: FilterCoefficients, whole: Vector, column: int) -> int:
    """Largest squared distance between what records of two steps add to z, from the autocorrelation.

    Those of two series are apart by both lengths; in memory, so they are where there is one series only.
    """
    points, steps = whole.size, min(coefficients.steps, whole.size)
    with coefficients.work.scratch() as work:
        correlation = exact_convolution(work, whole, reverse_circle(whole), points)
        smallest_correlation = smallest_value(work, correlation, [(1, steps), (points - steps + 1, points)])
    has_separate_series = coefficients.form is Form.IN_MEMORY or coefficients.series > 1
    lowest = (
        0 if smallest_correlation is None else min(smallest_correlation, 0) if has_separate_series else smallest_correlation
    )
    return 2 * column - 2 * lowest
