"""Records to counts: one int64 a cell, in the store, however many records there are.

Sources are Parquet and CSV files (plain or gz) and folders of them. Each task counts some partitions into a partial
histogram; a second round sums the partials shard by shard. A histogram that does not fit in a worker's memory is counted
sparsely: tasks write (position, count) pairs, dealt out by ranges of positions. When a person column bounds contributions,
records are first dealt into buckets by a hash of the person, so that all records of one person meet in one task whatever
file they are in. The hash has a key of the run, which exists in memory only: what a killed run leaves names nobody.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from dpdist.domain import OUTSIDE, Attribute, Domain, EvenEdges, Layout
from dpdist.engine import Engine, OnDone
from dpdist.errors import InvalidInput, InvalidSpec, UnknownValue
from dpdist.leases import Lease
from dpdist.privacy import keys
from dpdist.privacy.keys import Secret
from dpdist.privacy.protection import Protection
from dpdist.records import listing
from dpdist.records.hashing import HashedFile, Tags, hashed
from dpdist.records.reading import reading
from dpdist.sizes import SIZES
from dpdist.stability import Distance
from dpdist.store import ArrayPlan, Store, StoredArray
from dpdist.threads import in_order

BATCH_ROWS = 250_000
PARTS_A_WORKER = 4
PersonType = Literal["text", "integer"]
"""How persons are told apart: by their text as it is, or as whole numbers (1 is 01)."""


@dataclass(frozen=True)
class Source:
    """Where the records are.

    Attributes:
        files: data files in order, with the SHA-256 of their bytes.
        tags: for each file, what its blocks must be when they are read.
        columns: attribute name -> column name, where they differ.
        header: column names of CSV files without a header row; empty when there is one.
        person: column that identifies the person behind a record; None when bounds are declared, not enforced.
        most_records: records kept of each person when ``person`` is set.
        person_type: of the person column in all files; None takes that of the first file.
    """

    files: tuple[tuple[str, str], ...]
    columns: dict[str, str]
    header: tuple[str, ...] = ()
    person: str | None = None
    most_records: int = 1
    tags: tuple[Tags, ...] = field(default=(), repr=False, compare=False)
    person_type: PersonType | None = None

    @property
    def digest(self) -> str:
        """SHA-256 of the contents and of how they are read; paths do not enter."""
        facts = [
            [digest for _, digest in self.files],
            sorted(self.columns.items()),
            self.header,
            self.person,
            self.most_records,
            *([self.person_type] if self.person_type else []),
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


@dataclass(frozen=True)
class CountSummary:
    """How reading went. Private: for the operator's eyes, never part of anything published."""

    read: int = 0
    dropped: int = 0
    clipped: int = 0
    beyond_bound: int = 0

    def __add__(self, other: CountSummary) -> CountSummary:
        return CountSummary(
            self.read + other.read,
            self.dropped + other.dropped,
            self.clipped + other.clipped,
            self.beyond_bound + other.beyond_bound,
        )


def source_of(
    location: Path,
    *,
    columns: dict[str, str],
    header: tuple[str, ...] = (),
    person: str | None = None,
    most_records: int = 1,
    person_type: PersonType | None = None,
) -> Source:
    """The files behind a path: one file, or every .parquet, .csv and .csv.gz file of a folder."""
    paths = listing.listed(location)
    found = list(in_order(_hashed, paths))
    files = tuple((str(path), digest) for path, (digest, _) in zip(paths, found, strict=True))
    seen: dict[str, str] = {}
    for path, digest in files:
        if digest in seen and not listing.is_empty(Path(path), header=not header):
            raise InvalidSpec(
                f"{Path(seen[digest]).name} and {Path(path).name} hold the same records: every record would count twice; "
                "remove one of them"
            )
        seen[digest] = path
    return Source(files, columns, header, person, most_records, tuple(tags for _, tags in found), person_type)


