"""Files of records: which files of a folder hold some, and whether they have the columns that are needed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from dpdist.errors import InvalidSpec, NoRecords
from dpdist.records import remote
from dpdist.records.formats.registry import endings, format_of
from dpdist.records.wording import Called, File, called_by, called_within

Named = dict[str, str | None]
"""Columns with one value for a whole file."""
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
GIVEN = f"give a file whose name ends in one of {endings(rows=True)}, or a folder that holds some"
KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def listed(location: str | Path, called: Called | None = None) -> list[File]:
    """The file at a path or URL, or all files of records of a folder or prefix, in order.

    Names that begin with '.', '_' or '~' are not records: hidden files, drafts of editors, marks and logs of Spark and Hive.
    A folder called .zarr is one array. Raises: InvalidSpec when there is none, and for what is no file: a link to nothing, a pipe,
    a socket, a device.

    Args:
        called: what messages call the place; default the last part of its path.
    """
    called = called or called_by(location)
    format_ = format_of(str(location).rstrip("/"))
    if format_ is not None and format_.is_folder:
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
    """Raises: InvalidSpec when a file's name is none of a file of records."""
    if format_of(file.path) is None:
        raise InvalidSpec(
            f"records in {file.called!r} cannot be read: allowed are {endings(rows=True)}, and {endings(rows=False)} for counts"
        )


def named_by_folders(location: str | Path, path: str) -> Named:
    """The columns that the folders between a place and a file of it name, as Hive does (year=2026/month=09), with their values."""
    inside = path[len(str(location).rstrip("/")) + 1 :] if remote.is_remote(path) else str(Path(path).relative_to(location))
    found = (part.partition("=") for part in inside.split("/")[:-1])
    return {unquote(name): None if value == HIVE_NULL else unquote(value) for name, sign, value in found if sign and name}


def holds_rows(path: str | Path) -> bool:
    """Whether a file holds rows, by its name."""
    found = format_of(path)
    return found is not None and found.holds_rows


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
