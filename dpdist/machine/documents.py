"""Small JSON documents and raw blocks under one root: a local folder or an object store.

A document holds the digest of its own content, so one that was altered is refused and never used. It is written in one step:
readers see the old one, the new one or none, never half of one.
"""

from __future__ import annotations

import base64
import datetime
import errno
import fcntl
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import obstore
import obstore.exceptions
import obstore.store

from dpdist.errors import StoreError
from dpdist.process.durable import sync_folders, sync_path, sync_tree
from dpdist.process.private import private_folder

SEAL = "digest"
"""The key of a document's own digest."""
DELETED_AT_ONCE = 1000
"""Objects that one request deletes, as many as S3 takes."""
FLEETING = ("scratch/", "leases/", "digests/")
"""Folders that nothing promised rests on: they need not survive a power loss."""
_CLIENT = ("allow_http", "allow_invalid_certificates", "connect_timeout", "proxy_excludes", "proxy_url", "timeout")
"""What the environment may say of connections to S3, as AWS_ALLOW_HTTP and so on."""
_BRIEFLY: Any = {"max_retries": 1, "retry_timeout": datetime.timedelta(seconds=5)}


class Documents:
    """Documents and blocks under one root.

    Args:
        location: a folder, or an object store URL such as ``s3://bucket/prefix`` (credentials from the environment).
        briefly: give up soon when an object store does not answer.
        lockable: send Content-MD5 with every object, without which S3 refuses to write where a bucket's object lock has a retention.
        sent: another process has opened the place and sent this handle: nothing is touched before it is used. Dask's scheduler passes
            handles on and sees no folder of a store.
    """

    def __init__(self, location: str | Path, *, briefly: bool = False, lockable: bool = False, sent: bool = False) -> None:
        self.location = str(location)
        self.is_local = "://" not in self.location
        self._briefly, self._lockable = briefly, lockable
        if self.is_local:
            self.location = str(Path(location).expanduser().resolve())
        self._opened: Any = None if sent else self._open()

    @property
    def _objects(self) -> Any:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def _open(self) -> Any:
        """The place for obstore. Raises: StoreError when it cannot be opened."""
        if not self.is_local:
            return reached(self.location, briefly=self._briefly)
        private_folder(Path(self.location))
        return obstore.store.LocalStore(self.location)

    def write_document(self, name: str, content: dict[str, Any]) -> None:
        """Write a small JSON document in one step. Raises: StoreError when it cannot be written."""
        if not self.is_local:
            self._put(name, _encoded(name, content))
            return
        path = Path(self.location, name)
        with _draft(path, _encoded(name, content), lasting=not name.startswith(FLEETING)) as draft:
            draft.replace(path)

    def create_document(self, name: str, content: dict[str, Any]) -> bool:
        """Write a document unless there is one; whether this call wrote it. Atomic between processes.

        Raises: StoreError when it cannot be written.
        """
        try:
            if self.is_local:
                path = Path(self.location, name)
                with _draft(path, _encoded(name, content), lasting=not name.startswith(FLEETING)) as draft:
                    _place_once(draft, path)
            else:
                self._put(name, _encoded(name, content), mode="create")
        except (FileExistsError, obstore.exceptions.AlreadyExistsError):
            return False
        return True

    def read_document(self, name: str) -> dict[str, Any]:
        """A JSON document. Raises: StoreError when it is missing, cannot be read or is not what was written."""
        try:
            loaded = json.loads(bytes(obstore.get(self._objects, name).bytes()))
        except FileNotFoundError:
            raise StoreError(f"{name!r} is not in the store {self.location}: it is missing or incomplete") from None
        except (ValueError, RecursionError):
            raise StoreError(f"{name!r} in the store {self.location} is not readable JSON: it was altered") from None
        except (OSError, obstore.exceptions.BaseError) as error:
            raise StoreError(f"{name!r} in the store {self.location} could not be read: {reason(error)}; {AGAIN}") from None
        if not isinstance(loaded, dict) or loaded.pop(SEAL, None) != seal(name, loaded):
            raise StoreError(
                f"{name!r} in the store {self.location} was altered; restore it from a backup, or delete what it describes and run again"
            )
        return loaded

    def has_document(self, name: str) -> bool:
        """Whether the document is there. Raises: StoreError when the store cannot be asked."""
        try:
            obstore.head(self._objects, name)
        except FileNotFoundError:
            return False
        except (OSError, obstore.exceptions.BaseError) as error:
            raise StoreError(
                f"the store {self.location} could not be asked whether it holds {name!r}: {reason(error)}; {AGAIN}"
            ) from None
        return True

    def delete(self, name: str, *, first: Sequence[str] = ()) -> None:
        """Remove a document, or everything below a folder: what is named ``first`` before all else."""
        if self.is_local:
            _remove(Path(self.location, name), first)
            return
        paths = [name] if self.has_document(name) else [path for path, _, _ in self.listed(name)]
        records = [path for path in paths if path.rpartition("/")[2] in first]
        others = sorted(set(paths) - set(records))
        for some in (records, others):
            for start in range(0, len(some), DELETED_AT_ONCE):
                self._delete(some[start : start + DELETED_AT_ONCE])

    def _delete(self, paths: list[str]) -> None:
        """Delete objects in one request; those that are gone already are no fault."""
        with self._reached("deleted", paths[0]):
            try:
                obstore.delete(self._objects, paths)
            except FileNotFoundError:
                for path in paths:
                    with suppress(FileNotFoundError):
                        obstore.delete(self._objects, path)

    def folders(self, name: str) -> list[str]:
        """Names of the folders directly below a folder. Raises: StoreError when they cannot be listed."""
        with self._reached("listed", name):
            found = obstore.list_with_delimiter(self._objects, prefix=name)["common_prefixes"]
        return sorted(str(prefix).rstrip("/").rpartition("/")[2] for prefix in found)

    def listed(self, name: str) -> list[tuple[str, int, str]]:
        """Path, size and time of every object below a folder. Raises: StoreError when they cannot be listed."""
        with self._reached("listed", name):
            pages: Iterable[Any] = obstore.list(self._objects, prefix=name)
            return [(entry["path"], entry["size"], str(entry["last_modified"])) for page in pages for entry in page]

    @contextmanager
    def _reached(self, done: str, name: str) -> Iterator[None]:
        """What the operating system or the object store refuses is a StoreError: obstore has errors of its own."""
        try:
            yield
        except (OSError, obstore.exceptions.BaseError) as error:
            what = repr(name) if name else "everything"
            raise StoreError(f"{what} in the store {self.location} could not be {done}: {reason(error)}; {AGAIN}") from None

    def sync(self, name: str) -> None:
        """Put everything below a folder on the disk, and every folder on the way to it: it is there after a power loss.

        An object store confirms each write when it is durable. What another writer removes meanwhile is its own: a draft, or an
        attempt that lost.
        Raises: StoreError when the disk refuses; what was written may then be lost.
        """
        if not self.is_local:
            return
        root, top = Path(self.location), Path(self.location, name)
        try:
            sync_tree(top)
            sync_path(top)
            sync_folders(top, own=root)
        except OSError as error:
            raise StoreError(
                f"{name!r} could not be synced to the disk of {self.location}: {error.strerror}; {AGAIN}"
            ) from None

    def _writer(self, data: Any) -> Any:
        """The store as these bytes are written to: obstore sends headers of its clients only."""
        if not self._lockable:
            return self._objects
        digest = hashlib.md5(data, usedforsecurity=False).digest()
        return reached(self.location, headers={"content-md5": base64.b64encode(digest).decode()})

    def _put(self, name: str, data: Any, **options: Any) -> None:
        try:
            obstore.put(self._writer(data), name, data, **options)
        except (FileExistsError, obstore.exceptions.AlreadyExistsError):
            raise
        except (OSError, obstore.exceptions.BaseError) as error:
            raise StoreError(
                f"{name!r} could not be written to the store {self.location}: {reason(error)}; {AGAIN}"
            ) from None


