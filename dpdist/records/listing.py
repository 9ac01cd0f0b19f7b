"""Files of records: which files of a folder hold some, and whether they have the columns that are needed."""

from __future__ import annotations

import csv
import io
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from dpdist.errors import InvalidSpec, NoRecords
from dpdist.records import remote
from dpdist.records.reading import reading

if TYPE_CHECKING:
    import pyarrow as pa

CSV_BLOCK_BYTES = 16 * 2**20
"""What is read of a CSV file at a time: no row may be longer."""
ARROW = (".arrow", ".feather", ".ipc")
"""Files in Arrow's IPC format."""
JSON_LINES = (".jsonl", ".ndjson")
ARRAYS = ("npy", "zarr")
"""Kinds of files that hold counts instead of records."""
Named = dict[str, str | None]
"""Columns with one value for a whole file."""
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
GIVEN = "give a .parquet, .arrow, .feather, .csv, .csv.gz or .jsonl file, or a folder that holds some"
KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def kind_of(path: str | Path) -> str | None:
    """'parquet', 'arrow', 'csv', 'jsonl', 'npy' or 'zarr' by the file's name, None for other files."""
    name = Path(path).name.lower()
    if name.endswith((".npy", ".zarr")):
        return name.rpartition(".")[2]
    if name.endswith((".parquet", *ARROW)):
        return "parquet" if name.endswith(".parquet") else "arrow"
    if name.endswith(JSON_LINES):
        return "jsonl"
    return "csv" if name.endswith((".csv", ".csv.gz")) else None


def listed(location: str | Path) -> list[str]:
    """The file at a path or URL, or all files of records of a folder or prefix, in order.

    Names that begin with '.', '_' or '~' are not records: hidden files, drafts of editors, marks and logs of Spark and Hive.
    A folder called .zarr is one array. Raises: InvalidSpec when there is none, and naming what is no file: a link to nothing, a pipe,
    a socket, a device.
    """
    if kind_of(str(location).rstrip("/")) == "zarr":
        return [str(location).rstrip("/")]
    if remote.is_remote(str(location)):
        return _below_url(str(location))
    location = Path(location)
    paths = sorted(_below(location)) if location.is_dir() else [location]
    for path in paths:
        _check_file(path)
    if not paths:
        raise NoRecords(f"no records at {location}: {GIVEN}")
    for path in paths:
        _check_kind(path.name)
    return [str(path) for path in paths]


def _check_kind(name: str) -> None:
    """Raises: InvalidSpec when a name is none of a file of records."""
    if kind_of(name) is None:
        raise InvalidSpec(
            f"records in {name!r} cannot be read: allowed are .parquet, .arrow, .feather, .csv, .csv.gz, .jsonl and .ndjson, and .npy "
            "and .zarr for counts"
        )


def named_by_folders(location: str | Path, path: str) -> Named:
    """The columns that the folders between a place and a file of it name, as Hive does (year=2026/month=09), with their values."""
    inside = path[len(str(location).rstrip("/")) + 1 :] if remote.is_remote(path) else str(Path(path).relative_to(location))
    found = (part.partition("=") for part in inside.split("/")[:-1])
    return {unquote(name): None if value == HIVE_NULL else unquote(value) for name, sign, value in found if sign and name}


def holds_rows(path: str | Path) -> bool:
    """Whether a file holds rows, by its name."""
    return kind_of(path) not in (None, *ARRAYS)


def _below_url(location: str) -> list[str]:
    """The object at a URL, or all objects of records below it."""
    found = remote.listed(location)
    if found == [location]:
        _check_kind(Path(location).name)
        return found
    start = len(location.rstrip("/")) + 1
    kept = [
        url
        for url in sorted(found)
        if holds_rows(url) and not any(part.startswith((".", "_", "~")) for part in url[start:].split("/"))
    ]
    if not kept:
        raise NoRecords(f"no records at {location}: {GIVEN}")
    return kept


def _below(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise InvalidSpec(
            f"the folder {error.filename} cannot be read ({error.strerror}); allow it, or move it away"
        ) from None

    for where, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith((".", "_", "~"))]
        kept = (Path(where, name) for name in files if not name.startswith((".", "_", "~")))
        yield from (path for path in kept if holds_rows(path))


def _check_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if path.is_symlink():
            raise InvalidSpec(
                f"{path} is a link to {os.readlink(path)}, which cannot be reached; repair or remove it"
            ) from None
        kind = NoRecords if isinstance(error, FileNotFoundError) else InvalidSpec
        raise kind(f"no records at {path} ({error.strerror}): {GIVEN}") from None
    if not stat.S_ISREG(mode):
        found = KINDS.get(stat.S_IFMT(mode), "no file")
        raise InvalidSpec(f"{path} is {found}, records are read from files: write them to one, or move it away")


def check_names(found: Sequence[str], wanted: Sequence[str], path: str, named: Sequence[str] = ()) -> None:
    """Accept columns that are there once each, and not named by folders (``named``), too. Raises: InvalidSpec."""
    name = Path(path).name
    both = next((column for column in named if column in found), None)
    if both is not None:
        raise InvalidSpec(f"{name} has a column {both!r}, and so has the name of its folder; leave it out of the file")
    missing = [column for column in wanted if column not in found]
    if missing and len(found) == 1 and (between := next((mark for mark in ";\t|" if mark in found[0]), None)):
        shown = "tabs" if between == "\t" else f"{between!r}"
        raise InvalidSpec(f"{name} seems to have {shown} between its columns; write it with commas, or as Parquet")
    if missing and kind_of(Path(path)) == "csv":  # without a header row, the first row is a record: it is not quoted
        raise InvalidSpec(
            f"{name} has no column {missing[0]!r} among the {len(found)} of its first row; name the column in 'records.columns', or all "
            "columns in 'records.header' if the file has no header row"
        )
    if missing:
        raise InvalidSpec(f"{name} has no column {missing[0]!r}; it has {', '.join(found[:50])}")
    twice = [column for column in wanted if list(found).count(column) > 1]
    if twice:
        raise InvalidSpec(f"{name} has more than one column {twice[0]!r}; rename one of them")


def header_of(stream: pa.NativeFile, path: str) -> list[str]:
    """The names in the header row of a CSV file, from its unpacked content."""
    with reading(path):
        rows = csv.reader(io.TextIOWrapper(stream, "utf-8-sig", newline=""))
        names = next((row for row in rows if row), None)
    if names is not None and any("\0" in name for name in names):
        raise InvalidSpec(f"{Path(path).name} cannot be read: its text is UTF-16; save the file as UTF-8")
    if names is None:
        raise InvalidSpec(f"{Path(path).name} cannot be read: the file is empty; write at least its header row")
    return names
