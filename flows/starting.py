"""Starting a command: what is imported stays, so nobody looks through it for what can go."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collecting() -> Iterator[None]:
    """No garbage collection in the block: of the CPU seconds that imports take it is a sixth (benchmarks/start.py)."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
