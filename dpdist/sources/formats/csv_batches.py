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
from dpdist.sources.formats.csv_grammar import QUOTE, UTF_8, Broken, Grammar, records_in, values_of
from dpdist.sources.formats.number_parsing import numbers_of_texts

LONGEST = 16 * 2**20
"""Bytes of a record."""
BOM = b"\xef\xbb\xbf"
NEWLINE, RETURN, MARK = ord("\n"), ord("\r"), ord(QUOTE)

Bytes = NDArray[np.uint8]
Places = NDArray[np.intp]


class ByteStream(Protocol):
    """What a file's bytes are read from."""

    def read(self, size: int, /) -> bytes: ...


class LineBlock(NamedTuple):
    """Whole records as UTF-8, and the number of their first line."""

    line: int
    content: bytes


def blocks(stream: ByteStream, grammar: Grammar, size: int) -> Iterator[LineBlock]:
    """The bytes of a file in blocks of whole records. Raises: Broken, for records that are too long and for other encodings."""
    line, rest, begun = 1, b"", False
    while True:
        part = stream.read(size)
        data = rest + part
        if not begun:
            if part and len(data) < len(BOM):
                rest = data
                continue
            data, begun = data.removeprefix(BOM) if grammar.encoding == UTF_8 else data, True
        if len(data) > LONGEST and _first_end(data, grammar) > LONGEST:
            record = "record that begins here" if grammar.multiline else "line"
            raise Broken(line, f"a {record} is longer than 16 MiB; close its quotation marks, or shorten it")
        cut = _last_end(data, grammar) if part else len(data)
        if cut:
            content = data[:cut]
            yield LineBlock(line, _utf_8(content, grammar, line))
            line += int(np.count_nonzero(bytes_of(content) == NEWLINE))
        if not part:
            return
        rest = data[cut:]


def _utf_8(content: bytes, grammar: Grammar, line: int) -> bytes:
    """The text of a block as UTF-8. Raises: Broken for bytes that its encoding does not have."""
    if content.isascii():
        return content
    try:
        text = content.decode(grammar.encoding)
    except UnicodeDecodeError as error:
        found = "UTF-8" if grammar.encoding == UTF_8 else grammar.encoding
        raise Broken(
            line + content.count(b"\n", 0, error.start),
            f"its text is not {found}; save the file as UTF-8, or say its encoding in 'records.csv.encoding'",
        ) from None
    return content if grammar.encoding == UTF_8 else text.encode()


def bytes_of(content: bytes) -> Bytes:
    """The same bytes as an array."""
    return np.frombuffer(content, dtype=np.uint8)


def _first_end(data: bytes, grammar: Grammar) -> int:
    """Where the first record ends, or all of the data where it does not."""
    if not grammar.multiline:
        found = data.find(b"\n")
        return found if found >= 0 else len(data)
    ends = ends_of(bytes_of(data), grammar)
    return int(ends[0]) if ends.size else len(data)


def _last_end(data: bytes, grammar: Grammar) -> int:
    """Where the last whole record ends, with its line end; 0 where none does."""
    if not grammar.multiline:
        return data.rfind(b"\n") + 1
    ends = ends_of(bytes_of(data), grammar)
    return int(ends[-1]) + 1 if ends.size else 0


def ends_of(data: Bytes, grammar: Grammar) -> Places:
    """The places of the line ends that end a record, of data that begin with one: all, or those outside quotation marks."""
    ends = np.flatnonzero(data == NEWLINE)
    if not grammar.multiline:
        return ends
    return np.asarray(ends[np.searchsorted(np.flatnonzero(data == MARK), ends) % 2 == 0])


BLOCK_BYTES = 4 * 2**20
"""What is read of a file at a time: with more, memory that is touched for the first time costs more than calls."""
HEADER_BYTES = 2**16
"""What is read of a file at a time for its first record alone."""


class WantedColumn(NamedTuple):
    """A column that is read: its place, and whether it becomes numbers."""

    place: int
    number: bool


def header_of(stream: ByteStream, grammar: Grammar, name: str) -> list[str]:
    """The names in the first record of a file. Raises: InvalidSpec, naming the file and the line."""
    try:
        for block in blocks(stream, grammar, HEADER_BYTES):
            if (found := _header(block, grammar)) is not None:
                return found[0]
    except Broken as broken:
        raise _refused(name, broken) from None
    raise InvalidSpec(f"{name} cannot be read: the file is empty; write at least its header row")


def is_empty(stream: ByteStream, grammar: Grammar, name: str, *, header: bool) -> bool:
    """Whether a file holds no record below its header, or none at all if it has no header."""
    left = int(header)
    try:
        for line, content in blocks(stream, grammar, HEADER_BYTES):
            for _ in records_in(content.decode(), grammar, line=line):
                if not left:
                    return False
                left -= 1
    except Broken as broken:
        raise _refused(name, broken) from None
    return True


