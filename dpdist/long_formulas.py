"""Formulas over more binary attributes than memory holds cells for: weights of characters, measurement and answers by stored
Hadamard transforms, which are products of two smaller ones and exact on whole numbers (``stream.kronecker_matvec``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpdist.arrays.vector import Vector
from dpdist.arrays.workspace import Workspace
from dpdist.columns import BlocksColumn
from dpdist.engine import Engine, OnDone
from dpdist.grids.base import GRID_BITS, Answers, Counts, Reader, Wanted
from dpdist.grids.coefficients import NEGLIGIBLE
from dpdist.grids.stored import LongGrid, StoredCoefficients, StoredRows
from dpdist.long_series import (
    LongAnswers,
    alike_answers,
    gathered,
    get_or_compute,
    least_in,
    materialize,
    outside,
    parts_of,
    squares_in,
    stored,
    taps_of,
)
from dpdist.operators import Dyadic, Hadamard, Kronecker, Matrix
from dpdist.passes import LazyVector, Source, size_of
from dpdist.privacy.noise import Noise
from dpdist.store import Store, StoredArray
from dpdist.strategies.base import CLOSED_FORM
from dpdist.strategies.representations import StoredStrategy
from dpdist.stream import kronecker_matvec
from dpdist.workloads import Workload


def long_characters(
    store: Store, engine: Engine, workload: Workload, name: str, *, moves: bool = False, on_done: OnDone | None = None
) -> StoredStrategy:
    """The optimum over Z_2^d for formulas over the same attributes; the characters' weights are stored under ``name`` and kept.

    Args:
        moves: whether records may move from cell to cell: then the farthest they can move z is found, by one more transform.
    """
    axes = workload.blocks[0].axes
    cells = 2 ** len(axes)
    weights = get_or_compute(store, name, lambda: _find_weights(store, engine, workload, name, on_done))
    facts = weights.facts
    square = sum(engine.map(partial(squares_in, store, weights), parts_of(store, cells)))
    farthest = _farthest(store, engine, weights, square, on_done) if moves else None
    deviations = tuple(facts["deviations"])
    kernel = StoredCoefficients(
        "characters",
        name,
        weights.content_digest,
        cells,
        2.0**-GRID_BITS,
        square,
        farthest,
        axes,
        (2,) * len(axes),
        0,
        deviations,
    )
    cost = facts["cost"]
    lower = cost * (1 - 1e-12)
    return StoredStrategy("convolution", StoredRows(kernel), cost, lower, CLOSED_FORM, long=kernel, of=LongCharacterGrid)


def _hadamard(
    store: Store, engine: Engine, source: Source, name: str, on_done: OnDone | None, *, kind: type = np.int64
) -> StoredArray:
    bits = size_of(source).bit_length() - 1
    halves = Kronecker([Hadamard(bits // 2), Hadamard(bits - bits // 2)])
    return kronecker_matvec(store, engine, halves, source, name, kind=kind, on_done=on_done)


def _spectra(store: Store, engine: Engine, workload: Workload, work: str, on_done: OnDone | None) -> list[StoredArray]:
    """Eigenvalues of every formula, whole."""
    out = []
    for number, block in enumerate(workload.blocks):
        formula = block.factors[0]
        assert isinstance(formula, Dyadic)
        truth = LazyVector(formula.n, (), partial(_truth, formula), 24, f"truth of {formula.fingerprint}")
        out.append(_hadamard(store, engine, truth, f"{work}/asked-{number}", on_done))
    return out


def _truth(formula: Dyadic, start: int, count: int) -> Matrix:
    return formula.entries.read(start, start + count).astype(np.int64)


def _find_weights(store: Store, engine: Engine, workload: Workload, name: str, on_done: OnDone | None) -> None:
    cells, work = 2 ** len(workload.blocks[0].axes), store.scratch()
    spectra = _spectra(store, engine, workload, work, on_done)
    factors = [block.weight for block in workload.blocks]
    largest = max(engine.map(partial(_largest, store, factors, spectra), parts_of(store, cells)))
    least = NEGLIGIBLE * largest
    sums = engine.map(partial(_root_sums, store, factors, spectra, least), parts_of(store, cells))
    total = math.fsum(part[0] for part in sums)
    deviations = [math.sqrt(math.fsum(part[1 + i] for part in sums) * total) / cells for i in range(len(spectra))]
    whole = partial(_whole_weights, factors, least, total)
    made = LazyVector(cells, tuple(spectra), whole, 8 * (len(spectra) + 4), "weights")
    materialize(store, engine, made, name, np.int64, {"cost": total**2 / cells, "deviations": deviations})
    store.delete(work)


def _roots(factors: Sequence[float], least: float, spectra: Sequence[Matrix]) -> Matrix:
    values = np.zeros(spectra[0].size)
    for factor, part in zip(factors, spectra, strict=True):
        values += (factor * part) ** 2
    values[values < least] = 0.0
    return np.sqrt(values)


def _largest(store: Store, factors: list[float], spectra: list[StoredArray], bounds: tuple[int, int]) -> float:
    return float(_roots(factors, 0.0, [store.read_rows(s, *bounds) for s in spectra]).max() ** 2)


def _root_sums(
    store: Store, factors: list[float], spectra: list[StoredArray], least: float, bounds: tuple[int, int]
) -> list[float]:
    """The sum of the roots, and of each formula's squared eigenvalues over the roots."""
    parts = [store.read_rows(s, *bounds) for s in spectra]
    roots = _roots(factors, least, parts)
    asked = roots > 0
    below = np.where(asked, roots, 1.0)
    return [float(roots.sum()), *(float(np.where(asked, part.astype(float) ** 2 / below, 0.0).sum()) for part in parts)]


