"""Binary attributes on the integer grid: every character is measured with a whole weight, exactly."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from dpdist.arrays.vector import Vector, held
from dpdist.arrays.workspace import OnDone, Workspace
from dpdist.grids.base import GRID_BITS, Answers, Reader, TableGrid, Wanted
from dpdist.grids.estimate import stored_answers
from dpdist.operators import Hadamard, Matrix
from dpdist.privacy.noise import Noise
from dpdist.stability import Neighbours
from dpdist.workloads import Workload
from dpdist.workloads.kinds import dyadic_spectra


@dataclass(frozen=True)
class HadamardGrid(TableGrid):
    """z_i = weight_i (H x)_i for the characters i whose weight is not zero.

    Attributes:
        characters: which rows of H are measured, (p,) int64; ``weights``: their whole weights.
        axes: the binary attributes of the counted table, ascending.
        spacing: grid unit.
        sensitivity_squared: exact: every column of the measured rows has the same length.
    """

    characters: Matrix = field(repr=False)
    weights: Matrix = field(repr=False)
    axes: tuple[int, ...]
    spacing: float
    sensitivity_squared: int
    norm: Literal["l2"] = "l2"

    @property
    def rows(self) -> int:
        """Number of measured values."""
        return int(self.weights.size)

    @property
    def digest(self) -> str:
        """SHA-256 of characters and weights."""
        content = hashlib.sha256(repr(("hadamard", self.axes, self.spacing, self.sensitivity_squared)).encode())
        content.update(np.ascontiguousarray(self.characters).tobytes())
        content.update(np.ascontiguousarray(self.weights).tobytes())
        return content.hexdigest()

    def measure(self, table: Matrix) -> Matrix:
        return np.asarray(self.weights * Hadamard(len(self.axes)).matvec(table.astype(np.int64).ravel())[self.characters])

    def reader(self, workload: Workload) -> Reader:
        return FormulaReader(workload, self)


@dataclass(frozen=True)
class FormulaReader:
    """Every formula from the measured characters."""

    workload: Workload
    grid: HadamardGrid

    def answers(
        self, measured: Vector, noise: Noise, wanted: Wanted, work: Workspace, on_done: OnDone | None = None
    ) -> Answers:
        answer, error = work.largest(self.transformed, held(measured), noise)
        return stored_answers(answer, error, error * noise.half_width_95(0.0), wanted, work)

    def transformed(self, measured: Matrix, noise: Noise) -> tuple[Matrix, Matrix]:
        """Answers of all formulas over binary attributes and their standard errors, both (queries,) float64."""
        transform = Hadamard(len(self.grid.axes))
        answers, errors = [], []
        for spectrum in dyadic_spectra(self.workload):
            reading = np.zeros(transform.n)
            reading[self.grid.characters] = spectrum[self.grid.characters] / self.grid.weights / transform.n
            values = np.zeros(transform.n)
            values[self.grid.characters] = measured
            answers.append(transform.matvec(reading * values))
            errors.append(np.full(transform.n, float(np.linalg.norm(reading)) * noise.deviation))
        return np.concatenate(answers), np.concatenate(errors)


def hadamard_grid(scales: Matrix, axes: tuple[int, ...], *, neighbours: Neighbours, most_records: int) -> HadamardGrid:
    """The integer grid of a strategy over the characters of some attributes, each times its scale."""
    spacing = 2.0**-GRID_BITS  # scales have unit length
    weights = np.rint(scales / spacing).astype(np.int64)
    squares = weights**2
    column = int(squares.sum())
    distance = column
    if neighbours == "replace-one" and weights.size > 1:
        # cells x and y differ by 4 sum of the squares where the characters differ: 2 (all - (H squares)(x + y))
        distance = max(column, 2 * (column - int(Hadamard(len(axes)).matvec(squares)[1:].min())))
    kept = np.flatnonzero(weights)
    return HadamardGrid(kept, weights[kept], axes, spacing, distance * most_records**2)