def count(
    source: Source,
    domain: Domain,
    store: Store,
    engine: Engine,
    *,
    scratch: Path,
    root: Secret,
    tables: tuple[tuple[int, ...], ...] = (),
    on_done: OnDone | None = None,
) -> tuple[StoredArray, CountSummary]:
    """The histogram of all records, counted once for each content of the source and domain.

    Args:
        tables: attribute sets whose marginal tables are counted instead of all cells, which may then be up to 2^63.
        scratch: folder that all workers reach, for records dealt out by person and for sparse counts.
        root: the root key, under which histograms are named: a plain digest of records tells more than a name should.
    Returns: (counts,) int64 in the order of ``Layout``, in the store under ``histograms/<commitment to source and domain>``, and the tally.
    Raises: UnknownValue, InvalidSpec (missing columns), InvalidInput (more than 2^63 cells).
    """
    layout = Layout(domain.shape, tables)
    name = f"histograms/{keys.commitment(root, 'histogram', _count_digest(source, domain, tables))[:32]}"
    if store.exists(name):
        stored = store.open(name)
        return stored, CountSummary(**stored.facts["private_tally"])
    _check_columns(source, domain)
    if source.person is not None and source.person_type is None:
        source = replace(source, person_type=_first_person_type(source, source.person))
    if domain.cells >= 2**63:
        raise InvalidInput(f"a domain has up to 2^63 cells, found {float(domain.cells):.3g}; use fewer attributes")
    work, lease = store.scratch(), Lease(str(scratch))
    folder = scratch / "scratch" / lease.id
    plan = store.plan(name, (layout.size,), np.int64)
    counter = Counter(layout, store, work, folder, plan.shard_rows * _shards_a_range(plan, engine), _sparse(layout, engine))
    folder.mkdir(mode=0o700, parents=True)
    try:
        parts = engine.workers * PARTS_A_WORKER
        if source.person is not None:
            tasks, tally = parts, _count_by_person(source, domain, counter, engine, parts, on_done)
        else:
            bare, groups = _without_files(source), list(enumerate(_grouped(_partitions(source), parts)))
            counted = engine.map(partial(_count_partitions, bare, domain, counter), groups, on_done=on_done)
            tasks, tally = len(groups), sum(counted, CountSummary())
        stored = _summed(counter, plan, engine, tally, tasks)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lease.end()
        store.delete(work)
    return stored, tally


def distance_out(protection: Protection) -> Distance:
    """How far one change of the files can move the counts of all cells.

    With a person column one change touches the records of one person alone. Whatever the files, at most ``most_records`` of them
    count, and which records of others count does not depend on them. Without one it touches ``most_records`` records. A record
    raises one count by one, or none when it is dropped.
    """
    return Distance(protection.most_records, protection.neighbours == "replace-one")


DENSE_COPIES = 3
"""Arrays of all counts that a task holds at once when it counts densely."""


