"""Partial counts of tasks: all counts, or sorted pairs of position and number when they do not fit in memory."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from dpdist.domain import Layout
from dpdist.engine import Engine
from dpdist.records.sources import BATCH_ROWS
from dpdist.reduction import narrow
from dpdist.store import ArrayPlan, Store

DENSE_COPIES = 3
"""Arrays of all counts that a task holds at once when it counts densely."""


PAIR_COPIES = 6
"""Copies of pending pairs while they are sorted and added up."""


def is_sparse(layout: Layout, engine: Engine) -> bool:
    """Whether all counts are too many for a task: it then writes pairs of position and number."""
    return DENSE_COPIES * 8 * layout.size + 2 * BATCH_ROWS * 64 > engine.memory_bytes


Batch = tuple[NDArray[np.int64], NDArray[np.int64] | None]
"""Cells (-1: left out), and how many records each stands for; None: one each."""


@dataclass(frozen=True)
class Counter:
    """Where the partial counts of tasks go.

    Attributes:
        work, folder: scratch in the store, and a folder that all workers reach.
        range_size: counts that one file of sparse pairs covers.
        sparse: whether a task writes pairs instead of all counts.
    """

    layout: Layout
    store: Store
    work: str
    folder: Path
    range_size: int
    sparse: bool

    def count(self, task: int, batches: Iterator[Batch]) -> None:
        """Count the records of a task by their cells. Running it again writes the same."""
        if not self.sparse:
            counts = np.zeros(self.layout.size, dtype=np.int64)
            for cells, numbers in batches:
                np.add.at(counts, self.layout.positions(cells), 1 if numbers is None else self._numbers(cells, numbers))
            self.store.put(f"{self.work}/{task}", narrow(counts))
            return
        position, number = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        flushed = 0
        for cells, numbers in batches:
            more = self.layout.positions(cells)
            ones = np.ones(more.size, dtype=np.int64) if numbers is None else self._numbers(cells, numbers)
            position, place = np.unique(np.concatenate([position, more]), return_inverse=True)
            weights = np.concatenate([number, ones])
            number = np.zeros(position.size, dtype=np.int64)
            np.add.at(number, place, weights)
            if position.size > self.store.sizes.pending_pairs:
                self._write_pairs(task, flushed, position, number)
                position, number, flushed = position[:0], number[:0], flushed + 1
        self._write_pairs(task, flushed, position, number)

    def _numbers(self, cells: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """By how much each of the positions of some cells rises: ``Layout.positions`` lists them table after table."""
        return np.tile(numbers[cells >= 0], max(1, len(self.layout.tables)))

    def _write_pairs(self, task: int, part: int, position: NDArray[np.int64], number: NDArray[np.int64]) -> None:
        """Sorted pairs, one file for every range of positions that they touch."""
        which = position // self.range_size
        for start, stop in pairwise([*np.flatnonzero(np.diff(which, prepend=-1)), position.size]):
            pairs = pa.table({"position": position[start:stop], "number": number[start:stop]})
            write_whole(pairs, self.folder / f"range-{which[start]}-{task:08d}-{part:04d}.parquet")

    def total(self, plan: ArrayPlan, shards: range, parts: Sequence[str]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """The counts of some shards that lie in one range, summed over the named dense counts, or over the pairs of all tasks."""
        first = plan.bounds(shards[0])[0]
        if not self.sparse:
            dense = [self.store.open(part) for part in parts]
            for shard in shards:
                start, stop = plan.bounds(shard)
                yield (
                    shard,
                    sum((self.store.read_rows(part, start, stop) for part in dense), np.zeros(stop - start, np.int64)),
                )
            return
        counts = np.zeros(plan.bounds(shards[-1])[1] - first, dtype=np.int64)
        for path in sorted(self.folder.glob(f"range-{first // self.range_size}-*.parquet")):
            pairs = pyarrow.parquet.read_table(path)
            counts[pairs["position"].to_numpy() - first] += pairs["number"].to_numpy()
        for shard in shards:
            start, stop = plan.bounds(shard)
            yield shard, counts[start - first : stop - first]


def write_whole(table: pa.Table, path: Path) -> None:
    """Write a file in one step: a task that runs twice at once never leaves half of it."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")
    pyarrow.parquet.write_table(table, draft)
    draft.replace(path)
