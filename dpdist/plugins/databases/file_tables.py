"""Files that a query names, read by dpdist: DuckDB gets their records, with columns and types that the spec alone decides.

DuckDB itself would take the types of many files from the first one, and those of texts from all of them: one record would decide how all
others are read. So it touches no file at all.
"""

from __future__ import annotations

import datetime
import glob
import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpdist.api import DpdistError, InvalidSpec, NoRecords
from dpdist.api.sources import (
    ARROW,
    UNREADABLE,
    Attribute,
    Domain,
    File,
    Grammar,
    Partition,
    Source,
    SourceLabel,
    Times,
    UnreadRecords,
    Use,
    column_names,
    convert_declared,
    convert_for_use,
    fields_of,
    file_listing,
    partitions_of,
    reading,
    row_format,
    source_of,
    tables_of,
    unreadable_texts,
)

if TYPE_CHECKING:
    from dpdist.api.sources import ColumnType

_Kind = TypeVar("_Kind")
_SOME_DAY = Times(datetime.datetime(1970, 1, 1), 1, "day")
_TYPES_BY_USE: Mapping[Use, ColumnType] = {"number": "number", "day": "time", "time": "time"}
"""Whatever is counted as something else is read as text."""


@dataclass(frozen=True)
class Files:
    """How the files that a query names are read.

    Attributes:
        folder: at which relative names start.
        types: of columns, as declared.
        uses: what the columns that are counted are counted as. Files have no others for the query than these and the declared ones.
        grammar: of those that are CSV.
        tallies: is given one of each table.
    """

    folder: Path
    types: Mapping[str, ColumnType]
    uses: Mapping[str, Use]
    grammar: Grammar
    tallies: list[UnreadRecords] = field(repr=False)


@dataclass(frozen=True)
class FileTable:
    """Files as DuckDB scans them, as often as it likes.

    Attributes:
        types, uses: of the columns that it has.
        failed: what stopped a scan; DuckDB would pass it on as a text.
        tally: of the records that all scans have read.
    """

    source: Source
    types: Mapping[str, ColumnType]
    uses: Mapping[str, Use]
    failed: list[Exception] = field(repr=False)
    tally: UnreadRecords = field(repr=False)

    @property
    def schema(self) -> pa.Schema:
        """Columns and types, which the spec alone decides."""
        declared = [pa.field(name, ARROW[kind]) for name, kind in self.types.items()]
        return pa.schema([*declared, *fields_of(self.uses)])

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        stream_capsule: object = pa.RecordBatchReader.from_batches(self.schema, self._batches()).__arrow_c_stream__(
            requested_schema
        )
        return stream_capsule

    def _batches(self) -> Iterator[pa.RecordBatch]:
        domain = _reading_domain(self.types, self.uses)
        try:
            for partition in partitions_of(self.source):
                yield from self._read_partition(partition, domain)
        except DpdistError as error:
            self.failed.append(error)
            raise

    def _read_partition(self, partition: Partition, domain: Domain) -> Iterator[pa.RecordBatch]:
        for table in tables_of(self.source, domain, partition):
            declared_table = convert_declared(table, self.types, partition.source_label)
            with reading(partition.source_label):
                counted = [convert_for_use(declared_table[name], name, use) for name, use in self.uses.items()]
            self.tally.read += table.num_rows
            self.tally.unread += int(self._unread_records(table, declared_table).sum())
            columns = [*declared_table.select(list(self.types)).columns, *counted]
            yield from pa.Table.from_arrays(columns, schema=self.schema).to_batches()

    def _unread_records(self, table: pa.Table, declared_table: pa.Table) -> NDArray[np.bool_]:
        """Which records have a text that is no number or date, in a column of such."""
        unread = np.zeros(table.num_rows, dtype=bool)
        if UNREADABLE in table.schema.names:
            unread |= table[UNREADABLE].to_numpy()
        for name in self.types:
            if pa.types.is_string(table[name].type) and not pa.types.is_string(declared_table[name].type):
                unread |= unreadable_texts(table[name], declared_table[name]).to_numpy(zero_copy_only=False)
        return unread