def task_bytes(layout: Layout, engine: Engine) -> int:
    """What a task of counting takes: all counts, or pending pairs and then the counts of a range."""
    batch = 2 * BATCH_ROWS * 64
    if not _sparse(layout, engine):
        return DENSE_COPIES * 8 * layout.size + batch
    return max(PAIR_COPIES * 16 * SIZES.pending_pairs, engine.memory_bytes // 4 + 2 * SIZES.shard_bytes) + batch


PAIR_COPIES = 6
"""Copies of pending pairs while they are sorted and added up."""


def _sparse(layout: Layout, engine: Engine) -> bool:
    return DENSE_COPIES * 8 * layout.size + 2 * BATCH_ROWS * 64 > engine.memory_bytes


def _shards_a_range(plan: ArrayPlan, engine: Engine) -> int:
    """Shards whose counts one task sums from pairs, as many as take a quarter of a worker's memory."""
    return max(1, min(plan.shards // max(1, engine.workers), engine.memory_bytes // 4 // (8 * plan.shard_rows)))


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

    def count(self, task: int, cells: Iterator[NDArray[np.int64]]) -> None:
        """Count the records of a task by their cells. Running it again writes the same."""
        if not self.sparse:
            counts = np.zeros(self.layout.size, dtype=np.int64)
            for batch in cells:
                np.add.at(counts, self.layout.positions(batch), 1)
            narrow = np.min_scalar_type(int(counts.max(initial=0)))  # a partial count is small: it is written in few bytes
            self.store.put(f"{self.work}/{task}", counts.astype(narrow))
            return
        position, number = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        flushed = 0
        for batch in cells:
            more = self.layout.positions(batch)
            position, place = np.unique(np.concatenate([position, more]), return_inverse=True)
            weights = np.concatenate([number, np.ones(more.size, dtype=np.int64)])
            number = np.zeros(position.size, dtype=np.int64)
            np.add.at(number, place, weights)
            if position.size > self.store.sizes.pending_pairs:
                self._write_pairs(task, flushed, position, number)
                position, number, flushed = position[:0], number[:0], flushed + 1
        self._write_pairs(task, flushed, position, number)

    def _write_pairs(self, task: int, part: int, position: NDArray[np.int64], number: NDArray[np.int64]) -> None:
        """Sorted pairs, one file for every range of positions that they touch."""
        which = position // self.range_size
        for start, stop in pairwise([*np.flatnonzero(np.diff(which, prepend=-1)), position.size]):
            pairs = pa.table({"position": position[start:stop], "number": number[start:stop]})
            _write_whole(pairs, self.folder / f"range-{which[start]}-{task:08d}-{part:04d}.parquet")

    def total(self, plan: ArrayPlan, shards: range, tasks: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """The counts of some shards that lie in one range, summed over all tasks."""
        first = plan.bounds(shards[0])[0]
        if not self.sparse:
            parts = [self.store.open(f"{self.work}/{task}") for task in range(tasks)]
            for shard in shards:
                start, stop = plan.bounds(shard)
                yield (
                    shard,
                    sum((self.store.read_rows(part, start, stop) for part in parts), np.zeros(stop - start, np.int64)),
                )
            return
        counts = np.zeros(plan.bounds(shards[-1])[1] - first, dtype=np.int64)
        for path in sorted(self.folder.glob(f"range-{first // self.range_size}-*.parquet")):
            pairs = pyarrow.parquet.read_table(path)
            counts[pairs["position"].to_numpy() - first] += pairs["number"].to_numpy()
        for shard in shards:
            start, stop = plan.bounds(shard)
            yield shard, counts[start - first : stop - first]


def _write_whole(table: pa.Table, path: Path) -> None:
    """Write a file in one step: a task that runs twice at once never leaves half of it."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")
    pyarrow.parquet.write_table(table, draft)
    draft.replace(path)


def _written(edges: Sequence[float]) -> Sequence[object]:
    return ["even", edges.first, edges.width, edges.bins] if isinstance(edges, EvenEdges) else edges


def _count_digest(source: Source, domain: Domain, tables: tuple[tuple[int, ...], ...]) -> str:
    facts = [[a.name, a.categories, _written(a.edges), a.outside] for a in domain.attributes]
    return hashlib.sha256(f"{source.digest}{json.dumps([facts, tables])}".encode()).hexdigest()[:32]


class Partition(NamedTuple):
    """A file and, for Parquet, one of its row groups."""

    path: str
    group: int | None
    tags: Tags


def _partitions(source: Source) -> list[Partition]:
    out: list[Partition] = []
    for (path, _), tags in zip(source.files, source.tags, strict=True):
        if listing.kind_of(Path(path)) == "parquet":
            with reading(path), HashedFile(path, tags) as file:
                groups = pyarrow.parquet.ParquetFile(file).num_row_groups
            out += [Partition(path, group, tags) for group in range(groups)]
        else:
            out.append(Partition(path, None, tags))
    return out


def _without_files(source: Source) -> Source:
    """How records are read, for tasks that are told which files are theirs."""
    return replace(source, files=(), tags=())


def _grouped(items: list[Partition], groups: int) -> list[list[Partition]]:
    count_of = max(1, min(groups, len(items)))
    return [items[i * len(items) // count_of : (i + 1) * len(items) // count_of] for i in range(count_of)]


def _count_partitions(source: Source, domain: Domain, counter: Counter, task: tuple[int, list[Partition]]) -> CountSummary:
    number, partitions = task
    tallies: list[CountSummary] = []

    def batches() -> Iterator[NDArray[np.int64]]:
        for partition in partitions:
            for table in _tables(source, domain, partition):
                cells, tally = _cells(table, source, domain, partition[0])
                tallies.append(tally)
                yield cells

    counter.count(number, batches())
    return sum(tallies, CountSummary())


def _summed(counter: Counter, plan: ArrayPlan, engine: Engine, tally: CountSummary, tasks: int) -> StoredArray:
    store, step = counter.store, counter.range_size // plan.shard_rows
    store.begin(plan)
    ranges = [range(first, min(first + step, plan.shards)) for first in range(0, plan.shards, step)]
    digests = engine.map(partial(_sum_range, counter, plan, tasks), ranges)
    return store.finish(plan, [digest for some in digests for digest in some], {"private_tally": tally.__dict__})


def _sum_range(counter: Counter, plan: ArrayPlan, tasks: int, shards: range) -> list[str]:
    return [counter.store.write_shard(plan, shard, counts) for shard, counts in counter.total(plan, shards, tasks)]


def _count_by_person(
    source: Source, domain: Domain, counter: Counter, engine: Engine, buckets: int, on_done: OnDone | None
) -> CountSummary:
    bare, key = _without_files(source), PersonKey(os.urandom(32))
    partitions = [(number, partition, key) for number, partition in enumerate(_partitions(source))]
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
    for table in _tables(source, domain, partition):
        cells, part = _cells(table, source, domain, partition[0])
        tally = tally + part
        persons = _person_hashes(table, source, partition[0], key)
        bucket = persons[:, 0] % np.uint64(buckets)
        for b in range(buckets):
            mine = (bucket == b) & (cells >= 0)
            columns = {"high": persons[mine, 0], "low": persons[mine, 1], "cell": cells[mine]}
            dealt[b].append(pa.table(columns))
    for b, tables in enumerate(dealt):
        if tables:
            _write_whole(pa.concat_tables(tables), folder / f"{b}-{position:08d}.parquet")
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
    counter.count(bucket, iter([cells]))
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
        encoded = _texts(column, path).dictionary_encode()
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


def _first_person_type(source: Source, person: str) -> PersonType:
    """The type of the person column in the first file: text for CSV, which has no types."""
    path = source.files[0][0]
    if listing.kind_of(Path(path)) == "csv":
        return "text"
    with reading(path), HashedFile(path, source.tags[0]) as file:
        column = pyarrow.parquet.read_schema(file).field(person).type
    found = _person_type(column)
    if found is None:
        raise InvalidSpec(
            f"{Path(path).name}: the person column {person!r} holds {column}; persons are named by text or whole numbers: convert it"
        )
    return found


def _tables(source: Source, domain: Domain, partition: Partition) -> Iterator[pa.Table]:
    """The needed columns of a partition, in bounded batches."""
    wanted = _wanted(source, domain)
    batches = (_csv_batches if partition.group is None else _parquet_batches)(source, domain, partition, wanted)
    while True:
        with reading(partition.path):
            batch = next(batches, None)
        if batch is None:
            return
        yield pa.Table.from_batches([batch])


def _wanted(source: Source, domain: Domain) -> list[str]:
    """The columns that are read."""
    columns = [source.columns.get(a.name, a.name) for a in domain.attributes] + ([source.person] if source.person else [])
    return list(dict.fromkeys(columns))


def _parquet_batches(source: Source, domain: Domain, partition: Partition, wanted: list[str]) -> Iterator[pa.RecordBatch]:
    del source, domain
    with HashedFile(partition.path, partition.tags) as file:
        parquet = pyarrow.parquet.ParquetFile(file, page_checksum_verification=True)
        listing.check_names(parquet.schema_arrow.names, wanted, partition.path)
        yield from parquet.iter_batches(BATCH_ROWS, row_groups=[partition.group], columns=wanted)


def _csv_batches(source: Source, domain: Domain, partition: Partition, wanted: list[str]) -> Iterator[pa.RecordBatch]:
    """Each column has the type that its attribute needs, whatever the first rows look like."""
    listing.check_names(_header(source, partition.path, partition.tags), wanted, partition.path)
    texts = [source.columns.get(a.name, a.name) for a in domain.attributes if a.categories]
    types = {**dict.fromkeys(wanted, pa.float64()), **dict.fromkeys(texts, pa.string())}
    if source.person is not None:
        types[source.person] = pa.int64() if source.person_type == "integer" else pa.string()
    with (
        HashedFile(partition.path, partition.tags) as file,
        pyarrow.csv.open_csv(
            _unpacked(file, partition.path),
            read_options=pyarrow.csv.ReadOptions(
                column_names=list(source.header) or None, block_size=listing.CSV_BLOCK_BYTES
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=wanted, column_types=types, strings_can_be_null=False
            ),
        ) as reader,
    ):
        yield from reader


def _header(source: Source, path: str, tags: Tags) -> Sequence[str]:
    """The names of a CSV file's columns."""
    if source.header:
        return source.header
    with reading(path), HashedFile(path, tags) as file:
        return listing.header_of(_unpacked(file, path), path)


def _unpacked(file: HashedFile, path: str) -> pa.NativeFile:
    plain = pa.PythonFile(file, mode="r")
    return pa.CompressedInputStream(plain, "gzip") if path.lower().endswith(".gz") else plain


def _cells(table: pa.Table, source: Source, domain: Domain, path: str) -> tuple[NDArray[np.int64], CountSummary]:
    """Cell of every record, -1 where the record is dropped."""
    rows = table.num_rows
    flat = np.zeros(rows, dtype=np.int64)
    lost = np.zeros(rows, dtype=bool)
    clipped = 0
    for attribute in domain.attributes:
        with reading(path):
            codes, moved = _codes(table[source.columns.get(attribute.name, attribute.name)], attribute, path)
        outside = codes == OUTSIDE
        if attribute.outside == "error" and outside.any():
            raise UnknownValue(attribute.name, Path(path).name, not attribute.categories)
        lost |= outside
        clipped += moved
        flat *= attribute.size
        flat += codes
    flat[lost] = -1
    return flat, CountSummary(rows, int(lost.sum()), clipped)


def _codes(column: pa.ChunkedArray, attribute: Attribute, path: str) -> tuple[NDArray[np.int64], int]:
    if attribute.edges:
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)):
            raise InvalidSpec(
                f"{Path(path).name}: attribute {attribute.name!r} has bins, its column holds {column.type}; "
                "declare categories or convert the column to numbers"
            )
        if pa.types.is_integer(column.type) and column.null_count == 0:
            return attribute.encode(column.to_numpy())
        return attribute.encode(pc.fill_null(column.cast(pa.float64()), float("nan")).to_numpy())
    encoded = _texts(column, path).dictionary_encode()
    known, _ = attribute.encode(np.array(encoded.dictionary.to_pylist() or [""], dtype=str))
    codes = known[np.asarray(pc.fill_null(encoded.indices, 0))]
    return np.where(np.asarray(encoded.is_null()), OUTSIDE, codes), 0


def _texts(column: pa.ChunkedArray, path: str) -> pa.Array:
    """A column's values as texts. Raises: InvalidSpec for types without one way to write them, and for bytes that are not UTF-8."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_nested(kind):
        raise InvalidSpec(
            f"{Path(path).name}: a column holds {kind}, allowed are texts, numbers, dates and yes or no; write one value a row"
        )
    texts = column.cast(pa.string()).combine_chunks()
    texts.validate(full=True)
    return texts


def _check_columns(source: Source, domain: Domain) -> None:
    """The first file's columns, before anything is prepared. Raises: InvalidSpec."""
    path = source.files[0][0]
    if listing.kind_of(Path(path)) == "parquet":
        with reading(path), HashedFile(path, source.tags[0]) as file:
            found: Sequence[str] = pyarrow.parquet.read_schema(file).names
    else:
        found = _header(source, path, source.tags[0])
    listing.check_names(found, _wanted(source, domain), path)


def _hashed(path: Path) -> tuple[str, Tags]:
    with reading(path):
        return hashed(path)


def write_records(table: pa.Table, folder: Path) -> Path:
    """An Arrow table as a Parquet file named by its content, for the readers above."""
    if table.num_columns == 0:
        raise InvalidInput("the table of records has no column")
    folder.mkdir(parents=True, exist_ok=True)
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink, row_group_size=BATCH_ROWS)
    data = sink.getvalue().to_pybytes()
    path = folder / f"{hashlib.sha256(data).hexdigest()[:32]}.parquet"
    path.write_bytes(data)
    return path
