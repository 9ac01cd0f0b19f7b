"""Errors of the Parquet and CSV readers without the records that they quote (law 3)."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from dpdist.errors import DpdistError, InvalidSpec
from dpdist.records.wording import Called

_ROW = re.compile(r"Row #(\d+)")
_COLUMN = re.compile(r"CSV column #(\d+)")
_EXPECTED = re.compile(r"Expected (\d+) columns, got (\d+)")
_TYPE = re.compile(r"conversion error to (\w+)")
_KINDS = {
    "double": "no number",
    "float": "no number",
    "int64": "no whole number",
    "int32": "no whole number",
    "bool": "not true or false",
}
"""What a value should have been, by the reader's name for it."""
_REASONS = {
    r"straddling object": "a row is longer than 16 MiB; close its quotes, or shorten it",
    r"utf-?8": "its text is not UTF-8; save the file as UTF-8",
    r"empty csv": "the file is empty; write at least its header row",
    r"magic bytes|file size is|deserialize|footer": "it is no whole Parquet file; write it again",
    r"incorrect header check|not in gzip": "its name says gzip, its content is something else; rename or compress it",
    r"truncated compressed|inflate|end of compressed": "its compressed content ends early or is damaged; write it again",
    r"checksum|crc|corrupt|unexpected end|page|decompress|snappy|gzip": "a page of it is damaged; write it again",
}
"""What the readers' messages mean, and the cure."""


@contextmanager
def reading(called: Called, columns: Callable[[], Sequence[str]] | None = None) -> Iterator[None]:
    """Whatever a reader raises in the block becomes InvalidSpec with the file and, where it is known, row and column.

    Args:
        columns: the spec's names of the columns of a CSV file, whose reader tells only their numbers; "" for those that it has none for.
    """
    import pyarrow as pa

    try:
        yield
    except (DpdistError, MemoryError):
        raise
    except (pa.ArrowException, OSError, ValueError, RuntimeError, OverflowError, LookupError, TypeError, csv.Error) as error:
        raise InvalidSpec(f"{called} cannot be read: {_what(error, columns)}; what it holds is not shown") from None


def _what(error: Exception, columns: Callable[[], Sequence[str]] | None) -> str:
    """What is wrong and where. Only numbers of rows and columns and names of types are taken from the reader's message."""
    import pyarrow as pa

    text = str(error)
    row, column, expected, wanted = (found.search(text) for found in (_ROW, _COLUMN, _EXPECTED, _TYPE))
    names = columns() if columns and column else ()
    places = [f"row {row[1]}"] if row else []
    if column:
        number = int(column[1])
        places.append(f"column {names[number]!r}" if number < len(names) and names[number] else f"column {number + 1}")
    where = " of ".join(places)
    reason = next((reason for pattern, reason in _REASONS.items() if re.search(pattern, text, re.IGNORECASE)), None)
    if expected:
        what = (
            f"a row has {expected[2]} columns instead of the {expected[1]} of the first one; put texts with commas in quotes"
        )
    elif isinstance(error, UnicodeError):
        what = "its text is not UTF-8; save the file as UTF-8"
    elif reason is not None:
        what = reason
    elif wanted:
        what = f"a value is {_KINDS.get(wanted[1], 'of another kind')}; correct it, or declare 'categories'"
    elif isinstance(error, OSError) and error.errno is not None and not isinstance(error, pa.ArrowException):
        what = f"{os.strerror(error.errno).lower()}; make it readable and run again"
    else:
        what = f"the file is damaged or of another kind ({type(error).__name__}); write it again"
    return f"{what} ({where})" if where else what
