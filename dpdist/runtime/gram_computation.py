"""V = W'W: in closed form where there is one; of rows block by block on the engine, however many rows there are.

A task sums a range of rows into one block of V, in its own memory, and writes it down once; the blocks are added in a tree. Memory stays
at a few blocks of V a worker, and what a task reads at a few blocks, whatever the number of rows and workers. Only blocks of the lower
half are computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from dpdist.engine import Engine, OnDone
from dpdist.engine.tree_reduction import fewer
from dpdist.errors import OutOfMemory, StoreError
from dpdist.operators import Dense, Matrix, RowSource, RowsScaled, Sparse, Tall
from dpdist.operators.out_of_core import mirrored, row_gram
from dpdist.size_limits import SIZES, Sizes
from dpdist.storage.array_store import ArrayPlan, Store, StoredArray
from dpdist.workloads import Block, Workload

RANGES_A_WORKER = 4
"""A worker that dies loses a quarter of its part."""
WORKER_SHARE = 2
"""A task's arrays take at most this part of a worker's memory."""
ENTRY_BYTES = 8 + 4 + 8 + 8
"""An entry of V in double and single precision, in the block that is added, and in the row of blocks that is put together."""


def gram(store: Store, engine: Engine, workload: Workload, *, on_done: OnDone | None = None) -> Matrix:
    """W'W of the weighted rows, (n, n) float64; grams of rows are kept in the store.

    Raises: OutOfMemory when V does not fit in this process, or a block of it in no worker.
    """
    n = workload.shape[1]
    _fits("the gram W'W", 2 * 8 * n**2, engine.own_bytes)
    total = np.zeros((n, n))
    for block in workload.blocks:
        source = row_source(store, block, workload.domain.cells)
        if source is None:
            total += block.weight**2 * block.operator(workload.domain.shape, scaled=True).gram()
            continue
        name = f"grams/{block.operator(workload.domain.shape, scaled=True).fingerprint[:32]}"
        total += block.weight**2 * store.read(stored_gram(store, engine, source, name, on_done=on_done))
    return total


@dataclass(frozen=True)
class RowsInStore:
    """Rows of an array in the store."""

    store: Store
    array: StoredArray

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        rows, columns = self.array.plan.shape
        return rows, columns

    def read(self, start: int, stop: int) -> Matrix:
        """Rows start..stop."""
        return self.store.read_rows(self.array, start, stop)


def row_source(store: Store, block: Block, cells: int) -> RowSource | None:
    """Where the (scaled) rows of a block over all cells are, None when its gram is a closed form or small."""
    factor = block.factors[0]
    if len(block.factors) != 1 or factor.shape[1] != cells:
        return None
    if isinstance(factor, Tall):
        (scales,) = block.scales or (None,)
        return factor.source if scales is None else RowsScaled(factor.source, scales)
    if not isinstance(factor, Dense | Sparse) or factor.shape[0] * cells <= store.sizes.gram_entries:
        return None
    (scaled,) = block.scaled(block.factors)
    return RowsInStore(store, store.put(f"rows/{scaled.fingerprint[:32]}", scaled.dense()))


Range = tuple[int, int]


class _Task(NamedTuple):
    """A block of V, summed over some rows."""

    name: str
    start: int
    stop: int
    left: Range
    right: Range


def stored_gram(store: Store, engine: Engine, source: RowSource, name: str, *, on_done: OnDone | None = None) -> StoredArray:
    """B'B of a source's rows as a stored array, (n, n) float64, computed once for a name."""
    if store.exists(name):
        return store.open(name)
    try:
        return _summed(store, engine, source, name, on_done)
    except StoreError:
        if not store.exists(name):
            raise
        return store.open(name)  # another run of the same was faster, and removed its scratch


def _summed(store: Store, engine: Engine, source: RowSource, name: str, on_done: OnDone | None) -> StoredArray:
    m, n = source.shape
    width = block_columns(n, engine.memory_bytes, store.sizes)
    edges = [(first, min(first + width, n)) for first in range(0, n, width)]
    pairs = [(left, right) for i, left in enumerate(edges) for right in edges[: i + 1]]
    parts = max(1, min(engine.workers * RANGES_A_WORKER, m * n // store.sizes.gram_entries))
    cuts = [m * part // parts for part in range(parts + 1)]
    work = f"scratch/{name}-{width}-{parts}"  # a killed sum goes on with the parts that were written
    tasks = [
        [_Task(f"{work}/{left[0]}-{right[0]}-{part}", cuts[part], cuts[part + 1], left, right) for part in range(parts)]
        for left, right in pairs
    ]
    engine.map(partial(_sum_rows, store, source), [task for some in tasks for task in some], on_done=on_done)
    summed = dict(zip(pairs, fewer(store, engine, [[task.name for task in some] for some in tasks]), strict=True))
    plan = store.plan(name, (n, n), np.float64, shard_rows=width)
    store.begin(plan)
    digests = engine.map(partial(_assemble, store, plan, edges, summed), list(range(plan.shards)))
    store.delete(work)
    return store.finish(plan, digests)


def block_columns(n: int, worker_bytes: int, sizes: Sizes = SIZES) -> int:
    """Columns of a block of V that a worker can hold in both precisions, with its rows of W and the block beside it.

    Raises: OutOfMemory when not even a block of some columns fits.
    """
    allowed = worker_bytes // WORKER_SHARE - 3 * sizes.row_block_bytes
    _fits("a block of the gram W'W", ENTRY_BYTES * min(n, sizes.gram_columns) ** 2, allowed)
    halvings: int = math.floor(math.log2(allowed / ENTRY_BYTES) / 2)
    return min(n, max(sizes.gram_columns, 1 << halvings))


def task_bytes(n: int, worker_bytes: int, sizes: Sizes = SIZES) -> int:
    """What a task of ``stored_gram`` takes."""
    return ENTRY_BYTES * block_columns(n, worker_bytes, sizes) ** 2 + 3 * sizes.row_block_bytes


def _fits(what: str, needed: int, allowed: int) -> None:
    if needed > allowed:
        raise OutOfMemory(what, needed, allowed, "give the workers more memory, or ask for fewer cells")


def _sum_rows(store: Store, source: RowSource, task: _Task) -> None:
    if store.exists(task.name):
        return
    left = slice(*task.left)
    right = None if task.left == task.right else slice(*task.right)
    store.put(task.name, row_gram(source, task.start, task.stop, left, right, store.sizes))


def _assemble(
    store: Store, plan: ArrayPlan, edges: list[Range], summed: Mapping[tuple[Range, Range], Sequence[str]], shard: int
) -> str:
    """One row of blocks: those left of the diagonal as they are, those right of it turned over."""
    own = edges[shard]
    out = np.zeros((own[1] - own[0], edges[-1][1]))
    for other, (start, stop) in enumerate(edges):
        for part in summed[(own, (start, stop)) if other <= shard else ((start, stop), own)]:
            block = store.read(store.open(part))
            out[:, start:stop] += block if other <= shard else block.T
        if other == shard:
            mirrored(out[:, start:stop])
    return store.write_shard(plan, shard, out)
