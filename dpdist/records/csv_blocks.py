"""The bytes of CSV files in blocks of whole records, as UTF-8."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dpdist.records.csv_grammar import QUOTE, UTF_8, Broken, Grammar

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
