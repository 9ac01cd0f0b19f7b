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

from dpdist.arrays.array_workspace import MEMORY, OnDone, Workspace
from dpdist.arrays.kronecker_transform import hadamard
from dpdist.arrays.lazy_vector import Held, Interleaved, LazyVector, Vector, held
from dpdist.arrays.transpose_passes import slab_bytes
from dpdist.domain import Layout
from dpdist.measurement.coefficient_vectors import UNIT, Coefficients, Form, least, square
from dpdist.measurement.integer_measurement import (
    HELD_COPIES,
    Counts,
    StageBytes,
    answer_bytes,
    few_enough,
    shard_bytes,
    small_enough,
)
from dpdist.measurement.transformed_answers import Transformed, TransformedGrid
from dpdist.operators import Dyadic, Matrix
from dpdist.reconstruction.measured_space import MeasuredSpace
from dpdist.reconstruction.row_space import RowSpace
from dpdist.stability import Neighbours
from dpdist.workloads import Workload

WHOLE = np.dtype(np.int64)


@dataclass(frozen=True)
class CharacterGrid(TransformedGrid):
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
    form: Form = Form.HELD

    @property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        """The attribute set whose table is counted."""
        return (self.axes,)

    @property
    def characters(self) -> Matrix:
        """Which ones are measured in memory, (p,) int64."""
        return np.flatnonzero(held(self.weights))

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
        content.update(np.ascontiguousarray(held(self.weights)[self.characters]).tobytes())
        return content.hexdigest()

    def memory(self, workload: Workload, layout: Layout, worker_bytes: int) -> StageBytes:
        if self.form is Form.STORED:
            return StageBytes(
                shard_bytes(max(layout.size, self.rows)), slab_bytes(worker_bytes, max(layout.size, self.rows))
            )
        return StageBytes(HELD_COPIES * 8 * (layout.size + 6 * self.rows), answer_bytes(workload))

    def exact(self, counts: Counts, work: Workspace, on_done: OnDone | None = None) -> Vector:
        if self.form is Form.STORED:
            counts.check(work)
            return self._weighted(counts.values, work, on_done)
        table = counts.table(self.axes)
        few_enough(int(table.sum()))
        return Held(self.measure(table))

    def measure(self, table: Matrix) -> Matrix:
        """z for an integer table that is held, (rows,) int64, exact."""
        return held(self._weighted(Held(table.astype(np.int64).ravel()), MEMORY, None))[self.characters]

    def _weighted(self, table: Vector, work: Workspace, on_done: OnDone | None) -> Vector:
        with work.scratch() as inner:
            turned = hadamard(inner, table, on_done=on_done)
            return work.write(LazyVector(self.weights.size, (self.weights, turned), _product, 32, "weighted", WHOLE))

    def space(self, measured: Vector, shape: tuple[int, ...], most_bytes: int) -> MeasuredSpace:
        """The measured characters as rows over all cells."""
        cells = math.prod(shape)
        small_enough(self.rows * (cells + 2), most_bytes)
        signs = scipy.linalg.hadamard(self.weights.size, dtype=np.int64)
        sizes = [2 if axis in self.axes else 1 for axis in range(len(shape))]
        kept = self.characters
        rows = np.broadcast_to(signs[kept].reshape(-1, *sizes), (kept.size, *shape)).reshape(kept.size, cells)
        values = held(measured) if self.form is Form.HELD else held(measured)[kept]
        return RowSpace(held(self.weights)[kept], rows, shape, values)

    @cached_property
    def column_squared(self) -> int | None:
        return square(MEMORY, self.weights) if self.form is Form.HELD else None

    def total_variance(self, workload: Workload, work: Workspace) -> float:
        """Of every formula by what is read from each character."""
        total, cells = 0.0, self.weights.size
        with work.scratch() as inner:
            for block, asked in zip(workload.blocks, spectra_of(inner, workload), strict=True):
                squares = inner.fold(partial(_reading_squares, cells), asked, self.weights)
                total += block.weight**2 * cells * math.fsum(squares)
                inner.delete(asked)
        return total

    def transformed(
        self, workload: Workload, work: Workspace, measured: Vector, on_done: OnDone | None = None
    ) -> Transformed:
        """Answers of all formulas over binary attributes."""
        weights, cells = self.weights, self.weights.size
        if self.form is Form.HELD:
            whole = np.zeros(cells)
            whole[self.characters] = held(measured)
            measured = Held(whole)
        read, errors = [], []
        for asked in spectra_of(work, workload, on_done):
            squares = work.fold(partial(_reading_squares, cells), asked, weights)
            errors.append(math.sqrt(math.fsum(squares)))
            parts = LazyVector(cells, (asked, weights, measured), partial(_read, cells), 64, "reading")
            read.append((hadamard(work, parts, kind=np.float64, on_done=on_done),))
            work.delete(asked)
        return Transformed(Interleaved(tuple(read), cells), tuple(errors))


def _product(start: int, count: int, weights: Matrix, turned: Matrix) -> Matrix:
    return weights * turned


def spectra_of(work: Workspace, workload: Workload, on_done: OnDone | None = None) -> Iterator[Vector]:
    """Eigenvalues of every formula, whole where the formula is."""
    for block in workload.blocks:
        formula = block.factors[0]
        assert isinstance(formula, Dyadic)
        kind = WHOLE if formula.integral else np.dtype(np.float64)
        yield hadamard(work, formula.entries, kind=kind, on_done=on_done)


def _reading(cells: int, asked: Matrix, weights: Matrix) -> Matrix:
    return np.where(weights != 0, asked / np.where(weights != 0, weights, 1), 0.0) / cells


def _reading_squares(cells: int, start: int, asked: Matrix, weights: Matrix) -> float:
    found = _reading(cells, asked, weights)
    return float(found @ found)


def _read(cells: int, start: int, count: int, asked: Matrix, weights: Matrix, measured: Matrix) -> Matrix:
    return _reading(cells, asked, weights) * measured


def character_grid(coefficients: Coefficients, *, neighbours: Neighbours, most_records: int) -> CharacterGrid:
    """The integer grid of a strategy over the characters of some attributes, each times its scale."""
    weights, work = coefficients.whole, coefficients.work
    column = square(work, weights)
    distance = column
    if neighbours == "replace-one" and weights.size > 1:
        # cells x and y differ by 4 sum of the squares where the characters differ: 2 (all - (H squares)(x + y))
        with work.scratch() as inner:
            turned = hadamard(inner, LazyVector(weights.size, (weights,), _squared, 24, "squares", WHOLE))
            lowest = least(inner, turned, [(1, weights.size)])
        assert lowest is not None
        distance = max(column, 2 * (column - lowest))
    return CharacterGrid(weights, coefficients.axes, UNIT, distance * most_records**2, form=coefficients.form)


def _squared(start: int, count: int, values: Matrix) -> Matrix:
    return values * values
