"""The occupied cells of a key space, with their counts: private, in this process's memory alone.

The records are read here, batch by batch. Where persons are told apart they are dealt out by person, sealed, and counted part by part: of
each person some cells count, and some records in each of them. What takes memory is the number of occupied cells, never that of the space.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpdist.counting.contribution_bounding import HASHED, PersonKey, check_complete, person_hashes
from dpdist.counting.group_choice import choose_groups, mix_bits
from dpdist.counting.person_histograms import PartitionedRecords
from dpdist.counting.record_cells import cells_of, tables_of
from dpdist.domain.key_spaces import KeySpace
from dpdist.engine.shuffle import Rows
from dpdist.process import arrow_arrays
from dpdist.sources.formats.column_conversion import texts_of
from dpdist.sources.formats.weighted_rows import counted_rows
from dpdist.sources.reader_errors import reading
from dpdist.sources.record_sources import check_columns, partitions_of

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class SparseCounts:
    """Occupied cells in rising order, with the records of each, and how many records were read; nothing shows in a repr."""

    cells: Integers = field(repr=False)
    counts: Integers = field(repr=False)
    records_read: int = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of cells and counts: only a commitment of it may be written down."""
        hasher = hashlib.sha256(self.cells.astype("<i8").tobytes())
        hasher.update(self.counts.astype("<i8").tobytes())
        return hasher.hexdigest()


def count_cells(
    records: PartitionedRecords, space: KeySpace, *, cells_per_person: int | None, records_per_cell: int
) -> SparseCounts:
    """The occupied cells of a key space; records with a key that the space does not have are in none.

    Args:
        cells_per_person: how many different cells of a person count at most, chosen by a keyed random order; None where records count.
        records_per_cell: how many records of a person count in each of them at most.
    Raises: InvalidSpec for a missing column or a file that cannot be read; StoreError. No message tells a number of the records.
    """
    check_columns(records.source, records.domain)
    reader = _CellReader(records, space)
    total = _Totals()
    if cells_per_person is None:
        for _, cells, numbers in reader.tables():
            total.add(cells[cells >= 0], numbers[cells >= 0])
    else:
        with closing(records.deal_out(reader.rows())) as person_parts:
            for rows in person_parts:
                total.add(*bound_cells(rows, cells_per_person, records_per_cell, records.person_key))
    return SparseCounts(*total.sums(), reader.records_read)


def bound_cells(
    rows: Rows, cells_per_person: int, records_per_cell: int, person_key: PersonKey
) -> tuple[Integers, Integers]:
    """The cells that count of each person, each once a person, and how many of their records count there."""
    word = person_key.hash_persons([""], purpose=b"cells")[0, 0]
    cells = rows["cell"]
    places, record_counts = choose_groups(rows, cells, mix_bits(cells.astype(np.uint64) ^ word), cells_per_person)
    return cells[places], np.minimum(record_counts, records_per_cell)


@dataclass
class _CellReader:
    """The cells of the records as they are read."""

    records: PartitionedRecords
    space: KeySpace
    records_read: int = field(default=0, repr=False)

    def tables(self) -> Iterator[tuple[Rows, Integers, Integers]]:
        """The hash of each row's person, its cell, -1 where it has none, and how many records it stands for."""
        source, domain = self.records.source, self.records.domain
        for partition in partitions_of(source):
            for table_index, read_table in enumerate(tables_of(source, domain, partition)):
                table, numbers = read_table, np.ones(read_table.num_rows, dtype=np.int64)
                if source.counts is not None:
                    table, numbers = counted_rows(read_table, source.counts, partition.source_label)
                # what counting will refuse later is refused before anything is charged
                domain_cells, _ = cells_of(table, source, domain, partition.source_label)
                check_complete(table, self.records.complete, source, domain_cells, partition.source_label)
                key_numbers = {}
                for name, keys in self.space.columns.items():
                    with reading(partition.source_label):
                        encoded = texts_of(table[source.columns.get(name, name)]).dictionary_encode()
                        codes = arrow_arrays.dictionary_indices(encoded)
                        known = keys.numbers_of(encoded.dictionary.to_pylist())
                    key_numbers[name] = np.append(known, -1)[codes]
                cells = self.space.cells_of(key_numbers)
                hashed = np.zeros((table.num_rows, 2), dtype=np.uint64)
                if source.person is not None:
                    hashed, dropped = person_hashes(table, source, partition, table_index, self.records.person_key)
                    cells = np.where(dropped, -1, cells)
                self.records_read += int(numbers.sum())
                yield hashed, cells, numbers

    def rows(self) -> Iterator[Rows]:
        """The records that have a cell and a person."""
        for hashed, cells, _ in self.tables():
            is_counted = cells >= 0
            rows = np.empty(int(is_counted.sum()), dtype=HASHED)
            rows["high"], rows["low"], rows["cell"] = hashed[is_counted, 0], hashed[is_counted, 1], cells[is_counted]
            yield rows


MERGED_CELLS = 2**22
"""Cells that are held before those that are the same are added up."""


class _Totals:
    """Numbers by cell, added up."""

    def __init__(self) -> None:
        self._parts: list[tuple[Integers, Integers]] = []
        self._held, self._most = 0, MERGED_CELLS

    def add(self, cells: Integers, numbers: Integers) -> None:
        """Add a number to each of some cells, of which some may be the same."""
        self._parts.append((cells, numbers))
        self._held += cells.size
        if self._held > self._most:
            merged = self.sums()
            self._parts, self._held = [merged], merged[0].size
            self._most = max(MERGED_CELLS, 2 * self._held)  # as many must come before they are merged again

    def sums(self) -> tuple[Integers, Integers]:
        """The cells in rising order, with the sum of each."""
        none = np.zeros(0, dtype=np.int64)
        cells = np.concatenate([none, *(part_cells for part_cells, _ in self._parts)])
        numbers = np.concatenate([none, *(part_numbers for _, part_numbers in self._parts)])
        order = np.argsort(cells, kind="stable")
        cells, numbers = cells[order], numbers[order]
        starts = np.flatnonzero(np.diff(cells, prepend=-1))
        return cells[starts], np.add.reduceat(numbers, starts) if starts.size else numbers