def reached(url: str, *, briefly: bool = False, headers: Mapping[str, str] | None = None, timeout: str | None = None) -> Any:
    """The object store at a URL; credentials come from the environment. Raises: StoreError for no URL of one.

    Args:
        timeout: of one request, where the environment does not say.
    """
    options: dict[str, Any] = {"retry_config": _BRIEFLY} if briefly else {}
    if headers:  # options that are given hide those of the environment
        known = {name: os.environ[f"AWS_{name.upper()}"] for name in _CLIENT if f"AWS_{name.upper()}" in os.environ}
        patience = {} if timeout is None else {"timeout": timeout}
        options["client_options"] = {**patience, **known, "default_headers": dict(headers)}
    try:
        return obstore.store.from_url(url, **options)
    except Exception as error:  # noqa: BLE001 - obstore raises many types for a URL it does not know
        raise StoreError(
            f"{url!r} is not the URL of an object store ({type(error).__name__}); give s3://bucket/prefix or a folder"
        ) from None


@contextmanager
def _draft(path: Path, data: bytes, *, lasting: bool) -> Iterator[Path]:
    """A temporary file beside ``path`` that holds the data, synced to disk if it has to last; gone afterwards."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        yield draft
    except FileExistsError:
        raise
    except OSError as error:
        raise StoreError(f"{path} could not be written: {error.strerror}; {AGAIN}") from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
"""What file systems without hard links answer."""


def _place_once(draft: Path, path: Path) -> None:
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
                f"the file system of {path.parent} has neither hard links nor locks, so two writers could not be "
                "told which of them was first; "
                "put the store on another file system or in an object store"
            ) from None
        if path.exists():
            raise FileExistsError(path)
        draft.rename(path)


def _remove(path: Path, first: Sequence[str]) -> None:
    """Remove a file or a folder. A straggling writer may keep a folder alive: the sweep removes it later."""
    try:
        if not path.is_dir():
            path.unlink(missing_ok=True)
            return
        for each in [found for name in first for found in path.rglob(name)]:
            each.unlink(missing_ok=True)
        shutil.rmtree(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise StoreError(f"{path} could not be removed: {error.strerror}; {AGAIN}") from None


AGAIN = "mend that and run again: nothing is charged twice"
"""What helps when the disk or the object store failed."""


def reason(error: Exception) -> str:
    """What the operating system said, else the kind of error: object stores quote whole requests."""
    return str(getattr(error, "strerror", None) or type(error).__name__)


def seal(name: str, content: dict[str, Any]) -> str:
    """The digest that a document holds of its name and content: one that was put in another's place is altered, too."""
    return hashlib.sha256(json.dumps([name, content], sort_keys=True).encode()).hexdigest()


def _encoded(name: str, content: dict[str, Any]) -> bytes:
    plain = json.loads(json.dumps(content))  # as it will be read: tuples are lists, keys are text
    return json.dumps({**plain, SEAL: seal(name, plain)}, sort_keys=True, indent=1).encode()
