"""Errors of the Parquet and CSV readers without the records that they quote (law 3)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from dpdist.errors import DpdistError, InvalidSpec

_ROW = re.compile(r"Row #(\d+)")
_COLUMN = re.compile(r"CSV column #(\d+)")
_EXPECTED = re.compile(r"Expected (\d+) columns")
_TYPE = re.compile(r"conversion error to (\w+)")


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Whatever a reader raises in the block becomes InvalidSpec with the file and, where it is known, row and column."""
    try:
        yield
    except (DpdistError, MemoryError):
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError, LookupError, TypeError) as error:
        raise InvalidSpec(f"{Path(path).name} cannot be read: {_what(error)}; what it holds is not shown") from None


def _what(error: Exception) -> str:
    """What is wrong and where. Only numbers of rows and columns and names of types are taken from the reader's message."""
    text = str(error)
    row, column, expected, wanted = (found.search(text) for found in (_ROW, _COLUMN, _EXPECTED, _TYPE))
    where = " of ".join(
        f"{kind} {found[1] if kind == 'row' else int(found[1]) + 1}"
        for kind, found in (("row", row), ("column", column))
        if found
    )
    if expected:
        what = f"a row has not the {expected[1]} columns of the first one"
    elif isinstance(error, UnicodeError) or "UTF8" in text or "UTF-8" in text:
        what = "its text is not UTF-8"
    elif wanted:
        what = f"a value is no {wanted[1]}"
    else:
        what = f"the file is damaged or of another kind ({type(error).__name__})"
    return f"{what} ({where})" if where else what