def batches(
    stream: ByteStream,
    grammar: Grammar,
    wanted: Sequence[str],
    name: str,
    *,
    header: Sequence[str] = (),
    numbers: Collection[str] = (),
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The wanted columns of all records as texts, in the order of the records; null in a record without values.

    Args:
        numbers: columns that are converted to float64; null or NaN where a text is no number.
        header: names of the columns; empty where the first record holds them.
        name: of the file, for messages.

    Raises: InvalidSpec, naming the file and the line.
    """
    columns = list(header)
    try:
        for line, content in blocks(stream, grammar, block_bytes):
            block = LineBlock(line, content)
            if not columns:
                found = _header(block, grammar)
                if found is None:
                    continue
                columns, block = found
            if block.content:
                asked = [WantedColumn(columns.index(each), each in numbers) for each in wanted]
                table = _table(block, grammar, len(columns), asked).rename_columns(list(wanted))
                yield from table.combine_chunks().to_batches()
    except Broken as broken:
        raise _refused(name, broken) from None


def _refused(name: str, broken: Broken) -> InvalidSpec:
    return InvalidSpec(f"{name} cannot be read: {broken.what} (line {broken.line:,}); what it holds is not shown")


def _header(block: LineBlock, grammar: Grammar) -> tuple[list[str], LineBlock] | None:
    """The values of a block's first record and the block behind it; None where it has no record."""
    text = block.content.decode()
    for line, values, end in records_in(text, grammar, line=block.line):
        if values is None:
            raise Broken(line, "text follows a closing quotation mark in the header row; correct the names of the columns")
        if any("\0" in value for value in values):
            raise Broken(line, "its text is UTF-16; save the file as UTF-8")
        return values, LineBlock(block.line + text.count("\n", 0, end), text[end:].encode())
    return None


def _table(block: LineBlock, grammar: Grammar, width: int, columns: Sequence[WantedColumn]) -> pa.Table:
    """Some columns of a block of records with so many values each."""
    plain = _if_plain(block.content, grammar, width, columns)
    if plain is not None:
        return plain
    if grammar.multiline:  # then nothing but an empty line can be read otherwise: whatever else is not plain is refused
        found = [each.values for each in records_in(block.content.decode(), grammar, columns=width, line=block.line)]
        return _of_values(found, grammar, columns)
    return _line_by_line(block, grammar, width, columns)


def _if_plain(content: bytes, grammar: Grammar, width: int, columns: Sequence[WantedColumn]) -> pa.Table | None:
    """The columns of a block by Arrow's reader, or None where it could read anything in it otherwise than the grammar does.

    It takes a lone carriage return for a line end, text after a closing quotation mark for a part of the value, line ends inside
    quotation marks for text, empty lines for none, and a byte order mark at the start for nothing.
    """
    if content.startswith(BOM) or (b"\r" in content and content.count(b"\r") != content.count(b"\r\n")):
        return None
    data = bytes_of(content)
    quoted = grammar.quoted and QUOTE.encode() in content
    if quoted and not _well_quoted(data, grammar):
        return None
    try:
        table = _by_arrow(content, grammar, width, columns, quoted=quoted)
    except pa.ArrowInvalid:  # a record has another number of values
        return None
    ends = ends_of(data, grammar).size if quoted and grammar.multiline else int(np.count_nonzero(data == NEWLINE))
    return table if table.num_rows == ends + (data[-1] != NEWLINE) else None


def _well_quoted(data: Bytes, grammar: Grammar) -> bool:
    """Whether quotation marks stand by twos around whole values or inside them, if no line end lies between those of a pair.

    The first of two opens a value, or is the second half of a doubled one inside of it; the second closes it, or is the first half.
    """
    marks = np.flatnonzero(data == MARK)
    if marks.size % 2:
        return False
    before, after = _neighbours(grammar)
    return bool(before[_before(data, marks[::2])].all() and after[_after(data, marks[1::2])].all())


def _neighbours(grammar: Grammar) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """For every byte, whether it may stand before a quotation mark that opens a value, and after one that closes it."""
    before = np.zeros(256, dtype=bool)
    before[[ord(grammar.delimiter), NEWLINE, MARK]] = True
    after = before.copy()
    after[RETURN] = True
    return before, after


def _before(data: Bytes, places: Places) -> Bytes:
    """The byte before each place; a line end before the first one."""
    found = data[places - 1]
    return np.where(places == 0, np.uint8(NEWLINE), found)


def _after(data: Bytes, places: Places) -> Bytes:
    """The byte after each place; a line end after the last one."""
    found = data[np.minimum(places + 1, data.size - 1)]
    return np.where(places == data.size - 1, np.uint8(NEWLINE), found)


def _by_arrow(
    content: bytes | Bytes, grammar: Grammar, width: int, columns: Sequence[WantedColumn], *, quoted: bool
) -> pa.Table:
    """Columns by Arrow's reader. Raises: pyarrow.ArrowInvalid where a record has another number of values."""
    reader = partial(_read, content, grammar, width, quoted=quoted)
    if any(column.number for column in columns):
        try:  # whatever Arrow's reader takes for a number is one to numbers_of_texts, or NaN where that has none
            return reader([(column.place, pa.float64() if column.number else pa.string()) for column in columns])
        except pa.ArrowInvalid:  # a text is no number, or a record is ragged, which the second attempt tells
            pass
    return _converted(reader([(column.place, pa.string()) for column in columns]), grammar, columns)


def _read(
    content: bytes | Bytes, grammar: Grammar, width: int, types: list[tuple[int, pa.DataType]], *, quoted: bool
) -> pa.Table:
    return pyarrow.csv.read_csv(
        pa.BufferReader(pa.py_buffer(content)),
        pyarrow.csv.ReadOptions(column_names=[str(place) for place in range(width)], block_size=len(content) + 1),
        pyarrow.csv.ParseOptions(
            delimiter=grammar.delimiter,
            quote_char=QUOTE if quoted else False,
            newlines_in_values=grammar.multiline and quoted,
        ),
        pyarrow.csv.ConvertOptions(
            check_utf8=False,
            include_columns=[str(place) for place, _ in types],
            column_types={str(place): kind for place, kind in types},
            strings_can_be_null=False,
            decimal_point=grammar.decimal,
        ),
    )


def _converted(texts: pa.Table, grammar: Grammar, columns: Sequence[WantedColumn]) -> pa.Table:
    """Texts with those of columns of numbers as float64."""
    for place, column in enumerate(columns):
        if column.number:
            numbers = numbers_of_texts(texts.column(place), decimal=grammar.decimal)
            texts = texts.set_column(place, texts.column_names[place], numbers)
    return texts


def _of_values(found: Sequence[list[str] | None], grammar: Grammar, columns: Sequence[WantedColumn]) -> pa.Table:
    texts = [[None if values is None else values[column.place] for values in found] for column in columns]
    names = [str(column.place) for column in columns]
    return _converted(pa.table([arrow_arrays.texts(each) for each in texts], names=names), grammar, columns)


def _line_by_line(block: LineBlock, grammar: Grammar, width: int, columns: Sequence[WantedColumn]) -> pa.Table:
    """The same where single lines are not plain: the plain ones by Arrow's reader, the others by the grammar."""
    content, data = block.content, bytes_of(block.content)
    ends = np.flatnonzero(data == NEWLINE)
    stops = ends if data[-1] == NEWLINE else np.append(ends, data.size)
    starts = np.concatenate([[0], stops[:-1] + 1])
    empty = (stops == starts) | ((stops == starts + 1) & (data[starts] == RETURN) & (stops < data.size))
    plain = _plain_lines(data, starts, stops, grammar, width) & ~empty
    others = np.flatnonzero(~plain & ~empty)
    found = []
    for number in others.tolist():
        body = content[starts[number] : stops[number]].decode()
        body = body.removesuffix("\r") if stops[number] < data.size else body
        found.append(values_of(body, grammar, columns=width, line=block.line + number))
    table = _of_values(found, grammar, columns)
    if not plain.any():
        return table
    kept = data[np.repeat(plain, np.diff(np.append(starts, data.size)))]
    first = _by_arrow(kept, grammar, width, columns, quoted=grammar.quoted)
    order = np.argsort(np.concatenate([np.flatnonzero(plain), others]))
    return pa.concat_tables([first, table]).take(arrow_arrays.numbers(order))


def _plain_lines(data: Bytes, starts: Places, stops: Places, grammar: Grammar, width: int) -> NDArray[np.bool_]:
    """Which lines Arrow's reader cannot read otherwise than the grammar does."""
    plain = data[starts] != BOM[0]
    returns = np.flatnonzero(data == RETURN)
    lone = returns[(_after(data, returns) != NEWLINE) | (returns == data.size - 1)]
    plain[np.searchsorted(stops, lone)] = False
    delimiters = np.flatnonzero(data == ord(grammar.delimiter))
    line_of = np.searchsorted(stops, delimiters)
    if grammar.quoted:
        marks = np.flatnonzero(data == MARK)
        lines, firsts = np.searchsorted(stops, marks), np.searchsorted(marks, starts)
        opens = (np.arange(marks.size) - firsts[lines]) % 2 == 0
        before, after = _neighbours(grammar)
        fits = np.where(opens, before[_before(data, marks)], after[_after(data, marks)])
        plain[lines[~fits]] = False
        plain &= np.diff(np.append(firsts, marks.size)) % 2 == 0
        outside = (np.searchsorted(marks, delimiters) - firsts[line_of]) % 2 == 0
        line_of = line_of[outside]
    return np.asarray(plain & (np.bincount(line_of, minlength=starts.size) == width - 1))
