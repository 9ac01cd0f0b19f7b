"""Records of CSV files in bounded batches, by the grammar of ``csv_grammar``, at the speed of Arrow.

A block of lines goes to Arrow's reader as it is if nothing in it can be read in two ways. Otherwise the lines that are plain go there
together, and each other line to the grammar itself. So no line decides how another one is read, and neither do the ends of blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from dpdist.errors import InvalidSpec
from dpdist.process import arrow_arrays
from dpdist.process import arrow_compute as pc
from dpdist.sources.formats.csv_grammar import QUOTE, UTF_8, Grammar, MalformedLine, records_in, values_of
from dpdist.sources.formats.number_parsing import numbers_of_texts, unreadable_texts
from dpdist.sources.formats.record_format import UNREADABLE

LONGEST = 16 * 2**20
"""Bytes of a record."""
BOM = b"\xef\xbb\xbf"
NEWLINE, RETURN, QUOTE_BYTE = ord("\n"), ord("\r"), ord(QUOTE)

Bytes = NDArray[np.uint8]
Positions = NDArray[np.intp]


class ByteStream(Protocol):
    """What a file's bytes are read from."""

    def read(self, size: int, /) -> bytes: ...


class LineBlock(NamedTuple):
    """Whole records as UTF-8, and the number of their first line."""

    line_number: int
    content: bytes


def blocks(stream: ByteStream, grammar: Grammar, size: int) -> Iterator[LineBlock]:
    """The bytes of a file in blocks of whole records. Raises: Broken, for records that are too long and for other encodings."""
    line_number, rest, is_past_start = 1, b"", False
    while True:
        chunk = stream.read(size)
        data = rest + chunk
        if not is_past_start:
            if chunk and len(data) < len(BOM):
                rest = data
                continue
            data, is_past_start = data.removeprefix(BOM) if grammar.encoding == UTF_8 else data, True
        if len(data) > LONGEST and _first_end(data, grammar) > LONGEST:
            record = "record that begins here" if grammar.multiline else "line"
            raise MalformedLine(line_number, f"a {record} is longer than 16 MiB; close its quotation marks, or shorten it")
        cut = _last_end(data, grammar) if chunk else len(data)
        if cut:
            content = data[:cut]
            yield LineBlock(line_number, _utf_8(content, grammar, line_number))
            line_number += int(np.count_nonzero(bytes_of(content) == NEWLINE))
        if not chunk:
            return
        rest = data[cut:]


def _utf_8(content: bytes, grammar: Grammar, line_number: int) -> bytes:
    """The text of a block as UTF-8. Raises: Broken for bytes that its encoding does not have."""
    if content.isascii():
        return content
    try:
        text = content.decode(grammar.encoding)
    except UnicodeDecodeError as error:
        encoding_name = "UTF-8" if grammar.encoding == UTF_8 else grammar.encoding
        raise MalformedLine(
            line_number + content.count(b"\n", 0, error.start),
            f"its text is not {encoding_name}; save the file as UTF-8, or say its encoding in 'records.csv.encoding'",
        ) from None
    return content if grammar.encoding == UTF_8 else text.encode()


def bytes_of(content: bytes) -> Bytes:
    """The same bytes as an array."""
    return np.frombuffer(content, dtype=np.uint8)


def _first_end(data: bytes, grammar: Grammar) -> int:
    """Where the first record ends, or all of the data where it does not."""
    if not grammar.multiline:
        position = data.find(b"\n")
        return position if position >= 0 else len(data)
    ends = _ends_of(bytes_of(data), grammar)
    return int(ends[0]) if ends.size else len(data)


def _last_end(data: bytes, grammar: Grammar) -> int:
    """Where the last whole record ends, with its line end; 0 where none does."""
    if not grammar.multiline:
        return data.rfind(b"\n") + 1
    ends = _ends_of(bytes_of(data), grammar)
    return int(ends[-1]) + 1 if ends.size else 0


def _ends_of(data: Bytes, grammar: Grammar) -> Positions:
    """The places of the line ends that end a record, of data that begin with one: all, or those outside quotation marks."""
    ends = np.flatnonzero(data == NEWLINE)
    if not grammar.multiline:
        return ends
    return np.asarray(ends[np.searchsorted(np.flatnonzero(data == QUOTE_BYTE), ends) % 2 == 0])


