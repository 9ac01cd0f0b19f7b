"""Files of records in object stores and on web servers, read by whoever needs them: no volume is shared."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from dpdist.errors import InvalidInput, InvalidSpec, NoRecords, StoreError

SCHEMES = ("s3://", "gs://", "az://", "abfss://", "https://")
LISTED = ("s3://", "gs://", "az://", "abfss://")
"""Places that can say what they hold."""
WINDOW_BYTES = 8 * 2**20
"""What one request brings."""


def is_remote(location: str) -> bool:
    """Whether records are named by a URL. Raises: InvalidInput for URLs that cannot be read, or that carry credentials."""
    if "://" not in location:
        return False
    if not location.startswith(SCHEMES):
        raise InvalidInput(
            f"records are read from s3://, gs://, az://, abfss://, https:// or files, found {location.partition('://')[0]}://"
        )
    if "?" in location or re.match(r"\w+://[^/]*:[^/]*@", location):
        raise InvalidInput(
            "the URL of records holds credentials, and specs are public: leave them out, and give them in the environment"
        )
    return True


def listed(location: str) -> list[str]:
    """The URLs of all objects below a URL, and its own if it is one. Raises: NoRecords, InvalidSpec."""
    import obstore
    import obstore.exceptions

    root, name = _split(location.rstrip("/"))
    try:
        if not location.startswith(LISTED):
            obstore.head(_opened(root), name)
            return [location]
        found = [entry["path"] for page in obstore.list(_opened(root), prefix=name or None) for entry in page]
        if not found and name:
            obstore.head(_opened(root), name)
            return [location]
    except FileNotFoundError:
        raise NoRecords(f"no records at {location}: give a file of records, or a prefix that holds some") from None
    except (OSError, obstore.exceptions.BaseError) as error:
        from dpdist.machine.documents import reason

        raise InvalidSpec(
            f"{location} cannot be read ({reason(error)}); check the URL and the credentials in the environment"
        ) from None
    return [f"{root}/{path}" for path in found]


def mark_of(location: str) -> tuple[int, str | None]:
    """The size of an object, and what its store calls its present content; None where it has no name for it.

    Raises: OSError, StoreError as ``_failed``.
    """
    import obstore
    import obstore.exceptions

    root, name = _split(location)
    try:
        found = obstore.head(_opened(root), name)
    except (OSError, obstore.exceptions.BaseError) as error:
        raise _failed(location, error) from None
    tag = found["e_tag"]
    return int(found["size"]), None if not tag else f"{found['size']} {tag} {found['version']} {found['last_modified']}"


def bytes_below(location: str) -> int:
    """The size of all objects below a URL together. Raises: OSError, StoreError as ``_failed``."""
    import obstore
    import obstore.exceptions

    root, name = _split(location.rstrip("/"))
    try:
        return sum(int(entry["size"]) for page in obstore.list(_opened(root), prefix=name or None) for entry in page)
    except (OSError, obstore.exceptions.BaseError) as error:
        raise _failed(location, error) from None


def chunks(location: str, size: int) -> Iterator[bytes]:
    """The content of an object in blocks of ``size`` bytes, the last one shorter. Raises: OSError, StoreError as ``_failed``."""
    import obstore
    import obstore.exceptions

    root, name = _split(location)
    kept = bytearray()
    try:
        for part in obstore.get(_opened(root), name).stream(min_chunk_size=max(size, WINDOW_BYTES)):
            kept += bytes(part)
            while len(kept) >= size:
                yield bytes(kept[:size])
                del kept[:size]
    except (OSError, obstore.exceptions.BaseError) as error:
        raise _failed(location, error) from None
    if kept:
        yield bytes(kept)


class RemoteBytes:
    """Ranges of an object, asked for some blocks ahead."""

    def __init__(self, location: str, size: int) -> None:
        self._location, self._size, self._start, self._held = location, size, 0, b""

    def read(self, start: int, length: int) -> bytes:
        """Bytes start..start + length, fewer at the end. Raises: OSError, StoreError as ``_failed``."""
        import obstore
        import obstore.exceptions

        length = min(length, self._size - start)
        if not (self._start <= start and start + length <= self._start + len(self._held)):
            root, name = _split(self._location)
            wanted = min(max(length, WINDOW_BYTES), self._size - start)
            try:
                self._held = bytes(obstore.get_range(_opened(root), name, start=start, length=wanted)) if wanted > 0 else b""
            except (OSError, obstore.exceptions.BaseError) as error:
                if self.size() != self._size:  # a range beyond its end is refused
                    raise OSError(errno.EIO, "another size") from None
                raise _failed(self._location, error) from None
            self._start = start
        return self._held[start - self._start : start - self._start + length]

    def size(self) -> int:
        """How long it is now. Raises: OSError, StoreError as ``_failed``."""
        return mark_of(self._location)[0]

    def close(self) -> None:
        """Nothing is held open."""


def _failed(location: str, error: Exception) -> Exception:
    """FileNotFoundError where a store says that an object is not there; StoreError where it, or the network, gave no answer."""
    import obstore.exceptions

    from dpdist.machine.documents import reason

    if isinstance(error, FileNotFoundError | obstore.exceptions.NotFoundError):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), location.partition("://")[0])
    return StoreError(
        f"records in {_split(location)[0]} cannot be read now ({reason(error)}): the store or the network failed, or the "
        "credentials are not accepted; see to these and run again; nothing was charged"
    )


def _split(location: str) -> tuple[str, str]:
    """The root of the store, and the name in it."""
    scheme, _, rest = location.partition("://")
    host, _, name = rest.partition("/")
    return f"{scheme}://{host}", name


@lru_cache(maxsize=16)
def _opened(root: str) -> Any:
    from dpdist.machine.documents import reached

    return reached(root)
