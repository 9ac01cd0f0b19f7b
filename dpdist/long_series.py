"""Filters of a series too long for memory: strategy, exact measurement and answers, each by stored Fourier transforms.

All of it happens around a circle of P steps, a power of two that no filter sees the other end of. The strategy is the Gaussian
optimum there (``strategies.filters``); its taps are rounded to whole numbers once and kept. Measuring is the exact whole
convolution of taps and counts, over limbs whose floating-point convolutions are within 1/8 of a whole number, as in memory
(``arrays.convolution``): the four-step transform has one product with a twiddle more than Percival's bound counts, which its
constant has room for. Answers read the measurement through the filter over the taps, frequency by frequency.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dpdist.arrays.convolution import digits, limb_width, square_of
from dpdist.arrays.vector import Blocks, Vector
from dpdist.arrays.vector import scaled as scaled_vector
from dpdist.arrays.workspace import Workspace
from dpdist.columns import BlocksColumn, Column, batches
from dpdist.engine import Engine, OnDone
from dpdist.errors import StoreError
from dpdist.grids.base import GRID_BITS, Answers, Counts, Reader, Wanted
from dpdist.grids.coefficients import NEGLIGIBLE
from dpdist.grids.stored import LongGrid, StoredCoefficients, StoredRows, circle_of_past
from dpdist.operators import Matrix, Toeplitz
from dpdist.passes import LazyVector, View, size_of
from dpdist.privacy.noise import Noise
from dpdist.store import ArrayPlan, Store, StoredArray
from dpdist.strategies.base import CLOSED_FORM
from dpdist.strategies.filters import pinched_bound
from dpdist.strategies.representations import StoredStrategy
from dpdist.stream import fourier, inverse_fourier, spectrum_shape
from dpdist.workloads import Workload
from dpdist.workloads.kinds import line_of

TRUST = 0.25
"""How far a computed value may be from the whole number it stands for; the bound promises half of that."""


@dataclass(frozen=True)
class Scale:
    """One filter's part of a strategy: its weight, and where its spectrum is."""

    weight: float
    spectrum: StoredArray


def long_convolution(
    store: Store, engine: Engine, workload: Workload, name: str, *, moves: bool = False, on_done: OnDone | None = None
) -> StoredStrategy:
    """The least total error around a circle, for filters of one long series; its taps are stored under ``name`` and kept.

    Args:
        workload: for which ``is_long`` holds.
        moves: whether records may move from step to step: then the farthest they can move z is found, by one more convolution.
    """
    axis, axes, filters = line_of(workload)
    table = tuple(workload.domain.shape[a] for a in axes)
    taps = get_or_compute(store, name, lambda: _find_taps(store, engine, workload, filters, name, on_done))
    facts = taps.facts
    square = sum(engine.map(partial(squares_in, store, taps), parts_of(store, size_of(taps))))
    farthest = _farthest(store, engine, taps, square, filters[0].n, on_done) if moves else None
    deviations = tuple(facts["deviations"])
    place = axes.index(axis)
    kernel = StoredCoefficients(
        "filter", name, taps.content_digest, size_of(taps), 2.0**-GRID_BITS, square, farthest, axes, table, place, deviations
    )
    cost, lower = (kernel.series * facts[which] for which in ("cost", "lower_bound"))
    return StoredStrategy(
        "convolution", StoredRows(kernel), cost, lower or None, CLOSED_FORM, long=kernel, of=LongFilterGrid
    )


def get_or_compute(store: Store, name: str, find: Callable[[], object]) -> StoredArray:
    """An array that is found if it is not there. Of several that find it at once, which may differ in last bits, the first is kept."""
    if not store.exists(name):
        try:
            find()
        except StoreError:
            if not store.exists(name):
                raise
        store.sync(name)
    return store.open(name)


