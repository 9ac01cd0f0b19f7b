"""Files of records: what is read is what was hashed.

When a file is hashed, each of its blocks gets a tag under a key that lives as long as the source (GMAC, many times faster than the
hash). Whoever reads the file later, in whatever order and on whatever worker, gets only bytes whose block has that tag.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dpdist.errors import InvalidInput
from dpdist.records import remote
from dpdist.records.wording import UNNAMED, Called

BLOCK_BYTES = 2**20
TAG_BYTES = 16


@dataclass(frozen=True)
class Tags:
    """Proof of what each block of a file held when it was hashed.

    Attributes:
        size: of the file, bytes.
        key: of the tags; made for one file, never stored.
        tags: one of 16 bytes for each block.
        members: of a folder that is one Zarr array, in place of them: its files by their names, with the tags of each.
        first: the number of the block that the first tag is of.
        remembered: whether an earlier run hashed the file, and this one read nothing of it.
        called: what messages call the file.
    """

    size: int
    key: bytes = field(repr=False)
    tags: bytes = field(repr=False)
    members: Members = field(default=(), repr=False)
    first: int = 0
    remembered: bool = False
    called: Called = UNNAMED

    def of(self, called: Called) -> Tags:
        """The same of a file that messages call so, and of its members."""
        return replace(self, called=called, members=tuple((name, each.of(called)) for name, each in self.members))


Members = tuple[tuple[str, Tags], ...]


def hashed(path: str | Path) -> tuple[str, Tags]:
    """SHA-256 of a file or object, and the tags of the very bytes that were hashed."""
    key, whole, tags, size = os.urandom(16), hashlib.sha256(), bytearray(), 0
    cipher = AESGCM(key)
    for block in _blocks(str(path)):
        whole.update(block)
        tags += _tag(cipher, size // BLOCK_BYTES, block)
        size += len(block)
    return whole.hexdigest(), Tags(size, key, bytes(tags))


def _blocks(path: str) -> Iterator[bytes]:
    if remote.is_remote(path):
        yield from remote.chunks(path, BLOCK_BYTES)
        return
    with Path(path).open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield block


def _tag(cipher: AESGCM, number: int, block: bytes) -> bytes:
    return cipher.encrypt(number.to_bytes(12, "big"), b"", block)


class LocalBytes:
    """Ranges of a file."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("rb")  # noqa: SIM115 - closed by close

    def read(self, start: int, length: int) -> bytes:
        """Bytes start..start + length, fewer at the end."""
        self._file.seek(start)
        return self._file.read(length)

    def size(self) -> int:
        """How long it is now."""
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class HashedFile(io.RawIOBase):
    """A file of records, opened for reading: bytes that were not hashed are never returned.

    Raises: InvalidInput when the file is not what it was.
    """

    def __init__(self, path: str, tags: Tags) -> None:
        super().__init__()
        self._path, self._tags, self._cipher, self._at = path, tags, AESGCM(tags.key), 0
        self._number, self._block = -1, b""
        try:
            self._source = remote.RemoteBytes(path, tags.size) if remote.is_remote(path) else LocalBytes(path)
        except OSError:
            raise self._changed() from None

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._tags.size - self._at)
        stop = self._at + (left if size is None or size < 0 else min(size, left))
        parts = []
        while self._at < stop:
            number, start = divmod(self._at, BLOCK_BYTES)
            part = memoryview(self._checked(number))[start : start + stop - self._at]
            parts.append(part)
            self._at += len(part)
        return b"".join(parts)

    def _checked(self, number: int) -> bytes:
        if number != self._number:
            try:
                block = self._source.read(number * BLOCK_BYTES, BLOCK_BYTES)
            except OSError:
                raise self._changed() from None
            place = (number - self._tags.first) * TAG_BYTES
            tag = self._tags.tags[place : place + TAG_BYTES]
            if not block or not hmac.compare_digest(_tag(self._cipher, number, block), tag):
                raise self._changed()
            self._number, self._block = number, block
        return self._block

    def check_size(self) -> None:
        """Accept a file that is as long as it was. Raises: InvalidInput."""
        try:
            size = self._source.size()
        except OSError:
            raise self._changed() from None
        if size != self._tags.size:
            raise self._changed()

    def _changed(self) -> InvalidInput:
        return InvalidInput(
            f"{self._tags.called} was changed or replaced since this run hashed it; the run charged nothing and kept nothing: run "
            "again when no other process writes the file"
        )

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._tags.size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed and hasattr(self, "_source"):  # also when it could not be opened
            self._source.close()
        super().close()
