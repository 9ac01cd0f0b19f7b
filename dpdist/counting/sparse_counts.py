"""The occupied cells of a key space, with their counts: private, sealed in the store, never all of them in one place.

The records are read by tasks of the engine. Where persons are told apart they are dealt out by person, and of each person some cells count,
and some records in each of them. What counts is dealt out by cell, and added up. All that is written is sealed under a key of the run. The
shards of the result are those of the thresholded histogram: every so-manieth cell, by what is public alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.counting.contribution_bounding import (
    HASHED,
    OrderedRecords,
    batches_of_persons,
    check_complete,
    choose_part_count,
    divide_by_person,
    order_by_person,
    pending_rows,
)
from dpdist.counting.group_choice import choose_groups, mix_bits
from dpdist.counting.histogram_counting import HistogramDraft, bytes_beside
from dpdist.counting.partial_counts import Batch
from dpdist.counting.person_histograms import PartitionedRecords
from dpdist.counting.person_keys import PersonKey, person_hashes
from dpdist.counting.record_cells import CountSummary, cells_of, tables_of
from dpdist.domain import Attribute, Domain
from dpdist.domain.key_spaces import IntegerKeys, Keys, KeySpace
from dpdist.engine import Engine
from dpdist.engine.shuffle import DealtObject, PendingRows, Rows, RunKey, ShuffleIndex, deal, gather
from dpdist.process import arrow_arrays
from dpdist.size_limits import SIZES
from dpdist.sources.formats.column_conversion import Column, encoded_texts, short_number_texts, short_numbers
from dpdist.sources.formats.record_format import BATCH_ROWS, Partition
from dpdist.sources.formats.weighted_rows import counted_rows
from dpdist.sources.reader_errors import reading
from dpdist.sources.record_sources import Source, check_columns, group_partitions, partitions_of, without_files
from dpdist.storage.array_store import Store

PENDING_COPIES = 4
"""Of rows that wait to be dealt out: as they came, in one array, in the order of their parts, and sealed."""

Integers = NDArray[np.int64]
KEYED = np.dtype([*HASHED.descr, ("key", "<i8")])
"""A record that is dealt out by person: beside its cell of the domain its cell of the key space, -1 where it has none."""
CELL_COUNT = np.dtype([("cell", "<i8"), ("count", "<i8")])
"""A cell and a number of records in it, as they are dealt out."""


@dataclass(frozen=True)
class SparseCounts:
    """Occupied cells with the records of each, by shard, and how many records were read; nothing shows in a repr.

    Attributes:
        shards: how many there are. The cells of a shard are those that leave its number when they are divided by this.
        index: of what was written, each shard under its number.
        key: under which it is sealed: it is handed to tasks in their items, as the records' is.
        summary: how reading the records as cells of the domain went.
        digest: SHA-256 of the cells and counts of all shards: only a commitment of it may be written down.
    """

    store: Store = field(repr=False)
    folder: str = field(repr=False)
    shards: int
    index: ShuffleIndex = field(repr=False)
    key: RunKey = field(repr=False)
    digest: str = field(repr=False)
    records_read: int = field(repr=False)
    summary: CountSummary = field(repr=False)

    def read_shards(self, numbers: Sequence[int]) -> Iterator[tuple[int, Integers, Integers]]:
        """The number, the occupied cells in rising order and the counts of some shards. Raises: StoreError."""
        opened = self.index.open_parts(self.store, self.key)
        for number in numbers:
            rows = opened.whole_part(number, CELL_COUNT)
            yield number, np.ascontiguousarray(rows["cell"]), np.ascontiguousarray(rows["count"])

    def sum_others(self, published_cells: Integers, space: KeySpace, names: Sequence[str]) -> Integers:
        """The records in all cells but some, for every combination of the keys of some columns, shard by shard.

        Args:
            published_cells: those that are left out.
        """
        totals = np.zeros(math.prod(space.columns[name].size for name in names), dtype=np.int64)
        for _, cells, counts in self.read_shards(range(self.shards)):
            is_other = ~np.isin(cells, published_cells)
            np.add.at(totals, space.project(cells[is_other], names), counts[is_other])
        return totals

    def delete(self) -> None:
        """Delete what is in the store."""
        self.store.delete(self.folder)


@dataclass(frozen=True)
class CountingKeys:
    """What tasks need to seal and to tell persons apart: it travels with their items."""

    run: RunKey = field(repr=False)
    persons: PersonKey = field(repr=False)


def count_cells(
    records: PartitionedRecords, space: KeySpace, *, cells_per_person: int | None, records_per_cell: int, shards: int
) -> SparseCounts:
    """The occupied cells of a key space; records with a key that the space does not have are in none.

    Args:
        cells_per_person: how many different cells of a person count at most, chosen by a keyed random order; None where records count.
        records_per_cell: how many records of a person count in each of them at most.
        shards: how many there are of the result.
    Raises: InvalidSpec for a missing column or a file that cannot be read; StoreError. No message tells a number of the records.
    """
    check_columns(records.source, records.domain)
    engine, store = records.engine, records.store
    partitions, tasks = group_partitions(partitions_of(records.source), engine.workers), max(1, engine.workers)
    part_count = choose_part_count(records.source, engine, tasks)
    keys = CountingKeys(RunKey.generate(), records.person_key)
    counting = CellCounting(
        without_files(records.source),
        records.domain,
        records.complete,
        store,
        space,
        cells_per_person,
        records_per_cell,
        shards,
        store.scratch(),
        part_count,
        min(part_count, shards),
        pending_rows(store.sizes, engine),
        records.beside,
    )
    try:
        parts_per_task = part_count // tasks
        read = engine.map(counting.deal_records, [(number, group, keys) for number, group in enumerate(partitions)])
        records_read = sum(number for number, *_ in read)
        summary = sum((task_summary for _, task_summary, _, _ in read), CountSummary())
        tally = sum((task_tally for _, _, task_tally, _ in read), CountSummary())
        dealt_counts = [entry for *_, entries in read for entry in entries]
        counting_tasks = len(partitions)
        if cells_per_person is not None:
            index, counting_tasks = gather(store, counting.work, keys.run, part_count, dealt_counts), tasks
            ranges = [range(task * parts_per_task, (task + 1) * parts_per_task) for task in range(tasks)]
            bounded = engine.map(
                partial(counting.bound_persons, index), [(number, parts, keys) for number, parts in enumerate(ranges)]
            )
            tally = sum((task_tally for task_tally, _ in bounded), tally)
            dealt_counts = [entry for _, entries in bounded for entry in entries]
        if records.beside is not None:
            records.beside.finish(engine, tally, keys.run, counting_tasks)
        index = gather(store, counting.work, keys.run, counting.cell_parts, dealt_counts)
        summed = engine.map(partial(counting.add_up, index), [(part, keys) for part in range(counting.cell_parts)])
        index = gather(store, counting.work, keys.run, shards, [entry for entries, _ in summed for entry in entries])
    except BaseException:
        store.delete(counting.work)
        if records.beside is not None:
            store.delete(records.beside.counter.work)
        raise
    digest = hashlib.sha256(b"".join(digests for _, digests in summed)).hexdigest()
    return SparseCounts(store, counting.work, shards, index, keys.run, digest, records_read, summary)


def task_bytes(engine: Engine, dealt: np.dtype[Any] = KEYED) -> int:
    """What a task takes: a batch that is read, rows that wait to be dealt out or those of a part (``choose_part_count``), and the
    histogram that is counted beside them.
    """
    waiting = PENDING_COPIES * dealt.itemsize * pending_rows(SIZES, engine)
    return max(waiting, engine.memory_bytes // 4) + 2 * BATCH_ROWS * 64 + bytes_beside(engine)


def bound_cells(
    records: OrderedRecords, cells_per_person: int, records_per_cell: int, person_key: PersonKey
) -> tuple[Integers, Integers]:
    """The cells that count of each person, each once a person, and how many of their records count there."""
    word = person_key.hash_persons([""], purpose=b"cells")[0, 0]
    _, starts, rows = records.compress(records.rows["key"] >= 0)
    cells = rows["key"]
    places, record_counts = choose_groups(rows, starts, cells, mix_bits(cells.astype(np.uint64) ^ word), cells_per_person)
    return cells[places], np.minimum(record_counts, records_per_cell)


def sum_by_cell(cells: Integers, counts: Integers) -> Rows:
    """The cells in rising order, each once, with the sum of its counts."""
    most, cell_bits = int(counts.max(initial=0)), int(cells.max(initial=0)).bit_length()
    if cell_bits + most.bit_length() < 64:  # values are sorted in a fifth of the time of places
        count_bits = most.bit_length()
        packed = np.sort(cells << count_bits | counts)
        cells, counts = packed >> count_bits, packed & (1 << count_bits) - 1
    else:
        order = np.argsort(cells)
        cells, counts = cells[order], counts[order]
    starts = np.flatnonzero(np.diff(cells, prepend=-1))
    return count_rows(cells[starts], np.add.reduceat(counts, starts) if starts.size else counts)


def count_rows(cells: Integers, counts: Integers) -> Rows:
    """Cells with their counts, as they are dealt out."""
    rows = np.empty(cells.size, dtype=CELL_COUNT)
    rows["cell"], rows["count"] = cells, counts
    return rows


def key_numbers_of(column: Column, keys: Keys) -> Integers:
    """The number of each record's key, -1 where it has none."""
    if isinstance(keys, IntegerKeys) and (values := short_numbers(column)) is not None:
        return keys.key_numbers(values)
    encoded = encoded_texts(column)
    texts, codes = encoded.dictionary, arrow_arrays.dictionary_indices(encoded)
    key_numbers = np.full(len(texts) + 1, -1, dtype=np.int64)
    known = key_numbers[:-1]
    if isinstance(keys, IntegerKeys):
        is_short, values = short_number_texts(texts)
        known[is_short] = keys.key_numbers(values)
        texts = texts.filter(arrow_arrays.numbers(~is_short))
        known[~is_short] = keys.numbers_of(texts.to_pylist())
    else:
        known[:] = keys.numbers_of(texts.to_pylist())
    return key_numbers[codes]


