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

from dpdist.arrays.array_workspace import MEMORY, OnDone, Workspace
from dpdist.arrays.causal_filters import circle_of_past, deviations_past, read_past, reading_of
from dpdist.arrays.circular_filters import read_around
from dpdist.arrays.convolution import Steps, exact_convolution
from dpdist.arrays.lazy_vector import Held, Interleaved, Repeated, Reversed, Strided, Vector, held, rows_of, scaled
from dpdist.arrays.transpose_passes import slab_bytes
from dpdist.domain import Layout
from dpdist.measurement.coefficient_vectors import UNIT, AlongAxis, FilterCoefficients, Form, in_units, least, square
from dpdist.measurement.integer_measurement import (
    HELD_COPIES,
    Counts,
    Grid,
    StageBytes,
    answer_bytes,
    few_enough,
    shard_bytes,
    small_enough,
)
from dpdist.measurement.sensitivity.participation import (
    GRAM_STEPS,
    Crossing,
    falls,
    fitting,
    squared_at_most,
    squared_of_band,
    squared_of_falling,
    width_of,
)
from dpdist.measurement.transformed_answers import Transformed, TransformedGrid
from dpdist.operators import Matrix
from dpdist.privacy.accounting import Loss, gaussian_slack
from dpdist.privacy.noise import Noise
from dpdist.reconstruction.measured_space import MeasuredSpace
from dpdist.reconstruction.product_space import Cells, Circle, Factor, ListedFactor, OpenTerm, Past, ProductSpace, WideCircle
from dpdist.stability import Distance, Neighbours
from dpdist.workloads import Workload
from dpdist.workloads.workload_kind import filters_of


class SeriesGrid(AlongAxis, TransformedGrid):
    """A grid over series: all measured values of a step lie side by side.

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
    def signs(self) -> bool:
        """Whether measured values have coefficients of both signs."""

    @abstractmethod
    def begun(self, steps: int) -> Self:
        """The grid of the first steps."""

    @abstractmethod
    def with_squares(self, whole: int, first: int | None) -> Self:
        """The same integers with the noise of other sensitivities."""

    def participating(self, distance: Distance) -> Self:
        """The same integers with the noise for one person in several steps."""
        first = None if self.first_steps is None else self.begun(self.first_steps).joint_distance(distance, signs=self.signs)
        return self.with_squares(self.joint_distance(distance, signs=self.signs), first)

    def noise(self, budget: Loss) -> Noise:
        """That of the first horizon: what was measured stays as it is."""
        first = self if self.first_squared is None else self.with_squares(self.first_squared, None)
        return Grid.noise(first, budget)

    def loss(self, budget: Loss, noise: Noise) -> Loss:
        """What the whole stream reveals: after an extension more than its first horizon, whose loss ``budget`` is."""
        if self.first_squared is None:
            return super().loss(budget, noise)
        rho = rounded_up(budget.rho * Fraction(self.sensitivity_squared, self.first_squared))
        return Loss.gaussian(rho, gaussian_slack(self.sensitivity_squared, noise.scale, self.rows))

    @property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        """The attribute set whose table is counted."""
        return (self.axes,)

    @abstractmethod
    def joint_squared(self, participations: int, separation: int, crossing: Crossing) -> int:
        """At most what one record in each of up to so many steps, so far apart, moves the measured values, squared."""

    def joint_distance(self, distance: Distance, *, signs: bool) -> int:
        """The squared sensitivity to one person in several steps, with up to ``distance.records`` in each.

        Args:
            signs: whether measured values have coefficients of both signs. Else what two persons add does not cancel, and one who is
                replaced by another moves z by no more than both lengths, squared and added.
        """
        assert distance.participations is not None
        most = fitting(distance.participations, distance.separation, self.steps)
        sides = (4 if signs else 2) if distance.replaced else 1
        crossing = Crossing.ABSOLUTE if distance.signed else Crossing.AS_IT_IS if self.series == 1 else Crossing.POSITIVE
        return sides * distance.records**2 * self.joint_squared(most, distance.separation, crossing)

    def steps_of(self, exact: Vector, start: int, stop: int) -> Vector:
        """The measured values of some steps."""
        return Strided(exact, start * self.series, 1, (stop - start) * self.series)

    def counted(self, table: Matrix, stop: int) -> Matrix:
        """The counts of the first steps."""
        return np.take(table.reshape(self.shape), range(stop), axis=self.place)

    def shape_of(self, steps: int) -> tuple[int, ...]:
        """The sizes of the table of the first steps."""
        return tuple(steps if i == self.place else size for i, size in enumerate(self.shape))

    def space_of(self, factor: Factor, values: Matrix, shape: tuple[int, ...]) -> ProductSpace:
        """The measurement of every series by one factor.

        Args:
            values: (measured values of a series, series), or of one series each, (series, values), as a table with the steps' axis
                in its place.
        """
        factors = tuple(factor if i == self.place else Cells(size) for i, size in enumerate(self.shape))
        return ProductSpace((OpenTerm(self.axes, factors),), shape, np.ascontiguousarray(values).ravel())

    def steps_first(self, values: Matrix) -> Matrix:
        """Values whose series lie side by side as a table with the steps' axis in its place."""
        others = tuple(size for i, size in enumerate(self.shape) if i != self.place)
        return np.moveaxis(values.reshape(-1, *others), 0, self.place)


