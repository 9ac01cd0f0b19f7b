"""Days of a time zone with daylight saving: records that reach from a day's first microsecond to its last, and the domain of its hours."""

from __future__ import annotations

import datetime
import zoneinfo
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

ZONE = "Europe/Berlin"
HOURS: dict[str, Any] = {"dates": {"from": "{period}", "to": "{period}", "every": "hour", "zone": ZONE}}
"""Of a spec for a day: a record before it or after it is refused."""


def midnight(day: datetime.date) -> datetime.datetime:
    return datetime.datetime.combine(day, datetime.time(), zoneinfo.ZoneInfo(ZONE))


def hours(day: datetime.date) -> float:
    """How long a day is."""
    after = midnight(day + datetime.timedelta(days=1))
    return (after.astimezone(datetime.UTC) - midnight(day).astimezone(datetime.UTC)).total_seconds() / 3600


def write(folder: Path, day: datetime.date, *, places: int, rows: int = 1000) -> None:
    """Records of a day in ``records.parquet``: a moment and a place."""
    state, start = np.random.default_rng(day.toordinal()), int(midnight(day).timestamp()) * 10**6
    stop = start + int(hours(day) * 3600) * 10**6
    moments = np.concatenate([[start, stop - 1], state.integers(start, stop, rows)])
    table = pa.table(
        {"moment": pa.array(moments).cast(pa.timestamp("us", "UTC")), "place": state.integers(0, places, moments.size)}
    )
    folder.mkdir(parents=True)
    pyarrow.parquet.write_table(table, folder / "records.parquet")
