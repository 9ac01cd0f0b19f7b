"""Which period a run is for: it follows the schedule, not the clock, so that late and repeated runs release the same one."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Literal

from dpdist.errors import InvalidInput

Every = Literal["day", "week", "month"]


def last_complete(moment: datetime.datetime, every: Every) -> datetime.date:
    """The first day of the last period that was over at a moment.

    >>> last_complete(datetime.datetime(2026, 11, 21, 3), "month")
    datetime.date(2026, 10, 1)
    """
    day = moment.date()
    return start_of(start_of(day, every) - datetime.timedelta(days=1), every)


def due(
    moment: datetime.datetime, every: Every, *, period: datetime.date | None = None, catch_up: int = 0
) -> list[datetime.date]:
    """First days of the periods that a run is for, oldest first.

    Args:
        moment: when the run was scheduled for, in the zone where days begin and end.
        period: a day of the last of them; default: the last period that was over at the moment.
        catch_up: how many periods before it.
    """
    days = [start_of(period, every) if period is not None else last_complete(moment, every)]
    while len(days) <= catch_up:
        days.insert(0, start_of(days[0] - datetime.timedelta(days=1), every))
    return days


def start_of(day: datetime.date, every: Every) -> datetime.date:
    """The first day of the period that holds a day; weeks begin on Monday."""
    if every == "day":
        return day
    return day - datetime.timedelta(days=day.weekday()) if every == "week" else day.replace(day=1)


def periods(first: datetime.date, last: datetime.date, every: Every) -> Iterator[datetime.date]:
    """First days of all periods from the one that holds ``first`` to the one that holds ``last``.

    Raises: InvalidInput when they are in the wrong order.
    """
    if last < first:
        raise InvalidInput(f"periods run from {first} to {last}: the first must not be later than the last")
    day = start_of(first, every)
    while day <= last:
        yield day
        day = after(day, every)


def after(day: datetime.date, every: Every) -> datetime.date:
    """The first day of the next period."""
    if every == "month":
        return (day + datetime.timedelta(days=31)).replace(day=1)
    return day + datetime.timedelta(days=1 if every == "day" else 7)
