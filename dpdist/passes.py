"""Passes over a stored matrix that is too large for memory: by row slabs, then by column slabs, and so on.

The first pass reads row slabs in the order they are stored and writes what it makes of them in tiles; the next one gathers the
tiles of some columns, and so on. Each tile is an object of one writer, each target shard has one, so tasks may run twice and
anywhere.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.engine import Engine, OnDone
from dpdist.errors import OutOfMemory
from dpdist.leases import RECORD
from dpdist.sizes import SIZES
from dpdist.store import ArrayPlan, Store, StoredArray

Array = NDArray[Any]

SLAB_BYTES = 512 * 2**20
"""What a slab may take at most, with its working copies, whatever the workers have."""
MEMORY_SHARE = 3
"""A task's slab with its copies is at most this part of a worker's memory: the rest is for reading and writing."""


LARGEST_SHARD = 2 * SIZES.shard_bytes
"""A target's shard at most, if a line is no larger: who reads some rows reads their shards whole."""


@dataclass(frozen=True)
class Side:
    """One pass.

    Attributes:
        lines: rows (or columns) that it treats, one by one.
        apply: called with the number of the first line of a slab and the slab. The first pass gets (lines, width), a later one what
            was gathered, (lines, lines of the pass before, ...). It returns (lines of the next pass, lines of the slab, ...); the
            last pass returns one array a target.
        line_bytes: what a line takes while ``apply`` works on it, all arrays together.
    """

    lines: int
    apply: Callable[[int, Array], Any]
    line_bytes: int


@dataclass(frozen=True)
class Target:
    """An array that the last pass writes: ``line_size`` values for every line, in their order."""

    name: str
    line_size: int
    dtype: Any
    facts: dict[str, Any] = field(default_factory=dict)
    compressed: bool = True


@dataclass(frozen=True)
class View:
    """Every ``stride``-th value of a stored vector, from ``first``."""

    array: StoredArray
    first: int
    stride: int
    size: int

    @property
    def digest(self) -> str:
        """Tells it from other views."""
        return f"{self.array.digest}[{self.first}::{self.stride}]"

    def read(self, store: Store, start: int, stop: int) -> Array:
        """Values start..stop."""
        low = self.first + start * self.stride
        return store.read_rows(self.array, low, self.first + (stop - 1) * self.stride + 1)[:: self.stride]