@dataclass(frozen=True)
class CellCounting:
    """What tasks do to count the cells of a key space: no key is in it, so that it may be left in the store.

    Attributes:
        source: without files.
        complete: columns of which every record within the domain must have an amount.
        work: a folder of the store.
        part_count: into how many parts persons are dealt.
        cell_parts: into how many parts cells are dealt, each of neighbouring shards.
        pending: rows that a task holds before it deals them out.
        beside: the histogram of the release, which is counted from the same records.
    """

    source: Source
    domain: Domain
    complete: tuple[Attribute, ...]
    store: Store
    space: KeySpace
    cells_per_person: int | None
    records_per_cell: int
    shards: int
    work: str
    part_count: int
    cell_parts: int
    pending: int
    beside: HistogramDraft | None = None

    def deal_records(
        self, task: tuple[int, list[Partition], CountingKeys]
    ) -> tuple[int, CountSummary, CountSummary, list[DealtObject]]:
        """Read some partitions and deal their records out: by person, or by cell where records count.

        Returns: how many records were read, how reading them as cells of the domain went, for this step and for the histogram beside it,
            and what was dealt.
        """
        number, partitions, keys = task
        read_counts, summaries, tallies = [0], [CountSummary()], [CountSummary()]
        by_person = self.cells_per_person is not None
        waiting = self._waiting_records(keys.run) if by_person else self._waiting_cells(keys.run)

        def batches() -> Iterator[Batch]:
            for rows, numbers, summary, tally in self._tables(partitions, keys.persons):
                read_counts.append(int(numbers.sum()))
                summaries.append(summary)
                tallies.append(tally)
                is_in_space = rows["key"] >= 0
                if by_person:
                    is_counted = is_in_space if self.beside is None else is_in_space | (rows["cell"] >= 0)
                    waiting.add(rows if is_counted.all() else rows.compress(is_counted))
                    continue
                waiting.add(count_rows(rows["key"][is_in_space], numbers[is_in_space]))
                yield rows["cell"], None

        self._count_beside(number, keys, batches(), counts=not by_person)
        return sum(read_counts), sum(summaries, CountSummary()), sum(tallies, CountSummary()), waiting.finish()

    def bound_persons(
        self, index: ShuffleIndex, task: tuple[int, range, CountingKeys]
    ) -> tuple[CountSummary, list[DealtObject]]:
        """Deal out by cell what counts of the persons of some parts. Returns: this, and how bounding them for the histogram went."""
        number, part_range, keys = task
        assert self.cells_per_person is not None
        waiting, tallies, bounds = (
            self._waiting_cells(keys.run),
            [CountSummary()],
            (self.cells_per_person, self.records_per_cell),
        )

        def batches() -> Iterator[Batch]:
            opened = index.open_parts(self.store, keys.run)
            for part_number in part_range:
                records = order_by_person(opened.whole_part(part_number, KEYED))  # once for both that bound persons
                waiting.add(count_rows(*bound_cells(records, *bounds, keys.persons)))
                if self.beside is not None:
                    beside, counted = self.beside, records.compress(records.rows["cell"] >= 0).rows
                    yield from batches_of_persons(beside.source, beside.domain, beside.counter, counted, tallies)

        self._count_beside(number, keys, batches(), counts=True)
        return sum(tallies, CountSummary()), waiting.finish()

    def _count_beside(self, number: int, keys: CountingKeys, batches: Iterator[Batch], *, counts: bool) -> None:
        """Go through some batches, and count them into the histogram where there is one."""
        if self.beside is None or not counts:
            for _ in batches:
                pass
        else:
            self.beside.counter.count(number, keys.run, batches)

    def add_up(self, index: ShuffleIndex, task: tuple[int, CountingKeys]) -> tuple[list[DealtObject], bytes]:
        """Write the sums of the cells of a part, by shard; and the digest of each of its shards."""
        part, keys = task
        opened = index.open_parts(self.store, keys.run)
        rows = opened.whole_part(part, CELL_COUNT)
        rows = sum_by_cell(rows["cell"], rows["count"])
        shard_numbers = rows["cell"] % self.shards
        first, end = (-(-number * self.shards // self.cell_parts) for number in (part, part + 1))
        by_shard = np.argsort(shard_numbers.astype(np.min_scalar_type(self.shards)), kind="stable")
        rows, shard_numbers = rows[by_shard], shard_numbers[by_shard]
        starts = np.searchsorted(shard_numbers, range(first + 1, end))
        digests = b"".join(hashlib.sha256(shard_rows.tobytes()).digest() for shard_rows in np.split(rows, starts))
        return [deal(self.store, self.work, keys.run, self.shards, shard_numbers, rows)], digests

    def _waiting_cells(self, key: RunKey) -> PendingRows:
        """Cells that wait to be dealt out to parts of neighbouring shards; those that are the same are added up first."""

        def divide(waiting: Rows, part_count: int) -> tuple[Rows, Integers]:
            rows = sum_by_cell(waiting["cell"], waiting["count"])
            return rows, rows["cell"] % self.shards * part_count // self.shards

        return PendingRows(self.store, self.work, key, self.cell_parts, self.pending, CELL_COUNT, divide)

    def _waiting_records(self, key: RunKey) -> PendingRows:
        """Records that wait to be dealt out by person."""
        return PendingRows(self.store, self.work, key, self.part_count, self.pending, KEYED, divide_by_person)

    def _tables(
        self, partitions: list[Partition], person_key: PersonKey
    ) -> Iterator[tuple[Rows, Integers, CountSummary, CountSummary]]:
        """The rows of each table with the hash of their person, their cell and their key; how many records each stands for; and how
        reading went, for this step and for the histogram beside it, which does not count records that are dropped without a person.
        """
        source, domain = self.source, self.domain
        for partition in partitions:
            for table_index, read_table in enumerate(tables_of(source, domain, partition)):
                table, numbers = read_table, np.ones(read_table.num_rows, dtype=np.int64)
                if source.counts is not None:
                    table, numbers = counted_rows(read_table, source.counts, partition.source_label)
                # what counting will refuse later is refused before anything is charged
                cells, summary = cells_of(table, source, domain, partition.source_label)
                check_complete(table, self.complete, source, cells, partition.source_label)
                with reading(partition.source_label):
                    key_numbers = {
                        name: key_numbers_of(table[source.columns.get(name, name)], keys)
                        for name, keys in self.space.columns.items()
                    }
                rows, tally = np.zeros(table.num_rows, dtype=KEYED), summary
                rows["cell"], rows["key"] = cells, self.space.cells_of(key_numbers)
                if source.person is not None:
                    hashed, dropped = person_hashes(table, source, partition, table_index, person_key)
                    rows["high"], rows["low"] = hashed[:, 0], hashed[:, 1]
                    tally = replace(summary, dropped=summary.dropped + int((dropped & (cells >= 0)).sum()))
                    rows["cell"][dropped], rows["key"][dropped] = -1, -1
                yield rows, numbers, summary, tally