BLOCK_BYTES = 4 * 2**20
"""What is read of a file at a time: with more, memory that is touched for the first time costs more than calls."""
HEADER_BYTES = 2**16
"""What is read of a file at a time for its first record alone."""


class WantedColumn(NamedTuple):
    """A column that is read: its place, and whether it becomes numbers."""

    position: int
    number: bool


def header_of(stream: ByteStream, grammar: Grammar, name: str) -> list[str]:
    """The names in the first record of a file. Raises: InvalidSpec, naming the file and the line."""
    try:
        for block in blocks(stream, grammar, HEADER_BYTES):
            if (header := _parse_header(block, grammar)) is not None:
                return header[0]
    except MalformedLine as broken:
        raise _read_error(name, broken) from None
    raise InvalidSpec(f"{name} cannot be read: the file is empty; write at least its header row")


def is_empty(stream: ByteStream, grammar: Grammar, name: str, *, header: bool) -> bool:
    """Whether a file holds no record below its header, or none at all if it has no header."""
    header_rows_left = int(header)
    try:
        for line_number, content in blocks(stream, grammar, HEADER_BYTES):
            for _ in records_in(content.decode(), grammar, line_number=line_number):
                if not header_rows_left:
                    return False
                header_rows_left -= 1
    except MalformedLine as broken:
        raise _read_error(name, broken) from None
    return True


