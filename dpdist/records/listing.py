"""Files of records: which files of a folder hold some, and whether they have the columns that are needed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

from dpdist.errors import InvalidSpec, NoRecords
from dpdist.records import remote
from dpdist.records.wording import Called, File, called_by, called_within, encodes

ARROW = (".arrow", ".feather", ".ipc")
"""Files in Arrow's IPC format."""
ENDINGS = {
    "parquet": (".parquet",),
    "arrow": ARROW,
    "csv": (".csv", ".csv.gz"),
    "jsonl": (".jsonl", ".ndjson"),
    "npy": (".npy",),
    "zarr": (".zarr",),
}
"""How the names of files end, by their kind."""
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
    return next((kind for kind, endings in ENDINGS.items() if name.endswith(endings)), None)


def listed(location: str | Path, called: Called | None = None) -> list[File]:
    """The file at a path or URL, or all files of records of a folder or prefix, in order.

    Names that begin with '.', '_' or '~' are not records: hidden files, drafts of editors, marks and logs of Spark and Hive.
    A folder called .zarr is one array. Raises: InvalidSpec when there is none, and for what is no file: a link to nothing, a pipe,
    a socket, a device.

    Args:
        called: what messages call the place; default the last part of its path.
    """
    called = called or called_by(location)
    if kind_of(str(location).rstrip("/")) == "zarr":
        return [File(str(location).rstrip("/"), called)]
    if remote.is_remote(str(location)):
        return _below_url(str(location), called)
    location = Path(location)
    if location.is_dir():
        found = _numbered([str(path) for path in sorted(_below(location, called))], called)
    else:
        found = [File(str(location), called)]
    for file in found:
        _check_file(file)
    if not found:
        raise NoRecords(f"no records in {called}: {GIVEN}")
    for file in found:
        _check_kind(file)
    return found


def _numbered(paths: list[str], folder: Called) -> list[File]:
    return [File(path, called_within(folder, number)) for number, path in enumerate(paths, 1)]


def _check_kind(file: File) -> None:
    """Raises: InvalidSpec when a file's name is none of a file of records, or no text."""
    if not encodes(file.path):
        raise InvalidSpec(f"the path of {file.called!r} is not UTF-8; rename the file or folder in it that has such a name")
    if kind_of(file.path) is None:
        raise InvalidSpec(
            f"records in {file.called!r} cannot be read: allowed are .parquet, .arrow, .feather, .csv, .csv.gz, .jsonl and .ndjson, "
            "and .npy and .zarr for counts"
        )


def named_by_folders(location: str | Path, path: str) -> Named:
    """The columns that the folders between a place and a file of it name, as Hive does (year=2026/month=09), with their values."""
    inside = path[len(str(location).rstrip("/")) + 1 :] if remote.is_remote(path) else str(Path(path).relative_to(location))
    found = (part.partition("=") for part in inside.split("/")[:-1])
    return {unquote(name): None if value == HIVE_NULL else unquote(value) for name, sign, value in found if sign and name}


def holds_rows(path: str | Path) -> bool:
    """Whether a file holds rows, by its name."""
    return kind_of(path) not in (None, *ARRAYS)


def _below_url(location: str, called: Called) -> list[File]:
    """The object at a URL, or all objects of records below it."""
    found = remote.listed(location)
    if found == [location]:
        _check_kind(File(location, called))
        return [File(location, called)]
    start = len(location.rstrip("/")) + 1
    kept = [
        url
        for url in sorted(found)
        if holds_rows(url) and not any(part.startswith((".", "_", "~")) for part in url[start:].split("/"))
    ]
    if not kept:
        raise NoRecords(f"no records in {called}: {GIVEN}")
    return _numbered(kept, called)


def _below(folder: Path, called: Called) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise InvalidSpec(
            f"{called}/ has a folder that cannot be read, or is one ({error.strerror}); allow it, or move it away"
        ) from None

    for where, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith((".", "_", "~"))]
        kept = (Path(where, name) for name in files if not name.startswith((".", "_", "~")))
        yield from (path for path in kept if holds_rows(path))


def _check_file(file: File) -> None:
    path, called = Path(file.path), file.called
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if path.is_symlink():
            raise InvalidSpec(f"{called} is a link to what cannot be reached; repair or remove it") from None
        kind = NoRecords if isinstance(error, FileNotFoundError) else InvalidSpec
        raise kind(f"no records in {called} ({error.strerror}): {GIVEN}") from None
    if not stat.S_ISREG(mode):
        found = KINDS.get(stat.S_IFMT(mode), "no file")
        raise InvalidSpec(f"{called} is {found}, records are read from files: write them to one, or move it away")


def check_names(
    found: Sequence[str], wanted: Sequence[str], called: Called, named: Sequence[str] = (), *, csv: bool = False
) -> None:
    """Accept columns that are there once each, and not named by folders (``named``), too. Raises: InvalidSpec.

    Args:
        found: names that the file says. None of them is quoted: without a header row, the first row of a CSV file is a record.
        wanted, named: the spec's names of columns.
    """
    both = next((column for column in named if column in found), None)
    if both is not None:
        raise InvalidSpec(f"{called} has a column {both!r}, and so has the name of its folder; leave it out of the file")
    missing = [column for column in wanted if column not in found]
    if missing:
        check_delimiter(found, called, "name them in 'records.csv.delimiter'")
        cure = ", or all columns in 'records.header' if the file has no header row" if csv else ""
        raise InvalidSpec(
            f"{called} has no column {missing[0]!r}; say in 'records.columns' which of its columns is meant{cure} (the names "
            "that it has are not shown: they may be a record)"
        )
    twice = [column for column in wanted if list(found).count(column) > 1]
    if twice:
        raise InvalidSpec(f"{called} has more than one column {twice[0]!r}; rename one of them")


def check_delimiter(names: Sequence[str], called: Called, cure: str) -> None:
    """Refuse a single name that holds what other programs write between columns. Raises: InvalidSpec."""
    between = next((mark for mark in ";\t|" if len(names) == 1 and mark in names[0]), None)
    if between is not None:
        shown = "tabs" if between == "\t" else f"{between!r}"
        raise InvalidSpec(f"{called} seems to have {shown} between its columns; {cure}")
