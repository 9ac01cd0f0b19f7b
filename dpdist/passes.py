"""Two passes over a stored matrix that is too large for memory: by row slabs, then by column slabs.

The first pass reads row slabs in the order they are stored and writes what it makes of them in tiles; the second gathers the
tiles of some columns. Tiles are whole arrays or whole shards of one writer, so tasks may run twice and anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.engine import Engine, OnDone
from dpdist.errors import OutOfMemory
from dpdist.store import ArrayPlan, Store, StoredArray

Array = NDArray[Any]

SLAB_BYTES = 256 * 2**20
"""What a slab may take at most, with its working copies, whatever the workers have."""
MEMORY_SHARE = 4
"""A task's slab is at most this part of a worker's memory: the rest is for copies inside transforms and codecs."""


@dataclass(frozen=True)
class Side:
    """One pass.

    Attributes:
        apply: called with the first row (or column) of a slab and the slab.
        row_bytes: what a row (or column) takes while ``apply`` works on it, all arrays together.
    """

    apply: Callable[[int, Array], Any]
    row_bytes: int


@dataclass(frozen=True)
class Target:
    """An array that the second pass writes: ``row_size`` values for every column, in column order."""

    name: str
    row_size: int
    dtype: Any
    facts: dict[str, Any]


def two_passes(
    store: Store,
    engine: Engine,
    source: StoredArray,
    *,
    rows: int,
    columns: int,
    first: Side,
    second: Side,
    targets: Sequence[Target],
    on_done: OnDone | None = None,
) -> list[StoredArray]:
    """Arrays made of a stored vector that holds a matrix of ``rows`` rows, in C order.

    Args:
        columns: how many columns the first pass makes.
        first: ``apply(start, slab)`` of rows start.. of the source returns an array (columns, rows of the slab, ...).
        second: ``apply(start, gathered)`` of columns start.., (columns of the slab, rows, ...), returns one array a target,
            each of (columns of the slab) * row_size values.
    Returns: one stored vector a target. Results do not depend on how slabs are cut as long as the functions treat every row
        and column by itself.
    Raises: OutOfMemory when a single row or column does not fit.
    """
    budget = min(SLAB_BYTES, engine.memory_bytes // MEMORY_SHARE)
    row_slabs, column_slabs = _cut(rows, first, budget, "row"), _cut(columns, second, budget, "column")
    work = store.scratch()
    plans = [
        store.plan(
            t.name, (columns * t.row_size,), t.dtype, shard_rows=(column_slabs[0][1] - column_slabs[0][0]) * t.row_size
        )
        for t in targets
    ]
    for plan in plans:
        store.begin(plan)
    steps = len(row_slabs) + len(column_slabs)

    def tell(offset: int) -> OnDone:
        return lambda done, _: None if on_done is None else on_done(offset + done, steps)

    width = source.plan.shape[0] // rows
    tiling = partial(_write_tiles, store, source, width, first.apply, column_slabs[0][1] - column_slabs[0][0])
    tasks = [(f"{work}/{i}", start, stop) for i, (start, stop) in enumerate(row_slabs)]
    tiles = engine.map(tiling, tasks, on_done=tell(0))
    gathering = partial(_write_targets, store, tiles, plans, second.apply)
    numbered = [(shard, start) for shard, (start, _) in enumerate(column_slabs)]
    digests = engine.map(gathering, numbered, on_done=tell(len(row_slabs)))
    store.delete(work)
    return [
        store.finish(plan, [row[i] for row in digests], target.facts)
        for i, (plan, target) in enumerate(zip(plans, targets, strict=True))
    ]


def _cut(count: int, side: Side, budget: int, what: str) -> list[tuple[int, int]]:
    if side.row_bytes > budget:
        cure = "give the workers more memory, or merge values of the attributes"
        raise OutOfMemory(f"one {what} of a product", side.row_bytes, budget, cure)
    step = min(count, max(1, budget // side.row_bytes))
    step = math.ceil(count / math.ceil(count / step))  # slabs of nearly equal size
    return [(start, min(start + step, count)) for start in range(0, count, step)]


def _write_tiles(
    store: Store,
    source: StoredArray,
    width: int,
    apply: Callable[[int, Array], Array],
    shard_columns: int,
    task: tuple[str, int, int],
) -> StoredArray:
    name, start, stop = task
    slab = store.read_rows(source, start * width, stop * width).reshape(stop - start, width)
    made = np.ascontiguousarray(apply(start, slab))
    plan = store.plan(name, made.shape, made.dtype, shard_rows=shard_columns, compressed=False)
    store.begin(plan)
    return store.finish(plan, [store.write_shard(plan, i, made[slice(*plan.bounds(i))]) for i in range(plan.shards)])


def _write_targets(
    store: Store,
    tiles: list[StoredArray],
    plans: list[ArrayPlan],
    apply: Callable[[int, Array], Sequence[Array]],
    task: tuple[int, int],
) -> list[str]:
    shard, start = task
    gathered = np.concatenate([store.read_shard(tile, shard) for tile in tiles], axis=1)
    made = apply(start, gathered)
    return [store.write_shard(plan, shard, values.reshape(-1)) for plan, values in zip(plans, made, strict=True)]
