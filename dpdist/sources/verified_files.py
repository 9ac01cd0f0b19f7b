"""Files of records: what is read is what was hashed.

When a file is hashed, each of its blocks gets a tag under a key that lives as long as the source (GMAC, many times faster than the
hash). Whoever reads the file later, in whatever order and on whatever worker, gets only bytes whose block has that tag.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dpdist.errors import InvalidInput, StoreError
from dpdist.sources.source_labels import UNNAMED, SourceLabel
from dpdist.storage.objects import Missing, file_at

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
        first_block: the number of the block that the first tag is of.
        remembered: whether an earlier run hashed the file, and this one read nothing of it.
        source_label: what messages call the file.
    """

    size: int
    key: bytes = field(repr=False)
    tags: bytes = field(repr=False)
    members: Members = field(default=(), repr=False)
    first_block: int = 0
    remembered: bool = False
    source_label: SourceLabel = UNNAMED

    @property
    def is_one_block(self) -> bool:
        """Whether the file was hashed in one piece, and is read so."""
        return self.size <= BLOCK_BYTES

    def with_label(self, source_label: SourceLabel) -> Tags:
        """The same of a file that messages call so, and of its members."""
        return replace(
            self,
            source_label=source_label,
            members=tuple((name, member_tags.with_label(source_label)) for name, member_tags in self.members),
        )


Members = tuple[tuple[str, Tags], ...]


def hash_with_tags(path: str | Path, source_label: SourceLabel = UNNAMED) -> tuple[str, Tags]:
    """SHA-256 of a file or object, and the tags of the very bytes that were hashed."""
    key, whole, tags, size = os.urandom(16), hashlib.sha256(), bytearray(), 0
    cipher = AESGCM(key)
    for block in file_at(path, source_label).chunks(BLOCK_BYTES):
        whole.update(block)
        tags += _tag(cipher, size // BLOCK_BYTES, block)
        size += len(block)
    return whole.hexdigest(), Tags(size, key, bytes(tags))


def _tag(cipher: AESGCM, number: int, block: bytes | memoryview) -> bytes:
    return cipher.encrypt(number.to_bytes(12, "big"), b"", block)


class HashedFile(io.RawIOBase):
    """A file of records, opened for reading: bytes that were not hashed are never returned.

    Raises: InvalidInput when the file is not what it was.
    """

    def __init__(self, path: str, tags: Tags) -> None:
        super().__init__()
        self._location = file_at(path, tags.source_label)
        self._tags = tags
        self._cipher = AESGCM(tags.key)
        self._position = 0
        self._number, self._block = -1, memoryview(b"")
        self._start, self._cached_bytes = 0, memoryview(b"")

    def read(self, size: int | None = -1) -> bytes:
        remaining_bytes = max(0, self._tags.size - self._position)
        stop = self._position + (remaining_bytes if size is None or size < 0 else min(size, remaining_bytes))
        chunks = []
        while self._position < stop:
            number, start = divmod(self._position, BLOCK_BYTES)
            chunk = self._verified_block(number)[start : start + stop - self._position]
            chunks.append(chunk)
            self._position += len(chunk)
        return b"".join(chunks)

    def _verified_block(self, number: int) -> memoryview:
        if number != self._number:
            block = self._read_block(number * BLOCK_BYTES)
            tag_offset = (number - self._tags.first_block) * TAG_BYTES
            tag = self._tags.tags[tag_offset : tag_offset + TAG_BYTES]
            if not block or not hmac.compare_digest(_tag(self._cipher, number, block), tag):
                raise self._changed_error()
            self._number, self._block = number, block
        return self._block

    def _read_block(self, start: int) -> memoryview:
        """A block as it is there now; of an object the next ones are asked for with it."""
        if not self._start <= start < self._start + len(self._cached_bytes):
            try:
                content = self._location.read_range("", start, max(BLOCK_BYTES, self._location.ahead_bytes))
            except StoreError:  # also where a range lies beyond the end
                self.check_size()
                raise
            self._start, self._cached_bytes = start, memoryview(content)
        return self._cached_bytes[start - self._start : start - self._start + BLOCK_BYTES]

    def check_size(self) -> None:
        """Accept a file that is as long as it was. Raises: InvalidInput."""
        try:
            size = self._location.file_state().size
        except Missing:
            raise self._changed_error() from None
        if size != self._tags.size:
            raise self._changed_error()

    def _changed_error(self) -> InvalidInput:
        return InvalidInput(
            f"{self._tags.source_label} was changed or replaced since this run hashed it; the run charged nothing and kept nothing: run "
            "again when no other process writes the file"
        )

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._tags.size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
