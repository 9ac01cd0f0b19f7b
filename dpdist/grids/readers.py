"""Readers of measurements whose rows are held: one estimate of everything, the cells themselves, or every query by itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from dpdist.arrays.vector import Constant, Vector, scaled
from dpdist.arrays.workspace import OnDone, Workspace
from dpdist.grids.answers import Answers, Wanted
from dpdist.grids.base import Grid
from dpdist.operators import Matrix
from dpdist.privacy.noise import Noise
from dpdist.workloads import Workload


@dataclass(frozen=True)
class EstimateReader:
    """Answers from one estimate of everything that is asked."""

    workload: Workload
    grid: Grid

    def answers(
        self, measured: Vector, noise: Noise, wanted: Wanted, work: Workspace, on_done: OnDone | None = None
    ) -> Answers:
        """Least squares, then every query by itself."""
        return self.grid.estimate(self.workload, measured, noise, (), work).answers(wanted, work, on_done)


@dataclass(frozen=True)
class CellReader:
    """The measured cells are the answers: they are read from the measurement as they are needed, and nothing is written twice."""

    spacing: float

    def answers(
        self, measured: Vector, noise: Noise, wanted: Wanted, work: Workspace, on_done: OnDone | None = None
    ) -> Answers:
        """The cells with one standard error."""
        error = noise.deviation * self.spacing
        half = error * float(noise.half_width_95(1.0)) + (0.5 if wanted.integer else 0.0)
        size = measured.size
        return Answers(scaled(measured, self.spacing, whole=wanted.integer), Constant(error, size), Constant(half, size))


@dataclass(frozen=True)
class DirectReader:
    """Every query is measured by itself: its answer is measured * spacing / unit.

    Attributes:
        units: spacing * M of each query.
    """

    workload: Workload
    spacing: float
    units: Matrix = field(repr=False)

    def answers(
        self, measured: Vector, noise: Noise, wanted: Wanted, work: Workspace, on_done: OnDone | None = None
    ) -> Answers:
        """Each measurement in the unit of its query."""
        task = partial(_in_units, measured, self.spacing, self.units, noise, wanted.integer)
        queries = measured.size
        return Answers(*work.fill(wanted.names, queries, max(1, min(DIRECT_ROWS, queries)), task, on_done))


DIRECT_ROWS = 2**22
"""Queries that a task of ``DirectReader`` answers."""


def _in_units(
    measured: Vector, spacing: float, units: Matrix, noise: Noise, integer: bool, start: int, stop: int
) -> list[Matrix]:
    errors = noise.deviation * spacing / units[start:stop]
    answers, half = measured.read(start, stop) * spacing / units[start:stop], errors * noise.half_width_95(1.0)
    return [np.rint(answers), errors, half + 0.5] if integer else [answers, errors, half]