def _whole_weights(factors: Sequence[float], least: float, total: float, start: int, count: int, *spectra: Matrix) -> Matrix:
    del start, count
    return np.rint(np.sqrt(_roots(factors, least, spectra) / total) * 2.0**GRID_BITS).astype(np.int64)


def _farthest(store: Store, engine: Engine, weights: StoredArray, square: int, on_done: OnDone | None) -> int:
    """Cells x and y differ by 2 (all - (H squares)(x + y)): squares sum to 2^60, so their transform is exact."""
    cells, work = size_of(weights), store.scratch()
    squares = LazyVector(cells, (weights,), _squared, 24, "squares")
    turned = _hadamard(store, engine, squares, f"{work}/turned", on_done)
    parts = [(max(1, start), stop) for start, stop in parts_of(store, cells)]
    least = min(engine.map(partial(least_in, store, turned), parts))
    store.delete(work)
    return max(square, 2 * (square - least))


def _squared(start: int, count: int, values: Matrix) -> Matrix:
    del start, count
    return values * values


class LongCharacterGrid(LongGrid):
    """Weights of characters."""

    def exact(self, counts: Counts, work: Workspace, on_done: OnDone | None = None) -> Vector:
        counts.check(work)
        place = outside(work)
        exact: Vector = place.vector(formula_measurement(place.store, place.engine, self, stored(counts.values), on_done))
        return exact

    def reader(self, workload: Workload) -> Reader:
        return LongFormulaReader(workload, self)


@dataclass(frozen=True)
class LongFormulaReader:
    """Answers of formulas; every one has one standard error."""

    workload: Workload
    grid: LongGrid

    def answers(
        self, measured: Vector, noise: Noise, wanted: Wanted, work: Workspace, on_done: OnDone | None = None
    ) -> Answers:
        place, name = outside(work), wanted.names[0]
        if not place.store.exists(name):
            given = (place.store, place.engine, self.workload, self.grid, stored(measured), noise, name)
            long_formula_answers(*given, on_done)
        return alike_answers(place, self.grid, noise, wanted)


def formula_measurement(
    store: Store, engine: Engine, grid: LongGrid, counts: StoredArray, on_done: OnDone | None = None
) -> StoredArray:
    """z, (cells,) int64 and exact, without noise: private. A scratch array that the caller deletes."""
    work = store.scratch()
    turned = _hadamard(store, engine, counts, f"{work}/turned", on_done)
    weighted = LazyVector(grid.rows, (taps_of(store, grid.coefficients), turned), _product, 32, "weighted")
    exact = materialize(store, engine, weighted, f"{work}-z", np.int64)
    store.delete(work)
    return exact


def _product(start: int, count: int, weights: Matrix, turned: Matrix) -> Matrix:
    del start, count
    return weights * turned


def long_formula_answers(
    store: Store,
    engine: Engine,
    workload: Workload,
    grid: LongGrid,
    measured: StoredArray,
    noise: Noise,
    name: str,
    on_done: OnDone | None = None,
) -> LongAnswers:
    """Answers of every formula from the measured characters; stored under ``name`` with the standard errors as its facts."""
    work, cells = store.scratch(), grid.rows
    weights = taps_of(store, grid.coefficients)
    read, errors = [], []
    for number, asked in enumerate(_spectra(store, engine, workload, work, on_done)):
        squares = engine.map(partial(_reading_squares, store, asked, weights, cells), parts_of(store, cells))
        errors.append(math.sqrt(math.fsum(squares)) * noise.deviation)
        parts = LazyVector(cells, (asked, weights, measured), partial(_read, cells), 64, "reading")
        read.append([_hadamard(store, engine, parts, f"{work}/answers-{number}", on_done, kind=np.float64)])
        store.delete(asked.name)
    answers = gathered(store, engine, read, cells, 1, name, {"errors": errors})
    store.delete(work)
    return LongAnswers(answers, BlocksColumn(tuple(errors), cells))


def _reading(cells: int, asked: Matrix, weights: Matrix) -> Matrix:
    return np.where(weights != 0, asked / np.where(weights != 0, weights, 1), 0.0) / cells


def _reading_squares(store: Store, asked: StoredArray, weights: StoredArray, cells: int, bounds: tuple[int, int]) -> float:
    found = _reading(cells, store.read_rows(asked, *bounds), store.read_rows(weights, *bounds))
    return float(found @ found)


def _read(cells: int, start: int, count: int, asked: Matrix, weights: Matrix, measured: Matrix) -> Matrix:
    del start, count
    return _reading(cells, asked, weights) * measured
