"""How long a count or a solve will take: what lines of progress can say themselves."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable

COUNTED = re.compile(r"([\d,]+) of ([\d,]+) ")
"""Progress that has an end."""
NARROWING = re.compile(r"certified gap ([\d.]+e[+-]\d+)$")
"""Progress of a solve: nobody knows its end, and its rate says how long the next digit takes."""
RATE_SECONDS = 5.0
"""Of a count, before its rate says anything."""


def with_time_left(
    progress: Callable[[str, str], None], now: Callable[[], float] = time.monotonic
) -> Callable[[str, str], None]:
    """The same progress, where lines "3 of 20 blocks" also say how long the rest takes at the rate since the stage's first such line.

    Lines of a solve say how long a tenth of its gap takes.

    Args:
        progress: called with a stage's name and a line.
        now: a clock, seconds.
    """
    starts: dict[tuple[str, int], tuple[float, float]] = {}

    def report(stage: str, message: str) -> None:
        counted = COUNTED.match(message)
        if counted is not None:
            completed, total = (int(number.replace(",", "")) for number in counted.groups())
            moment = now()
            start, first_completed = starts.setdefault((stage, total), (moment, completed))
            if (took := moment - start) >= RATE_SECONDS and first_completed < completed < total:
                message = f"{message}, about {took * (total - completed) / (completed - first_completed):,.0f} s left"
        elif (narrowing := NARROWING.search(message)) is not None:
            gap, moment = float(narrowing[1]), now()
            start, first_gap = starts.setdefault((stage, 0), (moment, gap))
            if (took := moment - start) >= RATE_SECONDS and 0 < gap < first_gap:
                message = f"{message}, a tenth of it in about {took / math.log10(first_gap / gap):,.0f} s"
        progress(stage, message)

    return report