@dataclass(frozen=True)
class LazyVector:
    """A vector that is made where it is read, of stored ones of the same length (shorter ones end in zeros) or of nothing.

    Attributes:
        make: called with the number of the first value, how many, and that part of every stored vector.
        bytes_each: what a value takes while it is made, all arrays together.
        about: what it is: with the digests of the parts it tells one from another.
    """

    size: int
    parts: tuple[StoredArray | View, ...]
    make: Callable[..., Array]
    bytes_each: int
    about: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 over what it is made of."""
        return hashlib.sha256(repr((self.size, self.about, [part.digest for part in self.parts])).encode()).hexdigest()

    def read(self, store: Store, start: int, stop: int) -> Array:
        """Values start..stop."""
        found = []
        for part in self.parts:
            end = min(stop, size_of(part))
            if start < end:
                rows = part.read(store, start, end) if isinstance(part, View) else store.read_rows(part, start, end)
            else:
                rows = np.zeros(0, dtype=(part.array if isinstance(part, View) else part).plan.dtype)
            found.append(np.pad(rows, (0, stop - start - rows.size)) if rows.size < stop - start else rows)
        return self.make(start, stop - start, *found)


Source = StoredArray | LazyVector


def size_of(source: Source | View) -> int:
    """Number of values."""
    return source.plan.shape[0] if isinstance(source, StoredArray) else source.size


def passes(
    store: Store,
    engine: Engine,
    source: Source,
    sides: Sequence[Side],
    targets: Sequence[Target],
    *,
    resume: str | None = None,
    on_done: OnDone | None = None,
) -> list[StoredArray]:
    """Arrays made of a stored vector that holds a matrix of ``sides[0].lines`` rows, in C order.

    Args:
        sides: two or more passes.
        resume: a name for the work: tiles that an interrupted call with the same name and source wrote whole are used again.
            Only one call at a time may use a name.
    Returns: one stored vector a target. Results do not depend on how slabs are cut as long as the functions treat every line by
        itself.
    Raises: OutOfMemory when a single line does not fit.
    """
    budget = min(SLAB_BYTES, engine.memory_bytes // MEMORY_SHARE)
    first = source.bytes_each * (source.size // sides[0].lines) if isinstance(source, LazyVector) else 0
    slabs = [_cut(replace(side, line_bytes=side.line_bytes + (0 if i else first)), budget) for i, side in enumerate(sides)]
    widest = max(t.line_size * np.dtype(t.dtype).itemsize for t in targets)
    slabs[-1] = _cut(replace(sides[-1], line_bytes=max(sides[-1].line_bytes, budget * widest // LARGEST_SHARD)), budget)
    steps = sum(len(some) for some in slabs)
    work = store.scratch()
    if resume is not None:
        key = repr((resume, source.digest, [len(some) for some in slabs]))
        work = f"scratch/resumed-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    done_before = 0

    def tell(done: int, _: int) -> None:
        if on_done is not None:
            on_done(done_before + done, steps)

    tiles: list[Tiles] | None = None
    for number, (side, some) in enumerate(zip(sides[:-1], slabs[:-1], strict=True)):
        reading = partial(_slab, store, source, size_of(source) // side.lines, tiles)
        writing = partial(_write_tiles, store, reading, side.apply, slabs[number + 1])
        tasks = [(f"{work}/{number}-{i}", i, start, stop) for i, (start, stop) in enumerate(some)]
        finished = engine.map(writing, tasks, on_done=tell)
        for old in tiles or ():
            store.delete(old.name)
        tiles, done_before = finished, done_before + len(some)
    last = slabs[-1]
    plans = [
        store.plan(
            t.name, (sides[-1].lines * t.line_size,), t.dtype, shard_rows=last[0][1] * t.line_size, compressed=t.compressed
        )
        for t in targets
    ]
    for plan in plans:
        store.begin(plan)
    reading = partial(_slab, store, source, 0, tiles)
    numbered = [(i, start, stop) for i, (start, stop) in enumerate(last)]
    digests = engine.map(partial(_write_targets, store, reading, plans, sides[-1].apply), numbered, on_done=tell)
    store.delete(work)
    return [
        store.finish(plan, [row[i] for row in digests], target.facts)
        for i, (plan, target) in enumerate(zip(plans, targets, strict=True))
    ]


def _cut(side: Side, budget: int) -> list[tuple[int, int]]:
    if side.line_bytes > budget:
        cure = "give the workers more memory, or merge values of the attributes"
        raise OutOfMemory("one line of a product", side.line_bytes, budget, cure)
    step = min(side.lines, max(1, budget // side.line_bytes))
    step = math.ceil(side.lines / math.ceil(side.lines / step))  # slabs of nearly equal size
    return [(start, min(start + step, side.lines)) for start in range(0, side.lines, step)]


def _slab(store: Store, source: Source, width: int, tiles: list[Tiles] | None, number: int, start: int, stop: int) -> Array:
    """Lines start..stop of the source, or of the tiles of the pass before."""
    if tiles is None:
        bounds = (start * width, stop * width)
        rows = source.read(store, *bounds) if isinstance(source, LazyVector) else store.read_rows(source, *bounds)
        return rows.reshape(stop - start, width)
    lines = sum(tile.lines for tile in tiles)
    out = np.empty((stop - start, lines, *tiles[0].rest), dtype=tiles[0].dtype)
    first = 0
    for tile in tiles:
        shape = (stop - start, tile.lines, *tile.rest)
        out[:, first : first + tile.lines] = store.get_block(
            f"{tile.name}/{number}", shape, tile.dtype, tile.digests[number]
        )
        first += tile.lines
    return out


@dataclass(frozen=True)
class Tiles:
    """What one task of a pass wrote: a block for every slab of the next pass, each (lines of that slab, lines, *rest)."""

    name: str
    lines: int
    rest: tuple[int, ...]
    dtype: str
    digests: tuple[str, ...]


def _write_tiles(
    store: Store,
    reading: Callable[[int, int, int], Array],
    apply: Callable[[int, Array], Array],
    following: list[tuple[int, int]],
    task: tuple[str, int, int, int],
) -> Tiles:
    name, number, start, stop = task
    record = f"{name}/{RECORD}"
    if store.has_document(record):
        kept = store.read_document(record)
        return Tiles(name, kept["lines"], tuple(kept["rest"]), kept["dtype"], tuple(kept["digests"]))
    made = apply(start, reading(number, start, stop))
    digests = tuple(store.put_block(f"{name}/{i}", made[first:last]) for i, (first, last) in enumerate(following))
    done = Tiles(name, made.shape[1], made.shape[2:], made.dtype.str, digests)
    store.write_document(record, asdict(done))
    return done


def _write_targets(
    store: Store,
    reading: Callable[[int, int, int], Array],
    plans: list[ArrayPlan],
    apply: Callable[[int, Array], Sequence[Array]],
    task: tuple[int, int, int],
) -> list[str]:
    number, start, stop = task
    made = apply(start, reading(number, start, stop))
    return [store.write_shard(plan, number, values.reshape(-1)) for plan, values in zip(plans, made, strict=True)]
