"""Which period a run is for: real zones, the hours that daylight saving skips and repeats, the ends of years."""

from __future__ import annotations

import datetime
import zoneinfo

import pytest

from flows.periods import PeriodLength, due_periods


def local(moment: str, zone: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(moment).replace(tzinfo=datetime.UTC).astimezone(zoneinfo.ZoneInfo(zone))


@pytest.mark.parametrize(
    ("moment", "zone", "every", "first"),
    [
        ("2026-03-29T00:59", "Europe/Berlin", "day", "2026-03-28"),  # 01:59, then the clock skips to 03:00
        ("2026-03-29T01:00", "Europe/Berlin", "day", "2026-03-28"),
        ("2026-10-25T00:30", "Europe/Berlin", "day", "2026-10-24"),  # 02:30 comes twice: the same period both times
        ("2026-10-25T01:30", "Europe/Berlin", "day", "2026-10-24"),
        ("2026-03-29T22:00", "Europe/Berlin", "week", "2026-03-23"),  # Monday 00:00 after a Sunday of 23 hours
        ("2026-10-25T22:59", "Europe/Berlin", "week", "2026-10-12"),  # Sunday 23:59 of 25 hours: not over yet
        ("2026-10-25T23:00", "Europe/Berlin", "week", "2026-10-19"),
        ("2026-09-06T04:00", "America/Santiago", "day", "2026-09-05"),  # midnight itself is skipped
        ("2026-12-31T10:00", "Pacific/Kiritimati", "month", "2026-12-01"),  # the year begins 14 hours before UTC's
        ("2026-12-31T09:59", "Pacific/Kiritimati", "month", "2026-11-01"),
        ("2027-01-01T04:59", "America/New_York", "month", "2026-11-01"),
        ("2027-01-01T05:00", "America/New_York", "month", "2026-12-01"),
        ("2027-01-03T23:59", "UTC", "week", "2026-12-21"),  # week 53 of 2026 ends on 3 January 2027
        ("2027-01-04T00:00", "UTC", "week", "2026-12-28"),
        ("2028-03-01T00:00", "UTC", "day", "2028-02-29"),
    ],
)
def test_the_period_of_a_scheduled_run(moment: str, zone: str, every: PeriodLength, first: str) -> None:
    assert due_periods(local(moment, zone), every) == [datetime.date.fromisoformat(first)]


@pytest.mark.parametrize("every", ["day", "week", "month"])
def test_every_hour_of_two_years_meets_every_period_once_and_in_order(every: PeriodLength) -> None:
    """Runs that catch up one period see each period after the one before, whatever the clocks do."""
    hour = local("2026-01-01T00:00", "Europe/Berlin").astimezone(datetime.UTC)
    seen: list[datetime.date] = []
    for _ in range(2 * 8766):
        before, last = due_periods(hour.astimezone(zoneinfo.ZoneInfo("Europe/Berlin")), every, catch_up=1)
        if not seen or last != seen[-1]:
            assert not seen or before == seen[-1]
            seen.append(last)
        hour += datetime.timedelta(hours=1)
    assert len(seen) == {"day": 731, "week": 105, "month": 25}[every]


def test_a_given_day_stands_for_its_period() -> None:
    """A manual run for a Wednesday releases the week that the schedule releases, under the same id."""
    moment = local("2026-11-21T10:00", "UTC")
    assert due_periods(moment, "week", period=datetime.date(2026, 11, 18), catch_up=1) == [
        datetime.date(2026, 11, 9),
        datetime.date(2026, 11, 16),
    ]
