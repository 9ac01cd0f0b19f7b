"""Measuring and reading over plain arrays, for tests that look at single grids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpdist.arrays.array_workspace import InMemory
from dpdist.arrays.lazy_vector import ArrayVector, Vector, to_array
from dpdist.domain import Layout
from dpdist.engine import Engine
from dpdist.measurement.coefficient_vectors import FilterCoefficients, Form
from dpdist.measurement.dense_measurement import DenseMeasurement
from dpdist.measurement.filter_measurement import FilterMeasurement
from dpdist.measurement.hadamard_measurement import HadamardMeasurement
from dpdist.measurement.integer_measurement import IntegerMeasurement
from dpdist.measurement.term_measurement import TermMeasurement
from dpdist.measurement.term_reconstruction import block_answers, inverses_of, read_terms
from dpdist.measurement.transformed_answers import TransformedMeasurement
from dpdist.operators import Matrix
from dpdist.pipeline.measure import exact_measurement
from dpdist.privacy.noise import Noise
from dpdist.reconstruction.answer_vectors import AnswerRequest
from dpdist.reconstruction.least_squares import LeastSquares
from dpdist.runtime.stored_vectors import StoreWorkspace
from dpdist.storage.array_store import Store, StoredArray
from dpdist.workloads import Block, Workload


def measured(
    store: Store, engine: Engine, grid: IntegerMeasurement, counts: StoredArray, layout: Layout | None = None
) -> Matrix:
    """z without noise, held."""
    work = StoreWorkspace(store, engine)
    return to_array(exact_measurement(work, store, grid, counts, layout or Layout(counts.plan.shape)))


def errors_of(planned: Any, draws: int) -> Matrix:
    """What the noise of so many releases makes of their answers, (draws, queries): measured on the grid, read as answers are."""
    grid, rows = planned.measurement, planned.measurement.rows
    out = []
    for number in range(draws):
        z = planned.noise.draw(number.to_bytes(32, "big"), start=0, count=rows)
        wanted = AnswerRequest("answers", Remembering())
        out.append(to_array(grid.answers(planned.workload, ArrayVector(z), planned.noise, wanted).answer))
    return np.array(out)


class Direct:
    """Answers of a direct grid, query by query."""

    def __init__(self, workload: Workload, grid: DenseMeasurement) -> None:
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


def of_block(grid: TermMeasurement, block: Block, z: Matrix, noise: Noise) -> tuple[Matrix, Matrix]:
    """Answers of a block of queries and their standard errors, from a grid over tables."""
    inverses = inverses_of(grid.terms, grid.directions)
    return block_answers(block, read_terms(grid.terms, inverses, z, noise), grid.directions)


def filtered_answers(workload: Workload, grid: FilterMeasurement, z: Matrix, noise: Noise) -> tuple[Matrix, Matrix]:
    """Answers of filters and their standard errors."""
    return _transformed(workload, grid, z, noise)


def formula_answers(workload: Workload, grid: HadamardMeasurement, z: Matrix, noise: Noise) -> tuple[Matrix, Matrix]:
    """Answers of formulas and their standard errors."""
    return _transformed(workload, grid, z, noise)


def _transformed(workload: Workload, grid: TransformedMeasurement, z: Matrix, noise: Noise) -> tuple[Matrix, Matrix]:
    found = grid.answers(workload, ArrayVector(np.asarray(z)), noise, AnswerRequest("answers", Remembering()))
    return to_array(found.answer), to_array(found.error)


class Remembering(InMemory):
    """A workspace in memory that keeps what has a name."""

    def __init__(self) -> None:
        self.named: dict[str, tuple[Vector, Mapping[str, Any]]] = {}

    def write(self, vector: Vector, name: str | None = None, facts: Mapping[str, Any] | None = None) -> Vector:
        made = super().write(vector)
        return made if name is None else self.named.setdefault(name, (made, facts or {}))[0]

    def find_vector(self, name: str) -> tuple[Vector, Mapping[str, Any]] | None:
        return self.named.get(name)


def filter_of(values: Matrix, shape: tuple[int, ...], *, circular: bool, place: int = 0) -> FilterCoefficients:
    """A strategy that is one filter over a table of all attributes, held."""
    axes = tuple(range(len(shape)))
    return FilterCoefficients(ArrayVector(values), axes, shape, Form.IN_MEMORY, (), circular=circular, step_axis=place)
