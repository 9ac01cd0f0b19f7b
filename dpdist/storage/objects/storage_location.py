"""What every reader and writer of files is given: a place, which is a folder or a prefix of an object store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dpdist.errors import StoreError

AGAIN = "mend that and run again: nothing is charged twice"
"""What helps when the disk or the object store failed."""


class Missing(StoreError):
    """A file or an object is not there."""


class Denied(StoreError):
    """A place does not let this user do something."""


class Entry(NamedTuple):
    """A file or an object as it is listed.

    Attributes:
        name: below the place.
        size: bytes.
        tag: that the object store gave it; None on a disk.
        changed: when it was written, in the words of its system.
    """

    name: str
    size: int
    tag: str | None
    changed: str


class FileState(NamedTuple):
    """A file without what it holds.

    Attributes:
        version: changes whenever the file is written; None: nothing that can be relied upon.
    """

    size: int
    version: str | None


@dataclass(frozen=True)
class StorageLocation(ABC):
    """A folder, or a prefix of an object store. Names in it are relative paths; an empty one is the place itself, as a file.

    Small: it travels to workers. Every method raises ``Missing`` for a file that is not there, and StoreError for all else that the
    system or the object store refuses: one line that names the place, without the system's own text.

    Attributes:
        location: an absolute path, or a URL.
        label: what messages call it.
    """

    location: str
    label: str
    ahead_bytes = 0
    """What is asked for at least, of a file that is read by ranges."""

    def __str__(self) -> str:
        return self.location

    @abstractmethod
    def __truediv__(self, name: str) -> StorageLocation:
        """A place in this one."""

    @property
    def name(self) -> str:
        """The last part of the location."""
        return self.location.rpartition("/")[2]

    @property
    @abstractmethod
    def parent(self) -> StorageLocation:
        """The place that this one lies in."""

    @property
    @abstractmethod
    def path_or_url(self) -> Path | str:
        """What other programs open: a path, or a URL."""

    def verbatim(self) -> StorageLocation:
        """The same place, whose path is taken as it is, as names are that were listed; in a URL, %2F is a slash."""
        return self

    def absent(self) -> bool:
        """Whether nothing has the name of this folder; a prefix of an object store needs nothing to be there."""
        return False

    @abstractmethod
    def claim(self) -> None:
        """Make the folder if it is missing, closed to other users; accept the URL of an object store."""

    def exists(self, name: str = "") -> bool:
        """Whether there is such a file."""
        try:
            self.file_state(name)
        except Missing:
            return False
        return True

    @abstractmethod
    def file_state(self, name: str = "") -> FileState:
        """The size of a file, and what changes when it is written."""

    @abstractmethod
    def read_bytes(self, name: str = "") -> Any:
        """The bytes of a file, as a buffer."""

    @abstractmethod
    def read_range(self, name: str, start: int, length: int) -> Any:
        """Some bytes of a file, as a buffer."""

    @abstractmethod
    def chunks(self, size: int, name: str = "") -> Iterator[bytes]:
        """The content of a file in blocks of ``size`` bytes, the last one shorter."""

    @abstractmethod
    def digest(self, name: str = "") -> tuple[str, int, str | None]:
        """SHA-256, size and tag of a file, read from end to end."""

    @abstractmethod
    def write(self, name: str, data: Any, *, lasting: bool = False) -> str | None:
        """Write a file in one step: readers see the old one or the new one; returns the tag that an object store gives it.

        Args:
            lasting: the bytes are on the disk before they have the name.
        """

    @abstractmethod
    def create(self, name: str, data: bytes, *, lasting: bool = False) -> bool:
        """Write a file unless there is one; whether this call wrote it. Atomic between processes."""

    @abstractmethod
    def delete(self, names: Sequence[str]) -> None:
        """Remove files; those that are gone already are no fault."""

    @abstractmethod
    def remove(self, name: str = "", *, delete_first: Sequence[str] = ()) -> None:
        """Remove a file, or everything below a folder: what is named ``delete_first`` before all else."""

    @abstractmethod
    def entries(self, name: str = "") -> Iterator[Entry]:
        """Every file below a folder, in no order."""

    @abstractmethod
    def folders(self, name: str = "") -> list[str]:
        """Names of the folders directly below a folder. Raises: Denied where they may not be listed."""

    @abstractmethod
    def sync(self, name: str = "") -> None:
        """Put everything below a folder on the disk, and every folder on the way to it: it is there after a power loss."""

    @abstractmethod
    def check_writable(self) -> None:
        """Write something, and remove it. Raises: StoreError when that is not possible."""

    @abstractmethod
    def local_copy(self) -> AbstractContextManager[Path]:
        """A folder of this machine with all files: the place itself, or a copy that is gone after the block."""

    @abstractmethod
    def zarr(self, name: str = "") -> Any:
        """A folder of the place as Zarr stores arrays."""

    @abstractmethod
    def refusing(self, verb: str, name: str = "") -> AbstractContextManager[None]:
        """A block in which what the operating system or the object store refuses is a StoreError, as ``told`` says."""

    @property
    def _cure(self) -> str:
        """What helps when the place refuses something."""
        return AGAIN

    def refusal_error(self, verb: str, error: Exception, name: str = "") -> StoreError:
        """What the operating system or the object store refused, as an error that names the place."""
        subject = f"{name!r} in {self.label}" if name else self.label
        if isinstance(error, FileNotFoundError | NotADirectoryError) and verb == "read":
            return Missing(f"{subject} is missing; restore it, or correct its name")
        kind = Denied if isinstance(error, PermissionError) else StoreError
        return kind(f"{subject} could not be {verb}: {self._explanation(error)}")

    def _explanation(self, error: Exception) -> str:
        """Why something was refused, and what helps."""
        return f"{reason(error)}; {self._cure}"


def reason(error: BaseException) -> str:
    """What the operating system said, else the kind of error: object stores quote whole requests."""
    return str(getattr(error, "strerror", None) or type(error).__name__)
