"""Steps of a calendar: which hour, day, ISO week, month or year a time lies in, where the clock on the wall shows it."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import InvalidInput

CalendarUnit = Literal["second", "minute", "hour", "day", "week", "month", "quarter", "year"]
UNITS: dict[str, Any] = {
    "second": "s",
    "minute": "m",
    "hour": "h",
    "day": "D",
    "week": "D",
    "month": "M",
    "quarter": "M",
    "year": "Y",
}
PER_STEP = {"week": 7, "quarter": 3}
MONDAY = 3
"""Days from the Monday of its week to 1 January 1970."""
FINER_THAN_DAYS = ("second", "minute", "hour")
OFFSET_SECONDS = 900
"""Clocks have changed at multiples of it for a century; where they did not, times are looked at one by one."""
_ISO = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?")


def moment_of_text(text: str) -> datetime.datetime | None:
    """The ISO date or time that a text is, with its offset if it has one; None for any other text."""
    try:
        return datetime.datetime.fromisoformat(text) if _ISO.fullmatch(text) else None
    except ValueError:
        return None


def _in_utc(times: list[datetime.datetime]) -> NDArray[Any]:
    """Times in UTC, datetime64."""
    ahead = np.array([time.utcoffset() for time in times], dtype="timedelta64[us]")
    return np.asarray(np.array([time.replace(tzinfo=None) for time in times], dtype="datetime64[us]") - ahead)


@dataclass(frozen=True)
class Times:
    """Consecutive steps of a calendar, numbered from 0.

    >>> Times(datetime.datetime(2026, 12, 28), 3, "week").label(1)
    '2027-W01'

    Attributes:
        first: a time in the first step.
        steps: how many there are.
        zone: where the clock hangs; None takes times as they are written and refuses those that carry a zone.
    """

    first: datetime.datetime
    steps: int
    every: CalendarUnit
    zone: str | None = None

    def numbers(self, local: NDArray[Any]) -> NDArray[np.float64]:
        """Step of every local time (datetime64), whole and from 0; NaN where there is none."""
        steps = _since_epoch(_seconds(local).astype("datetime64[s]"), self.every) - self._first_step
        return np.where(np.isnat(local), np.nan, steps)

    def of_texts(self, texts: list[str]) -> NDArray[np.float64]:
        """Step of every text: an ISO date or time, or the label of a step; NaN for an empty text, infinite for any other."""
        steps = np.full(len(texts), np.nan)
        local_times: dict[int, datetime.datetime] = {}
        zoned: dict[int, datetime.datetime] = {}
        for index, text in enumerate(texts):
            moment = moment_of_text(text)
            if moment is None:
                steps[index] = self._labels.get(text, np.inf) if text else np.nan
            elif len(text) == len("2026-09-01") and self.every in FINER_THAN_DAYS:
                steps[index] = np.inf
            else:
                (local_times if moment.tzinfo is None else zoned)[index] = moment
        if local_times:
            steps[list(local_times)] = self.numbers(np.array([*local_times.values()], dtype="datetime64[us]"))
        if zoned:
            steps[list(zoned)] = self.numbers(self.local(_in_utc([*zoned.values()])))
        return steps

    def number(self, text: str) -> int:
        """Step of a time that a spec writes. Raises: InvalidInput unless it is one of the steps."""
        step = float(self.of_texts([text])[0])
        if not 0 <= step < self.steps:
            raise InvalidInput(f"{text!r} is no {self.every} from {self.label(0)} to {self.label(self.steps - 1)}")
        return int(step)

    def label(self, step: int) -> str:
        """What a step is called; labels sort as times do."""
        if self.every == "week":
            year, week, _ = self.begins(step).isocalendar()
            return f"{year:04d}-W{week:02d}"
        start = self.begins(step)
        if self.every == "quarter":
            return f"{start.year:04d}-Q{(start.month + 2) // 3}"
        return start.isoformat()[: {"year": 4, "month": 7, "day": 10, "hour": 13, "minute": 16, "second": 19}[self.every]]

    @property
    def start(self) -> datetime.datetime:
        """The time at which the first step begins."""
        return self.begins(0)

    @property
    def facts(self) -> list[Any]:
        """What decides which step a time is in."""
        return [self.label(0), self.steps, self.every, self.zone]

    def local(self, utc: NDArray[Any]) -> NDArray[Any]:
        """What the zone's clock shows at the given times, in seconds (datetime64). Raises: InvalidInput without a zone."""
        if self._zone is None:
            raise InvalidInput(
                "its times carry a zone, and 'dates' names none; say whose days are meant, such as 'zone: Europe/Berlin'"
            )
        seconds = _seconds(utc)
        buckets, bucket_index = np.unique(seconds // OFFSET_SECONDS, return_inverse=True)
        offsets = np.array([self._offset(bucket * OFFSET_SECONDS) for bucket in buckets.tolist()], dtype=np.int64)
        ends = np.array([self._offset((bucket + 1) * OFFSET_SECONDS - 1) for bucket in buckets.tolist()], dtype=np.int64)
        clock_offsets = offsets[bucket_index]
        for row in np.flatnonzero((offsets != ends)[bucket_index]):
            clock_offsets[row] = self._offset(int(seconds[row]))
        shown = (seconds + clock_offsets).astype("datetime64[s]")
        return np.where(np.isnat(utc), np.datetime64("NaT", "s"), shown)

    def _offset(self, seconds: int) -> int:
        """Seconds that the zone's clock is ahead of UTC. Beyond the years that Python knows it is that of the last days."""
        moment = _EPOCH + datetime.timedelta(seconds=min(max(seconds, _EARLIEST), _LATEST))
        offset = moment.astimezone(self._zone).utcoffset()
        assert offset is not None
        return round(offset.total_seconds())

    @cached_property
    def _zone(self) -> zoneinfo.ZoneInfo | None:
        return None if self.zone is None else zoneinfo.ZoneInfo(self.zone)

    @cached_property
    def _first_step(self) -> int:
        return int(_since_epoch(np.array([self.first], dtype="datetime64[s]"), self.every)[0])

    def begins(self, step: int) -> datetime.datetime:
        """The time at which a step begins."""
        moment: datetime.datetime = self._start_of(step).item()
        return moment

    def ends(self, step: int) -> datetime.datetime:
        """The last second of a step. Raises: InvalidInput for steps that end after the year 9999, which no calendar here has."""
        moment = (self._start_of(step + 1) - np.timedelta64(1, "s")).item()
        if not isinstance(moment, datetime.datetime):
            raise InvalidInput(
                f"times end with the year 9999, and the {self.every} {step + 1} from {self.first:%Y-%m-%d} on does not"
            )
        return moment

    def group_into(self, unit: CalendarUnit) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """What the coarser steps are called that these steps lie in, and in which of them each lies, from 0.

        A coarser step that reaches beyond these steps has its own days beside its name.

        Raises: InvalidInput where a step lies in two of them, or ``unit`` is not coarser.

        >>> Times(datetime.datetime(2026, 9, 29), 4, "day").group_into("month")
        (('2026-09 (2026-09-29/2026-09-30)', '2026-10 (2026-10-01/2026-10-02)'), (0, 0, 1, 1))
        """
        starts = self._start_of(np.arange(self.steps + 1))
        first_steps, last_steps = _since_epoch(starts[:-1], unit), _since_epoch(starts[1:] - np.timedelta64(1, "s"), unit)
        if unit == self.every or (first_steps != last_steps).any():
            raise InvalidInput(f"a {self.every} is no part of one {unit}")
        whole = Times(self.start, int(first_steps[-1] - first_steps[0]) + 1, unit, self.zone)
        groups, numbers = first_steps - first_steps[0], np.arange(whole.steps)
        ends = np.searchsorted(groups, numbers), np.searchsorted(groups, numbers, side="right") - 1
        cut = (whole._start_of(numbers) < starts[ends[0]]) | (whole._start_of(numbers + 1) > starts[ends[1] + 1])
        labels = [whole.label(number) for number in range(whole.steps)]
        for number in np.flatnonzero(cut):
            labels[number] += f" ({self.label(int(ends[0][number]))}/{self.label(int(ends[1][number]))})"
        return tuple(labels), tuple(groups.tolist())

    def _start_of(self, step: Any) -> Any:
        number = (self._first_step + np.asarray(step)) * PER_STEP.get(self.every, 1) - (
            MONDAY if self.every == "week" else 0
        )
        return number.astype(f"datetime64[{UNITS[self.every]}]").astype("datetime64[s]")

    @cached_property
    def _labels(self) -> dict[str, int]:
        """Steps by labels that are no dates: months, weeks, quarters, years and hours."""
        return {} if self.every == "day" else {self.label(step): step for step in range(self.steps)}


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_EARLIEST, _LATEST = (
    int((datetime.datetime(*day, tzinfo=datetime.UTC) - _EPOCH).total_seconds()) for day in ((1, 1, 3), (9999, 12, 29))
)
"""Seconds between which every zone's local time lies in the years 1 to 9999."""
_FARTHEST = 2**60
"""Seconds beyond which times are moved there: no calendar comes so far, and arithmetic with them cannot overflow."""
_A_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}


def _seconds(times: NDArray[Any]) -> NDArray[np.int64]:
    """Whole seconds since the epoch, rounded down; 0 where there is none."""
    finer = _A_SECOND.get(np.datetime_data(times.dtype)[0])
    whole = times.astype(np.int64) // finer if finer else times.astype("datetime64[s]").astype(np.int64)
    return np.clip(np.where(np.isnat(times), 0, whole), -_FARTHEST, _FARTHEST)


def _since_epoch(local: NDArray[Any], unit: CalendarUnit) -> NDArray[np.int64]:
    """Steps between the one that holds 1 January 1970 and that of each time."""
    units = local.astype(f"datetime64[{UNITS[unit]}]").astype(np.int64)
    return np.asarray((units + (MONDAY if unit == "week" else 0)) // PER_STEP.get(unit, 1))


def steps_between(first_time: datetime.datetime, last_time: datetime.datetime, unit: CalendarUnit) -> int:
    """How many steps there are from the one that holds ``first_time`` to the one that holds ``last_time``."""
    low, high = _since_epoch(np.array([first_time, last_time], dtype="datetime64[s]"), unit)
    return int(high - low) + 1


def is_zone(name: str) -> bool:
    """Whether a zone of the time zone database has this name."""
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
