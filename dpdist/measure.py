"""y = A x + noise: exact integers from the engine, noise added where the key is."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from dpdist.domain import Layout
from dpdist.engine import Engine
from dpdist.errors import InvalidInput
from dpdist.operators import Matrix
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import Noise
from dpdist.store import Store, StoredArray
from dpdist.strategies.grid import Grid
from dpdist.strategies.lattice import MOST_RECORDS
from dpdist.strategies.term_grid import TermGrid
from dpdist.workloads.basis import SubsetBasis


def exact_measurement(
    store: Store, engine: Engine, grid: Grid | TermGrid, counts: StoredArray, layout: Layout | None = None
) -> Matrix:
    """z, (p,) int64, without noise: private. B x is summed over the histogram's shards on the engine.

    Args:
        layout: what the counts hold; only a ``TermGrid`` needs it.
    Raises: InvalidInput when the histogram holds more records than the grid can count without overflow.
    """
    if isinstance(grid, TermGrid):
        assert layout is not None
        whole = store.read(counts)
        _few_enough(int(layout.table(whole, ())))
        return np.concatenate([term.measure(layout.table(whole, term.axes)) for term in grid.terms])
    if isinstance(grid.base, SubsetBasis):
        work = store.scratch()
        tasks = [(f"{work}/{i}", shards) for i, shards in enumerate(engine.dealt(counts.plan.shards))]
        parts = engine.map(partial(_partial_statistics, store, grid.base, counts), tasks)
        statistics = np.sum([store.read(part) for part, _ in parts], axis=0)
        store.delete(work)
        records = sum(found for _, found in parts)
    else:
        x = store.read(counts)
        records = int(x.sum())
        statistics = grid.base.matvec(x)
    _few_enough(records)
    return grid.apply(np.asarray(statistics, dtype=np.int64))


def _few_enough(records: int) -> None:
    if records > MOST_RECORDS:
        raise InvalidInput(f"the grid holds up to {MOST_RECORDS} records without overflow; split the data set by period")


def draw(store: Store, name: str, exact: Matrix, key: Secret, noise: Noise, facts: dict[str, Any]) -> StoredArray:
    """Write z + noise shard by shard. The key and the exact z exist in this process only."""
    target = store.plan(name, exact.shape, np.int64)
    store.begin(target)
    digests = []
    for shard in range(target.shards):
        start, stop = target.bounds(shard)
        drawn = noise.draw(key.reveal(), start=start, count=stop - start)
        digests.append(store.write_shard(target, shard, exact[start:stop] + drawn))
    return store.finish(target, digests, {"noise": noise.kind, "scale": noise.scale, **facts})


def _partial_statistics(
    store: Store, base: SubsetBasis, counts: StoredArray, task: tuple[str, list[int]]
) -> tuple[StoredArray, int]:
    name, shards = task
    total = np.zeros(base.shape[0], dtype=np.int64)
    records = 0
    for shard in shards:
        block = store.read_shard(counts, shard)
        total += base.matvec_cells(counts.plan.bounds(shard)[0], block)
        records += int(block.sum())
    return store.put(name, total), records
