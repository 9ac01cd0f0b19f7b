"""JSON lines: one line is one record, whatever it holds. Of each only the wanted keys are looked at."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import IO, TYPE_CHECKING, Any

from dpdist.errors import InvalidSpec
from dpdist.sources.formats.record_format import BATCH_ROWS, Partition, RowFormat, WantedRows
from dpdist.sources.source_labels import File
from dpdist.sources.verified_files import HashedFile

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST_BYTES = 16 * 2**20
"""No line may be longer."""


class JsonLines(RowFormat):
    """Objects, one a line, each of which names its own keys."""

    name = "jsonl"
    endings = (".jsonl", ".ndjson")

    def column_names(self, file: HashedFile | IO[bytes], source_file: File, reading: WantedRows) -> None:
        return None

    def batches(self, file: HashedFile, partition: Partition, reading: WantedRows) -> Iterator[pa.RecordBatch]:
        yield from batches(file, reading.columns, BATCH_ROWS)

    def is_empty(self, file: HashedFile, source_file: File, reading: WantedRows) -> bool:
        return all(not json_line.strip() for json_line in _raw_lines(file))


def batches(file: IO[bytes] | HashedFile, requested_names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    """The wanted columns of every line, as texts, in batches of so many records.

    Lines of spaces hold no record. A line that is no JSON object is a record whose values are all missing, and so is every value that
    is not there, null or nested.

    Raises: InvalidSpec for a line that is too long.
    """
    import pyarrow as pa

    pending_records: list[list[str | None]] = []
    schema = pa.schema([pa.field(name, pa.string()) for name in requested_names])
    for number, json_line in enumerate(_raw_lines(file)):
        record = _record(json_line if number else json_line.removeprefix(b"\xef\xbb\xbf"))
        if record is None:
            continue
        pending_records.append([_text(record.get(name)) for name in requested_names])
        if len(pending_records) == rows:
            yield _batch(pending_records, schema)
            pending_records = []
    yield _batch(pending_records, schema)


def _batch(pending_records: list[list[str | None]], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    from dpdist.process import arrow_arrays

    if not len(schema):  # whatever is counted without columns is in a column that nobody asks for
        return pa.record_batch({"": pa.nulls(len(pending_records))})
    columns = [arrow_arrays.texts(record[column_index] for record in pending_records) for column_index in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _raw_lines(file: IO[bytes] | HashedFile) -> Iterator[bytes]:
    remainder = b""
    while chunk := file.read(2**20):
        *whole, remainder = (remainder + chunk).split(b"\n")
        yield from whole
        if len(remainder) > LONGEST_BYTES:
            raise InvalidSpec("a line is longer than 16 MiB; one line is one record: shorten it")
    if remainder:
        yield remainder


def _record(json_line: bytes) -> dict[str, Any] | None:
    """The object that a line is, an empty one where it is none; None where there is nothing in the line."""
    if not json_line.strip():
        return None
    try:
        value = json.loads(json_line.decode(), parse_int=_Number, parse_float=_Number, parse_constant=_Number)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


def _text(value: Any) -> str | None:
    """The one text of a value; None where it is nested, or no text of UTF-8."""
    from dpdist.sources.formats.column_conversion import number_text

    if isinstance(value, _Number):
        try:
            return number_text(Decimal(value))
        except InvalidOperation:
            return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeError:  # half of a pair of surrogates
        return None
    return value
