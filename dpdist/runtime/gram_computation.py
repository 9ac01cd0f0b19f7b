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

from dpdist.engine import Engine, ProgressCallback
from dpdist.engine.tree_reduction import reduce_groups
from dpdist.errors import OutOfMemory, StoreError
from dpdist.operators import Dense, Matrix, RowSource, RowsScaled, Sparse, TallMatrix
from dpdist.operators.out_of_core import mirror_upper, row_gram
from dpdist.size_limits import SIZES, Sizes
from dpdist.storage.array_store import ArrayPlan, Store, StoredArray
from dpdist.workloads import Block, Workload

RANGES_A_WORKER = 4
"""A worker that dies loses a quarter of its part."""
WORKER_SHARE = 2
"""A task's arrays take at most this part of a worker's memory."""
ENTRY_BYTES = 8 + 4 + 8 + 8
"""An entry of V in double and single precision, in the block that is added, and in the row of blocks that is put together."""


def gram(store: Store, engine: Engine, workload: Workload, *, report_progress: ProgressCallback | None = None) -> Matrix:
    """W'W of the weighted rows, (n, n) float64; grams of rows are kept in the store.

    Raises: OutOfMemory when V does not fit in this process, or a block of it in no worker.
    """
    n = workload.shape[1]
    _check_fits("the gram W'W", 2 * 8 * n**2, engine.own_bytes)
    total = np.zeros((n, n))
    for block in workload.blocks:
        source = _row_source(store, block, workload.domain.cells)
        if source is None:
            total += block.weight**2 * block.operator(workload.domain.shape, scaled=True).gram()
            continue
        name = f"grams/{block.operator(workload.domain.shape, scaled=True).fingerprint[:32]}"
        total += block.weight**2 * store.read_array(
            stored_gram(store, engine, source, name, report_progress=report_progress)
        )
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


def _row_source(store: Store, block: Block, cells: int) -> RowSource | None:
    """Where the (scaled) rows of a block over all cells are, None when its gram is a closed form or small."""
    factor = block.factors[0]
    if len(block.factors) != 1 or factor.shape[1] != cells:
        return None
    if isinstance(factor, TallMatrix):
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
    left_range: Range
    right_range: Range


def stored_gram(
    store: Store, engine: Engine, source: RowSource, name: str, *, report_progress: ProgressCallback | None = None
) -> StoredArray:
    """B'B of a source's rows as a stored array, (n, n) float64, computed once for a name."""
    if store.exists(name):
        return store.open(name)
    try:
        return _compute_gram(store, engine, source, name, report_progress)
    except StoreError:
        if not store.exists(name):
            raise
        return store.open(name)  # another run of the same was faster, and removed its scratch


def _compute_gram(
    store: Store, engine: Engine, source: RowSource, name: str, report_progress: ProgressCallback | None
) -> StoredArray:
    m, n = source.shape
    width = block_columns(n, engine.memory_bytes, store.sizes)
    edges = [(first_column, min(first_column + width, n)) for first_column in range(0, n, width)]
    pairs = [(left_range, right_range) for i, left_range in enumerate(edges) for right_range in edges[: i + 1]]
    range_count = max(1, min(engine.workers * RANGES_A_WORKER, m * n // store.sizes.gram_entries))
    cuts = [m * range_index // range_count for range_index in range(range_count + 1)]
    work = f"scratch/{name}-{width}-{range_count}"  # a killed sum goes on with the parts that were written
    tasks = [
        [
            _Task(
                f"{work}/{left_range[0]}-{right_range[0]}-{range_index}",
                cuts[range_index],
                cuts[range_index + 1],
                left_range,
                right_range,
            )
            for range_index in range(range_count)
        ]
        for left_range, right_range in pairs
    ]
    engine.map(
        partial(_sum_rows, store, source),
        [task for block_tasks in tasks for task in block_tasks],
        report_progress=report_progress,
    )
    summed = dict(
        zip(pairs, reduce_groups(store, engine, [[task.name for task in block_tasks] for block_tasks in tasks]), strict=True)
    )
    plan = store.plan(name, (n, n), np.float64, shard_rows=width)
    store.begin(plan)
    digests = engine.map(partial(_assemble, store, plan, edges, summed), list(range(plan.shards)))
    store.delete(work)
    return store.finish(plan, digests)


def block_columns(n: int, worker_bytes: int, sizes: Sizes = SIZES) -> int:
    """Columns of a block of V that a worker can hold in both precisions, with its rows of W and the block beside it.

    Raises: OutOfMemory when not even a block of some columns fits.
    """
    allowed, row_blocks = worker_bytes // WORKER_SHARE, 3 * sizes.row_block_bytes
    _check_fits("a block of the gram W'W", row_blocks + ENTRY_BYTES * min(n, sizes.gram_columns) ** 2, allowed)
    halvings: int = math.floor(math.log2((allowed - row_blocks) / ENTRY_BYTES) / 2)
    return min(n, max(sizes.gram_columns, 1 << halvings))


def task_bytes(n: int, worker_bytes: int, sizes: Sizes = SIZES) -> int:
    """What a task of ``stored_gram`` takes."""
    return ENTRY_BYTES * block_columns(n, worker_bytes, sizes) ** 2 + 3 * sizes.row_block_bytes


def _check_fits(array_label: str, needed_bytes: int, allowed_bytes: int) -> None:
    if needed_bytes > allowed_bytes:
        raise OutOfMemory(array_label, needed_bytes, allowed_bytes, "give the workers more memory, or ask for fewer cells")


def _sum_rows(store: Store, source: RowSource, task: _Task) -> None:
    if store.exists(task.name):
        return
    left_slice = slice(*task.left_range)
    right_slice = None if task.left_range == task.right_range else slice(*task.right_range)
    store.put(task.name, row_gram(source, task.start, task.stop, left_slice, right_slice, store.sizes))


def _assemble(
    store: Store, plan: ArrayPlan, edges: list[Range], summed: Mapping[tuple[Range, Range], Sequence[str]], shard: int
) -> str:
    """One row of blocks: those left of the diagonal as they are, those right of it turned over."""
    own_range = edges[shard]
    block_row = np.zeros((own_range[1] - own_range[0], edges[-1][1]))
    for other_index, (start, stop) in enumerate(edges):
        for array_name in summed[(own_range, (start, stop)) if other_index <= shard else ((start, stop), own_range)]:
            block = store.read_array(store.open(array_name))
            block_row[:, start:stop] += block if other_index <= shard else block.T
        if other_index == shard:
            mirror_upper(block_row[:, start:stop])
    return store.write_shard(plan, shard, block_row)
