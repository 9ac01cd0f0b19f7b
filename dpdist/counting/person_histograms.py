"""What is counted of each person's records before a release: their numbers and their amounts.

Records are dealt out by person as they are to be counted, and the parts are counted one after the other in the memory of this process:
neither the numbers nor all records are anywhere at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpdist.counting.contribution_bounding import (
    HASHED,
    Dealing,
    amount_of,
    amounts_of,
    check_complete,
    choose_part_count,
    find_runs,
    first_records,
    pending_rows,
    select_records,
)
from dpdist.counting.histogram_counting import HistogramDraft
from dpdist.counting.person_keys import PersonKey
from dpdist.counting.record_cells import CountSummary, cells_of, tables_of
from dpdist.domain import Attribute, Domain
from dpdist.engine import Engine
from dpdist.engine.shuffle import Rows, RunKey, ShuffleIndex
from dpdist.sources.record_sources import Source, check_columns, group_partitions, partitions_of, without_files
from dpdist.storage.array_store import Store

Numbers = NDArray[np.int64]
Values = NDArray[np.float64]


@dataclass(frozen=True)
class CountedSizes:
    """How many persons have so many records, or records such an amount, from 0 to the most told apart, and how many records were read."""

    counts: Numbers = field(repr=False)
    records_read: int = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the numbers: only a commitment of it may be written down."""
        return hashlib.sha256(self.counts.astype("<i8").tobytes()).hexdigest()


@dataclass(frozen=True)
class PartitionedRecords:
    """Where the records of a release are read, and as what.

    Attributes:
        domain: with whose cells they are counted.
        complete: columns of which every record within the domain must have an amount, now or for something that is found later: each
            reading refuses what a later one would, so that nothing is charged before.
        person_key: makes the hashes of persons that decide which names of a person count: the same whenever the release is run.
        beside: the histogram of the release, which a reading of all records may count, too.
    """

    source: Source
    domain: Domain
    store: Store
    engine: Engine
    person_key: PersonKey
    complete: tuple[Attribute, ...] = ()
    beside: HistogramDraft | None = None

    def record_batches(self, *columns: Attribute) -> Generator[tuple[Rows, tuple[Values, ...], int]]:
        """Some records within the domain after others: all of each of their persons, the amounts of some columns, and how many were read.

        They are read as counting will read them: what that refuses is refused here, before anything is charged. Without a person column,
        parts are batches of files.
        Raises: InvalidSpec, UnknownValue, StoreError. No message tells a number that depends on the records.
        """
        check_columns(self.source, self.domain)
        partitions = partitions_of(self.source)
        if self.source.person is None:
            for partition in partitions:
                for table in tables_of(self.source, self.domain, partition):
                    cells, tally = cells_of(table, self.source, self.domain, partition.source_label)
                    rows = np.zeros(int((cells >= 0).sum()), dtype=HASHED)
                    rows["cell"] = cells[cells >= 0]
                    check_complete(table, self.complete, self.source, cells, partition.source_label)
                    column_amounts = (amounts_of(table, column, self.source, partition.source_label) for column in columns)
                    yield rows, tuple(column[cells >= 0] for column in column_amounts), tally.read
            return
        tallies = [CountSummary()]

        def deal_records(key: RunKey, work: str, part_count: int) -> ShuffleIndex:
            tasks, pending = group_partitions(partitions, self.engine.workers), pending_rows(self.store.sizes, self.engine)
            dealing = Dealing(
                without_files(self.source), self.domain, self.store, work, part_count, pending, columns, self.complete
            )
            summary, shuffle_index = dealing.deal_all(self.engine, key, tasks)
            tallies.append(summary)
            return shuffle_index

        with closing(self.read_dealt_parts(deal_records)) as opened:
            for rows in opened:
                amounts = tuple(rows[amount_of(column_index)] for column_index in range(len(columns)))
                yield rows[["high", "low", "cell"]].astype(HASHED), amounts, 0
        yield np.zeros(0, dtype=HASHED), tuple(np.zeros(0) for _ in columns), sum(tallies, CountSummary()).read

    def read_dealt_parts(self, deal_records: Callable[[RunKey, str, int], ShuffleIndex]) -> Generator[Rows]:
        """The records of one part after those of another, where a part has any."""
        key, work, part_count = RunKey.generate(), self.store.scratch(), choose_part_count(self.source, self.engine, 1)
        try:
            opened = deal_records(key, work, part_count).open_parts(self.store, key)
            for part_number in range(part_count):
                row_blocks = list(opened.rows_of_part(part_number))
                if row_blocks:
                    yield np.concatenate(row_blocks)
        finally:
            self.store.delete(work)

    def counted_positions(self, rows: Rows) -> Numbers:
        """The places of the records that count."""
        return select_records(self.source, self.domain, rows)

    def sum_parts(self, size: int, counted: Callable[..., Numbers], *columns: Attribute) -> CountedSizes:
        """So many numbers of each part, added up.

        Args:
            counted: gives those of a part, from its records and the amounts of each column.
        """
        counts, records_read = np.zeros(size, dtype=np.int64), 0
        with closing(self.record_batches(*columns)) as parts_reader:
            for rows, amounts, number in parts_reader:
                counts += counted(rows, *amounts)
                records_read += number
        return CountedSizes(counts, records_read)


def steps_of_amounts(records: PartitionedRecords, *, bounded: bool) -> int:
    """How many steps the amounts of all records within the domain have together. Raises: as ``PartitionedRecords.record_batches``.

    Args:
        bounded: whether the bounds on persons leave records out: of all records there are more.
    """

    def counted(rows: Rows) -> Numbers:
        cells = rows["cell"][records.counted_positions(rows)] if bounded else rows["cell"]
        return np.array([records.domain.divide_records(cells)[1].sum()])

    return int(records.sum_parts(1, counted).counts[0])


def steps_of_records(
    records: PartitionedRecords, name: str, steps_of: Callable[[Values], Numbers], size: int
) -> CountedSizes:
    """Records by a number of theirs; of each person the first ``source.most_records`` that have one of the declared values.

    Args:
        name: of an attribute of numbers; those of records beyond its bins are in none.
        steps_of: gives the step of every number, 0..size-1.
    Raises: as ``PartitionedRecords.record_batches``.
    """
    attribute, axis = records.domain.attribute(name), records.domain.axis(name)

    def count_part(rows: Rows, numbers: Values) -> Numbers:
        positions = np.flatnonzero(codes_of(rows["cell"], records.domain)[axis] < attribute.values)
        if records.source.person is not None:
            positions = positions[first_records(rows[positions], records.source.most_records)]
        return np.bincount(steps_of(numbers[positions]), minlength=size)

    return records.sum_parts(size, count_part, attribute)


def codes_of(cells: Numbers, domain: Domain) -> tuple[Numbers, ...]:
    """The value of every cell in each attribute, by its number."""
    return np.unravel_index(cells, tuple(attribute.kinds for attribute in domain.attributes))


def count_pairs(
    first_keys: Numbers, second_keys: Numbers, numbers: Numbers | None = None
) -> tuple[Numbers, Numbers, Numbers]:
    """Different pairs in rising order, and how often each occurs, or the sum of its numbers."""
    order = np.lexsort((second_keys, first_keys))
    first_keys, second_keys = first_keys[order], second_keys[order]
    starts = find_runs(first_keys, second_keys)
    counted = np.ones(first_keys.size, dtype=np.int64) if numbers is None else numbers[order]
    return first_keys[starts], second_keys[starts], np.add.reduceat(counted, starts) if starts.size else counted
