"""Files of records: which files of a folder hold some, and whether they have the columns that are needed."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from dpdist.errors import InvalidInput, InvalidSpec, NoRecords
from dpdist.process.path_encoding import encodes
from dpdist.sources.formats.array_files import ArrayFormat
from dpdist.sources.formats.format_registry import endings, format_of, row_format
from dpdist.sources.formats.record_format import RowFormat
from dpdist.sources.source_labels import Called, File, called_by, called_within
from dpdist.storage.objects import Folder, Place, file_at, place_at

Named = dict[str, str | None]
"""Columns with one value for a whole file."""
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
SCHEMES = ("s3", "gs", "az", "abfss", "https")
"""Of URLs of records; a web server cannot say what it holds."""
GIVEN = f"give a file whose name ends in one of {endings(RowFormat)}, or a folder that holds some"
KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def place_of(location: str | Path, *, below: Path | None = None) -> Place:
    """Where records are. Raises: InvalidInput for URLs that cannot be read, or that carry credentials.

    Args:
        below: where relative paths start; default the current folder.
    """
    place = place_at(location, below=below).verbatim()
    if isinstance(place, Folder):
        return place
    scheme, _, rest = place.location.partition("://")
    if scheme not in SCHEMES:
        raise InvalidInput(f"records are read from s3://, gs://, az://, abfss://, https:// or files, found {scheme}://")
    if "?" in rest or re.match(r"[^/]*:[^/]*@", rest):
        raise InvalidInput(
            "the URL of records holds credentials, and specs are public: leave them out, and give them in the environment"
        )
    return place


def listed(location: str | Path, called: Called | None = None) -> list[File]:
    """The file at a path or URL, or all files of records of a folder or prefix, in order.

    Names that begin with '.', '_' or '~' are not records: hidden files, drafts of editors, marks and logs of Spark and Hive.
    A folder called .zarr is one array. Raises: InvalidSpec when there is none, and for what is no file: a link to nothing, a pipe,
    a socket, a device.

    Args:
        called: what messages call the place; default the last part of its path.
    """
    called = called or called_by(location)
    place = place_of(location)
    format_ = format_of(place.name)
    if format_ is not None and format_.is_folder:
        return [File(place.location, called)]
    if not isinstance(place, Folder):
        return _below_url(place, called)
    if place.given.is_dir():
        found = _numbered(sorted(_below(place.location, called), key=_parts), called)
    else:
        found = [File(place.location, called)]
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
    if format_of(file.path) is None:
        raise InvalidSpec(
            f"records in {file.called!r} cannot be read: allowed are {endings(RowFormat)}, and {endings(ArrayFormat)} for counts"
        )


def named_by_folders(place: Place, path: str) -> Named:
    """The columns that the folders between a place and a file of it name, as Hive does (year=2026/month=09), with their values."""
    inside = path.removeprefix(f"{place}/")
    found = (part.partition("=") for part in inside.split("/")[:-1] if inside != path)
    return {unquote(name): None if value == HIVE_NULL else unquote(value) for name, sign, value in found if sign and name}


def _below_url(place: Place, called: Called) -> list[File]:
    """The object at a URL, or all objects of records below it."""
    found = [] if place.location.startswith("https://") else sorted(each.name for each in place.entries())
    if not found:
        if not file_at(place.location).exists():
            raise NoRecords(f"no records at {place}: give a file of records, or a prefix that holds some")
        _check_kind(File(place.location, called))
        return [File(place.location, called)]
    hidden = (any(part.startswith((".", "_", "~")) for part in name.split("/")) for name in found)
    kept = [f"{place}/{name}" for name, apart in zip(found, hidden, strict=True) if row_format(name) and not apart]
    if not kept:
        raise NoRecords(f"no records in {called}: {GIVEN}")
    return _numbered(kept, called)


def _parts(path: str) -> list[str]:
    return path.split(os.sep)


def _below(folder: str, called: Called) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise InvalidSpec(
            f"{called}/ has a folder that cannot be read, or is one ({error.strerror}); allow it, or move it away"
        ) from None

    for where, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith((".", "_", "~"))]
        kept = (name for name in files if not name.startswith((".", "_", "~")) and row_format(name))
        yield from (os.path.join(where, name) for name in kept)


def _check_file(file: File) -> None:
    path, called = file.path, file.called
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        if os.path.islink(path):
            raise InvalidSpec(f"{called} is a link to what cannot be reached; repair or remove it") from None
        kind = NoRecords if isinstance(error, FileNotFoundError) else InvalidSpec
        raise kind(f"no records in {called} ({error.strerror}): {GIVEN}") from None
    if not stat.S_ISREG(mode):
        found = KINDS.get(stat.S_IFMT(mode), "no file")
        raise InvalidSpec(f"{called} is {found}, records are read from files: write them to one, or move it away")