def rounded_up(amount: Fraction) -> Fraction:
    """An amount in decimals of nine digits or more, no less than it: the same wherever it is computed.

    >>> rounded_up(Fraction(1, 3))
    Fraction(166666667, 500000000)
    """
    scale = 1
    while amount * scale < 10**8:
        scale *= 10
    return Fraction(math.ceil(amount * scale), scale)


@dataclass(frozen=True)
class FilterGrid(SeriesGrid):
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
    place: int
    axes: tuple[int, ...]
    spacing: float
    sensitivity_squared: int
    norm: Literal["l2"] = "l2"
    form: Form = Form.HELD
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
        applied = (self.shape, self.place, self.axes, self.spacing, self.sensitivity_squared)
        if self.form is Form.HELD:
            listed = np.ascontiguousarray(held(self.coefficients)).tobytes()
            return hashlib.sha256(repr((self.circular, *applied)).encode() + listed).hexdigest()
        kind = "filter" if self.circular else "past"
        return hashlib.sha256(repr((kind, self.coefficients.digest, self.coefficients.size, *applied)).encode()).hexdigest()

    def memory(self, workload: Workload, layout: Layout, worker_bytes: int) -> StageBytes:
        if self.form is Form.STORED:
            return StageBytes(shard_bytes(max(layout.size, self.rows)), slab_bytes(worker_bytes, 4 * self.rows))
        # limbs and their spectra
        return StageBytes(HELD_COPIES * 8 * (layout.size + 6 * self.rows), answer_bytes(workload))

    @property
    def adds_up_steps(self) -> bool:
        return self.form is not Form.STORED

    def exact(self, counts: Counts, work: Workspace, on_done: OnDone | None = None) -> Vector:
        if self.form is Form.STORED:
            counts.check(work)
            return self._convolved(counts.values, work, on_done)
        table = counts.table(self.axes)
        few_enough(int(table.sum()), of="records" if counts.layout.shares_per_record == 1 else "steps of all amounts")
        return Held(self.measure(table))

    def measure(self, table: Matrix) -> Matrix:
        """z for an integer table that is held, (rows,) int64, exact."""
        return held(self._convolved(Held(table.reshape(-1)), MEMORY, None))

    def _convolved(self, table: Vector, work: Workspace, on_done: OnDone | None) -> Vector:
        """z of a table: the exact convolution of every series."""
        points = self.coefficients.size
        around = points if self.circular else circle_of_past(self.steps)
        series = series_of(table, self.shape, self.place, together=work.in_memory)
        tell = Steps(on_done, len(series))
        if len(series) == 1 and around == points and self.series == 1:
            return exact_convolution(work, self.coefficients, series[0], around, tell)
        with work.scratch() as inner:
            made = [exact_convolution(inner, self.coefficients, each, around, tell) for each in series]
            return work.write(table_of(made, points, self.series if self.form is Form.HELD else 1))

    def measured_series(self, measured: Vector, *, together: bool) -> list[Vector]:
        """What was measured of every series."""
        points = self.coefficients.size
        shape, place = ((points, self.series), 0) if self.form is Form.HELD else ((self.series, points), 1)
        return series_of(measured, shape, place, together=together)

    @cached_property
    def column_squared(self) -> int | None:
        return square(MEMORY, self.coefficients) if self.form is Form.HELD else None

    def total_variance(self, workload: Workload, work: Workspace) -> float:
        """From the coefficients alone: around a circle all steps of a filter have one error, and of the past each has its own."""
        filters, given = filters_of(workload), in_units(self.coefficients)
        if self.form is Form.HELD:
            work = MEMORY
        with work.scratch() as inner:
            if self.circular:
                errors = [error for _, error in read_around(inner, given, filters, [])]
                squares = [self.steps * error**2 for error in errors]
            else:
                reading = reading_of(inner, filters[0], given, name=self.reading_name)
                squares = [math.fsum(inner.fold(partial(_over_steps, self.steps), reading))]
        weights = (block.weight for block in workload.blocks)
        return UNIT**2 * self.series * sum(w**2 * each for w, each in zip(weights, squares, strict=True))

    @property
    def reading_name(self) -> str | None:
        """Under which what reads a running sum is kept."""
        return f"{self.name}-reading" if self.name else None

    def transformed(
        self, workload: Workload, work: Workspace, measured: Vector, on_done: OnDone | None = None
    ) -> Transformed:
        """Answers of all filters."""
        filters = filters_of(workload)
        series = [in_units(each) for each in self.measured_series(measured, together=work.in_memory)]
        after, given = math.prod(self.shape[self.place + 1 :]), in_units(self.coefficients)
        if not self.circular:
            tell = Steps(on_done, 7 + 2 * len(series))
            reading = reading_of(work, filters[0], given, tell, name=self.reading_name)
            answers = table_of(read_past(work, reading, series, tell), self.steps, after)
            spread = scaled(deviations_past(work, reading), UNIT)
            return Transformed(answers, spread=Repeated(spread, after, self.series // after))
        tell = Steps(on_done, 1 + len(series) + (1 + len(series)) * len(filters))
        read, errors = [], []
        for found, error in read_around(work, given, filters, series, tell):
            read += found
            errors.append(error * UNIT)
        return Transformed(table_of(read, self.steps, after), tuple(errors))

    def space(self, measured: Vector, shape: tuple[int, ...], most_bytes: int) -> MeasuredSpace:
        """One filter along the steps; a circle of more points than steps as the rows that it has over them."""
        points = self.coefficients.size
        padded = self.circular and points > self.steps
        small_enough(self.rows + points, most_bytes)
        coefficients, values = held(self.coefficients), held(measured)
        if self.form is Form.HELD:
            table = self.steps_first(values)
        else:
            others = tuple(size for i, size in enumerate(self.shape) if i != self.place)
            table = np.moveaxis(values.reshape(*others, points), -1, self.place)
        if padded and 8 * (self.rows + points * self.steps) > most_bytes:
            return self.space_of(WideCircle(coefficients, self.steps), table, shape)
        if padded:
            lags = (np.arange(points)[:, None] - np.arange(self.steps)[None, :]) % points
            return self.space_of(ListedFactor(coefficients[lags]), table, shape)
        return self.space_of(Circle(coefficients) if self.circular else Past(coefficients), table, shape)

    @property
    def stream(self) -> FilterGrid | None:
        return None if self.circular or self.form is Form.STORED else self

    def joint_squared(self, participations: int, separation: int, crossing: Crossing) -> int:
        """Exact for coefficients that fall, and for those of a band of up to two separations; else a bound."""
        listed = held(self.coefficients)
        width = width_of(listed)
        if falls(listed) or width <= separation:
            return squared_of_falling(listed, participations, separation)
        if width <= 2 * separation:
            return squared_of_band(listed, participations, separation, crossing)
        if listed.size <= GRAM_STEPS:
            return squared_at_most(scipy.linalg.toeplitz(listed, np.zeros_like(listed)), participations, separation)
        return participations**2 * square(MEMORY, self.coefficients)

    @property
    def signs(self) -> bool:
        """Whether coefficients have both signs."""
        return bool((held(self.coefficients) < 0).any())

    def with_squares(self, whole: int, first: int | None) -> FilterGrid:
        return replace(self, sensitivity_squared=whole, first_squared=first)

    def begun(self, steps: int) -> FilterGrid:
        """The grid of the first steps."""
        return replace(self, coefficients=Held(self.coefficients.read(0, steps)), shape=self.shape_of(steps))


def _over_steps(steps: int, start: int, reading: Matrix) -> float:
    """The part of some coefficients in the variances of all steps, each of which is read from itself and earlier ones."""
    return float(reading**2 @ np.arange(steps - start, steps - start - reading.size, -1))


def series_of(vector: Vector, shape: tuple[int, ...], place: int, *, together: bool) -> list[Vector]:
    """The series along an axis of a table, in C order of the other axes; ``together``: as one vector of all."""
    steps, after = shape[place], math.prod(shape[place + 1 :])
    if together:
        series = np.moveaxis(held(vector).reshape(shape), place, -1).reshape(-1, steps)
        return [Held(series[0] if len(series) == 1 else np.ascontiguousarray(series))]
    firsts = [i * steps * after + j for i in range(math.prod(shape[:place])) for j in range(after)]
    return [Strided(vector, first, after, steps) for first in firsts]


def table_of(series: Sequence[Vector], steps: int, after: int) -> Vector:
    """The first steps of every series, ``after`` of them side by side."""
    each = [row for vector in series for row in rows_of(vector)]
    return Interleaved(tuple(tuple(each[i : i + after]) for i in range(0, len(each), after)), steps)


def filter_grid(coefficients: FilterCoefficients, *, neighbours: Neighbours, most_records: int) -> FilterGrid:
    """The integer grid of a filter."""
    whole = coefficients.whole
    column = square(coefficients.work, whole)
    distance = column
    if neighbours == "replace-one":
        distance = max(column, _farthest(coefficients, whole, column)) if coefficients.circular else 4 * column
    first, begun = coefficients.first_steps, None
    if first is not None:  # a filter of the past that was continued, and held
        begun = square(MEMORY, Held(whole.read(0, first))) * (distance // column) * most_records**2
    return FilterGrid(
        whole,
        coefficients.circular,
        coefficients.shape,
        coefficients.place,
        coefficients.axes,
        UNIT,
        distance * most_records**2,
        form=coefficients.form,
        name=coefficients.name if coefficients.form is Form.STORED else "",
        first_steps=first,
        first_squared=begun,
    )


def _farthest(coefficients: FilterCoefficients, whole: Vector, column: int) -> int:
    """Largest squared distance between what records of two steps add to z, from the autocorrelation.

    Those of two series are apart by both lengths; in memory, so they are where there is one series only.
    """
    points, steps = whole.size, min(coefficients.steps, whole.size)
    with coefficients.work.scratch() as work:
        around = exact_convolution(work, whole, Reversed(whole), points)
        found = least(work, around, [(1, steps), (points - steps + 1, points)])
    apart = coefficients.form is Form.HELD or coefficients.series > 1
    lowest = 0 if found is None else min(found, 0) if apart else found
    return 2 * column - 2 * lowest
