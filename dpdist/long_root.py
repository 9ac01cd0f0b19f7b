"""The square root of a running sum over a series too long for memory: measured with one half, read with the other.

The taps are the binomial coefficients b of (1 - x)^-1/2, scaled to unit length c b and rounded to whole numbers t once. What reads
them, g with t * g = 1, 1, 1, ..., begins at b / c, which is off by the rounding of t alone; one step of Newton's iteration,
g + (1 - t g) (1 - x)^1/2 / c, leaves the square of that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpdist.arrays.vector import LazyVector as LazyValues
from dpdist.arrays.vector import Repeated, Vector
from dpdist.arrays.vector import scaled as scaled_vector
from dpdist.arrays.workspace import Workspace
from dpdist.engine import Engine, OnDone
from dpdist.grids.base import GRID_BITS, Answers, Reader, Wanted
from dpdist.grids.stored import LongGrid, StoredCoefficients, StoredRows, circle_of_past
from dpdist.long_series import (
    LongAnswers,
    LongFilterGrid,
    Steps,
    gathered,
    get_or_compute,
    materialize,
    outside,
    parts_of,
    products,
    rounded,
    scaled,
    squares_in,
    stored,
    taps_of,
)
from dpdist.operators import Matrix
from dpdist.passes import LazyVector, View, size_of
from dpdist.privacy.noise import Noise
from dpdist.store import Store, StoredArray
from dpdist.strategies.base import CLOSED_FORM
from dpdist.strategies.representations import StoredStrategy
from dpdist.stream import fourier, inverse_fourier
from dpdist.workloads import Workload
from dpdist.workloads.kinds import line_of

LISTED = 2**12
"""Coefficients up to here are multiplied up; later ones follow from a series in 1 / k, to the last bit."""


def binomials(start: int, stop: int) -> Matrix:
    """Coefficients of (1 - x)^-1/2, (2 k over k) / 4^k, for k = start..stop."""
    k = np.arange(max(start, LISTED), stop, dtype=np.float64)
    falling = 1 - 1 / (8 * k) + 1 / (128 * k**2) + 5 / (1024 * k**3) - 21 / (32768 * k**4)
    later = falling / np.sqrt(np.pi * k)
    if start >= LISTED:
        return later
    first = np.arange(1.0, LISTED)
    listed = np.cumprod(np.concatenate([[1.0], (2 * first - 1) / (2 * first)]))
    return np.concatenate([listed[start:stop], later])


def long_square_root(
    store: Store, engine: Engine, workload: Workload, name: str, *, moves: bool = False, on_done: OnDone | None = None
) -> StoredStrategy:
    """The running sum as the product of two equal filters; taps and reading are stored under ``name`` and kept.

    Args:
        workload: of a running sum over a long series.
        moves: changes nothing: for records that move the bound of twice the length holds.
    """
    del moves
    axis, axes, (each,) = line_of(workload)
    table = tuple(workload.domain.shape[a] for a in axes)
    n, weight = each.n, workload.blocks[0].weight * abs(float(each.entries.read(0, 1)[0]))
    sums = engine.map(partial(_sums, n), parts_of(store, n))
    length = math.sqrt(math.fsum(part[0] for part in sums))
    root = LazyVector(n, (), partial(_whole_taps, length), 40, "root")
    taps = get_or_compute(store, name, lambda: materialize(store, engine, root, name, np.int64))
    reading = f"{name}-reading"
    get_or_compute(store, reading, lambda: _find_reading(store, engine, taps, length, reading, on_done))
    square = sum(engine.map(partial(squares_in, store, taps), parts_of(store, n)))
    place, spacing = axes.index(axis), 2.0**-GRID_BITS
    kernel = StoredCoefficients(
        "past", name, taps.content_digest, n, spacing, square, None, axes, table, place, (weight * length**2,)
    )
    cost = weight**2 * kernel.series * length**2 * math.fsum(part[1] for part in sums)
    return StoredStrategy("square-root", StoredRows(kernel), cost, None, CLOSED_FORM, long=kernel, of=LongRootGrid)


def _sums(n: int, bounds: tuple[int, int]) -> tuple[float, float]:
    """Sum of b_k^2, and of b_k^2 (n - k)."""
    squares = binomials(*bounds) ** 2
    return float(squares.sum()), float(squares @ (n - np.arange(*bounds)))


def _whole_taps(length: float, start: int, count: int) -> Matrix:
    return np.rint(binomials(start, start + count) / length * 2.0**GRID_BITS).astype(np.int64)


def _find_reading(store: Store, engine: Engine, taps: StoredArray, length: float, name: str, on_done: OnDone | None) -> None:
    n, work = size_of(taps), store.scratch()
    points, tell = circle_of_past(n), Steps(on_done, 6)

    def turned(vector: LazyVector, to: str) -> StoredArray:
        return fourier(store, engine, vector, f"{work}/{to}", on_done=tell)

    def convolved(left: StoredArray, right: StoredArray, to: str) -> StoredArray:
        parts = LazyVector(size_of(left), (left, right), partial(products, False), 16 * 5, "product", {"steps": points})
        return inverse_fourier(store, engine, parts, f"{work}/{to}", on_done=tell)

    first = turned(LazyVector(points, (), partial(_padded, n, partial(_half, length)), 40, "b / c"), "first")
    rounded = turned(LazyVector(points, (taps,), partial(scaled, 2.0**-GRID_BITS), 32, "t"), "taps")
    product = convolved(rounded, first, "product")
    missing = LazyVector(points, (View(product, 0, 1, n),), partial(_missing, n), 40, "1 - t g")
    inverse = turned(LazyVector(points, (), partial(_padded, n, partial(_inverse_half, length)), 40, "1 / (c b)"), "inverse")
    correction = convolved(turned(missing, "missing"), inverse, "correction")
    reading = LazyVector(n, (View(correction, 0, 1, n),), partial(_corrected, length), 40, "reading")
    materialize(store, engine, reading, name, np.float64)
    store.delete(work)


def _half(length: float, start: int, stop: int) -> Matrix:
    return binomials(start, stop) * length


def _inverse_half(length: float, start: int, stop: int) -> Matrix:
    """Coefficients of (1 - x)^1/2 / c."""
    return np.asarray(binomials(start, stop) / (1.0 - 2.0 * np.arange(start, stop)) * length)


def _padded(n: int, make: partial[Matrix], start: int, count: int) -> Matrix:
    """``make`` up to n, then zeros."""
    end = min(start + count, n)
    made = make(start, end) if start < end else np.zeros(0)
    return np.pad(made, (0, count - made.size))


def _missing(n: int, start: int, count: int, product: Matrix) -> Matrix:
    return np.where(np.arange(start, start + count) < n, 1.0 - product, 0.0)


def _corrected(length: float, start: int, count: int, correction: Matrix) -> Matrix:
    return _half(length, start, start + count) + correction


class LongRootGrid(LongFilterGrid):
    """Taps of the square root of a running sum."""

    def reader(self, workload: Workload) -> Reader:
        return LongRootReader(workload, self)


@dataclass(frozen=True)
class LongRootReader:
    """Answers of a running sum; every step has a standard error of its own."""

    workload: Workload
    grid: LongGrid

    def answers(
        self, measured: Vector, noise: Noise, wanted: Wanted, work: Workspace, on_done: OnDone | None = None
    ) -> Answers:
        place, name = outside(work), wanted.names[0]
        if not place.store.exists(name):
            given = (place.store, place.engine, self.workload, self.grid, stored(measured), noise, name)
            long_root_answers(*given, on_done)
        error = errors_beside(place.store, self.grid.coefficients, name)
        half = scaled_vector(error, float(noise.half_width_95(0.0)), 0.5 if wanted.integer else 0.0)
        return Answers(rounded(place.vector(place.store.open(name)), wanted), error, half)


def long_root_answers(
    store: Store,
    engine: Engine,
    workload: Workload,
    grid: LongGrid,
    measured: StoredArray,
    noise: Noise,
    name: str,
    on_done: OnDone | None = None,
) -> LongAnswers:
    """What was measured, filtered by the other half; the standard error of every step stands beside the answers."""
    (each,) = line_of(workload)[2]
    kernel, work = grid.coefficients, store.scratch()
    n, points, value = kernel.steps, circle_of_past(kernel.steps), float(each.entries.read(0, 1)[0])
    tell = Steps(on_done, 1 + 2 * kernel.series)
    taps_of(store, kernel)
    reading = store.open(f"{kernel.name}-reading")
    half = LazyVector(points, (reading,), partial(scaled, grid.spacing * value), 32, "reading")
    spectrum = fourier(store, engine, half, f"{work}/reading", on_done=tell)
    read = []
    for i in range(kernel.series):
        seen = LazyVector(points, (View(measured, i * n, 1, n),), partial(scaled, 1.0), 32, "seen")
        turned = fourier(store, engine, seen, f"{work}/seen-{i}", on_done=tell)
        parts = LazyVector(
            size_of(turned), (turned, spectrum), partial(products, False), 16 * 5, "product", {"steps": points}
        )
        read.append(inverse_fourier(store, engine, parts, f"{work}/answers-{i}", on_done=tell))
    sums = engine.map(partial(_squared, store, reading), parts_of(store, n))
    before = np.concatenate([[0.0], np.cumsum(sums)])
    unit = abs(value) * noise.deviation * grid.spacing
    spread = LazyVector(n, (reading,), partial(_deviations, parts_of(store, n), before, store, reading, unit), 40, "errors")
    materialize(store, engine, spread, f"{name}-errors", np.float64)
    after = math.prod(kernel.shape[kernel.place + 1 :])
    answers = gathered(store, engine, [read], n, after, name, {})
    store.delete(work)
    return LongAnswers(answers, errors_beside(store, kernel, name))


def errors_beside(store: Store, kernel: StoredCoefficients, name: str) -> Repeated:
    """The standard errors of answers that are stored under a name."""
    after = math.prod(kernel.shape[kernel.place + 1 :])
    array = store.open(f"{name}-errors")
    errors = LazyValues(array.plan.shape[0], (), partial(_rows, store, array), 8, array.digest)
    return Repeated(errors, after, kernel.series // after)


def _rows(store: Store, array: StoredArray, start: int, count: int) -> Matrix:
    return store.read_rows(array, start, start + count)


def _squared(store: Store, reading: StoredArray, bounds: tuple[int, int]) -> float:
    values = store.read_rows(reading, *bounds)
    return float(values @ values)


def _deviations(
    ranges: list[tuple[int, int]],
    before: Matrix,
    store: Store,
    reading: StoredArray,
    unit: float,
    start: int,
    count: int,
    values: Matrix,
) -> Matrix:
    """unit (g_0^2 + ... + g_k^2)^1/2: sums up to the range that ``start`` lies in are known."""
    number = start // (ranges[0][1] - ranges[0][0])
    low = ranges[number][0]
    head = before[number] + (float(np.square(store.read_rows(reading, low, start)).sum()) if low < start else 0.0)
    return np.asarray(unit * np.sqrt(head + np.cumsum(values**2)))
