"""Work beside a release that may neither fail nor hold it up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress


def run_best_effort(work: Callable[[], None], seconds: float) -> None:
    """Do something in a thread of its own and wait so long for it, no longer; whatever it raises is passed over."""

    def quietly() -> None:
        with suppress(Exception):
            work()

    thread = threading.Thread(target=quietly, daemon=True)
    thread.start()
    thread.join(seconds)
