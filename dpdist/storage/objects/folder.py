"""A place on a disk: files are written beside their names, synced where they have to last, and then named."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpdist.errors import StoreError
from dpdist.process.durable_files import private_folder, sync_folders, sync_path, sync_tree
from dpdist.storage.objects import atomic_folder
from dpdist.storage.objects.storage_location import Entry, FileState, StorageLocation

SETTLED_SECONDS = 2.0
"""A file that was written more lately could be written again within the same tick of its file system's clock."""
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
"""What file systems without hard links answer."""


@dataclass(frozen=True)
class Folder(StorageLocation):
    """A folder."""

    @property
    def path_or_url(self) -> Path:
        """The path."""
        return Path(self.location)

    @property
    def parent(self) -> Folder:
        path = str(self.path_or_url.parent)
        return Folder(path, path)

    def __truediv__(self, name: str) -> Folder:
        path = str(self.path_or_url / name)
        return Folder(path, path)

    def absent(self) -> bool:
        return not os.path.lexists(self.path_or_url)

    def claim(self) -> None:
        with self.refusing("opened"):
            private_folder(self.path_or_url)

    def written_at(self, name: str = "") -> float:
        with self.refusing("read", name):
            return self._path(name).stat().st_mtime

    def file_state(self, name: str = "") -> FileState:
        with self.refusing("read", name):
            status = self._path(name).stat()
            if stat.S_ISDIR(status.st_mode):  # as in an object store: a folder is no file
                raise FileNotFoundError
        if time.time() - max(status.st_mtime, status.st_ctime) < SETTLED_SECONDS:
            return FileState(status.st_size, None)
        return FileState(status.st_size, f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}")

    def read_bytes(self, name: str = "") -> bytes:
        with self.refusing("read", name):
            return self._path(name).read_bytes()

    def read_range(self, name: str, start: int, length: int) -> bytes:
        with self.refusing("read", name), open(self._path(name), "rb") as file:
            file.seek(start)
            return file.read(length)

    def chunks(self, size: int, name: str = "") -> Iterator[bytes]:
        with self.refusing("read", name), self._path(name).open("rb") as file:
            while block := file.read(size):
                yield block

    def digest(self, name: str = "") -> tuple[str, int, str | None]:
        with self.refusing("read", name), self._path(name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest(), file.tell(), None

    def write(self, name: str, data: Any, *, lasting: bool = False) -> None:
        path = self._path(name)
        with self.refusing("written", name), _draft(path, data, lasting=lasting) as draft:
            draft.replace(path)

    def create(self, name: str, data: bytes, *, lasting: bool = False) -> bool:
        path = self._path(name)
        try:
            with self.refusing("written", name, FileExistsError), _draft(path, data, lasting=lasting) as draft:
                _name_once(draft, path)
        except FileExistsError:
            return False
        return True

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            with self.refusing("deleted", name), suppress(FileNotFoundError):
                self._path(name).unlink()

    def remove(self, name: str = "", *, delete_first: Sequence[str] = ()) -> None:
        path = self._path(name)
        with self.refusing("removed", name), suppress(FileNotFoundError):
            if not path.is_dir():
                path.unlink()
                return
            for file in [match for name in delete_first for match in path.rglob(name)]:
                file.unlink(missing_ok=True)
            try:
                shutil.rmtree(path)
            except OSError as error:  # a straggling writer may keep a folder alive: the sweep removes it later
                if error.errno != errno.ENOTEMPTY:
                    raise

    def entries(self, name: str = "") -> Iterator[Entry]:
        start = len(self.location.rstrip("/")) + 1
        with self.refusing("listed", name):
            for folder, _, files in os.walk(self._path(name), onerror=_unless_gone):
                for file in files:
                    path = os.path.join(folder, file)
                    with suppress(FileNotFoundError):
                        status = os.stat(path)
                        yield Entry(path[start:], status.st_size, None, str(status.st_mtime_ns))

    def folders(self, name: str = "") -> list[str]:
        with (
            self.refusing("listed", name),
            suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(self._path(name)) as listing,
        ):
            return sorted(entry.name for entry in listing if entry.is_dir())
        return []

    def sync(self, name: str = "") -> None:
        top = self._path(name)
        with self.refusing("synced to the disk", name):
            sync_tree(top)
            sync_path(top)
            sync_folders(top, own_folder=self.path_or_url)

    def check_writable(self) -> None:
        atomic_folder.check_writable(self.path_or_url)

    @contextmanager
    def local_copy(self) -> Iterator[Path]:
        yield self.path_or_url

    def zarr(self, name: str = "") -> Any:
        import zarr

        return zarr.storage.LocalStore(self._path(name))

    def _path(self, name: str) -> Path:
        return Path(self.location, name)

    @contextmanager
    def refusing(self, verb: str, name: str = "", *but: type[OSError]) -> Iterator[None]:
        """What the operating system refuses is a StoreError."""
        try:
            yield
        except but:
            raise
        except OSError as error:
            raise self.refusal_error(verb, error, name) from None


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


@contextmanager
def _draft(path: Path, data: Any, *, lasting: bool) -> Iterator[Path]:
    """A temporary file beside ``path`` that holds the data, synced to the disk if it has to last; gone afterwards."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        yield draft
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _name_once(draft: Path, path: Path) -> None:
    """Give a finished draft its name unless something has it. Raises: FileExistsError."""
    try:
        os.link(draft, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _rename_once(draft, path)


def _rename_once(draft: Path, path: Path) -> None:
    """The same for file systems without hard links: renamed under a lock, which ends with the process that holds it."""
    with path.with_name(".lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            raise StoreError(
                f"the file system of {path.parent} has neither hard links nor locks, so two writers could not know which of them "
                "was first; put the store on another file system or in an object store"
            ) from None
        if path.exists():
            raise FileExistsError(path)
        draft.rename(path)
