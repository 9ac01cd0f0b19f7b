"""Errors of the readers of files without the records that they quote (law 3)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from dpdist.errors import DpdistError, InvalidSpec
from dpdist.sources.source_labels import SourceLabel

_REASONS = {
    r"utf-?8": "its text is not UTF-8; save the file as UTF-8",
    r"magic bytes|file size is|deserialize|footer": "it is no whole Parquet file; write it again",
    r"incorrect header check|not in gzip": "its name says gzip, its content is something else; rename or compress it",
    r"truncated compressed|inflate|end of compressed": "its compressed content ends early or is damaged; write it again",
    r"checksum|crc|corrupt|unexpected end|page|decompress|snappy|gzip": "a page of it is damaged; write it again",
}
"""What the readers' messages mean, and the cure."""


@contextmanager
def reading(source_label: SourceLabel) -> Iterator[None]:
    """Whatever a reader raises in the block becomes InvalidSpec with the file."""
    import pyarrow as pa

    try:
        yield
    except (DpdistError, MemoryError):
        raise
    except (pa.ArrowException, OSError, ValueError, RuntimeError, OverflowError, LookupError, TypeError) as error:
        raise InvalidSpec(f"{source_label} cannot be read: {_reader_fault(error)}; what it holds is not shown") from None


def _reader_fault(error: Exception) -> str:
    """What is wrong; nothing is taken from the reader's message."""
    import pyarrow as pa

    reason = next((reason for pattern, reason in _REASONS.items() if re.search(pattern, str(error), re.IGNORECASE)), None)
    if reason is not None:
        return reason
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, pa.ArrowException):
        return f"{os.strerror(error.errno).lower()}; make it readable and run again"
    return f"the file is damaged or of another kind ({type(error).__name__}); write it again"
