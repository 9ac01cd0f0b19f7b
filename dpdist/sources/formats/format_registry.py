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
    return next((file_format for file_format in FORMATS if name.endswith(file_format.endings)), None)


def known_format(path: str | Path) -> Format:
    """The format of a file that was listed."""
    file_format = format_of(path)
    assert file_format is not None
    return file_format


def row_format(path: str | Path) -> RowFormat | None:
    """The format of a file of rows, None for arrays and for others."""
    file_format = format_of(path)
    return file_format if isinstance(file_format, RowFormat) else None


def endings(kind: type[Format]) -> str:
    """How the names of files of a kind of formats end, for messages."""
    return ", ".join(ending for file_format in FORMATS if isinstance(file_format, kind) for ending in file_format.endings)
