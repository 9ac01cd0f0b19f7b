"""y = A x + noise: exact integers from the engine, noise added where the key is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dpdist.domain import Layout
from dpdist.engine import Engine, OnDone
from dpdist.errors import InvalidInput
from dpdist.long_formulas import formula_measurement
from dpdist.long_series import long_measurement
from dpdist.operators import Matrix
from dpdist.operators.kronecker import widest
from dpdist.passes import Side, Target, passes
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import Noise
from dpdist.store import Store, StoredArray
from dpdist.strategies.dawa import AdaptiveGrid
from dpdist.strategies.dense_grid import DenseGrid
from dpdist.strategies.filter_grid import LongGrid
from dpdist.strategies.grid import MOST_RECORDS, TableGrid
from dpdist.strategies.term_grid import IntegerTerm, TermGrid
from dpdist.threads import in_order
from dpdist.workloads.basis import SubsetBasis


@dataclass(frozen=True)
class Multiple:
    """k times a stored histogram."""

    store: Store
    counts: StoredArray
    factor: int

    @property
    def shape(self) -> tuple[int, ...]:
        """(p,)."""
        return self.counts.plan.shape

    def read(self, start: int, stop: int) -> Matrix:
        """Rows start..stop of k x."""
        rows = self.store.read_rows(self.counts, start, stop)
        return np.multiply(rows, self.factor, out=rows if rows.flags.writeable else None)


def exact_measurement(
    store: Store,
    engine: Engine,
    grid: DenseGrid | TermGrid | TableGrid | AdaptiveGrid | LongGrid,
    counts: StoredArray,
    layout: Layout | None = None,
    on_done: OnDone | None = None,
) -> Matrix | StoredArray | Multiple:
    """z, (p,) int64, without noise: private. B x is summed over the histogram's shards on the engine.

    A z that is a multiple of the counts is a reference to them.
    What DAWA measures depends on noise: for it, x itself is returned. A z that is too large to be held is returned as a scratch
    array, for ``draw`` to read; the caller deletes it.

    Args:
        layout: what the counts hold; grids over tables need it.
    Raises: InvalidInput when the histogram holds more records than the grid can count without overflow.
    """
    if isinstance(grid, TermGrid | TableGrid | LongGrid):
        return _of_tables(store, engine, grid, counts, layout, on_done)
    if isinstance(grid, AdaptiveGrid):
        x = store.read(counts)
        _few_enough(int(x.sum()))
        return x
    if grid.multiple is not None:
        _few_enough(_records_in(store, engine, counts))
        return Multiple(store, counts, grid.multiple)
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


def _of_tables(
    store: Store,
    engine: Engine,
    grid: TermGrid | TableGrid | LongGrid,
    counts: StoredArray,
    layout: Layout | None,
    on_done: OnDone | None,
) -> Matrix | StoredArray:
    """z of strategies that are measured from tables of the attributes they ask for."""
    if isinstance(grid, LongGrid):
        _few_enough(_records_in(store, engine, counts))
        measure = formula_measurement if grid.coefficients.kind == "characters" else long_measurement
        return measure(store, engine, grid, counts, on_done)
    if isinstance(grid, TermGrid) and grid.streamed:
        return _streamed_measurement(store, engine, grid, counts)
    assert layout is not None
    whole = store.read(counts)
    if isinstance(grid, TermGrid):
        _few_enough(int(layout.table(whole, ())))
        return np.concatenate([term.measure(layout.table(whole, term.axes)) for term in grid.terms])
    table = layout.table(whole, grid.axes)
    _few_enough(int(table.sum()))
    return grid.measure(table)


def _few_enough(records: int) -> None:
    if records > MOST_RECORDS:
        raise InvalidInput(f"the grid holds up to {MOST_RECORDS} records without overflow; split the data set by period")


def _streamed_measurement(store: Store, engine: Engine, grid: TermGrid, counts: StoredArray) -> StoredArray:
    """z of a Kronecker strategy in two passes; the first attribute's index runs fastest."""
    (term,) = grid.terms
    _few_enough(_records_in(store, engine, counts))
    (p, n), rest = term.factors[0].shape, term.factors[1:]
    width = math.prod(f.shape[0] for f in rest)
    sides = [
        Side(n, partial(_other_attributes, term), ROW_COPIES * 8 * widest(f.shape for f in rest)),
        Side(width, partial(_first_attribute, term), ROW_COPIES * 8 * max(n, p)),
    ]
    return passes(store, engine, counts, sides, [Target(f"{store.scratch()}/exact", p, np.int64)])[0]


ROW_COPIES = 8
"""Copies of a slab while it is multiplied: wrapped and real, in and out, limbs, transposed."""


def _records_in(store: Store, engine: Engine, counts: StoredArray) -> int:
    """A bound of how many records were counted: as many as were read, or the sum of the counts where that was not kept."""
    tally = counts.facts.get("private_tally")
    if tally is not None:
        return int(tally["read"])
    return sum(engine.map(partial(_records, store, counts), list(range(counts.plan.shards))))


def _records(store: Store, counts: StoredArray, shard: int) -> int:
    return int(store.read_shard(counts, shard).sum())


def _other_attributes(term: IntegerTerm, start: int, slab: Matrix) -> Matrix:
    """All factors but the first: (columns, rows of the slab, 2), the products modulo 2^64 and the bits of the real ones."""
    del start
    table = slab.reshape(-1, *term.shape[1:])
    wrapped, real = term.products(table, table.astype(np.float64), tuple(range(1, len(term.factors))))
    parts = (wrapped.reshape(slab.shape[0], -1), real.reshape(slab.shape[0], -1).view(np.int64))
    return np.stack([part.T for part in parts], axis=2)


def _first_attribute(term: IntegerTerm, start: int, gathered: Matrix) -> tuple[Matrix]:
    del start
    wrapped = np.ascontiguousarray(gathered[:, :, 0].T)
    real = np.ascontiguousarray(gathered[:, :, 1].T).view(np.float64)
    wrapped, real = term.products(wrapped, real, (0,))
    return (term.rounded(np.ascontiguousarray(wrapped.T).ravel(), np.ascontiguousarray(real.T).ravel()),)


def draw(
    store: Store, name: str, exact: Matrix | StoredArray | Multiple, key: Secret, noise: Noise, facts: dict[str, Any]
) -> StoredArray:
    """Write z + noise shard by shard, a few at once. The key exists in this process only, and so does z unless it is too large."""
    target = store.plan(name, exact.plan.shape if isinstance(exact, StoredArray) else exact.shape, np.int64)
    store.begin(target)

    def write(shard: int) -> str:
        start, stop = target.bounds(shard)
        drawn = noise.draw(key.reveal(), start=start, count=stop - start)
        if isinstance(exact, Multiple):
            drawn += exact.read(start, stop)
        else:
            drawn += store.read_rows(exact, start, stop) if isinstance(exact, StoredArray) else exact[start:stop]
        return store.write_shard(target, shard, drawn)

    digests = list(in_order(write, range(target.shards)))
    store.sync(name)  # a record that survives a power loss never stands for blocks that did not
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
