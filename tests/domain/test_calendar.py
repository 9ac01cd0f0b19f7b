"""Steps of a calendar against Python's own calendar, columns of every type, and releases that count over them."""

from __future__ import annotations

import datetime
import zoneinfo
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpdist.counting.record_cells import _codes
from dpdist.domain import Attribute, EvenEdges, even_edges
from dpdist.domain.calendar import CalendarUnit, Times, steps_between
from dpdist.errors import InvalidInput, InvalidSpec, LedgerError, UnknownValue
from dpdist.planner.stream_periods import periods_reached
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.privacy.ledger.charges import StreamPart
from dpdist.spec import load
from dpdist.spec.sections.calendar_steps import DatesSpec
from tests.support import small_release

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
MOMENTS = st.datetimes(datetime.datetime(1925, 1, 1), datetime.datetime(2090, 1, 1))
EVERY: tuple[CalendarUnit, ...] = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")


def expected(moment: datetime.datetime, every: CalendarUnit) -> str:
    """The label of the step that holds a moment, by the standard library alone."""
    if every == "week":
        return moment.strftime("%G-W%V")
    if every == "quarter":
        return f"{moment.year}-Q{(moment.month - 1) // 3 + 1}"
    return moment.strftime(
        {
            "second": "%Y-%m-%dT%H:%M:%S",
            "minute": "%Y-%m-%dT%H:%M",
            "hour": "%Y-%m-%dT%H",
            "day": "%Y-%m-%d",
            "month": "%Y-%m",
            "year": "%Y",
        }[every]
    )


@given(MOMENTS, MOMENTS, st.sampled_from(EVERY))
def test_steps_and_labels(first: datetime.datetime, moment: datetime.datetime, every: CalendarUnit) -> None:
    first, moment = sorted((first, moment))
    times = Times(first, steps_between(first, moment, every), every)
    (step,) = times.numbers(np.array([moment], dtype="datetime64[us]"))
    assert step == times.steps - 1
    assert times.label(int(step)) == expected(moment, every)
    assert times.label(0) == expected(first, every)
    assert times.label(0) <= times.label(int(step))
    assert times.start <= first
    assert expected(times.start, every) == times.label(0) != expected(times.start - datetime.timedelta(seconds=1), every)
    assert times.of_texts([moment.isoformat(), ""])[0] == step or every == "day"


@settings(max_examples=50)
@given(st.lists(MOMENTS, min_size=1, max_size=5))
def test_local_times_are_those_of_the_clock(moments: list[datetime.datetime]) -> None:
    times = Times(datetime.datetime(2026, 1, 1), 1, "day", "Europe/Berlin")
    utc = np.array([moment.replace(microsecond=0) for moment in moments], dtype="datetime64[us]")
    clock = [
        moment.replace(microsecond=0, tzinfo=datetime.UTC).astimezone(BERLIN).replace(tzinfo=None) for moment in moments
    ]
    assert times.local(utc).tolist() == clock


@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Europe/Berlin", "2026-03-29T01:00:00"),
        ("Europe/Amsterdam", "1937-06-30T22:40:28"),
        ("Africa/Monrovia", "1972-01-07T00:44:30"),
    ],
)
def test_clocks_change_at_their_second(zone: str, change: str) -> None:
    """Clocks of old changed within a quarter of an hour, which is the step at which offsets are looked up."""
    at = np.datetime64(change, "s")
    utc = at + np.arange(-1200, 1200, 7)
    moments = [moment.replace(tzinfo=datetime.UTC) for moment in utc.tolist()]
    clock = [moment.astimezone(zoneinfo.ZoneInfo(zone)).replace(tzinfo=None) for moment in moments]
    assert len({shown - moment.replace(tzinfo=None) for shown, moment in zip(clock, moments, strict=True)}) == 2
    assert Times(datetime.datetime(1930, 1, 1), 1, "day", zone).local(utc.astype("datetime64[us]")).tolist() == clock


def test_the_hour_that_a_clock_shows_twice_is_one_step() -> None:
    day = DatesSpec.model_validate(
        {"from": "2026-10-25", "to": "2026-10-25", "every": "hour", "zone": "Europe/Berlin"}
    ).times
    assert day.steps == 24
    found = day.of_texts(
        ["2026-10-25T00:30Z", "2026-10-25T01:30:00Z", "2026-10-25 02:10", "2026-10-25T03", "2026-10-25", "25.10.2026", ""]
    )
    assert found[:4].tolist() == [2, 2, 2, 3]
    assert np.isinf(found[4:6]).all()
    assert np.isnan(found[6])


