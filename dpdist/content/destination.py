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
from dpdist.process.threads import in_order
from dpdist.storage.documents import Documents
from dpdist.storage.objects import Missing, Place, place_at
from dpdist.storage.objects.atomic_folder import could_not_write, parts_of

if TYPE_CHECKING:
    from dpdist.storage.objects.bucket import Bucket

_T = TypeVar("_T")
_Item = TypeVar("_Item")


class TaskMap(Protocol):
    """How tasks that write parts are run."""

    def __call__(self, function: Callable[[_Item], _T], items: Sequence[_Item]) -> Iterable[_T]:
        """function of every item, in order."""


def here(function: Callable[[_Item], _T], items: Sequence[_Item]) -> list[_T]:
    """function of every item, by threads of this process."""
    return list(in_order(function, items))


@dataclass(frozen=True)
class Written:
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
    def seen(self, name: str) -> Written | None:
        """A file as it is there now, read from end to end; None if there is none."""

    @abstractmethod
    def fill(self, name: str, write: Callable[[BinaryIO], object]) -> Written:
        """Write a file: ``write`` is called with one that is open. Raises: StoreError when that is not possible."""

    def put(self, name: str, data: bytes) -> Written:
        """Write a file of these bytes."""
        return self.fill(name, lambda file: file.write(data))


class DryRun(Destination):
    """Where files are made to see what they would be."""

    def fill(self, name: str, write: Callable[[BinaryIO], object]) -> Written:
        with tempfile.TemporaryFile(prefix="dpdist-") as file:
            write(file)
            return Written(name, *_digest(file))

    def seen(self, name: str) -> None:
        del name


@dataclass(frozen=True)
class PartWriter(Generic[_Item]):
    """Writes the parts of a table; called with one of its items, at the place.

    Attributes:
        write: the files of one part, the same bytes wherever they are written.
        named: the names that they may have; a chunk of zeros is no file in Zarr.
    """

    write: Callable[[Destination, _Item], list[Written]]
    place: Destination
    named: Callable[[_Item], list[str]]

    def __call__(self, item: _Item) -> list[Written]:
        return self.write(self.place, item)

    def fault(self, report: PartReport[_Item]) -> str:
        """What is wrong with a part that somebody else wrote, empty if nothing: it is read back, and written again elsewhere if asked."""
        for each in report.files:
            seen = self.place.seen(each.name)
            if seen is None:
                return f"{each.name} is not there"
            if (seen.digest, seen.size) != (each.digest, each.size):
                return f"{each.name} does not hold what its writer said"
            if seen.tag != each.tag:
                return f"{each.name} was written again"
        if report.again and {(each.name, each.digest) for each in self.write(DryRun(), report.item)} != {
            (each.name, each.digest) for each in report.files
        }:
            return f"{self.named(report.item)[0]} does not hold the answers that belong there"
        return ""


@dataclass(frozen=True)
class PartReport(Generic[_Item]):
    """What the writer of a part says of it; again: whether it is to be written once more, elsewhere."""

    item: _Item
    files: list[Written]
    again: bool


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
        parts_of(draft).mkdir(mode=0o700, exist_ok=True)
        return DraftFolder(draft, target, published_mode())

    def fill(self, name: str, write: Callable[[BinaryIO], object]) -> Written:
        attempt = parts_of(self.draft) / uuid.uuid4().hex
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
        return Written(name, digest, size)

    def seen(self, name: str) -> Written | None:
        return _seen(place_at(self.draft), name)

    def _make_folders(self, name: str) -> None:
        for folder in reversed(PurePosixPath(name).parents[:-1]):
            with suppress(FileExistsError):
                (self.draft / folder).mkdir()
                (self.draft / folder).chmod(self.mode)


@dataclass(frozen=True)
class Objects(Destination):
    """A prefix of an object store. A file is sent by one request, so a killed writer leaves the object of before or none.

    Attributes:
        md5_tags: whether the tags that the store gives are MD5 sums.
    """

    place: Bucket
    md5_tags: bool

    @staticmethod
    def of(place: Bucket) -> Objects:
        """The destination at a place. Raises: StoreError when it cannot be written."""
        return Objects(place, place.has_md5_tags())

    def fill(self, name: str, write: Callable[[BinaryIO], object]) -> Written:
        with tempfile.TemporaryFile(prefix="dpdist-") as file:
            write(file)
            file.flush()
            digest, size = _digest(file)
            with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:  # pages of the file: no memory of its own
                return Written(name, digest, size, self.place.upload(name, data, md5_tags=self.md5_tags))

    def seen(self, name: str) -> Written | None:
        return _seen(self.place, name)

    def put(self, name: str, data: bytes) -> Written:
        tag = self.place.upload(name, data, md5_tags=self.md5_tags)
        return Written(name, hashlib.sha256(data).hexdigest(), len(data), tag)

    def check(self, written: Sequence[Written]) -> list[str]:
        """Compare what the store lists with what its replies to the writers said: nothing is downloaded.

        Returns: the names of other objects below the prefix.
        Raises: StoreError when a file is missing or has changed.
        """
        found = self.tags()
        for each in written:
            if found.pop(each.name, None) != (each.size, each.tag):
                raise StoreError(f"{self.place}: {each.name} changed while the release was published; run again")
        return sorted(found)

    def tags(self) -> dict[str, tuple[int, str | None]]:
        """Size and tag of every object at the place."""
        return tags_at(self.place)

    def delete(self, names: list[str]) -> None:
        """Remove objects."""
        self.place.delete(names)


def tags_at(place: Place) -> dict[str, tuple[int, str | None]]:
    """Size and tag of every file at a place. Raises: StoreError when they cannot be listed."""
    return {each.name: (each.size, each.tag) for each in place.entries()}


def _seen(place: Place, name: str) -> Written | None:
    """A file as it is there now, read from end to end; None if there is none."""
    try:
        return Written(name, *place.digest(name))
    except Missing:
        return None


class Notes:
    """What the object store said of the files of a published release, noted in the run's own store: to know them again by.

    Args:
        documents: where notes are kept.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def write(self, place: Place, tags: dict[str, tuple[int, str | None]]) -> None:
        """Note the size and the tag of every object."""
        self._documents.write_document(_note_of(place), {"files": tags})

    def hold(self, place: Place, tags: dict[str, tuple[int, str | None]]) -> bool:
        """Whether these very objects are noted; never of a store that gives no tags."""
        name = _note_of(place)
        if any(tag is None for _, tag in tags.values()) or not self._documents.has_document(name):
            return False
        noted = self._documents.read_document(name)["files"]
        return {name: (size, tag) for name, (size, tag) in noted.items()} == tags


def _note_of(place: Place) -> str:
    return f"published/{hashlib.sha256(place.location.encode()).hexdigest()[:32]}.json"


def _digest(file: Any) -> tuple[str, int]:
    """SHA-256 and size of an open file."""
    file.flush()
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()
