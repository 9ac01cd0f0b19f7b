"""Partial counts of tasks: all counts, or pairs of position and number, dealt out by ranges, when they do not fit in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpdist.domain import Domain, Layout
from dpdist.engine import Engine
from dpdist.engine.shuffle import DealtObject, RunKey, ShuffleIndex, deal
from dpdist.engine.tree_reduction import narrow
from dpdist.sources.formats.record_format import BATCH_ROWS
from dpdist.storage.array_store import ArrayPlan, Store

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
        work: scratch in the store.
        range_size: counts of a part that sparse pairs are dealt out to.
        sparse: whether a task writes pairs instead of all counts.
        divided: the domain whose amounts records are divided by; None where every record is counted whole.
    """

    layout: Layout
    store: Store
    work: str
    range_size: int
    sparse: bool
    divided: Domain | None = None

    def _batches_of_kinds(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The batches; or all their records in one, by kind, where records are divided and have few kinds: each kind is divided once."""
        kinds = 0 if self.divided is None else math.prod(attribute.kinds for attribute in self.divided.attributes)
        if not 0 < kinds <= self.store.sizes.pending_pairs:
            yield from batches
            return
        record_counts = np.zeros(kinds, dtype=np.int64)
        for cells, numbers in batches:
            is_counted = cells >= 0
            np.add.at(record_counts, cells[is_counted], 1 if numbers is None else numbers[is_counted])
        (present_kinds,) = np.nonzero(record_counts)
        yield present_kinds, record_counts[present_kinds]

    def _positions_and_weights(self, batch: Batch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which counts the records of a batch raise, and by how much each."""
        cells, numbers = batch
        if self.divided is not None:
            cells, record_shares = self.divided.divide_records(cells, numbers)
            return self.layout.positions(cells), np.tile(record_shares, max(1, len(self.layout.tables)))
        positions = self.layout.positions(cells)
        return positions, np.broadcast_to(np.int64(1), positions.shape) if numbers is None else self._numbers(cells, numbers)

    @property
    def ranges(self) -> int:
        """How many parts sparse pairs are dealt out to."""
        return -(-self.layout.size // self.range_size)

    def count(self, task: int, key: RunKey, batches: Iterator[Batch]) -> list[DealtObject]:
        """Count the records of a task by their cells, or by their kinds where they are divided; returns what was dealt out.

        Running it again counts the same.
        """
        if not self.sparse:
            counts = np.zeros(self.layout.size, dtype=np.int64)
            for batch in self._batches_of_kinds(batches):
                np.add.at(counts, *self._positions_and_weights(batch))
            self.store.put(f"{self.work}/{task}", narrow(counts))
            return []
        position, number = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        dealt_objects: list[DealtObject] = []
        for batch in self._batches_of_kinds(batches):
            batch_positions, added = self._positions_and_weights(batch)
            position, inverse = np.unique(np.concatenate([position, batch_positions]), return_inverse=True)
            weights = np.concatenate([number, added])
            number = np.zeros(position.size, dtype=np.int64)
            np.add.at(number, inverse, weights)
            if position.size > self.store.sizes.pending_pairs:
                dealt_objects.append(self._deal_pairs(key, position, number))
                position, number = position[:0], number[:0]
        return [*dealt_objects, self._deal_pairs(key, position, number)]

    def _numbers(self, cells: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """By how much each of the positions of some cells rises: ``Layout.positions`` lists them table after table."""
        return np.tile(numbers[cells >= 0], max(1, len(self.layout.tables)))

    def _deal_pairs(self, key: RunKey, position: NDArray[np.int64], number: NDArray[np.int64]) -> DealtObject:
        """Sorted pairs, dealt out by their ranges, in the smallest types."""
        range_numbers, small = position // self.range_size, narrow(number)
        kind = np.dtype([("position", np.min_scalar_type(self.range_size)), ("number", small.dtype)])
        pairs = np.empty(position.size, dtype=kind)
        pairs["position"], pairs["number"] = position - range_numbers * self.range_size, small
        return deal(self.store, self.work, key, self.ranges, range_numbers, pairs)

    def total(
        self, plan: ArrayPlan, shards: range, partials: Sequence[str] | ShuffleIndex, key: RunKey
    ) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """The counts of some shards that lie in one range, summed over the named dense counts, or over the pairs of all tasks."""
        start_position = plan.bounds(shards[0])[0]
        if not isinstance(partials, ShuffleIndex):
            dense = [self.store.open(task_counts) for task_counts in partials]
            for shard in shards:
                start, stop = plan.bounds(shard)
                yield (
                    shard,
                    sum(
                        (self.store.read_rows(task_counts, start, stop) for task_counts in dense),
                        np.zeros(stop - start, np.int64),
                    ),
                )
            return
        counts = np.zeros(plan.bounds(shards[-1])[1] - start_position, dtype=np.int64)
        for pairs in partials.open_parts(self.store, key).rows_of_part(start_position // self.range_size):
            counts[pairs["position"]] += pairs["number"]  # positions of one object differ
        for shard in shards:
            start, stop = plan.bounds(shard)
            yield shard, counts[start - start_position : stop - start_position]
