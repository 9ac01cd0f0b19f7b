"""Measuring and reading over plain arrays, for tests that look at single grids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpdist.arrays.array_workspace import InMemory
from dpdist.arrays.lazy_vector import Held, Vector, held
from dpdist.domain import Layout
from dpdist.engine import Engine
from dpdist.measurement.coefficient_vectors import FilterCoefficients, Form
from dpdist.measurement.dense_measurement import DenseGrid
from dpdist.measurement.filter_measurement import FilterGrid
from dpdist.measurement.hadamard_measurement import CharacterGrid
from dpdist.measurement.integer_measurement import Grid
from dpdist.measurement.term_measurement import TermGrid
from dpdist.measurement.term_reconstruction import block_answers, inverses_of, parts_of
from dpdist.measurement.transformed_answers import TransformedGrid
from dpdist.operators import Matrix
from dpdist.pipeline.measure import exact_measurement
from dpdist.privacy.noise import Noise
from dpdist.reconstruction.answer_vectors import Wanted
from dpdist.reconstruction.least_squares import LeastSquares
from dpdist.runtime.stored_vectors import StoreWorkspace
from dpdist.storage.array_store import Store, StoredArray
from dpdist.workloads import Block, Workload


def measured(store: Store, engine: Engine, grid: Grid, counts: StoredArray, layout: Layout | None = None) -> Matrix:
    """z without noise, held."""
    work = StoreWorkspace(store, engine)
    return held(exact_measurement(work, store, grid, counts, layout or Layout(counts.plan.shape)))


def errors_of(planned: Any, draws: int) -> Matrix:
    """What the noise of so many releases makes of their answers, (draws, queries): measured on the grid, read as answers are."""
    grid, rows = planned.grid, planned.grid.rows
    wanted, out = Wanted("answers", False), []
    for number in range(draws):
        z = planned.noise.draw(number.to_bytes(32, "big"), start=0, count=rows)
        out.append(held(grid.answers(planned.workload, Held(z), planned.noise, wanted, Remembering()).answer))
    return np.array(out)


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


def of_block(grid: TermGrid, block: Block, z: Matrix, noise: Noise) -> tuple[Matrix, Matrix]:
    """Answers of a block of queries and their standard errors, from a grid over tables."""
    terms = grid.measured_terms
    return block_answers(block, parts_of(terms, inverses_of(terms), z, noise), terms.directions)


def filtered_answers(workload: Workload, grid: FilterGrid, z: Matrix, noise: Noise) -> tuple[Matrix, Matrix]:
    """Answers of filters and their standard errors."""
    return _transformed(workload, grid, z, noise)


def formula_answers(workload: Workload, grid: CharacterGrid, z: Matrix, noise: Noise) -> tuple[Matrix, Matrix]:
    """Answers of formulas and their standard errors."""
    return _transformed(workload, grid, z, noise)


def _transformed(workload: Workload, grid: TransformedGrid, z: Matrix, noise: Noise) -> tuple[Matrix, Matrix]:
    found = grid.answers(workload, Held(np.asarray(z)), noise, Wanted("answers", False), Remembering())
    return held(found.answer), held(found.error)


class Remembering(InMemory):
    """A workspace in memory that keeps what has a name."""

    def __init__(self) -> None:
        self.named: dict[str, tuple[Vector, Mapping[str, Any]]] = {}

    def write(self, vector: Vector, name: str | None = None, facts: Mapping[str, Any] | None = None) -> Vector:
        made = super().write(vector)
        return made if name is None else self.named.setdefault(name, (made, facts or {}))[0]

    def kept(self, name: str) -> tuple[Vector, Mapping[str, Any]] | None:
        return self.named.get(name)


def filter_of(values: Matrix, shape: tuple[int, ...], *, circular: bool, place: int = 0) -> FilterCoefficients:
    """A strategy that is one filter over a table of all attributes, held."""
    axes = tuple(range(len(shape)))
    return FilterCoefficients(Held(values), axes, shape, Form.HELD, (), circular=circular, place=place)
