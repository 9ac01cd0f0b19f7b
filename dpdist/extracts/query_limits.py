"""How long a query of records may run, and how much disk it may take: what exceeds that is refused in one line, before any charge."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dpdist.errors import InvalidInput, InvalidSpec

SECONDS, DISK_GIB = "DPDIST_QUERY_SECONDS", "DPDIST_QUERY_DISK_GIB"
"""Environment variables of the process that reads the records: neither a spec nor a client of the measuring service sets them."""
DEFAULTS = {SECONDS: 3600.0, DISK_GIB: 16.0}
AGAIN_SECONDS = 0.5
"""A query is interrupted this often until it ends: an interrupt between two of its statements is lost."""


def limit(name: str) -> float:
    """The limit that an environment variable sets, or its default. Raises: InvalidInput."""
    text = os.environ.get(name)
    try:
        value = DEFAULTS[name] if not text else float(text)
    except ValueError:
        value = math.nan
    if not (0 < value < math.inf):
        raise InvalidInput(f"{name} is {text!r}; give a number above 0, or leave it out for {DEFAULTS[name]:g}")
    return value


def disk_bytes() -> int:
    """What a query, or the sorting of records, may write into its folder of temporary files."""
    return int(limit(DISK_GIB) * 2**30)


def time_limit_error() -> InvalidSpec:
    """The refusal of a query that runs longer than it may."""
    return InvalidSpec(
        f"'records.sql' ran longer than {limit(SECONDS):g} s and was ended; make it do less, or raise {SECONDS}"
    )


def disk_limit_error() -> InvalidSpec:
    """The refusal of a query that takes more disk than it may."""
    return InvalidSpec(
        f"reading the records needs more than its part of the memory and {limit(DISK_GIB):g} GiB of disk; make the query do less, or raise "
        f"{DISK_GIB}"
    )


@contextmanager
def interrupt_in_time(interrupt: Callable[[], None]) -> Iterator[None]:
    """Interrupt what the block runs when its time is over. Raises: InvalidSpec in place of what the interrupt raises."""
    seconds, ended, has_timed_out = limit(SECONDS), threading.Event(), threading.Event()

    def watch() -> None:
        if ended.wait(seconds):
            return
        has_timed_out.set()
        while not ended.is_set():
            interrupt()
            ended.wait(AGAIN_SECONDS)

    watching = threading.Thread(target=watch, name="limit of a query", daemon=True)
    watching.start()
    try:
        yield
    except Exception:
        if has_timed_out.is_set():
            raise time_limit_error() from None
        raise
    finally:
        ended.set()
        watching.join()
