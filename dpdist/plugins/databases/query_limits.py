"""How long a query of records may run: what exceeds that is refused in one line, before any charge."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dpdist.api import InvalidSpec
from dpdist.api.sources import environment_limit

SECONDS, DEFAULT_SECONDS = "DPDIST_QUERY_SECONDS", 3600.0
"""An environment variable of the process that reads the records: neither a spec nor a client of the measuring service sets it."""
AGAIN_SECONDS = 0.5
"""A query is interrupted this often until it ends: an interrupt between two of its statements is lost."""


def most_seconds() -> float:
    """How long a query may run."""
    return environment_limit(SECONDS, DEFAULT_SECONDS)


def time_limit_error() -> InvalidSpec:
    """The refusal of a query that runs longer than it may."""
    return InvalidSpec(
        f"'records.sql' ran longer than {most_seconds():g} s and was ended; make it do less, or raise {SECONDS}"
    )


@contextmanager
def interrupt_in_time(interrupt: Callable[[], None]) -> Iterator[None]:
    """Interrupt what the block runs when its time is over. Raises: InvalidSpec in place of what the interrupt raises."""
    seconds, ended, has_timed_out = most_seconds(), threading.Event(), threading.Event()

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
