"""Filters of a series too long for memory: strategy, exact measurement and answers, each by stored Fourier transforms.

All of it happens around a circle of P steps, a power of two that no filter sees the other end of. The strategy is the Gaussian
optimum there (``strategies.convolution``); its taps are rounded to whole numbers once and kept. Measuring is the exact whole
convolution of taps and counts, over limbs whose floating-point convolutions are within 1/8 of a whole number, as in memory
(``strategies.kernel_grid``): the four-step transform has one product with a twiddle more than Percival's bound counts, which its
constant has room for. Answers read the measurement through the filter over the taps, frequency by frequency.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dpdist.columns import batches
from dpdist.engine import Engine, OnDone
from dpdist.operators import Matrix, Toeplitz
from dpdist.passes import Derived, size_of
from dpdist.privacy.noise import Noise
from dpdist.store import Store, StoredArray
from dpdist.strategies.base import CLOSED_FORM, Strategy
from dpdist.strategies.convolution import NEGLIGIBLE, line_of, pinched_bound
from dpdist.strategies.kernel import LongKernel, StoredRing
from dpdist.strategies.kernel_grid import LongKernelGrid, digits, limb_width, square_of
from dpdist.strategies.lattice import GRID_BITS
from dpdist.stream import fourier, inverse_fourier, spectrum_shape
from dpdist.workloads import Workload

PART = 2**21
"""Values that a task of a scan reads at a time."""
TRUST = 0.25
"""How far a computed value may be from the whole number it stands for; the bound promises half of that."""


@dataclass(frozen=True)
class Scale:
    """One filter's part of a strategy: its weight, and where its spectrum is."""

    weight: float
    spectrum: StoredArray


def long_convolution(store: Store, engine: Engine, workload: Workload, name: str, on_done: OnDone | None = None) -> Strategy:
    """The least total error around a circle, for filters of one long series; its taps are stored under ``name`` and kept.

    Args:
        workload: for which ``is_long`` holds.
    """
    axis, _, filters = line_of(workload)
    if not store.exists(name):
        _find_taps(store, engine, workload, filters, name, on_done)
    taps = store.open(name)
    facts = taps.facts
    square = sum(engine.map(partial(_squares, store, taps), _ranges(size_of(taps))))
    kernel = LongKernel(
        name, taps.digest, size_of(taps), 2.0**-GRID_BITS, square, filters[0].n, axis, tuple(facts["deviations"])
    )
    return Strategy("convolution", StoredRing(kernel), facts["cost"], facts["lower_bound"] or None, CLOSED_FORM, long=kernel)


def _circle(filters: Sequence[Toeplitz]) -> int:
    """Steps of the circle: a power of two."""
    return 1 << (filters[0].n + max(each.reach for each in filters) - 1).bit_length()


def _find_taps(
    store: Store, engine: Engine, workload: Workload, filters: list[Toeplitz], name: str, on_done: OnDone | None
) -> None:
    points, steps, work = _circle(filters), filters[0].n, store.scratch()
    weights = [block.weight for block in workload.blocks]
    tell = _Steps(on_done, len(filters) + 1)
    spectra = [_spectrum(store, engine, each, points, f"{work}/asked-{i}", tell) for i, each in enumerate(filters)]
    scales = [Scale(weight, spectrum) for weight, spectrum in zip(weights, spectra, strict=True)]
    ranges = _ranges(size_of(spectra[0]))
    largest = max(engine.map(partial(_largest, store, scales), ranges))
    sums = engine.map(partial(_root_sums, store, scales, points, NEGLIGIBLE * largest), ranges)
    total = math.fsum(part[0] for part in sums)
    # a filter's reading has squares w^2 |H|^2 / (P root / total), summed over all frequencies and divided by P
    deviations = [math.sqrt(math.fsum(part[1 + i] for part in sums) * total) / points for i in range(len(filters))]
    cost = steps * (total / points) ** 2
    lower = cost * (1 - 1e-12) if filters[0].circular else pinched_bound(workload)
    response = Derived(
        size_of(spectra[0]),
        tuple(spectra),
        partial(_response, weights, NEGLIGIBLE * largest, points / total),
        "response",
        {"steps": points},
    )
    facts = {"cost": cost, "lower_bound": lower, "deviations": deviations}
    inverse_fourier(store, engine, response, name, turn=_whole_taps, dtype=np.int64, facts=facts, on_done=tell)
    store.delete(work)