def _farthest(store: Store, engine: Engine, taps: StoredArray, square: int, steps: int, on_done: OnDone | None) -> int:
    """Largest squared distance between what records of two steps add to z, or of one from nothing: from the autocorrelation."""
    around = _exact_around(store, engine, taps, None, size_of(taps), on_done)
    points = size_of(taps)
    ranges = [(1, steps), (points - steps + 1, points)]
    step = store.sizes.part_values
    parts = [(low, min(low + step, stop)) for start, stop in ranges for low in range(start, stop, step)]
    least = min(engine.map(partial(least_in, store, around), parts), default=0)
    store.delete(around.name)
    return max(square, 2 * square - 2 * least)


def least_in(store: Store, source: StoredArray, bounds: tuple[int, int]) -> int:
    """The smallest value of a part."""
    return int(store.read_rows(source, *bounds).min())


def _circle(filters: Sequence[Toeplitz]) -> int:
    """Steps of the circle: a power of two."""
    return 1 << (filters[0].n + max(each.reach for each in filters) - 1).bit_length()


def _find_taps(
    store: Store, engine: Engine, workload: Workload, filters: list[Toeplitz], name: str, on_done: OnDone | None
) -> None:
    points, steps, work = _circle(filters), filters[0].n, store.scratch()
    weights = [block.weight for block in workload.blocks]
    tell = Steps(on_done, len(filters) + 1)
    spectra = [_spectrum(store, engine, each, points, f"{work}/asked-{i}", tell) for i, each in enumerate(filters)]
    scales = [Scale(weight, spectrum) for weight, spectrum in zip(weights, spectra, strict=True)]
    ranges = parts_of(store, size_of(spectra[0]))
    largest = max(engine.map(partial(_largest, store, scales), ranges))
    sums = engine.map(partial(_root_sums, store, scales, points, NEGLIGIBLE * largest), ranges)
    total = math.fsum(part[0] for part in sums)
    # a filter's reading has squares w^2 |H|^2 / (P root / total), summed over all frequencies and divided by P
    deviations = [math.sqrt(math.fsum(part[1 + i] for part in sums) * total) / points for i in range(len(filters))]
    cost = steps * (total / points) ** 2
    lower = cost * (1 - 1e-12) if filters[0].circular else pinched_bound(workload)
    response = LazyVector(
        size_of(spectra[0]),
        tuple(spectra),
        partial(_response, weights, NEGLIGIBLE * largest, points / total),
        16 * (len(spectra) + 4),
        "response",
        {"steps": points},
    )
    facts = {"cost": cost, "lower_bound": lower, "deviations": deviations}
    taps = inverse_fourier(store, engine, response, f"{work}/taps", on_done=tell)
    materialize(store, engine, LazyVector(points, (taps,), _whole_taps, 32, "whole taps"), name, np.int64, facts)
    store.delete(work)


def _spectrum(store: Store, engine: Engine, each: Toeplitz, points: int, name: str, on_done: OnDone | None) -> StoredArray:
    """The Fourier transform of a filter's taps around the circle."""
    taps = LazyVector(points, (), partial(_taps_around, each, points), 3 * 8, f"taps of {each.fingerprint}")
    return fourier(store, engine, taps, name, on_done=on_done)


def _taps_around(each: Toeplitz, points: int, start: int, count: int) -> Matrix:
    return each.around(points, start, start + count)


def _roots(weights: Sequence[float], least: float, spectra: Sequence[Matrix]) -> Matrix:
    """v^1/2 of W'W's eigenvalues v at some frequencies; those that nobody asks for are zero."""
    values = np.zeros(spectra[0].size)
    for weight, part in zip(weights, spectra, strict=True):
        values += weight**2 * (part.real**2 + part.imag**2)
    values[values < least] = 0.0
    return np.sqrt(values)


def _largest(store: Store, scales: list[Scale], bounds: tuple[int, int]) -> float:
    parts = [store.read_rows(scale.spectrum, *bounds) for scale in scales]
    return float(_roots([scale.weight for scale in scales], 0.0, parts).max() ** 2)


