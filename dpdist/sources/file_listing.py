"""Files of records: which files of a folder hold some, and whether they have the columns that are needed."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

from dpdist.errors import InvalidInput, InvalidSpec, NoRecords
from dpdist.process.path_encoding import encodes
from dpdist.sources.formats.array_files import ArrayFormat
from dpdist.sources.formats.format_registry import endings, format_of, row_format
from dpdist.sources.formats.record_format import RowFormat
from dpdist.sources.source_labels import File, SourceLabel, label_in_folder, label_of_location
from dpdist.storage.objects import Folder, StorageLocation, file_at, parse_location

FolderColumns = dict[str, str | None]
"""Columns with one value for a whole file."""
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
SCHEMES = ("s3", "gs", "az", "abfss", "https")
"""Of URLs of records; a web server cannot say what it holds."""
PATTERN = re.compile(r"\*|\?(?![^=/]*=)|\{[^{}]*,[^{}]*\}|\[[^\[\]]-[^\[\]]\]")
"""A pattern of names, as shells and other readers know them."""
FILE_ADVICE = f"give a file whose name ends in one of {endings(RowFormat)}, or a folder that holds some"
UNFINISHED_FOLDERS = ("_temporary",)
"""What Spark and Hadoop have in a folder until all of it is written,"""
UNFINISHED_FILES = (".inprogress", "._COPYING_", ".crdownload")
"""and what is in the names that Flink, HDFS and browsers give files until these are whole."""
FINISHED = "_SUCCESS"
"""What Spark and Hadoop put there at the end."""
KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def locate_records(location: str | Path, *, below: Path | None = None) -> StorageLocation:
    """Where records are. Raises: InvalidInput for URLs that cannot be read, that hold a pattern, or that carry credentials.

    Args:
        below: where relative paths start; default the current folder.
    """
    record_location = parse_location(location, below=below).verbatim()
    if isinstance(record_location, Folder):
        return record_location
    scheme, _, rest = record_location.location.partition("://")
    if scheme not in SCHEMES:
        raise InvalidInput(f"records are read from s3://, gs://, az://, abfss://, https:// or files, found {scheme}://")
    refuse_pattern(record_location)
    if "?" in rest or re.match(r"[^/]*:[^/]*@", rest):
        raise InvalidInput(
            "the URL of records holds credentials, and specs are public: leave them out, and give them in the environment"
        )
    return record_location


def refuse_pattern(location: StorageLocation) -> None:
    """Raises: InvalidInput for a path or URL with a pattern of names, such as *.parquet, unless a file is called so."""
    pattern = next((part for part in location.location.split("/") if PATTERN.search(part)), None)
    if pattern is None or (isinstance(location, Folder) and os.path.lexists(location.location)):
        return
    raise InvalidInput(
        f"{pattern!r} is a pattern, and records are read from a file or from a whole folder or prefix: name the one that holds them, and "
        "only them"
    )


def list_files(location: str | Path, source_label: SourceLabel | None = None) -> list[File]:
    """The file at a path or URL, or all files of records of a folder or prefix, in order.

    Names that begin with '.', '_' or '~' are not records: hidden files, drafts of editors, marks and logs of Spark and Hive.
    A folder called .zarr is one array. Raises: InvalidSpec when there is none, and for what is no file: a link to nothing, a pipe,
    a socket, a device.

    Args:
        source_label: what messages call the place; default the last part of its path.
    """
    source_label = source_label or label_of_location(location)
    record_location = locate_records(location)
    refuse_pattern(record_location)
    format_ = format_of(record_location.name)
    if format_ is not None and format_.is_folder:
        return [File(record_location.location, source_label)]
    if not isinstance(record_location, Folder):
        return _below_url(record_location, source_label)
    if record_location.path_or_url.is_dir():
        below = os.walk(record_location.location)
        _check_finished((name for _, folders, names in below for name in (*folders, *names)), source_label)
        files = _label_files(sorted(_files_below(record_location.location, source_label), key=_path_parts), source_label)
    else:
        files = [File(record_location.location, source_label)]
    for file in files:
        _check_file(file)
    if not files:
        raise NoRecords(f"no records in {source_label}{_finished_mark(os.listdir(record_location.location))}: {FILE_ADVICE}")
    for file in files:
        _check_kind(file)
    return files


def _check_finished(names: Iterable[str], source_label: SourceLabel) -> None:
    """Accept a folder that nobody writes to. Raises: NoRecords; it names the mark of the program that writes, never a file."""
    parts = {part for name in names for part in name.split("/")}
    marks = [mark for mark in UNFINISHED_FOLDERS if mark in parts and FINISHED not in parts]
    marks += [mark for mark in UNFINISHED_FILES if any(mark in part for part in parts)]
    if marks:
        raise NoRecords(
            f"{source_label} is still being written: it holds {marks[0]!r}, the mark of a program that has not finished; run again when it "
            "has, or remove what a failed one left behind"
        )


def _finished_mark(names: Sequence[str]) -> str:
    """What to add of a folder that a program has finished, and in which it has written nothing."""
    return f", whose {FINISHED!r} says that a program finished without writing any" if FINISHED in names else ""


def _label_files(paths: list[str], folder: SourceLabel) -> list[File]:
    return [File(path, label_in_folder(folder, number)) for number, path in enumerate(paths, 1)]


def _check_kind(file: File) -> None:
    """Raises: InvalidSpec when a file's name is none of a file of records, or no text."""
    if not encodes(file.path):
        raise InvalidSpec(
            f"the path of {file.source_label!r} is not UTF-8; rename the file or folder in it that has such a name"
        )
    if format_of(file.path) is None:
        raise InvalidSpec(
            f"records in {file.source_label!r} cannot be read: allowed are {endings(RowFormat)}, and {endings(ArrayFormat)} for counts"
        )


