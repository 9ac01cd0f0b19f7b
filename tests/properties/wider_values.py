"""Attributes that ``random_specs`` never draws: times and zones, calendars and bins with levels, countries, units."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from random import Random

import pyarrow as pa

from tests.properties.random_specs import KINDS, Content, Kind

COUNTRIES = ("DE", "FR", "ES", "GB", "US", "ZZ")
ZONE = "Europe/Berlin"


def _titled(random: Random, found: Content) -> Content:
    """With other names of values and a coarser level, or neither."""
    if random.random() < 0.2:
        found["level_titles"] = {"half": "A half <b>"}
    return found


def _calendar(random: Random) -> Content:
    dates: Content = random.choice(
        [
            {"from": "2026-03-27", "to": "2026-03-31", "every": "day"},
            {"from": "2026-01-01", "to": "2026-12-31", "every": "quarter"},
            {"from": "2025-12-20", "steps": 30, "every": "day"},
            {"from": "2024-02-01", "steps": 14, "every": "week"},
        ]
    )
    found: Content = {"dates": dates}
    longer = {"day": ["week", "month", "year"], "week": ["month", "year"], "quarter": ["year"]}[dates["every"]]
    return _titled(random, {**found, "levels": {"half": random.choice(longer)}}) if random.random() < 0.4 else found


def _clock(random: Random) -> Content:
    dates: Content = random.choice(
        [
            {"from": "2026-03-29T00:00", "to": "2026-03-29T05:00", "every": "hour"},
            {"from": "2026-10-25T00:00", "steps": 6, "every": "hour"},
            {"from": "2026-03-28T23:58", "steps": 5, "every": "minute"},
            {"from": "2026-03-28T23:59:58", "steps": 4, "every": "second"},
            {"from": "2026-03-28", "to": "2026-03-30", "every": "day"},
        ]
    )
    return {"dates": dates}


def _moment(random: Random, declared: Content) -> datetime.datetime:
    """A time of the first steps, so that every end of a calendar is later."""
    dates = declared["dates"]
    seconds = {"second": 3, "minute": 290, "hour": 18000, "day": 86400 * 3}[dates["every"]]
    return datetime.datetime.fromisoformat(dates["from"]) + datetime.timedelta(seconds=random.randrange(seconds))


def _day(random: Random, declared: Content) -> datetime.date:
    """A day of the first steps."""
    dates = declared["dates"]
    days = {"day": 5, "week": 97, "quarter": 365}[dates["every"]]
    return datetime.date.fromisoformat(dates["from"]) + datetime.timedelta(random.randrange(days))


def _numbers(random: Random) -> Content:
    found = KINDS["whole"].declared(random)
    if random.random() < 0.3:
        found["time"] = {
            "start": "2011-01-31T00:00",
            "step": random.choice(["hour", "day", "week", "month", "quarter", "year"]),
        }
    return {**found, "unit": random.choice(["years", "<m>"])} if random.random() < 0.4 else found


def _bins(random: Random) -> Content:
    found = KINDS["edges"].declared(random)
    edges = found["edges"]
    if len(edges) > 2 and random.random() < 0.3:
        found["levels"] = {"half": [edges[0], edges[1], edges[-1]]}
    return _titled(random, found) if "levels" in found else found


def _names(random: Random) -> Content:
    if random.random() < 0.2:
        return {"categories": list(COUNTRIES[: random.choice([2, 6])]), "map": "countries"}
    found = KINDS["categories"].declared(random)
    return _titled(random, found) if "levels" in found else found


def _zoned(random: Random) -> Content:
    found = _clock(random)
    return {"dates": {**found["dates"], "zone": ZONE}}


WIDER_KINDS: Mapping[str, Kind] = {
    "whole": Kind(_numbers, KINDS["whole"].value, pa.int64()),
    "edges": Kind(_bins, KINDS["edges"].value, pa.float64()),
    "categories": Kind(_names, KINDS["categories"].value, pa.string()),
    "dates": Kind(_calendar, _day, pa.date32()),
    "times": Kind(_clock, _moment, pa.timestamp("us")),
    "zoned": Kind(_zoned, _moment, pa.timestamp("us", ZONE)),
}
