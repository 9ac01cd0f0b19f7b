"""Ticks: round numbers that hold all that is drawn, and round times."""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass

import numpy as np

from dpdist.api.pages import format_date, format_number, say, translatable
from dpdist.plugins.page.charts.chart_data import Clock

NEGLIGIBLE_LOW = 0.06
"""Lows this small against the height get no tick of their own."""
WORDS = (
    (1e13, 1e12, translatable("trillions")),
    (1e10, 1e9, translatable("billions")),
    (1e7, 1e6, translatable("millions")),
)
"""From which height on ticks are divided, by what, and its name."""


@dataclass(frozen=True)
class Scale:
    """A linear scale with round ticks.

    Attributes:
        low, high: the ends; ``high`` is a tick, so that no peak lies beyond the last one.
        divisor, word: large numbers are shown divided, and the axis says by what.
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    divisor: float = 1.0
    word: str = ""

    def text(self, tick: float) -> str:
        """A tick's label."""
        step = (self.ticks[1] - self.ticks[0]) / self.divisor if len(self.ticks) > 1 else 1.0
        digits = max(0, -math.floor(math.log10(step) + 1e-9)) if step < 1 else int(not float(step).is_integer())
        return format_number(tick / self.divisor, digits)

    def fraction(self, value: float) -> float:
        """Where a value lies between the ends, 0 to 1."""
        return (value - self.low) / (self.high - self.low)


def value_scale_of(low: float, high: float, max_steps: int = 6) -> Scale:
    """A scale that holds 0 and everything between ``low`` and ``high``."""
    low, high = min(0.0, low), max(0.0, high)
    if high == low:
        high = low + 1.0
    step = nice_step((high - low) / max_steps)
    top = math.ceil(high / step - 1e-9) * step
    bottom = low if low > -NEGLIGIBLE_LOW * (high - low) else math.floor(low / step + 1e-9) * step
    first_tick = math.ceil(bottom / step - 1e-9)
    ticks = tuple(k * step + 0.0 for k in range(first_tick, round(top / step) + 1))
    divisor, word = next(((size, say(name)) for minimum, size, name in WORDS if max(top, -bottom) >= minimum), (1.0, ""))
    return Scale(bottom, top, ticks, divisor, word)


def nice_step(minimum: float) -> float:
    """1, 2 or 5 times a power of ten, at least ``minimum``."""
    magnitude = 10.0 ** math.floor(math.log10(minimum))
    return float(next(s * magnitude for s in (1, 2, 5, 10) if s * magnitude >= minimum * (1 - 1e-9)))


def round_numbers_within(low: float, high: float, max_count: int) -> list[float]:
    """Round numbers within an interval."""
    step = nice_step((high - low) / max(1, max_count))
    return [k * step + 0.0 for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


_SPANS = [(1, "minute"), (5, "minute"), (15, "minute"), (1, "hour"), (3, "hour"), (6, "hour"), (12, "hour")]
_SPANS += [(1, "day"), (2, "day"), (7, "day"), (14, "day"), (1, "month"), (2, "month"), (3, "month"), (6, "month")]
_SPANS += [(12 * years, "month") for years in (1, 2, 5, 10, 20, 50, 100)]
_SECONDS = {"minute": 60.0, "hour": 3600.0, "day": 86400.0, "month": 2629800.0}


def round_time_ticks(clock: Clock, low: float, high: float, max_count: int) -> list[tuple[float, str]]:
    """Numbers of an interval that stand for round times, and how these are written."""
    begin, end = clock.time(low), clock.time(high)
    seconds = (end - begin).total_seconds()
    count, unit = next(((n, u) for n, u in _SPANS if seconds / (n * _SECONDS[u]) <= max_count), _SPANS[-1])
    ticks: list[tuple[float, str]] = []
    for time in _round_times(begin, end, count, unit):
        fraction = (time - begin).total_seconds() / seconds if seconds else 0.0
        ticks.append((low + fraction * (high - low), _time_label(time, count, unit, in_full=not ticks)))
    return ticks


def time_ticks(clock: Clock, numbers: list[float]) -> list[tuple[float, str]]:
    """All of a few numbers, with the times that they stand for."""
    unit = clock.step if clock.step in ("minute", "hour") else "day" if clock.step in ("day", "week") else "month"
    return [(number, _time_label(clock.time(number), 1, unit, in_full=not k)) for k, number in enumerate(numbers)]


def _round_times(begin: datetime.datetime, end: datetime.datetime, count: int, unit: str) -> list[datetime.datetime]:
    if unit == "month":
        month = (
            math.ceil((begin.year * 12 + begin.month - 1 + (begin.day > 1 or begin.time() > datetime.time())) / count)
            * count
        )
        times = []
        while month // 12 < 9999 and (time := datetime.datetime(month // 12, month % 12 + 1, 1)) <= end:
            times.append(time)
            month += count
        return times
    step = datetime.timedelta(seconds=count * _SECONDS[unit])
    monday = datetime.datetime(1900, 1, 1)  # weeks begin on Mondays
    time = monday + math.ceil((begin - monday) / step) * step
    return [time + k * step for k in range(int((end - time) / step) + 1)] if time <= end else []


def _time_label(time: datetime.datetime, count: int, unit: str, *, in_full: bool) -> str:
    if unit in ("minute", "hour"):
        midnight = time.time() == datetime.time()
        return format_date(time, "%-d %b %H:%M" if in_full and not midnight else "%-d %b" if midnight else "%H:%M")
    if unit == "day":
        return format_date(time, "%-d %b %Y" if in_full else "%-d %b")
    if count >= 12:
        return format_date(time, "%Y")
    return format_date(time, "%b %Y" if in_full or time.month == 1 else "%b")


def rounded_class_limits(peak: float, classes: int) -> list[float]:
    """Rounded limits of the classes of a heat map, denser where counts are small (square-root scale); the last is the peak's."""
    rough = [peak * (k / classes) ** 2 for k in range(1, classes)]
    rounded = [float(f"{value:.1g}") if value < 10 * peak / classes**2 else float(f"{value:.2g}") for value in rough]
    return sorted({*(value for value in rounded if value < peak), float(np.ceil(peak))})