def named_by_folders(location: StorageLocation, path: str) -> FolderColumns:
    """The columns that the folders between a place and a file of it name, as Hive does (year=2026/month=09), with their values."""
    inside = path.removeprefix(f"{location}/")
    folder_columns = (folder_name.partition("=") for folder_name in inside.split("/")[:-1] if inside != path)
    return {
        unquote(name): None if value == HIVE_NULL else unquote(value)
        for name, sign, value in folder_columns
        if sign and name
    }


def _below_url(location: StorageLocation, source_label: SourceLabel) -> list[File]:
    """The object at a URL, or all objects of records below it."""
    object_names = [] if location.location.startswith("https://") else sorted(entry.name for entry in location.entries())
    if not object_names:
        if not file_at(location.location).exists():
            raise NoRecords(f"no records at {location}: give a file of records, or a prefix that holds some")
        _check_kind(File(location.location, source_label))
        return [File(location.location, source_label)]
    _check_finished(object_names, source_label)
    hidden = (any(name_part.startswith((".", "_", "~")) for name_part in name.split("/")) for name in object_names)
    paths = [
        f"{location}/{name}"
        for name, is_hidden in zip(object_names, hidden, strict=True)
        if row_format(name) and not is_hidden
    ]
    if not paths:
        raise NoRecords(f"no records in {source_label}{_finished_mark(object_names)}: {FILE_ADVICE}")
    return _label_files(paths, source_label)


def _path_parts(path: str) -> list[str]:
    return path.split(os.sep)


def _files_below(folder: str, source_label: SourceLabel) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise InvalidSpec(
            f"{source_label}/ has a folder that cannot be read, or is one ({error.strerror}); allow it, or move it away"
        ) from None

    for folder_path, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith((".", "_", "~"))]
        file_names = (name for name in files if not name.startswith((".", "_", "~")) and row_format(name))
        yield from (os.path.join(folder_path, name) for name in file_names)


def _check_file(file: File) -> None:
    path, source_label = file.path, file.source_label
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        if os.path.islink(path):
            raise InvalidSpec(f"{source_label} is a link to what cannot be reached; repair or remove it") from None
        kind = NoRecords if isinstance(error, FileNotFoundError) else InvalidSpec
        raise kind(f"no records in {source_label} ({error.strerror}): {FILE_ADVICE}") from None
    if not stat.S_ISREG(mode):
        kind_name = KINDS.get(stat.S_IFMT(mode), "no file")
        raise InvalidSpec(f"{source_label} is {kind_name}, records are read from files: write them to one, or move it away")
