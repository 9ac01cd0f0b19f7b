"""Memory that was freed and is needed again at once.

What glibc gives back to the kernel has to be faulted in again, page by page: of the CPU time in which cells are measured that was a third
(benchmarks/results/scale.md). Elsewhere (musl, macOS) nothing is changed.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dpdist.process.resource_limits import MIB

KEPT_BYTES = 256 * MIB
"""Freed memory that a process keeps at most at the end of a heap; larger blocks go back at once."""
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_TOP_BYTES = 64 * MIB
_REUSED_BYTES = 32 * MIB
"""Up to which size glibc learns by itself to use blocks again, until somebody sets a limit: from then on it learns no more."""


_BLOCKS: list[None] = []
"""One entry for each block in which what is freed is kept, in whatever thread; and one for good in a process that does nothing else."""
_LOCK = threading.Lock()


def keep_freed_memory() -> None:
    """Keep what is freed from now on, as a worker process does: it is there for nothing else."""
    with _LOCK:
        if not _BLOCKS:
            _set(KEPT_BYTES, _TOP_BYTES)
        _BLOCKS.append(None)


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Keep what is freed within the block, and give it back at the end of the last such block, unless the process keeps it for good."""
    keep_freed_memory()
    try:
        yield
    finally:
        with _LOCK:
            _BLOCKS.pop()
            if not _BLOCKS:
                _set(_REUSED_BYTES, _REUSED_BYTES // 32)


def _set(kept_bytes: int, top: int) -> None:
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return
    for option, value in ((_MMAP_THRESHOLD, kept_bytes), (_TRIM_THRESHOLD, kept_bytes), (_TOP_PAD, top)):
        library.mallopt(option, value)
    library.malloc_trim(0)
