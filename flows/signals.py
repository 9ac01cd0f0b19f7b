"""How commands start and end: imports are not looked through for garbage, and a signal ends them in one line that says how to go on.

This module imports nothing that takes long.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

GO_ON = "run the same command again to go on where it stopped"


class Terminated(BaseException):
    """SIGTERM arrived."""


def run_guarded(run: Callable[[], None]) -> None:
    """Run a command; a signal ends it in one line."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        run()
    except Terminated:
        _end("terminated", 128 + signal.SIGTERM)
    except KeyboardInterrupt:
        _end("interrupted", 128 + signal.SIGINT)
    except SystemExit as ended:
        if ended.code == 128 + signal.SIGINT:
            _end("interrupted", 128 + signal.SIGINT)
        raise


def _terminated(number: int, frame: Any) -> None:
    raise Terminated


def _end(reason: str, code: int) -> None:
    sys.stderr.write(f"{reason}; {GO_ON}\n")
    sys.exit(code)


@contextmanager
def without_collecting() -> Iterator[None]:
    """No garbage collection in the block, where imports stay: it is a sixth of their CPU seconds (benchmarks/command_start.py)."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
