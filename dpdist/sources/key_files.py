"""Keys of a public file: read once by each process, and kept as a sorted array of bytes that is mapped into memory, not in it."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpdist.domain.key_spaces import Integers, Keys, ListedKeys
from dpdist.errors import InvalidInput
from dpdist.sources.formats.record_format import BATCH_ROWS
from dpdist.sources.reader_errors import reading
from dpdist.sources.source_labels import SourceLabel, label_of_location
from dpdist.sources.verified_files import BLOCK_BYTES, HashedFile, Tags, hash_with_tags
from dpdist.storage.objects import Missing, file_at

MOST_KEYS = 10**9


@dataclass(frozen=True)
class FileKeys(Keys):
    """The keys that a public file lists, in rising order.

    Attributes:
        location: of a text file with a key in each line, or of a Parquet file with one column of texts.
        sha256: of the file, 64 hex digits: another content is refused.
        version: changes when the file is written, so that it is read again.
    """

    location: str
    sha256: str
    version: str

    @classmethod
    def of_location(cls, location: str, sha256: str) -> FileKeys:
        """The keys of a file as it is now. Raises: InvalidInput where there is none."""
        source_label = label_of_location(location)
        try:
            version = file_at(location, source_label).file_state().version
        except Missing:
            raise InvalidInput(
                f"{source_label} is not there: 'file' is a path from the folder of the spec, or a URL"
            ) from None
        return cls(location, sha256, version or uuid.uuid4().hex)

    @property
    def listed(self) -> ListedKeys:
        """The keys. Raises: InvalidInput for another file than the digest says, or keys that are not in rising order."""
        return _mapped_keys(self.location, self.sha256, self.version)

    @property
    def size(self) -> int:
        return self.listed.size

    def numbers_of(self, texts: Sequence[str]) -> Integers:
        return self.listed.numbers_of(texts)

    def key_at(self, number: int) -> str:
        return self.listed.key_at(number)


@lru_cache(maxsize=8)
def _mapped_keys(location: str, sha256: str, version: str) -> ListedKeys:
    """The keys of a file in an array that is mapped from a file without a name, which is gone with the process."""
    source_label = label_of_location(location)
    digest, tags = hash_with_tags(location, source_label)
    if digest != sha256:
        raise InvalidInput(
            f"{source_label} has the SHA-256 {digest}, and the spec says {sha256}: the keys of a release are fixed. Give the file that the "
            "spec means, or write another spec with its digest"
        )
    with reading(source_label):
        shapes = [(batch.itemsize, batch.size) for batch in _batches(location, tags, source_label)]
        width, key_count = max((width for width, _ in shapes), default=0), sum(size for _, size in shapes)
        if not 0 < key_count <= MOST_KEYS:
            raise InvalidInput(f"{source_label} has {key_count:,} keys: from 1 to {MOST_KEYS:,} are read")
        with tempfile.TemporaryFile() as file:
            last = np.zeros(1, dtype=np.bytes_)
            for batch in _batches(location, tags, source_label):
                codes = batch.astype(f"S{width}")
                if not (codes > np.append(last, codes[:-1])).all():
                    raise InvalidInput(
                        f"{source_label} does not list different keys in the order of their bytes: sort it, for example by LC_ALL=C sort -u"
                    )
                last = codes[-1:]
                file.write(codes.view(np.uint8).data)
            file.flush()
            mapped: NDArray[np.bytes_] = np.memmap(file, dtype=f"S{width}", mode="r", shape=(key_count,))
    return ListedKeys(mapped)


def _batches(location: str, tags: Tags, source_label: SourceLabel) -> Iterator[NDArray[np.bytes_]]:
    """Some keys after others, as UTF-8."""
    with HashedFile(location, tags) as file:
        if location.endswith(".parquet"):
            import pyarrow as pa
            import pyarrow.parquet

            parquet = pyarrow.parquet.ParquetFile(file)
            if len(parquet.schema_arrow) != 1:
                raise InvalidInput(f"{source_label} has several columns, or none: write that of the keys alone")
            for record_batch in parquet.iter_batches(BATCH_ROWS):
                texts = record_batch.column(0).cast(pa.string())
                texts.validate(full=True)
                yield _codes([text or b"" for text in texts.cast(pa.binary()).to_pylist()], source_label)
            return
        rest = b""
        while block := file.read(BLOCK_BYTES):
            lines, _, rest = (rest + block).rpartition(b"\n")
            if lines:
                yield _codes_of_lines(lines, source_label)
        if rest:
            yield _codes_of_lines(rest, source_label)


def _codes_of_lines(lines: bytes, source_label: SourceLabel) -> NDArray[np.bytes_]:
    """The codes of lines, without a newline at the end. Raises: UnicodeDecodeError, InvalidInput."""
    lines.decode()
    width = lines.find(b"\n")
    if width > 0 and (len(lines) + 1) % (width + 1) == 0:
        table = np.frombuffer(lines + b"\n", dtype=np.uint8).reshape(-1, width + 1)
        # all of one length: a tenth of the time of a list of them
        if (table == ord("\n")).sum() == len(table) == (table[:, width] == ord("\n")).sum() and (
            table[:, width - 1] > 32
        ).all():
            return np.ascontiguousarray(table[:, :width]).view(f"S{width}").reshape(-1)
    return _codes(lines.splitlines(), source_label)


def _codes(codes: list[bytes], source_label: SourceLabel) -> NDArray[np.bytes_]:
    """The codes as an array of bytes. Raises: InvalidInput for those that it does not tell apart."""
    if any(not code or code.endswith(b"\0") for code in codes):
        raise InvalidInput(f"{source_label} has an empty key, or one that ends with a zero byte: leave it out")
    return np.array(codes, dtype=np.bytes_)
