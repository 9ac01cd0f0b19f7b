"""The formats that are read: one line each."""

from __future__ import annotations

from pathlib import Path

from dpdist.sources.formats.array_files import Npy, Zarr
from dpdist.sources.formats.arrow_files import Arrow, Parquet
from dpdist.sources.formats.csv_files import Csv
from dpdist.sources.formats.json_lines import JsonLines
from dpdist.sources.formats.record_format import Format, RowFormat

FORMATS: list[Format] = [Parquet(), Arrow(), Csv(), JsonLines(), Npy(), Zarr()]


def format_of(path: str | Path) -> Format | None:
    """The format of a file or folder by its name, None for others."""
    name = str(path).lower().rstrip("/")
    return next((each for each in FORMATS if name.endswith(each.endings)), None)


def known_format(path: str | Path) -> Format:
    """The format of a file that was listed."""
    found = format_of(path)
    assert found is not None
    return found


def row_format(path: str | Path) -> RowFormat | None:
    """The format of a file of rows, None for arrays and for others."""
    found = format_of(path)
    return found if isinstance(found, RowFormat) else None


def endings(kind: type[Format]) -> str:
    """How the names of files of a kind of formats end, for messages."""
    return ", ".join(ending for each in FORMATS if isinstance(each, kind) for ending in each.endings)
