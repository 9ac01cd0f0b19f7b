"""Persons by their number of records: private, in this process's memory alone."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpdist.domain import Domain
from dpdist.records.persons import PersonKey, person_hashes
from dpdist.records.rows import cells_of, tables_of
from dpdist.records.sources import Source, check_columns, partitions_of
from dpdist.records.wording import Called

SORTED_COPIES = 4
"""Of the persons of all records while they are sorted."""


@dataclass(frozen=True)
class CountedSizes:
    """How many persons have so many records, or records such an amount, from 0 to the most told apart, and how many records were read."""

    counts: NDArray[np.int64] = field(repr=False)
    read: int = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the numbers: only a commitment of it may be written down."""
        return hashlib.sha256(self.counts.astype("<i8").tobytes()).hexdigest()


@dataclass(frozen=True)
class RecordsOfFile:
    """Some records as counting will read them.

    Attributes:
        cells: of every record, -1 where it is dropped.
        persons: keyed hashes, (rows, 2); of no meaning without a person column.
        kept: which of them lie within the domain and have a person, or need none.
        read: how many records were read.
    """

    table: pa.Table = field(repr=False)
    called: Called
    cells: NDArray[np.int64] = field(repr=False)
    persons: NDArray[np.uint64] = field(repr=False)
    kept: NDArray[np.bool_] = field(repr=False)
    read: int = field(repr=False)


def read_records(source: Source, domain: Domain) -> Iterator[RecordsOfFile]:
    """All records, in bounded batches, as counting will read them: what that refuses is refused here. Raises: InvalidSpec, UnknownValue."""
    check_columns(source, domain)
    key = PersonKey(os.urandom(32))
    for partition in partitions_of(source):
        for place, table in enumerate(tables_of(source, domain, partition)):
            cells, tally = cells_of(table, source, domain, partition.called)
            hashes, absent = np.zeros((cells.size, 2), dtype=np.uint64), np.zeros(cells.size, dtype=bool)
            if source.person is not None:
                hashes, absent = person_hashes(table, source, partition, place, key)
            kept = (cells >= 0) & ~(absent & (source.person_missing == "drop"))
            yield RecordsOfFile(table, partition.called, cells, hashes, kept, tally.read)