MOMENT = datetime.datetime(2026, 9, 30, 22, 30)
NAIVE = [pa.array([MOMENT, None], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")]
AWARE = [
    pa.array([MOMENT, None], pa.timestamp(unit, tz=tz))
    for unit in ("s", "ns")
    for tz in ("UTC", "America/New_York", "+05:00")
]
TEXTS = [pa.array([text, None]) for text in ("2026-09-30", "2026-09-30T22:30", "2026-09-30 22:30:00.5")]
DATES = [pa.array([MOMENT.date(), None], kind) for kind in (pa.date32(), pa.date64())]


@pytest.mark.parametrize("column", [*NAIVE, *TEXTS, *DATES, TEXTS[0].dictionary_encode()], ids=lambda c: str(c.type))
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_columns_without_a_zone_are_taken_as_they_are(column: pa.Array, zone: str | None) -> None:
    times = Times(datetime.datetime(2026, 9, 1), 61, "day", zone)
    attribute = Attribute("day", edges=even_edges(0, 1, 61), times=times, missing="unknown")
    assert _codes(pa.chunked_array([column]), attribute, None)[0].tolist() == [29, 61]


@pytest.mark.parametrize("column", [*AWARE, pa.array(["2026-09-30T22:30Z", None])], ids=lambda c: str(c.type))
def test_columns_with_a_zone_are_days_of_the_declared_one(column: pa.Array) -> None:
    """Arrow's values are in UTC whatever the zone of the column: half past ten in the evening is the next day in Berlin."""
    given: Any = {"edges": even_edges(0, 1, 61), "missing": "unknown"}
    first = datetime.datetime(2026, 9, 1)
    berlin = Attribute("day", times=Times(first, 61, "day", "Europe/Berlin"), **given)
    assert _codes(pa.chunked_array([column]), berlin, None)[0].tolist() == [30, 61]
    nowhere = Attribute("day", times=Times(first, 61, "day"), **given)
    with pytest.raises(InvalidSpec, match="its times carry a zone, and 'dates' names none"):
        _codes(pa.chunked_array([column]), nowhere, None)


AGES = datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59)
"""Before and after all others: what stands for a date that nobody knows in many tables."""
FURTHEST = [
    *(pa.array(AGES, pa.timestamp(unit, tz=tz)) for unit in ("s", "us") for tz in ("UTC", None)),
    *(pa.array([-(2**63) + 1, 2**63 - 1], pa.int64()).cast(pa.timestamp(unit, "UTC")) for unit in ("s", "ms", "us", "ns")),
    *(pa.array([each.isoformat() + offset for each in AGES]) for offset in ("", "Z", "+05:00", "-05:00")),
]


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_times_at_the_ends_of_all_calendars_are_outside(zone: str) -> None:
    """A local time beyond the years that Python knows refuses no release: the record is clipped or dropped like any other."""
    for every, (outside, codes) in product(("hour", "week", "year"), (("clip", [0, 2]), ("drop", [-1, -1]))):
        times = Times(datetime.datetime(2026, 9, 1), 3, every, zone)
        attribute = Attribute("time", edges=even_edges(0, 1, 3), times=times, outside=outside)
        for column in FURTHEST:
            assert _codes(pa.chunked_array([column]), attribute, None)[0].tolist() == codes, (every, column)


@pytest.mark.parametrize(
    ("column", "every", "said"),
    [
        (DATES[0], "hour", "holds dates, and counted is by the hour; give 'every: day'"),
        (pa.array([20260930, None]), "day", "holds whole numbers; allowed are dates, timestamps and ISO texts"),
    ],
)
def test_columns_that_are_refused(column: pa.Array, every: CalendarUnit, said: str) -> None:
    attribute = Attribute("day", edges=even_edges(0, 1, 2), times=Times(datetime.datetime(2026, 9, 30), 2, every))
    with pytest.raises(InvalidSpec, match=said):
        _codes(pa.chunked_array([column]), attribute, None)


@pytest.mark.parametrize("outside", ["clip", "drop"])
def test_texts_that_are_no_dates_are_never_clipped(outside: Any) -> None:
    times = Times(datetime.datetime(2026, 9, 1), 2, "day")
    attribute = Attribute("day", edges=even_edges(0, 1, 2), times=times, outside=outside)
    column = pa.chunked_array([pa.array(["2026-08-01", "2026-09-02", "2026-12-01", "soon", "2026-02-31"])])
    assert _codes(column, attribute, None)[0].tolist() == ([0, 1, 1, -1, -1] if outside == "clip" else [-1, 1, -1, -1, -1])
    assert list(attribute.labels) == (
        ["2026-09-01 or earlier", "2026-09-02 or later"] if outside == "clip" else ["2026-09-01", "2026-09-02"]
    )


def test_labels_of_many_steps_are_made_when_asked_for() -> None:
    times = Times(datetime.datetime(2000, 1, 1), 10**7, "minute")
    attribute = Attribute("t", edges=EvenEdges(0, 1, 10**7), times=times, missing="unknown")
    assert attribute.labels[10**7 - 1] == "2019-01-05T10:39"
    assert list(attribute.labels[10**7 - 1 :]) == ["2019-01-05T10:39", "unknown"]


BAD = {
    "give either 'to' or 'steps'": {"from": "2026-09-01"},
    "'from' must not come after": {"from": "2026-09-01", "to": "2026-08-31"},
    "the time zone is not known": {"from": "2026-09-01", "to": "2026-09-30", "zone": "Mars/Olympus"},
    "without an offset": {"from": "2026-09-01T00:00Z", "steps": 3},
    "every: allowed are 'second'": {"from": "2026-09-01", "steps": 3, "every": "fortnight"},
}


@pytest.mark.parametrize("said", BAD)
def test_dates_that_are_refused(said: str, tmp_path: Path) -> None:
    path = small_release.write(tmp_path, domain={"age": {"dates": BAD[said]}}, workload=[{"cdf": {"of": "age"}}])
    with pytest.raises(InvalidSpec, match=said) as refused:
        load(path)
    assert "\n" not in str(refused.value)


DAYS = [datetime.datetime(2026, 9, 1, 12) + datetime.timedelta(days=day) for day in (0, 0, 3, 3, 3, 13)]
DOMAIN = {"day": {"dates": {"from": "2026-09-01", "to": "2026-09-14"}, "missing": "unknown"}}
EXACT = {"budget": {"rho": 1e7}, "ledger": {"dataset": "small", "cap": {"rho": 1e8}}}


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_release_over_days(form: str, tmp_path: Path) -> None:
    table = pa.table({"day": pa.array([*DAYS, None], pa.timestamp("us")), "more": range(7)})
    path = small_release.write(
        tmp_path,
        table=table,
        domain=DOMAIN,
        records={"path": f"records.{form}", "most_missing": "100%"},
        workload=[
            {"marginals": {"of": [["day"]]}},
            {"ranges": {"of": ["day"], "list": [["2026-09-01", "2026-09-07"]]}},
            {"predicates": ["day >= '2026-09-04'", "day == 'unknown'"]},
        ],
        **EXACT,
    )
    pyarrow.csv.write_csv(table, tmp_path / "records.csv")
    release = small_release.run(path, tmp_path / "home")
    rows = pyarrow.parquet.read_table(release.folder / "answers.parquet").to_pylist()
    found = {row["query"]: round(row["answer"]) for row in rows}
    assert [found[f"day 2026-09-{day:02d}"] for day in (1, 2, 4, 14)] == [2, 0, 3, 1]
    assert found["day unknown"] == 1
    assert found["day 2026-09-01 .. 2026-09-07"] == 5
    assert found["day >= '2026-09-04'"] == 4
    facts = release.certificate["method"]["attributes"]["day"]
    assert facts["time"] == {"start": "2026-09-01T00:00:00", "step": "day"}
    assert facts["values"] == "14 days from 2026-09-01 to 2026-09-14"
    assert "4 Sep 2026" in (release.folder / "index.html").read_text(encoding="utf-8")


SEPTEMBER = {"from": "2026-08-31", "steps": 30}
END_OF_TIME = tuple(f"9999-{month:02d}" for month in range(1, 13))
DATED: dict[str, Any] = {"dates": SEPTEMBER, "outside": "drop"}


@pytest.mark.parametrize(
    ("per", "domain", "steps", "reached"),
    [
        ("total", DATED, (0, 30), ()),
        ("day", DATED, (1, 3), ("2026-09-01", "2026-09-02")),
        ("week", DATED, (6, 8), ("2026-W36", "2026-W37")),
        ("month", DATED, (0, 30), ("2026-08", "2026-09")),
        ("week", {"dates": {**SEPTEMBER, "every": "month"}}, (0, 1), tuple(f"2026-W{w}" for w in range(31, 37))),
        ("day", {"dates": {**SEPTEMBER, "every": "hour"}}, (20, 30), ("2026-08-31", "2026-09-01")),
        ("day", {"from": 5, "to": 9, "time": {"start": "2026-08-31T22:00", "step": "hour"}}, (0, 2), ("2026-08-31",)),
        ("month", {"from": 5, "to": 9, "width": 2, "time": {"start": "2026-08-30", "step": "day"}}, (1, 2), ("2026-09",)),
        ("day", {"from": 5, "to": 9}, (0, 4), ()),
        ("day", {"edges": [0, 24, 30, 72.5], "time": {"start": "2026-08-31", "step": "hour"}}, (1, 2), ("2026-09-01",)),
        ("month", {"edges": [0, 0.5, 2], "time": {"start": "2026-08-31", "step": "day"}}, (0, 2), ("2026-08", "2026-09")),
        ("day", {"dates": {"from": "9999-12-30", "to": "9999-12-31"}}, (0, 2), ("9999-12-30", "9999-12-31")),
        ("month", {"dates": {"from": "9990-01-01", "to": "9999-12-31", "every": "year"}}, (9, 10), END_OF_TIME),
    ],
)
def test_budget_periods_that_steps_reach(
    per: str, domain: dict[str, Any], steps: tuple[int, int], reached: tuple[str, ...], tmp_path: Path
) -> None:
    path = small_release.write(
        tmp_path,
        period="2026-09-07",
        domain={"day": domain},
        workload=[{"filters": {"of": "day", "apply": [{"running_sum": True}]}}],
        stream={"name": "s", "through": domain["dates"]["from"] if "dates" in domain else domain.get("to", 0)},
        ledger={"dataset": "small", "cap": {"rho": 1, "per": per}},
    )
    assert periods_reached(load(path).guarantee.release_mode, per, StreamPart("s", "digest", *steps)) == reached


def test_a_stream_past_the_last_year_is_refused_in_one_line(home: Path) -> None:
    """Numbers that stand for days after 9999: no budget of a week could pay for them."""
    table = pa.table({"day": [1, 2]})
    beyond = {"from": 0, "to": 60, "time": {"start": "9999-12-01", "step": "day"}, "outside": "drop"}
    path = small_release.write(
        home.parent / "data",
        table=table,
        period="9999-12-01",
        domain={"day": beyond},
        workload=[{"filters": {"of": "day", "apply": [{"running_sum": True}]}}],
        stream={"name": "s", "through": 31},
        ledger={"dataset": "small", "cap": {"rho": 1, "per": "week"}},
    )
    with pytest.raises(InvalidInput, match="times end with the year 9999"):
        small_release.run(path, home)
    with open_ledger(home) as ledger:
        assert ledger.entries() == []


def test_steps_past_the_last_year_are_refused(tmp_path: Path) -> None:
    for every, steps in {"day": 31, "week": 5, "month": 1, "year": 1}.items():
        dates = {"from": "9999-12-01", "steps": steps, "every": every}
        load(small_release.write(tmp_path, domain={"day": {"dates": dates}}, workload=[{"marginals": {"ways": [1]}}]))
        small_release.write(
            tmp_path, domain={"day": {"dates": {**dates, "steps": steps + 1}}}, workload=[{"marginals": {"ways": [1]}}]
        )
        small_release.refused_in_one_line(tmp_path / "release.yaml", "times end with the year 9999")


def test_times_that_name_an_offset_are_those_of_their_clock(home: Path) -> None:
    """Pages draw times without a zone. An offset in ``start`` broke the page after the charge."""
    numbers = {"from": 0, "to": 20, "time": {"start": "2026-09-01T06:00+02:00", "step": "hour"}}
    workload = [{"filters": {"of": "hour", "apply": [{"running_sum": True}]}}]
    path = small_release.write(
        home.parent / "data", table=pa.table({"hour": [1, 2]}), domain={"hour": numbers}, workload=workload
    )
    release = small_release.run(path, home)
    assert release.certificate["method"]["attributes"]["hour"]["time"]["start"] == "2026-09-01T06:00:00"
    assert "06:00" in (release.folder / "index.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("home")
def test_a_stream_under_a_cap_per_week_asks_every_week_for_its_records(tmp_path: Path) -> None:
    """Two weeks' steps under the budget of the second: refused before anything is charged, also by the plan."""
    series: dict[str, Any] = {
        "domain": {"day": DATED},
        "table": pa.table({"day": pa.array([datetime.date(2026, 9, day) for day in (1, 2, 9)])}),
        "workload": [{"filters": {"of": "day", "apply": [{"running_sum": True}]}}],
        "ledger": {"dataset": "small", "cap": {"rho": 1, "per": "week"}},
    }
    second = small_release.write(
        tmp_path / "b", release="b", period="2026-09-07", stream={"name": "s", "through": "2026-09-13"}, **series
    )
    with pytest.raises(LedgerError, match="2026-W36"):
        small_release.run(second, tmp_path / "home")
    first = small_release.write(
        tmp_path / "a", release="a", period="2026-08-31", stream={"name": "s", "through": "2026-09-06"}, **series
    )
    small_release.run(first, tmp_path / "home")
    assert small_release.run(second, tmp_path / "home").charged


@pytest.mark.usefixtures("home")
def test_a_stream_of_days(tmp_path: Path) -> None:
    series: dict[str, Any] = {
        "table": pa.table({"day": pa.array([*DAYS, None], pa.timestamp("us"))}),
        "domain": DOMAIN,
        "workload": [{"filters": {"of": "day", "apply": [{"running_sum": True}]}}],
        **EXACT,
    }
    path = small_release.write(tmp_path, stream={"name": "days", "through": "2026-09-04"}, **series)
    rows = pyarrow.parquet.read_table(small_release.run(path, tmp_path / "home").folder / "answers.parquet").to_pylist()
    assert [(row["query"], round(row["answer"])) for row in rows] == [
        (f"day at 2026-09-0{day}", count) for day, count in ((1, 2), (2, 2), (3, 2), (4, 5))
    ]
    for through, said in (
        ("2026-09-15", "2026-09-01 to 2026-09-14, found 2026-09-15"),
        (3, "'through' is a date of 'day', found 3"),
    ):
        with pytest.raises(InvalidSpec, match=said):
            load(small_release.write(tmp_path, stream={"name": "days", "through": through}, **series))


def test_the_steps_may_be_those_of_the_period(tmp_path: Path) -> None:
    """A weekly release over the hours of its week."""
    domain = {"age": {"dates": {"from": "{period}", "steps": 168, "every": "hour"}}}
    path = small_release.write(tmp_path, release="week-{period}", domain=domain, workload=[{"cdf": {"of": "age"}}])
    labels = load(path, period=datetime.date(2026, 11, 16)).measured.domain.attributes[0].labels
    assert (labels[0], labels[167]) == ("2026-11-16T00", "2026-11-22T23")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"ranges": {"of": ["age"], "list": [["2026-01-01", "2026-01-02"]]}}, "needs numbers"),
        ({"predicates": ["age >= '2026-01-01'"]}, "is numeric and cannot be compared"),
    ],
)
def test_dates_are_no_numbers(entry: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=said):
        load(small_release.write(tmp_path, workload=[entry]))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            {"ranges": {"of": ["day"], "list": [["2026-09-01", "2026-10-01"]]}},
            "'2026-10-01' is no day from 2026-09-01 to 2026-09-14",
        ),
        ({"predicates": ["day >= 3"]}, "'day' has dates and cannot be compared with 3"),
    ],
)
def test_numbers_and_other_days_are_no_steps(entry: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=said):
        load(small_release.write(tmp_path, domain=DOMAIN, workload=[entry]))


@pytest.mark.usefixtures("home")
def test_another_day_stops_a_release_that_declares_none(tmp_path: Path) -> None:
    table = pa.table({"day": ["2026-09-01", "2026-09-15"]})
    with pytest.raises(UnknownValue):
        small_release.run(
            small_release.write(tmp_path, table=table, domain=DOMAIN, workload=[{"cdf": {"of": "day"}}]), tmp_path / "home"
        )
