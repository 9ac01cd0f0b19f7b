"""Contributions are bounded by dealing records into buckets by a keyed hash of the person, and keeping the first of each."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from dpdist.domain import Domain
from dpdist.engine import Engine, OnDone
from dpdist.errors import InvalidSpec
from dpdist.records import listing
from dpdist.records.partials import Counter, write_whole
from dpdist.records.reading import reading
from dpdist.records.rows import CountSummary, cells_of, tables_of, texts_of
from dpdist.records.sources import Partition, PersonType, Source, partitions_of, schema_of, without_files


def count_by_person(
    source: Source, domain: Domain, counter: Counter, engine: Engine, buckets: int, on_done: OnDone | None
) -> CountSummary:
    """Count at most ``source.most_records`` records of each person into the counter's partial counts, one a bucket."""
    bare, key = without_files(source), PersonKey(os.urandom(32))
    partitions = [(number, partition, key) for number, partition in enumerate(partitions_of(source))]
    dealt = engine.map(partial(_deal_partition, bare, domain, counter.folder, buckets), partitions, on_done=on_done)
    counted = engine.map(partial(_count_bucket, source.most_records, counter), list(range(buckets)), on_done=on_done)
    return sum(dealt + counted, CountSummary())


@dataclass(frozen=True)
class PersonKey:
    """Makes hashes of persons that nobody can make without it: random for a run, and never written to a file.

    It travels with every task, in the items that the engine gives to the scheduler: the function may be left in the store.
    """

    content: bytes = field(repr=False)

    def hashed(self, person: str) -> bytes:
        """128 bits of keyed BLAKE2b."""
        return hashlib.blake2b(person.encode(), key=self.content, digest_size=16).digest()


def _deal_partition(
    source: Source, domain: Domain, folder: Path, buckets: int, task: tuple[int, Partition, PersonKey]
) -> CountSummary:
    """Write the records of one partition into one file a bucket: keyed hash of the person and cell, in record order."""
    position, partition, key = task
    tally = CountSummary()
    dealt: list[list[pa.Table]] = [[] for _ in range(buckets)]
    for table in tables_of(source, domain, partition):
        cells, part = cells_of(table, source, domain, partition[0])
        tally = tally + part
        persons = _person_hashes(table, source, partition[0], key)
        bucket = persons[:, 0] % np.uint64(buckets)
        for b in range(buckets):
            mine = (bucket == b) & (cells >= 0)
            columns = {"high": persons[mine, 0], "low": persons[mine, 1], "cell": cells[mine]}
            dealt[b].append(pa.table(columns))
    for b, tables in enumerate(dealt):
        if tables:
            write_whole(pa.concat_tables(tables), folder / f"{b}-{position:08d}.parquet")
    return tally


def _count_bucket(most: int, counter: Counter, bucket: int) -> CountSummary:
    """Keep the first ``most`` records of each person, in the order of files and rows, and count them."""
    files = sorted(counter.folder.glob(f"{bucket}-*.parquet"))
    cells = np.zeros(0, dtype=np.int64)
    beyond = 0
    if files:
        table = pa.concat_tables([pyarrow.parquet.read_table(path) for path in files])
        high, low, cell = (table[column].to_numpy() for column in ("high", "low", "cell"))
        order = np.lexsort((np.arange(high.size), low, high))
        fresh = np.ones(high.size, dtype=bool)
        fresh[1:] = (np.diff(high[order]) != 0) | (np.diff(low[order]) != 0)
        starts = np.maximum.accumulate(np.where(fresh, np.arange(high.size), 0))
        kept = np.arange(high.size) - starts < most
        cells = cell[order][kept]
        beyond = int((~kept).sum())
    counter.count(bucket, iter([(cells, None)]))
    return CountSummary(beyond_bound=beyond)


def _person_hashes(table: pa.Table, source: Source, path: str, key: PersonKey) -> NDArray[np.uint64]:
    """The keyed hash of each record's person, (rows, 2) uint64: equal for equal persons, whatever the file."""
    assert source.person is not None
    column = table[source.person]
    found = _person_type(column.type)
    if found != source.person_type:
        raise InvalidSpec(
            f"{Path(path).name}: the person column {source.person!r} holds {column.type}, expected is {source.person_type}: one person "
            "would count as several; give all files the same type, or set 'records.person.type' to 'text' or 'integer' and convert"
        )
    with reading(path):
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        encoded = texts_of(column, path).dictionary_encode()
        persons = encoded.dictionary.to_pylist()
    if column.null_count or "" in persons:
        raise InvalidSpec(
            f"{Path(path).name}: the person column {source.person!r} has missing values; remove those records first"
        )
    hashes = b"".join(map(key.hashed, persons))
    return np.asarray(np.frombuffer(hashes, dtype=np.uint64).reshape(-1, 2)[encoded.indices.to_numpy()])


def _person_type(found: pa.DataType) -> PersonType | None:
    """How a column's values name persons, None when they should not: 1.0 and 1, or two NaN, are no two persons or one."""
    kind = found.value_type if pa.types.is_dictionary(found) else found
    if pa.types.is_integer(kind):
        return "integer"
    return "text" if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind) else None


def first_person_type(source: Source, person: str) -> PersonType:
    """The type of the person column in the first file: text for CSV, which has no types."""
    path = source.files[0][0]
    if listing.kind_of(path) == "csv":
        return "text"
    column = schema_of(path, source.tags[0]).field(person).type
    found = _person_type(column)
    if found is None:
        raise InvalidSpec(
            f"{Path(path).name}: the person column {person!r} holds {column}; persons are named by text or whole numbers: convert it"
        )
    return found