def _reading_domain(types: Mapping[str, ColumnType], uses: Mapping[str, Use]) -> Domain:
    kinds: dict[str, ColumnType] = {name: _TYPES_BY_USE.get(use, "text") for name, use in uses.items()}
    return Domain(tuple(_reading_attribute(name, kind) for name, kind in {**kinds, **types}.items()))


def _reading_attribute(name: str, kind: ColumnType) -> Attribute:
    """An attribute whose column is read as one of a type: texts of whole numbers, too, which are exact."""
    if kind in ("date", "time"):
        return Attribute(name, edges=(0.0, 1.0), times=_SOME_DAY)
    return Attribute(name, edges=(0.0, 1.0)) if kind == "number" else Attribute(name, categories=("text",))


def file_names_in(connection: Any, sql: str) -> list[str]:
    """The files that a SELECT names as tables, where the database has no table of that name. Raises: InvalidSpec for two of one name."""
    ((parsed,),) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
    table_names = {
        name for (name,) in connection.execute("SELECT lower(table_name) FROM information_schema.tables").fetchall()
    }
    files = (name for name in _tables(json.loads(parsed)) if name.endswith("/") or row_format(name) is not None)
    file_names = list(dict.fromkeys(name for name in files if name.lower() not in table_names))
    if len({name.lower() for name in file_names}) < len(file_names):
        raise InvalidSpec(
            "'records.sql' names files that differ in capitals alone, which are one table to DuckDB; rename one of them"
        )
    return file_names


def _tables(node: Any) -> Iterator[str]:
    """The tables without a schema in a parsed statement."""
    if isinstance(node, dict):
        if node.get("type") == "BASE_TABLE" and not node.get("schema_name") and not node.get("catalog_name"):
            yield node["table_name"]
        for child in node.values():
            yield from _tables(child)
    elif isinstance(node, list):
        for child in node:
            yield from _tables(child)


def table_of(name: str, files: Files, failed: list[Exception]) -> FileTable:
    """The files that a query calls ``name``, with those of their columns that are counted or declared. Raises: InvalidSpec."""
    types, uses = files.types, {column: use for column, use in files.uses.items() if column not in files.types}
    location, matched_files = _locate_files(name, files.folder)
    source_label = SourceLabel(f"{name!r} of the query")
    source = source_of(
        location, files=matched_files, attributes=[*types, *uses], grammar=files.grammar, source_label=source_label
    )
    columns = column_names(source, 0, _reading_domain(types, uses))
    tally = UnreadRecords()
    files.tallies.append(tally)
    if columns is None:
        return FileTable(source, types, uses, failed, tally)
    available_columns = {*columns, *(source.named[0] if source.named else ())}
    table = FileTable(
        source, _existing_columns(available_columns, types), _existing_columns(available_columns, uses), failed, tally
    )
    if len({column.casefold() for column in table.schema.names}) < len(table.schema.names):
        raise InvalidSpec(
            f"{name!r} in 'records.sql' has columns that differ in capitals alone, which are one column to DuckDB; give it files without"
        )
    if not table.schema.names:
        raise InvalidSpec(
            f"{name!r} in 'records.sql' has no column that is counted, nor one that 'records.types' declares: declare those that the "
            "query needs, as in 'records.types: {age: whole, branch: text}'"
        )
    return table


def _existing_columns(available_columns: Set[str], columns: Mapping[str, _Kind]) -> dict[str, _Kind]:
    return {name: kind for name, kind in columns.items() if name in available_columns}


def _locate_files(name: str, folder: Path) -> tuple[str, list[File] | None]:
    """Where files are, below which folders name columns, and which they are; None: all that are there."""
    location = file_listing.locate_records(name, below=folder)
    path = Path(location.location)
    if not glob.has_magic(name) or path.exists():
        return location.location, None
    paths = sorted(
        path for path in glob.glob(location.location, recursive=True) if row_format(path) and Path(path).is_file()
    )
    if not paths:
        raise NoRecords(f"no file of records is {name!r}, which 'records.sql' names; correct it")
    numbered = [File(path, SourceLabel(f"file {number} of {name!r}")) for number, path in enumerate(paths, 1)]
    return str(Path(*_before_magic(path.parts))), numbered


def _before_magic(path_parts: tuple[str, ...]) -> Iterator[str]:
    for path_part in path_parts:
        if glob.has_magic(path_part):
            return
        yield path_part
