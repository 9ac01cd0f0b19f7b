"""Where the records are: files with their digests, their partitions and columns."""

from __future__ import annotations

import collections
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from dpdist.domain import Domain
from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.process.durable_files import private_file
from dpdist.process.threads import map_in_order
from dpdist.sources import file_listing
from dpdist.sources.column_types import ColumnType
from dpdist.sources.formats import array_files
from dpdist.sources.formats.csv_grammar import DEFAULT_GRAMMAR, Grammar
from dpdist.sources.formats.format_registry import known_format, row_format
from dpdist.sources.formats.record_format import BATCH_ROWS, Partition, WantedRows, check_names
from dpdist.sources.reader_errors import reading
from dpdist.sources.source_labels import File, SourceLabel
from dpdist.sources.verified_files import HashedFile, Tags
from dpdist.storage.objects import parse_location


class ArrowStream(Protocol):
    """Whatever gives record batches: Arrow's tables and readers, frames of Polars and pandas, relations of DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


PersonType = Literal["text", "integer"]
"""How persons are distinguished: by their text, or as whole numbers (1 is 01)."""
PersonMissing = Literal["drop", "each"]
"""What becomes of records that name no person: they do not count, or each is a person of its own."""


@dataclass(frozen=True)
class Participations:
    """In which steps of a series the records of one person are kept: in up to ``most_steps``, each ``separation`` or more after the last.

    Attributes:
        attribute: the attribute that holds the steps.
    """

    attribute: str
    most_steps: int
    separation: int


@dataclass(frozen=True)
class PersonColumn:
    """The column that identifies the person behind a record, and which records of one person are kept.

    Attributes:
        type: what persons are compared as in all files.
        missing: what becomes of records that name no person; None: they are refused.
        most_groups: cells of each person in which so many records each are kept; None: so many records in all.
        participations: steps of each person in which so many records each are kept; None: so many records in all.
    """

    name: str
    type: PersonType = "text"
    missing: PersonMissing | None = None
    most_groups: int | None = None
    participations: Participations | None = None

    @property
    def facts(self) -> list[Any]:
        """What a digest of the records covers beside its name."""
        return [
            *([["groups", self.most_groups]] if self.most_groups else []),
            *([["participations", *astuple(self.participations)]] if self.participations else []),
            self.type,
            *([["missing", self.missing]] if self.missing else []),
        ]


@dataclass(frozen=True)
class Source:
    """Where the records are.

    Attributes:
        files: data files in order, with the SHA-256 of their bytes.
        tags: for each file, what its blocks must be when they are read.
        columns: attribute name -> column name, where they differ.
        header: column names of CSV files without a header row; empty when there is one.
        person: who is behind a record; None when bounds are declared, not enforced.
        most_records: records kept of each person when ``person`` is set.
        counts: column that says how many records a row stands for; None: a row is a record.
        snapshot: which state of a table the file holds; "" where it is of no such table.
        named: for each file, the columns that its folders name, with their values; empty where they name none that is read.
        grammar: how CSV files are written.
        types: of columns, as declared; each value is converted by itself.
    """

    files: tuple[tuple[str, str], ...]
    columns: dict[str, str] = field(default_factory=dict)
    header: tuple[str, ...] = ()
    person: PersonColumn | None = None
    most_records: int = 1
    tags: tuple[Tags, ...] = field(default=(), repr=False, compare=False)
    counts: str | None = None
    named: tuple[file_listing.FolderColumns, ...] = ()
    snapshot: str = ""
    grammar: Grammar = DEFAULT_GRAMMAR
    types: Mapping[str, ColumnType] = field(default_factory=dict)

    @property
    def own_columns(self) -> list[str]:
        """The columns that are read beside those that are counted: persons, and how many records a row stands for."""
        return [name for name in (None if self.person is None else self.person.name, self.counts) if name is not None]

    @property
    def digest(self) -> str:
        """SHA-256 of the contents and of how they are read; of paths only what their folders say of the records."""
        facts = [
            [digest for _, digest in self.files],
            sorted(self.columns.items()),
            self.header,
            self.person and self.person.name,
            self.most_records,
            *(self.person.facts if self.person else []),
            *([["types", sorted(self.types.items())]] if self.types else []),
            *([["counts", self.counts]] if self.counts else []),
            *([["snapshot", self.snapshot]] if self.snapshot else []),
            *([["csv", self.grammar.facts]] if self.grammar.facts else []),
            *([["named", [sorted(folder_columns.items()) for folder_columns in self.named]]] if self.named else []),
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


Hashing = Callable[[Sequence[File]], list[tuple[str, Tags]]]
"""Gives the SHA-256 and the tags of files, in their order."""


def hash_in_process(files: Sequence[File]) -> list[tuple[str, Tags]]:
    """The SHA-256 and the tags of files, by threads of this process."""
    return list(map_in_order(hash_file, files))


def source_of(
    location: str | Path,
    *,
    hashing: Hashing = hash_in_process,
    attributes: Iterable[str] = (),
    source_label: SourceLabel | None = None,
    files: list[File] | None = None,
    **options: Any,
) -> Source:
    """The files behind a path or URL: one file, or every file of records of a folder.

    Args:
        attributes: names of those that are counted, whose columns may be named by folders.
        source_label: what messages call the place; default the last part of its path.
        files: some of the files of the folder, in place of all.
        options: they are read: fields of ``Source``.
    """
    source_files = files or file_listing.list_files(location, source_label)
    settings = Source((), **options)
    counted_columns = [settings.columns.get(name, name) for name in attributes]
    named = _columns_of_folders(location, source_files, counted_columns, settings.own_columns)
    record_location = parse_location(location)
    hashes = hashing(source_files)
    digested = tuple((file.path, digest) for file, (digest, _) in zip(source_files, hashes, strict=True))
    every_tag = tuple(tags.with_label(file.source_label) for file, (_, tags) in zip(source_files, hashes, strict=True))
    labels_by_content: dict[tuple[object, ...], SourceLabel] = {}
    for (path, digest), tags in zip(digested, every_tag, strict=True):
        content = (digest, *sorted(file_listing.named_by_folders(record_location, path).items()))
        if content in labels_by_content and not _is_empty(
            path, tags, WantedRows((), header=settings.header, grammar=settings.grammar)
        ):
            raise InvalidSpec(
                f"{labels_by_content[content]} and {tags.source_label} hold the same records: every record would count twice; remove one "
                "of them, or, where both are meant, put their records into one file, or each into a folder that names a column (year=2026)"
            )
        labels_by_content[content] = tags.source_label
    return replace(settings, files=digested, tags=every_tag, named=named)


def _columns_of_folders(
    location: str | Path, files: list[File], counted_columns: list[str], own_columns: list[str]
) -> tuple[file_listing.FolderColumns, ...]:
    """For each file the wanted columns that its folders name; nothing where none is. Raises: InvalidSpec unless all name the same."""
    record_location = parse_location(location)
    columns_by_file = [file_listing.named_by_folders(record_location, file.path) for file in files]
    folder_names = [
        name
        for name in dict.fromkeys([*counted_columns, *own_columns])
        if any(name in file_columns for file_columns in columns_by_file)
    ]
    for name in folder_names:
        if name in own_columns:
            raise InvalidSpec(f"the folders name the column {name!r}, which must stand in the files, record by record")
        other_label = next(
            (
                file.source_label
                for file, file_columns in zip(files, columns_by_file, strict=True)
                if name not in file_columns
            ),
            None,
        )
        if other_label is not None:
            raise InvalidSpec(
                f"the folders of some files name the column {name!r}, those of {other_label} do not; name it for all, or for none"
            )
    return (
        tuple({name: file_columns[name] for name in folder_names} for file_columns in columns_by_file)
        if folder_names
        else ()
    )


def _is_empty(path: str, tags: Tags, wanted_rows: WantedRows) -> bool:
    """Whether a file holds no record: no row of Parquet or Arrow, nothing below the header row of a CSV file."""
    format_ = row_format(path)
    if format_ is None:  # an array has all its cells
        return False
    with reading(tags.source_label), HashedFile(path, tags) as file:
        return format_.is_empty(file, File(path, tags.source_label), wanted_rows)


def hash_file(file: File) -> tuple[str, Tags]:
    """The SHA-256 and the tags of a file. Raises: InvalidSpec when it cannot be read."""
    with reading(file.source_label):
        return known_format(file.path).hash_file(file)


def partitions_of(source: Source) -> list[Partition]:
    """What tasks count: row groups of Parquet files, batches of Arrow files, CSV and JSON files whole, and arrays part by part."""
    named = source.named or ({},) * len(source.files)
    hashed_files = zip(source.files, source.tags, named, strict=True)
    partition_lists = (
        known_format(path).partitions(path, tags, tuple(folder_columns.items()))
        for (path, _), tags, folder_columns in hashed_files
    )
    return [partition for partitions in partition_lists for partition in partitions]


def group_partitions(items: list[Partition], groups: int) -> list[list[Partition]]:
    """Partitions in their order, divided into at most so many groups of about as many bytes, none of them empty."""
    if not items:
        return [[]]
    partition_counts = collections.Counter(item.path for item in items)
    sizes = np.array([max(1.0, item.tags.size / partition_counts[item.path]) for item in items])
    group_numbers = ((np.cumsum(sizes) - sizes / 2) * groups / sizes.sum()).astype(int)
    return [[items[i] for i in np.flatnonzero(group_numbers == group)] for group in dict.fromkeys(group_numbers.tolist())]


def without_files(source: Source) -> Source:
    """How records are read, for tasks that are given their files."""
    return replace(source, files=(), tags=(), named=())


def wanted_columns(source: Source, domain: Domain) -> list[str]:
    """The columns that are read."""
    columns = [source.columns.get(attribute.name, attribute.name) for attribute in domain.column_attributes]
    return list(dict.fromkeys([*columns, *source.own_columns]))


def rows_to_read(source: Source, domain: Domain, partition: Partition | None = None) -> WantedRows:
    """What is read of the files of a source, but for the columns that the folders of a partition name."""
    named = {} if partition is None else dict(partition.named)
    file_columns = tuple(name for name in wanted_columns(source, domain) if name not in named)
    attributes_by_column = {
        source.columns.get(attribute.name, attribute.name): attribute for attribute in domain.column_attributes
    }
    own_columns = {*source.own_columns} - {source.counts}
    dates = {name for name, attribute in attributes_by_column.items() if attribute.times} - own_columns
    numbers = {name for name, attribute in attributes_by_column.items() if attribute.edges} - dates - own_columns
    numbers |= {name for name, kind in source.types.items() if kind == "number"} & {*file_columns} - own_columns
    return WantedRows(file_columns, frozenset(numbers), frozenset(dates), tuple(source.header), source.grammar)


def column_names(source: Source, file_index: int, domain: Domain) -> Sequence[str] | None:
    """The columns of a file of a source; None where every record names its own, and of an array."""
    (path, _), tags = source.files[file_index], source.tags[file_index]
    format_ = row_format(path)
    if format_ is None:
        return None
    with reading(tags.source_label), HashedFile(path, tags) as file:
        return format_.column_names(file, File(path, tags.source_label), rows_to_read(source, domain))


def check_columns(source: Source, domain: Domain) -> None:
    """The first file's columns, before anything is prepared. Raises: InvalidSpec."""
    path, tags = source.files[0][0], source.tags[0]
    format_ = row_format(path)
    if format_ is None:
        array_files.check_array(path, tags, domain)
        return
    file_columns = column_names(source, 0, domain)
    if file_columns is None:  # a key that a record lacks is a missing value
        return
    named = source.named[0] if source.named else {}
    counted_columns = [column_name for column_name in wanted_columns(source, domain) if column_name not in named]
    check_names(file_columns, counted_columns, tags.source_label, list(named), csv=format_.first_row_may_be_a_record)


def write_stream(records: ArrowStream, path: Path) -> None:
    """Write an Arrow table or stream as a Parquet file that its owner alone may read, batch by batch."""
    import pyarrow as pa
    import pyarrow.parquet

    reader = pa.RecordBatchReader.from_stream(records)
    if len(reader.schema) == 0:
        raise InvalidInput("the table of records has no column")
    private_file(path)
    if isinstance(records, pa.Table):
        pyarrow.parquet.write_table(records, path, row_group_size=BATCH_ROWS)
        return
    with pyarrow.parquet.ParquetWriter(path, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch, row_group_size=BATCH_ROWS)
