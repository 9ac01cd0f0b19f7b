"""Which period a run is for: it follows the schedule, not the clock, so that late and repeated runs release the same one."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Literal, get_args

from dpdist.errors import InvalidInput

PeriodLength = Literal["day", "week", "month"]


def last_complete(moment: datetime.datetime, period_length: PeriodLength) -> datetime.date:
    """The first day of the last period that was over at a moment.

    >>> last_complete(datetime.datetime(2026, 11, 21, 3), "month")
    datetime.date(2026, 10, 1)
    """
    day = moment.date()
    return start_of(start_of(day, period_length) - datetime.timedelta(days=1), period_length)


def due_periods(
    moment: datetime.datetime, period_length: PeriodLength, *, period: datetime.date | None = None, catch_up: int = 0
) -> list[datetime.date]:
    """First days of the periods that a run is for, oldest first.

    Args:
        moment: when the run was scheduled for, in the zone where days begin and end.
        period: a day of the last of them; default: the last period that was over at the moment.
        catch_up: how many periods before it.
    """
    days = [start_of(period, period_length) if period is not None else last_complete(moment, period_length)]
    while len(days) <= catch_up:
        days.insert(0, start_of(days[0] - datetime.timedelta(days=1), period_length))
    return days


def start_of(day: datetime.date, period_length: PeriodLength) -> datetime.date:
    """The first day of the period that holds a day; weeks begin on Monday."""
    if period_length == "day":
        return day
    return day - datetime.timedelta(days=day.weekday()) if period_length == "week" else day.replace(day=1)


def periods(first_day: datetime.date, last_day: datetime.date, period_length: PeriodLength) -> Iterator[datetime.date]:
    """First days of all periods from the one that holds ``first_day`` to the one that holds ``last_day``.

    Raises: InvalidInput when they are in the wrong order.
    """
    if last_day < first_day:
        raise InvalidInput(f"periods run from {first_day} to {last_day}: the first must not be later than the last")
    day = start_of(first_day, period_length)
    while day <= last_day:
        yield day
        day = next_period(day, period_length)


def next_period(day: datetime.date, period_length: PeriodLength) -> datetime.date:
    """The first day of the next period."""
    if period_length == "month":
        return (day + datetime.timedelta(days=31)).replace(day=1)
    return day + datetime.timedelta(days=1 if period_length == "day" else 7)


def check_period_length(period_length: str) -> None:
    """Raises: InvalidInput for a length that no period has."""
    if period_length not in get_args(PeriodLength):
        raise InvalidInput(f"periods are a day, week or month long, found {period_length!r}; set --every")
