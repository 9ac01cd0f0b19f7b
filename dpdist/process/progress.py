"""How long a count will take: what lines of progress can say themselves."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

COUNTED = re.compile(r"([\d,]+) of ([\d,]+) ")
"""Progress that has an end."""
RATE_SECONDS = 5.0
"""Of a count, before its rate says anything."""


def with_time_left(
    progress: Callable[[str, str], None], now: Callable[[], float] = time.monotonic
) -> Callable[[str, str], None]:
    """The same progress, where lines "3 of 20 blocks" also say how long the rest takes at the rate since the stage's first such line.

    Args:
        progress: called with a stage's name and a line.
        now: a clock, seconds.
    """
    begun: dict[tuple[str, int], tuple[float, int]] = {}

    def tell(stage: str, line: str) -> None:
        counted = COUNTED.match(line)
        if counted is not None:
            done, total = (int(number.replace(",", "")) for number in counted.groups())
            at = now()
            start, first = begun.setdefault((stage, total), (at, done))
            if (took := at - start) >= RATE_SECONDS and first < done < total:
                line = f"{line}, about {took * (total - done) / (done - first):,.0f} s left"
        progress(stage, line)

    return tell
