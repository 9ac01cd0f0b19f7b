"""Measuring and reading over plain arrays, for tests that look at single grids."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpdist.arrays.vector import held
from dpdist.domain import Layout
from dpdist.engine import Engine
from dpdist.grids.base import Grid
from dpdist.grids.characters import FormulaReader, HadamardGrid
from dpdist.grids.dense import DenseGrid
from dpdist.grids.estimate import LeastSquares
from dpdist.grids.filters import FilterGrid, FilterReader
from dpdist.grids.term_grid import TermGrid
from dpdist.grids.term_reader import TermReader, inverses_of
from dpdist.operators import Matrix
from dpdist.privacy.noise import Noise
from dpdist.release.exact import exact_measurement
from dpdist.release.workspace import StoreWorkspace
from dpdist.store import Store, StoredArray
from dpdist.workloads import Block, Workload


def measured(store: Store, engine: Engine, grid: Grid, counts: StoredArray, layout: Layout | None = None) -> Matrix:
    """z without noise, held."""
    work = StoreWorkspace(store, engine)
    return held(exact_measurement(work, store, grid, counts, layout or Layout(counts.plan.shape)))


class Direct:
    """Answers of a direct grid, query by query."""

    def __init__(self, workload: Workload, grid: DenseGrid) -> None:
        self.unit = grid.mixing * grid.spacing if grid.mixing.ndim == 1 else workload.weights
        self.spacing = grid.spacing

    def estimate(self, z: Matrix) -> Matrix:
        return z * self.spacing

    def answers(self, start: int, stop: int, estimate: Matrix, noise: Noise) -> tuple[Matrix, Matrix, Matrix]:
        errors = noise.deviation * self.spacing / self.unit[start:stop]
        return estimate[start:stop] / self.unit[start:stop], errors, errors * noise.half_width_95(1.0)


def reader_of(workload: Workload, grid: Any, *, direct: bool) -> LeastSquares | Direct:
    """Estimates and answers of a dense grid."""
    return Direct(workload, grid) if direct else grid.least_squares(workload)


def of_block(workload: Workload, grid: TermGrid, block: Block, z: Matrix, noise: Noise) -> tuple[Matrix, Matrix]:
    """Answers of a block of queries and their standard errors, from a grid over tables."""
    return TermReader(workload, grid).of_block(block, inverses_of(grid), z, noise)


def filtered_answers(workload: Workload, grid: FilterGrid, z: Matrix, noise: Noise) -> tuple[Matrix, Matrix]:
    """Answers of filters and their standard errors."""
    return FilterReader(workload, grid).filtered(np.asarray(z), noise)


def formula_answers(workload: Workload, grid: HadamardGrid, z: Matrix, noise: Noise) -> tuple[Matrix, Matrix]:
    """Answers of formulas and their standard errors."""
    return FormulaReader(workload, grid).transformed(np.asarray(z), noise)