def batches(
    stream: ByteStream,
    grammar: Grammar,
    requested_names: Sequence[str],
    name: str,
    *,
    header: Sequence[str] = (),
    numbers: Collection[str] = (),
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The wanted columns of all records as texts, in the order of the records; null in a record without values.

    Where a record has a text for a number that is none, its batch has a column ``UNREADABLE``, too.

    Args:
        numbers: columns that are converted to float64; null or NaN where a text is no number.
        header: names of the columns; empty where the first record holds them.
        name: of the file, for messages.

    Raises: InvalidSpec, naming the file and the line.
    """
    columns = list(header)
    try:
        for line_number, content in blocks(stream, grammar, block_bytes):
            block = LineBlock(line_number, content)
            if not columns:
                first_record = _parse_header(block, grammar)
                if first_record is None:
                    continue
                columns, block = first_record
            if block.content:
                requested_columns = [
                    WantedColumn(columns.index(column_name), column_name in numbers) for column_name in requested_names
                ]
                table = _table(block, grammar, len(columns), requested_columns)
                table = table.rename_columns([*requested_names, *table.column_names[len(requested_names) :]])
                if UNREADABLE in table.column_names and not pc.any(table[UNREADABLE]).as_py():
                    table = table.drop_columns(UNREADABLE)
                yield from table.combine_chunks().to_batches()
    except MalformedLine as broken:
        raise _read_error(name, broken) from None


def _read_error(name: str, broken: MalformedLine) -> InvalidSpec:
    return InvalidSpec(f"{name} cannot be read: {broken.problem} (line {broken.line_number:,}); what it holds is not shown")


def _parse_header(block: LineBlock, grammar: Grammar) -> tuple[list[str], LineBlock] | None:
    """The values of a block's first record and the block behind it; None where it has no record."""
    text = block.content.decode()
    for line_number, values, end in records_in(text, grammar, line_number=block.line_number):
        if values is None:
            raise MalformedLine(
                line_number, "text follows a closing quotation mark in the header row; correct the names of the columns"
            )
        if any("\0" in value for value in values):
            raise MalformedLine(line_number, "its text is UTF-16; save the file as UTF-8")
        return values, LineBlock(block.line_number + text.count("\n", 0, end), text[end:].encode())
    return None


def _table(block: LineBlock, grammar: Grammar, width: int, columns: Sequence[WantedColumn]) -> pa.Table:
    """Some columns of a block of records with so many values each."""
    table = _table_if_unambiguous(block.content, grammar, width, columns)
    if table is not None:
        return table
    if grammar.multiline:  # then nothing but an empty line can be read otherwise: whatever else is not plain is refused
        records = [
            record.values
            for record in records_in(block.content.decode(), grammar, columns=width, line_number=block.line_number)
        ]
        return _table_of_values(records, grammar, columns)
    return _parse_mixed_lines(block, grammar, width, columns)


def _table_if_unambiguous(content: bytes, grammar: Grammar, width: int, columns: Sequence[WantedColumn]) -> pa.Table | None:
    """The columns of a block by Arrow's reader, or None where it could read anything in it otherwise than the grammar does.

    It takes a lone carriage return for a line end, text after a closing quotation mark for a part of the value, line ends inside
    quotation marks for text, empty lines for none, and a byte order mark at the start for nothing.
    """
    if content.startswith(BOM) or (b"\r" in content and content.count(b"\r") != content.count(b"\r\n")):
        return None
    data = bytes_of(content)
    quoted = grammar.allows_quotes and QUOTE.encode() in content
    if quoted and not _well_quoted(data, grammar):
        return None
    try:
        table = _parse_with_arrow(content, grammar, width, columns, quoted=quoted)
    except pa.ArrowInvalid:  # a record has another number of values
        return None
    ends = _ends_of(data, grammar).size if quoted and grammar.multiline else int(np.count_nonzero(data == NEWLINE))
    return table if table.num_rows == ends + (data[-1] != NEWLINE) else None


def _well_quoted(data: Bytes, grammar: Grammar) -> bool:
    """Whether quotation marks stand by twos around whole values or inside them, if no line end lies between those of a pair.

    The first of two opens a value, or is the second half of a doubled one inside of it; the second closes it, or is the first half.
    """
    marks = np.flatnonzero(data == QUOTE_BYTE)
    if marks.size % 2:
        return False
    before, after = _neighbours(grammar)
    return bool(before[_bytes_before(data, marks[::2])].all() and after[_bytes_after(data, marks[1::2])].all())


def _neighbours(grammar: Grammar) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """For every byte, whether it may stand before a quotation mark that opens a value, and after one that closes it."""
    before = np.zeros(256, dtype=bool)
    before[[ord(grammar.delimiter), NEWLINE, QUOTE_BYTE]] = True
    after = before.copy()
    after[RETURN] = True
    return before, after


def _bytes_before(data: Bytes, positions: Positions) -> Bytes:
    """The byte before each place; a line end before the first one."""
    previous_bytes = data[positions - 1]
    return np.where(positions == 0, np.uint8(NEWLINE), previous_bytes)


def _bytes_after(data: Bytes, positions: Positions) -> Bytes:
    """The byte after each place; a line end after the last one."""
    next_bytes = data[np.minimum(positions + 1, data.size - 1)]
    return np.where(positions == data.size - 1, np.uint8(NEWLINE), next_bytes)


def _parse_with_arrow(
    content: bytes | Bytes, grammar: Grammar, width: int, columns: Sequence[WantedColumn], *, quoted: bool
) -> pa.Table:
    """Columns by Arrow's reader. Raises: pyarrow.ArrowInvalid where a record has another number of values."""
    reader = partial(_read_csv, content, grammar, width, quoted=quoted)
    if any(column.number for column in columns):
        try:  # whatever Arrow's reader takes for a number is one to numbers_of_texts, or NaN where that has none
            table = reader([(column.position, pa.float64() if column.number else pa.string()) for column in columns])
            return table.append_column(UNREADABLE, arrow_arrays.numbers(np.zeros(table.num_rows, dtype=bool)))
        except pa.ArrowInvalid:  # a text is no number, or a record is ragged, which the second attempt tells
            pass
    return _with_numbers(reader([(column.position, pa.string()) for column in columns]), grammar, columns)


def _read_csv(
    content: bytes | Bytes, grammar: Grammar, width: int, types: list[tuple[int, pa.DataType]], *, quoted: bool
) -> pa.Table:
    return pyarrow.csv.read_csv(
        pa.BufferReader(pa.py_buffer(content)),
        pyarrow.csv.ReadOptions(column_names=[str(position) for position in range(width)], block_size=len(content) + 1),
        pyarrow.csv.ParseOptions(
            delimiter=grammar.delimiter,
            quote_char=QUOTE if quoted else False,
            newlines_in_values=grammar.multiline and quoted,
        ),
        pyarrow.csv.ConvertOptions(
            check_utf8=False,
            include_columns=[str(position) for position, _ in types],
            column_types={str(position): kind for position, kind in types},
            strings_can_be_null=False,
            decimal_point=grammar.decimal,
        ),
    )


def _with_numbers(texts: pa.Table, grammar: Grammar, columns: Sequence[WantedColumn]) -> pa.Table:
    """Texts with those of columns of numbers as float64, and where there are such columns, which records have a text that is none."""
    unreadable = pa.repeat(arrow_arrays.numbers(np.zeros(1, dtype=bool))[0], texts.num_rows)
    for column_index, column in enumerate(columns):
        if column.number:
            column_texts = texts.column(column_index)
            numbers = numbers_of_texts(column_texts, decimal=grammar.decimal)
            unreadable = pc.or_(unreadable, unreadable_texts(column_texts, numbers))
            texts = texts.set_column(column_index, texts.column_names[column_index], numbers)
    return texts.append_column(UNREADABLE, unreadable) if any(column.number for column in columns) else texts


def _table_of_values(records: Sequence[list[str] | None], grammar: Grammar, columns: Sequence[WantedColumn]) -> pa.Table:
    texts = [[None if values is None else values[column.position] for values in records] for column in columns]
    names = [str(column.position) for column in columns]
    return _with_numbers(
        pa.table([arrow_arrays.texts(column_texts) for column_texts in texts], names=names), grammar, columns
    )


def _parse_mixed_lines(block: LineBlock, grammar: Grammar, width: int, columns: Sequence[WantedColumn]) -> pa.Table:
    """The same where single lines are not plain: the plain ones by Arrow's reader, the others by the grammar."""
    content, data = block.content, bytes_of(block.content)
    ends = np.flatnonzero(data == NEWLINE)
    stops = ends if data[-1] == NEWLINE else np.append(ends, data.size)
    starts = np.concatenate([[0], stops[:-1] + 1])
    empty = (stops == starts) | ((stops == starts + 1) & (data[starts] == RETURN) & (stops < data.size))
    is_unambiguous = _unambiguous_lines(data, starts, stops, grammar, width) & ~empty
    ambiguous_lines = np.flatnonzero(~is_unambiguous & ~empty)
    other_records = []
    for number in ambiguous_lines.tolist():
        body = content[starts[number] : stops[number]].decode()
        body = body.removesuffix("\r") if stops[number] < data.size else body
        other_records.append(values_of(body, grammar, columns=width, line_number=block.line_number + number))
    table = _table_of_values(other_records, grammar, columns)
    if not is_unambiguous.any():
        return table
    plain_bytes = data[np.repeat(is_unambiguous, np.diff(np.append(starts, data.size)))]
    plain_table = _parse_with_arrow(plain_bytes, grammar, width, columns, quoted=grammar.allows_quotes)
    order = np.argsort(np.concatenate([np.flatnonzero(is_unambiguous), ambiguous_lines]))
    return pa.concat_tables([plain_table, table]).take(arrow_arrays.numbers(order))


def _unambiguous_lines(data: Bytes, starts: Positions, stops: Positions, grammar: Grammar, width: int) -> NDArray[np.bool_]:
    """Which lines Arrow's reader cannot read otherwise than the grammar does."""
    is_unambiguous = data[starts] != BOM[0]
    returns = np.flatnonzero(data == RETURN)
    lone = returns[(_bytes_after(data, returns) != NEWLINE) | (returns == data.size - 1)]
    is_unambiguous[np.searchsorted(stops, lone)] = False
    delimiters = np.flatnonzero(data == ord(grammar.delimiter))
    delimiter_line_numbers = np.searchsorted(stops, delimiters)
    if grammar.allows_quotes:
        marks = np.flatnonzero(data == QUOTE_BYTE)
        mark_line_numbers, first_marks = np.searchsorted(stops, marks), np.searchsorted(marks, starts)
        opens = (np.arange(marks.size) - first_marks[mark_line_numbers]) % 2 == 0
        before, after = _neighbours(grammar)
        fits = np.where(opens, before[_bytes_before(data, marks)], after[_bytes_after(data, marks)])
        is_unambiguous[mark_line_numbers[~fits]] = False
        is_unambiguous &= np.diff(np.append(first_marks, marks.size)) % 2 == 0
        outside = (np.searchsorted(marks, delimiters) - first_marks[delimiter_line_numbers]) % 2 == 0
        delimiter_line_numbers = delimiter_line_numbers[outside]
    return np.asarray(is_unambiguous & (np.bincount(delimiter_line_numbers, minlength=starts.size) == width - 1))
