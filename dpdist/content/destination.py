"""Where the files of a release are written before its certificate makes them a release: a draft folder, or an object store.

Workers write parts there, too. A file is written whole or not at all, and a second time with the same bytes: a task that runs twice, or
goes on after its run is over, changes nothing. Whoever writes a file says what was written; it is not read again.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Protocol, TypeVar

from dpdist.errors import StoreError
from dpdist.process.durable_files import published_mode
from dpdist.process.threads import map_in_order
from dpdist.storage.documents import Documents
from dpdist.storage.objects import Missing, StorageLocation, parse_location
from dpdist.storage.objects.atomic_folder import could_not_write, unfinished_folder

if TYPE_CHECKING:
    from dpdist.storage.objects.bucket import Bucket

_T = TypeVar("_T")
_Item = TypeVar("_Item")


class TaskMap(Protocol):
    """How tasks that write parts are run."""

    def __call__(self, function: Callable[[_Item], _T], items: Sequence[_Item]) -> Iterable[_T]:
        """function of every item, in order."""


def map_in_threads(function: Callable[[_Item], _T], items: Sequence[_Item]) -> list[_T]:
    """function of every item, by threads of this process."""
    return list(map_in_order(function, items))


@dataclass(frozen=True)
class WrittenFile:
    """A file of a release.

    Attributes:
        digest: SHA-256 of its bytes.
        size: in bytes.
        tag: that the object store gave it; None on a disk.
    """

    name: str
    digest: str
    size: int
    tag: str | None = None


class Destination(ABC):
    """Where the files of one release are written. Small: travels to workers."""

    @abstractmethod
    def read_back(self, name: str) -> WrittenFile | None:
        """A file as it is there now, read from end to end; None if there is none."""

    @abstractmethod
    def write_file(self, name: str, write: Callable[[BinaryIO], object]) -> WrittenFile:
        """Write a file: ``write`` is called with one that is open. Raises: StoreError when that is not possible."""

    def write_bytes(self, name: str, data: bytes) -> WrittenFile:
        """Write a file of these bytes."""
        return self.write_file(name, lambda file: file.write(data))


class DryRun(Destination):
    """Where files are made to see what they would be."""

    def write_file(self, name: str, write: Callable[[BinaryIO], object]) -> WrittenFile:
        with tempfile.TemporaryFile(prefix="dpdist-") as file:
            write(file)
            return WrittenFile(name, *_digest(file))

    def read_back(self, name: str) -> None:
        del name


@dataclass(frozen=True)
class PartWriter(Generic[_Item]):
    """Writes the parts of a table; called with one of its items, at the place.

    Attributes:
        write: the files of one part, the same bytes wherever they are written.
        possible_names: the names that they may have; a chunk of zeros is no file in Zarr.
    """

    write: Callable[[Destination, _Item], list[WrittenFile]]
    destination: Destination
    possible_names: Callable[[_Item], list[str]]

    def __call__(self, item: _Item) -> list[WrittenFile]:
        return self.write(self.destination, item)

    def fault(self, report: PartReport[_Item]) -> str:
        """What is wrong with a part that somebody else wrote, empty if nothing: it is read back, and written again elsewhere if asked."""
        for reported_file in report.files:
            stored_file = self.destination.read_back(reported_file.name)
            if stored_file is None:
                return f"{reported_file.name} is not there"
            if (stored_file.digest, stored_file.size) != (reported_file.digest, reported_file.size):
                return f"{reported_file.name} does not hold what its writer said"
            if stored_file.tag != reported_file.tag:
                return f"{reported_file.name} was written again"
        if report.needs_rewrite and {
            (reported_file.name, reported_file.digest) for reported_file in self.write(DryRun(), report.item)
        } != {(reported_file.name, reported_file.digest) for reported_file in report.files}:
            return f"{self.possible_names(report.item)[0]} does not hold the answers that belong there"
        return ""


@dataclass(frozen=True)
class PartReport(Generic[_Item]):
    """What the writer of a part says of it; again: whether it is to be written once more, elsewhere."""

    item: _Item
    files: list[WrittenFile]
    needs_rewrite: bool


@dataclass(frozen=True)
class DraftFolder(Destination):
    """A draft of a folder, on a disk that the workers have, too.

    A file is written beside the draft and moved into it: a task that outlives its run finds no draft, and what it still writes is never
    in the published folder.

    Attributes:
        target: what the draft will be, for errors.
        mode: of its folders: a worker has another umask.
    """

    draft: Path
    target: Path
    mode: int

    @staticmethod
    def of(draft: Path, target: Path) -> DraftFolder:
        """The place that a draft is."""
        unfinished_folder(draft).mkdir(mode=0o700, exist_ok=True)
        return DraftFolder(draft, target, published_mode())

    def write_file(self, name: str, write: Callable[[BinaryIO], object]) -> WrittenFile:
        attempt = unfinished_folder(self.draft) / uuid.uuid4().hex
        try:
            with attempt.open("w+b") as file:
                write(file)
                os.fchmod(file.fileno(), self.mode & 0o666)
                digest, size = _digest(file)
                os.fsync(file.fileno())
            self._make_folders(name)
            attempt.replace(self.draft / name)
        except OSError as error:
            raise could_not_write(self.target, error, "the release is measured and charged") from None
        finally:
            attempt.unlink(missing_ok=True)
        return WrittenFile(name, digest, size)

    def read_back(self, name: str) -> WrittenFile | None:
        return _read_written_file(parse_location(self.draft), name)

    def _make_folders(self, name: str) -> None:
        for folder in reversed(PurePosixPath(name).parents[:-1]):
            with suppress(FileExistsError):
                (self.draft / folder).mkdir()
                (self.draft / folder).chmod(self.mode)


@dataclass(frozen=True)
class ObjectStorePrefix(Destination):
    """A prefix of an object store. A file is sent by one request, so a killed writer leaves the object of before or none.

    Attributes:
        md5_tags: whether the tags that the store gives are MD5 sums.
    """

    bucket: Bucket
    md5_tags: bool

    @staticmethod
    def of(bucket: Bucket) -> ObjectStorePrefix:
        """The destination at a place. Raises: StoreError when it cannot be written."""
        return ObjectStorePrefix(bucket, bucket.has_md5_tags())

    def write_file(self, name: str, write: Callable[[BinaryIO], object]) -> WrittenFile:
        with tempfile.TemporaryFile(prefix="dpdist-") as file:
            write(file)
            file.flush()
            digest, size = _digest(file)
            with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:  # pages of the file: no memory of its own
                return WrittenFile(name, digest, size, self.bucket.upload(name, data, md5_tags=self.md5_tags))

    def read_back(self, name: str) -> WrittenFile | None:
        return _read_written_file(self.bucket, name)

    def write_bytes(self, name: str, data: bytes) -> WrittenFile:
        tag = self.bucket.upload(name, data, md5_tags=self.md5_tags)
        return WrittenFile(name, hashlib.sha256(data).hexdigest(), len(data), tag)

    def check(self, written: Sequence[WrittenFile]) -> list[str]:
        """Compare what the store lists with what its replies to the writers said: nothing is downloaded.

        Returns: the names of other objects below the prefix.
        Raises: StoreError when a file is missing or has changed.
        """
        tags_by_name = self.tags()
        for written_file in written:
            if tags_by_name.pop(written_file.name, None) != (written_file.size, written_file.tag):
                raise StoreError(f"{self.bucket}: {written_file.name} changed while the release was published; run again")
        return sorted(tags_by_name)

    def tags(self) -> dict[str, tuple[int, str | None]]:
        """Size and tag of every object at the place."""
        return list_tags(self.bucket)

    def delete(self, names: list[str]) -> None:
        """Remove objects."""
        self.bucket.delete(names)


def list_tags(location: StorageLocation) -> dict[str, tuple[int, str | None]]:
    """Size and tag of every file at a place. Raises: StoreError when they cannot be listed."""
    return {entry.name: (entry.size, entry.tag) for entry in location.entries()}


def _read_written_file(location: StorageLocation, name: str) -> WrittenFile | None:
    """A file as it is there now, read from end to end; None if there is none."""
    try:
        return WrittenFile(name, *location.digest(name))
    except Missing:
        return None


class UploadRecords:
    """What the object store said of the files of a published release, noted in the run's own store: to know them again by.

    Args:
        documents: where notes are kept.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def write(self, location: StorageLocation, tags: dict[str, tuple[int, str | None]]) -> None:
        """Note the size and the tag of every object."""
        self._documents.write_document(_record_name(location), {"files": tags})

    def has_tags(self, location: StorageLocation, tags: dict[str, tuple[int, str | None]]) -> bool:
        """Whether these very objects are noted; never of a store that gives no tags."""
        name = _record_name(location)
        if any(tag is None for _, tag in tags.values()) or not self._documents.has_document(name):
            return False
        recorded_tags = self._documents.read_document(name)["files"]
        return {name: (size, tag) for name, (size, tag) in recorded_tags.items()} == tags


def _record_name(location: StorageLocation) -> str:
    return f"published/{hashlib.sha256(location.location.encode()).hexdigest()[:32]}.json"


def _digest(file: Any) -> tuple[str, int]:
    """SHA-256 and size of an open file."""
    file.flush()
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()