def _root_sums(store: Store, scales: list[Scale], points: int, least: float, bounds: tuple[int, int]) -> list[float]:
    """Over some frequencies and their conjugates: the sum of the roots, and of |H|^2 over the roots for every filter."""
    parts = [store.read_rows(scale.spectrum, *bounds) for scale in scales]
    roots = _roots([scale.weight for scale in scales], least, parts)
    times = _multiplicity(points, *bounds)
    asked = roots > 0
    below = np.where(asked, roots, 1.0)
    out = [float(times @ roots)]
    return out + [float((times * np.where(asked, (p.real**2 + p.imag**2) / below, 0.0)).sum()) for p in parts]


def _multiplicity(points: int, start: int, stop: int) -> Matrix:
    """How often the values start..stop of a stored spectrum stand in the whole one: twice, but for k1 = 0 and N1/2."""
    n1, n2 = spectrum_shape(points)
    line = np.arange(start, stop) // n2
    return np.where((line == 0) | (line == n1 // 2), 1.0, 2.0)


def _response(weights: Sequence[float], least: float, factor: float, start: int, count: int, *spectra: Matrix) -> Matrix:
    """The spectrum of the strategy's taps: (P root / total)^1/2."""
    del start, count
    return np.sqrt(factor * _roots(weights, least, spectra)).astype(np.complex128)


def _whole_taps(start: int, count: int, values: Matrix) -> Matrix:
    del start, count
    return np.rint(values * 2.0**GRID_BITS).astype(np.int64)


def parts_of(store: Store, size: int) -> list[tuple[int, int]]:
    """Ranges of a stored vector, one a task of a scan."""
    return list(batches(size, store.sizes.part_values))


def squares_in(store: Store, taps: StoredArray, bounds: tuple[int, int]) -> int:
    """Sum of squares of whole numbers, exact."""
    return square_of(store.read_rows(taps, *bounds))


def long_measurement(
    store: Store, engine: Engine, grid: LongGrid, counts: StoredArray, on_done: OnDone | None = None
) -> StoredArray:
    """z, (series * points,) int64 and exact, without noise, series after series: private. A scratch array that the caller deletes."""
    kernel, work = grid.coefficients, store.scratch()
    taps = taps_of(store, kernel)
    tell = Steps(on_done, kernel.series)
    around = kernel.points if kernel.kind == "filter" else circle_of_past(kernel.steps)
    made = [_exact_around(store, engine, taps, each, around, tell) for each in _series_of(kernel, counts)]
    if len(made) == 1 and around == kernel.points:
        return made[0]
    whole = gathered(store, engine, [made], kernel.points, 1, f"{work}-z", {})
    for each in made:
        store.delete(each.name)
    return whole


def _series_of(kernel: StoredCoefficients, counts: StoredArray) -> list[View]:
    """Every series of a counted table, in C order of the other attributes."""
    after = math.prod(kernel.shape[kernel.place + 1 :])
    firsts = [i * kernel.steps * after + j for i in range(kernel.series // after) for j in range(after)]
    return [View(counts, first, after, kernel.steps) for first in firsts]


Part = StoredArray | View


def _read(store: Store, part: Part, start: int, stop: int) -> Matrix:
    return part.read(store, start, stop) if isinstance(part, View) else store.read_rows(part, start, stop)


def _exact_around(
    store: Store, engine: Engine, left: Part, right: Part | None, points: int, on_done: OnDone | None
) -> StoredArray:
    """The exact convolution of whole numbers around a circle, results within 62 bits; without ``right`` the autocorrelation."""
    work, sides = store.scratch(), [left] if right is None else [left, right]
    facts = [_facts_of(store, engine, each) for each in sides]
    squares: dict[int, list[list[float]]] = {}

    def lengths(width: int) -> tuple[float, float]:
        squares[width] = [_limb_squares(store, engine, each, width) for each in sides]
        found = [sum(map(math.sqrt, each)) for each in squares[width]]
        return found[0], found[-1]

    width = limb_width(max(each.bits for each in facts), points, lengths)
    limbs = [len(each) for each in squares[width]]
    tell = Steps(on_done, sum(limbs) + limbs[0] + limbs[-1] - 1)
    spectra = []
    for number, (each, count) in enumerate(zip(sides, limbs, strict=True)):
        made = [
            LazyVector(points, (each,), partial(_digit, width, i), 8 * (count + 6), f"limb {i} of {width} bits")
            for i in range(count)
        ]
        spectra.append([fourier(store, engine, d, f"{work}/{number}-{i}", on_done=tell) for i, d in enumerate(made)])
    total: StoredArray | None = None
    for shift in range(limbs[0] + limbs[-1] - 1):
        pairs = [(spectra[0][i], spectra[-1][shift - i]) for i in range(limbs[0]) if 0 <= shift - i < limbs[-1]]
        flat = tuple(part for pair in pairs for part in pair)
        multiply = partial(products, right is None)
        product = LazyVector(
            size_of(flat[0]), flat, multiply, 16 * (len(flat) + 3), f"products of limbs {shift}", {"steps": points}
        )
        turn = partial(_accumulated, store, total, width * shift)
        before = total
        total = inverse_fourier(store, engine, product, f"{work}-z{shift}", turn=turn, dtype=np.int64, on_done=tell)
        if before is not None:
            store.delete(before.name)
    assert total is not None
    store.delete(work)
    if (_facts_of(store, engine, total).total - facts[0].total * facts[-1].total) % 2**64:
        raise FloatingPointError("an exact convolution failed its sum check: this processor's arithmetic cannot be trusted")
    return total


def taps_of(store: Store, kernel: StoredCoefficients) -> StoredArray:
    """A strategy's stored numbers: the very ones it was planned with."""
    taps = store.open(kernel.name)
    if taps.content_digest != kernel.digest:
        raise StoreError(f"the stored strategy {kernel.name!r} was changed since it was planned; run again")
    return taps


@dataclass(frozen=True)
class _Facts:
    """Bits of the largest value and its sign, and the sum of all values."""

    bits: int
    total: int


def _facts_of(store: Store, engine: Engine, source: Part) -> _Facts:
    parts = engine.map(partial(_facts_in, store, source), parts_of(store, size_of(source)))
    return _Facts(max(part.bits for part in parts), sum(part.total for part in parts))


def _facts_in(store: Store, source: Part, bounds: tuple[int, int]) -> _Facts:
    values = _read(store, source, *bounds).astype(np.int64, copy=False)
    largest = max(int(values.max(initial=0)), -int(values.min(initial=0)))
    high, low = values >> 32, values & 0xFFFFFFFF
    return _Facts(largest.bit_length() + 1, int(high.sum()) * 2**32 + int(low.sum()))


def _limb_squares(store: Store, engine: Engine, source: Part, width: int) -> list[float]:
    """Squared L2 norm of every limb."""
    parts = engine.map(partial(_limb_squares_in, store, source, width), parts_of(store, size_of(source)))
    longest = max(len(part) for part in parts)
    return [sum(part[i] for part in parts if i < len(part)) for i in range(longest)]


def _limb_squares_in(store: Store, source: Part, width: int, bounds: tuple[int, int]) -> list[float]:
    limbs = digits(_read(store, source, *bounds), width)
    return [float(np.square(limb, dtype=np.float64).sum()) for limb in limbs]


def _digit(width: int, number: int, start: int, count: int, values: Matrix) -> Matrix:
    del start, count
    limbs = digits(values, width)
    return limbs[number].astype(np.float64) if number < len(limbs) else np.zeros(values.size)


def products(reversed_: bool, start: int, count: int, *spectra: Matrix) -> Matrix:
    """Sum of products of pairs of spectra; ``reversed_``: the second series of each runs backwards."""
    del start, count
    out = np.zeros_like(spectra[0])
    for i in range(0, len(spectra), 2):
        out += spectra[i] * (spectra[i + 1].conj() if reversed_ else spectra[i + 1])
    return out


def _accumulated(store: Store, before: StoredArray | None, shift: int, start: int, values: Matrix) -> Matrix:
    """Whole numbers times 2^shift, added to what there is; wrapping on the way cancels, the result fits."""
    whole = np.rint(values)
    if float(np.abs(values - whole).max(initial=0.0)) > TRUST:
        raise FloatingPointError("an exact convolution was not exact: this processor's arithmetic cannot be trusted")
    made = whole.astype(np.int64) << np.int64(shift)
    if before is not None:
        made += store.read_rows(before, start, start + values.size)
    return made


def outside(work: Workspace) -> Any:
    """The workspace as one over a store and an engine: what goes through the store cannot go anywhere else."""
    return work


def stored(vector: Any) -> StoredArray:
    """The array behind a vector of such a workspace."""
    assert isinstance(vector.array, StoredArray)
    return vector.array


class LongFilterGrid(LongGrid):
    """Taps of a filter."""

    def exact(self, counts: Counts, work: Workspace, on_done: OnDone | None = None) -> Vector:
        counts.check(work)
        place = outside(work)
        exact: Vector = place.vector(long_measurement(place.store, place.engine, self, stored(counts.values), on_done))
        return exact

    def reader(self, workload: Workload) -> Reader:
        return LongFilterReader(workload, self)


@dataclass(frozen=True)
class LongFilterReader:
    """Answers of filters around a circle; every one has one standard error."""

    workload: Workload
    grid: LongGrid

    def answers(
        self, measured: Vector, noise: Noise, wanted: Wanted, work: Workspace, on_done: OnDone | None = None
    ) -> Answers:
        place, name = outside(work), wanted.names[0]
        if not place.store.exists(name):
            given = (place.store, place.engine, self.workload, self.grid, stored(measured), noise, name)
            long_answers(*given, on_done)
        return alike_answers(place, self.grid, noise, wanted)


def alike_answers(place: Any, grid: LongGrid, noise: Noise, wanted: Wanted) -> Answers:
    """Stored answers of blocks of queries, each block with one standard error."""
    answers, rows = place.store.open(wanted.names[0]), grid.coefficients.steps * grid.coefficients.series
    wide, added = float(noise.half_width_95(0.0)), 0.5 if wanted.integer else 0.0
    errors = tuple(answers.facts["errors"])
    half = Blocks(tuple(e * wide + added for e in errors), rows)
    return Answers(rounded(place.vector(answers), wanted), Blocks(errors, rows), half)


def rounded(answers: Vector, wanted: Wanted) -> Vector:
    """Stored answers as they are published."""
    return scaled_vector(answers, 1.0, whole=wanted.integer)


@dataclass(frozen=True)
class LongAnswers:
    """Answers of all blocks of queries, one after another, float64, and their standard errors."""

    answers: StoredArray
    errors: Column


def long_answers(
    store: Store,
    engine: Engine,
    workload: Workload,
    grid: LongGrid,
    measured: StoredArray,
    noise: Noise,
    name: str,
    on_done: OnDone | None = None,
) -> LongAnswers:
    """What was measured, read through every filter; stored under ``name`` with the standard errors as its facts."""
    _, _, filters = line_of(workload)
    kernel, points, work = grid.coefficients, grid.coefficients.points, store.scratch()
    tell = Steps(on_done, 1 + kernel.series + (1 + kernel.series) * len(filters))
    in_units = partial(scaled, grid.spacing)

    def spectrum(of: Part, to: str) -> StoredArray:
        vector = LazyVector(points, (of,), in_units, 4 * 8, f"times {grid.spacing}")
        return fourier(store, engine, vector, f"{work}/{to}", on_done=tell)

    given = spectrum(taps_of(store, kernel), "given")
    seen = [spectrum(View(measured, i * points, 1, points), f"seen-{i}") for i in range(kernel.series)]
    read: list[list[StoredArray]] = []
    errors = []
    for i, each in enumerate(filters):
        asked = _spectrum(store, engine, each, points, f"{work}/asked", tell)
        ranges = parts_of(store, size_of(asked))
        largest = max(engine.map(partial(_largest, store, [Scale(1.0, asked)]), ranges))
        least = NEGLIGIBLE * largest
        squares = engine.map(partial(_reading_squares, store, asked, given, points, least), ranges)
        errors.append(math.sqrt(math.fsum(squares) / points) * noise.deviation * grid.spacing)
        through = partial(_read_through, least)
        read.append([])
        for j, one in enumerate(seen):
            reading = LazyVector(size_of(asked), (asked, given, one), through, 16 * 9, "reading", {"steps": points})
            read[-1].append(inverse_fourier(store, engine, reading, f"{work}/answers-{i}-{j}", on_done=tell))
        store.delete(asked.name)
    after = math.prod(kernel.shape[kernel.place + 1 :])
    answers = gathered(store, engine, read, kernel.steps, after, name, {"errors": errors})
    store.delete(work)
    return LongAnswers(answers, BlocksColumn(tuple(errors), kernel.steps * kernel.series))


def scaled(spacing: float, start: int, count: int, values: Matrix) -> Matrix:
    """Stored numbers times a grid unit."""
    del start, count
    return values * spacing


def _reading(least: float, asked: Matrix, given: Matrix) -> Matrix:
    wanted = asked.real**2 + asked.imag**2 > least
    return np.where(wanted, asked / np.where(wanted, given, 1.0), 0.0)


def _reading_squares(
    store: Store, asked: StoredArray, given: StoredArray, points: int, least: float, bounds: tuple[int, int]
) -> float:
    found = _reading(least, store.read_rows(asked, *bounds), store.read_rows(given, *bounds))
    return float(_multiplicity(points, *bounds) @ (found.real**2 + found.imag**2))


def _read_through(least: float, start: int, count: int, asked: Matrix, given: Matrix, seen: Matrix) -> Matrix:
    del start, count
    return _reading(least, asked, given) * seen


def gathered(
    store: Store,
    engine: Engine,
    blocks: list[list[StoredArray]],
    steps: int,
    after: int,
    name: str,
    facts: dict[str, Any],
) -> StoredArray:
    """The first steps of every series of every block, in the order of the block's rows: ``after`` series stand side by side."""
    lanes = [block[i : i + after] for block in blocks for i in range(0, len(block), after)]
    plan = store.plan(name, (len(lanes) * steps * after,), lanes[0][0].plan.dtype)
    store.begin(plan)
    digests = engine.map(partial(_write_gathered, store, plan, lanes, steps), list(range(plan.shards)))
    return store.finish(plan, digests, facts)


def _write_gathered(store: Store, plan: ArrayPlan, lanes: list[list[StoredArray]], steps: int, shard: int) -> str:
    start, stop = plan.bounds(shard)
    rows = []
    for i, lane in enumerate(lanes):
        width = len(lane)
        first, last = max(start - i * steps * width, 0), min(stop - i * steps * width, steps * width)
        if first < last:
            low, high = first // width, -(-last // width)
            side_by_side = np.stack([store.read_rows(part, low, high) for part in lane], axis=1).ravel()
            rows.append(side_by_side[first - low * width : last - low * width])
    return store.write_shard(plan, shard, np.concatenate(rows))


def materialize(
    store: Store, engine: Engine, source: LazyVector, name: str, dtype: type, facts: dict[str, object] | None = None
) -> StoredArray:
    """A derived vector, written down."""
    plan = store.plan(name, (source.size,), dtype)
    store.begin(plan)
    digests = engine.map(partial(_write, store, plan, source), list(range(plan.shards)))
    return store.finish(plan, digests, facts)


def _write(store: Store, plan: ArrayPlan, source: LazyVector, shard: int) -> str:
    return store.write_shard(plan, shard, source.read(store, *plan.bounds(shard)))


class Steps:
    """Tells how far several transforms are, one after another."""

    def __init__(self, on_done: Callable[[int, int], None] | None, transforms: int) -> None:
        self.on_done, self.transforms, self.finished = on_done, transforms, 0

    def __call__(self, done: int, of: int) -> None:
        if self.on_done is not None:
            self.on_done(100 * self.finished + 100 * done // of, 100 * self.transforms)
        if done == of:
            self.finished += 1