def _spectrum(store: Store, engine: Engine, each: Toeplitz, points: int, name: str, on_done: OnDone | None) -> StoredArray:
    """The Fourier transform of a filter's taps around the circle."""
    taps = Derived(points, (), partial(_taps_around, each, points), f"taps of {each.fingerprint}")
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


def _whole_taps(start: int, values: Matrix) -> Matrix:
    del start
    return np.rint(values * 2.0**GRID_BITS).astype(np.int64)


def _ranges(size: int) -> list[tuple[int, int]]:
    return list(batches(size, PART))


def _squares(store: Store, taps: StoredArray, bounds: tuple[int, int]) -> int:
    return square_of(store.read_rows(taps, *bounds))


def long_measurement(
    store: Store, engine: Engine, grid: LongKernelGrid, counts: StoredArray, on_done: OnDone | None = None
) -> StoredArray:
    """z, (points,) int64 and exact, without noise: private. A scratch array that the caller deletes."""
    taps = _taps_of(store, grid.kernel)
    work, points = store.scratch(), grid.kernel.points
    facts = [_facts_of(store, engine, each) for each in (taps, counts)]

    def lengths(width: int) -> tuple[float, float]:
        first, second = (sum(map(math.sqrt, _limb_squares(store, engine, each, width))) for each in (taps, counts))
        return first, second

    width = limb_width(max(facts[0].bits, facts[1].bits), points, lengths)
    left, right = (-(-each.bits // width) for each in facts)
    tell = _Steps(on_done, 2 * (left + right) - 1)
    spectra = []
    for side, each, limbs in (("taps", taps, left), ("counts", counts, right)):
        made = [Derived(points, (each,), partial(_digit, width, i), f"limb {i} of {width} bits") for i in range(limbs)]
        spectra.append([fourier(store, engine, d, f"{work}/{side}-{i}", on_done=tell) for i, d in enumerate(made)])
    total: StoredArray | None = None
    for shift in range(left + right - 1):
        pairs = [(spectra[0][i], spectra[1][shift - i]) for i in range(left) if 0 <= shift - i < right]
        flat = tuple(part for pair in pairs for part in pair)
        product = Derived(size_of(flat[0]), flat, _products, f"products of limbs {shift}", {"steps": points})
        turn = partial(_accumulated, store, total, width * shift)
        before = total
        total = inverse_fourier(store, engine, product, f"{work}-z{shift}", turn=turn, dtype=np.int64, on_done=tell)
        if before is not None:
            store.delete(before.name)
    assert total is not None
    store.delete(work)
    if (_facts_of(store, engine, total).total - facts[0].total * facts[1].total) % 2**64:
        raise FloatingPointError("an exact convolution failed its sum check: this processor's arithmetic cannot be trusted")
    return total


def _taps_of(store: Store, kernel: LongKernel) -> StoredArray:
    taps = store.open(kernel.name)
    assert taps.digest == kernel.digest
    return taps


@dataclass(frozen=True)
class _Facts:
    """Bits of the largest value and its sign, and the sum of all values."""

    bits: int
    total: int


def _facts_of(store: Store, engine: Engine, source: StoredArray) -> _Facts:
    parts = engine.map(partial(_facts_in, store, source), _ranges(size_of(source)))
    return _Facts(max(part.bits for part in parts), sum(part.total for part in parts))


def _facts_in(store: Store, source: StoredArray, bounds: tuple[int, int]) -> _Facts:
    values = store.read_rows(source, *bounds).astype(np.int64, copy=False)
    largest = max(int(values.max(initial=0)), -int(values.min(initial=0)))
    high, low = values >> 32, values & 0xFFFFFFFF
    return _Facts(largest.bit_length() + 1, int(high.sum()) * 2**32 + int(low.sum()))


def _limb_squares(store: Store, engine: Engine, source: StoredArray, width: int) -> list[float]:
    """Squared L2 norm of every limb."""
    parts = engine.map(partial(_limb_squares_in, store, source, width), _ranges(size_of(source)))
    longest = max(len(part) for part in parts)
    return [sum(part[i] for part in parts if i < len(part)) for i in range(longest)]


def _limb_squares_in(store: Store, source: StoredArray, width: int, bounds: tuple[int, int]) -> list[float]:
    limbs = digits(store.read_rows(source, *bounds), width)
    return [float(np.square(limb, dtype=np.float64).sum()) for limb in limbs]


def _digit(width: int, number: int, start: int, count: int, values: Matrix) -> Matrix:
    del start, count
    limbs = digits(values, width)
    return limbs[number].astype(np.float64) if number < len(limbs) else np.zeros(values.size)


def _products(start: int, count: int, *spectra: Matrix) -> Matrix:
    del start, count
    out = spectra[0] * spectra[1]
    for i in range(2, len(spectra), 2):
        out += spectra[i] * spectra[i + 1]
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


@dataclass(frozen=True)
class LongAnswers:
    """Answers of all filters, (filters * steps,) float64, and every filter's standard error."""

    answers: StoredArray
    errors: tuple[float, ...]


def long_answers(
    store: Store,
    engine: Engine,
    workload: Workload,
    grid: LongKernelGrid,
    measured: StoredArray,
    noise: Noise,
    name: str,
    on_done: OnDone | None = None,
) -> LongAnswers:
    """What was measured, read through every filter; stored under ``name`` with the standard errors as its facts."""
    _, _, filters = line_of(workload)
    points, work = grid.kernel.points, store.scratch()
    tell = _Steps(on_done, 2 + 2 * len(filters))
    scaled = partial(_scaled, grid.spacing)
    given, seen = (
        fourier(store, engine, Derived(points, (each,), scaled, f"times {grid.spacing}"), f"{work}/{what}", on_done=tell)
        for what, each in (("given", _taps_of(store, grid.kernel)), ("seen", measured))
    )
    read, errors = [], []
    for i, each in enumerate(filters):
        asked = _spectrum(store, engine, each, points, f"{work}/asked", tell)
        ranges = _ranges(size_of(asked))
        largest = max(engine.map(partial(_largest, store, [Scale(1.0, asked)]), ranges))
        least = NEGLIGIBLE * largest
        squares = engine.map(partial(_reading_squares, store, asked, given, points, least), ranges)
        errors.append(math.sqrt(math.fsum(squares) / points) * noise.deviation * grid.spacing)
        reading = Derived(size_of(asked), (asked, given, seen), partial(_read, least), "reading", {"steps": points})
        read.append(inverse_fourier(store, engine, reading, f"{work}/answers-{i}", on_done=tell))
        store.delete(asked.name)
    answers = _gathered(store, engine, read, grid.kernel.steps, name, {"errors": errors})
    store.delete(work)
    return LongAnswers(answers, tuple(errors))


def _scaled(spacing: float, start: int, count: int, values: Matrix) -> Matrix:
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


def _read(least: float, start: int, count: int, asked: Matrix, given: Matrix, seen: Matrix) -> Matrix:
    del start, count
    return _reading(least, asked, given) * seen


def _gathered(
    store: Store, engine: Engine, parts: list[StoredArray], steps: int, name: str, facts: dict[str, Any]
) -> StoredArray:
    """The first steps of every part, one part after another."""
    plan = store.plan(name, (len(parts) * steps,), np.float64)
    store.begin(plan)
    digests = engine.map(partial(_write_gathered, store, plan, parts, steps), list(range(plan.shards)))
    return store.finish(plan, digests, facts)


def _write_gathered(store: Store, plan: Any, parts: list[StoredArray], steps: int, shard: int) -> str:
    start, stop = plan.bounds(shard)
    rows = []
    for i, part in enumerate(parts):
        first, last = max(start - i * steps, 0), min(stop - i * steps, steps)
        if first < last:
            rows.append(store.read_rows(part, first, last))
    return store.write_shard(plan, shard, np.concatenate(rows))


class _Steps:
    """Tells how far several transforms are, one after another."""

    def __init__(self, on_done: Callable[[int, int], None] | None, transforms: int) -> None:
        self.on_done, self.transforms, self.finished = on_done, transforms, 0

    def __call__(self, done: int, of: int) -> None:
        if self.on_done is not None:
            self.on_done(100 * self.finished + 100 * done // of, 100 * self.transforms)
        if done == of:
            self.finished += 1
