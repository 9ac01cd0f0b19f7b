"""Levels of an attribute, as a spec declares them."""

from __future__ import annotations

import datetime
import time
from pathlib import Path

import numpy as np
import pytest

from dpdist.content import table_rows
from dpdist.domain import Attribute, even_edges
from dpdist.domain.calendar import CalendarUnit, Times
from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.page.headings import Words, titles_by_name
from dpdist.planner.certificate import method_facts
from dpdist.spec import Job, load
from dpdist.spec.attributes.attribute_kind import level_of
from tests.support import small_release


def dates(first: str, steps: int, every: CalendarUnit = "day") -> Attribute:
    times = Times(datetime.datetime.fromisoformat(first), steps, every)
    return Attribute("day", edges=even_edges(0, 1, steps), times=times)


NAMES = {
    "week": lambda day: "{}-W{:02}".format(*day.isocalendar()),
    "month": lambda day: f"{day:%Y-%m}",
    "quarter": lambda day: f"{day.year}-Q{(day.month + 2) // 3}",
    "year": lambda day: str(day.year),
}


@pytest.mark.parametrize("every", NAMES)
@pytest.mark.parametrize(
    ("first", "steps"), [("2024-01-01", 366), ("2026-12-29", 9), ("2025-11-17", 800), ("1969-12-30", 4)]
)
def test_days_lie_in_the_steps_that_the_calendar_names(first: str, steps: int, every: CalendarUnit) -> None:
    """Against Python's own calendar; a step that is cut by the first or last day says which days it has."""
    level = level_of(dates(first, steps), every, every)
    days = [datetime.date.fromisoformat(first) + datetime.timedelta(days=number) for number in range(steps)]
    expected = [NAMES[every](day) for day in days]
    assert [level.labels[group].partition(" ")[0] for group in level.groups] == expected
    assert len(level.labels) == len(set(expected))
    for number, label in enumerate(level.labels):
        inside = [day for day, group in zip(days, level.groups, strict=True) if group == number]
        around = (inside[0] - datetime.timedelta(days=1), inside[-1] + datetime.timedelta(days=1))
        cut = any(NAMES[every](day) == NAMES[every](inside[0]) for day in around)
        assert label == expected[days.index(inside[0])] + (f" ({inside[0]}/{inside[-1]})" if cut else "")


def test_hours_lie_in_days_and_months_in_years() -> None:
    level = level_of(dates("2026-09-01T22", 28, "hour"), "date", "day")
    assert level.labels == (
        "2026-09-01 (2026-09-01T22/2026-09-01T23)",
        "2026-09-02",
        "2026-09-03 (2026-09-03T00/2026-09-03T01)",
    )
    assert np.bincount(level.groups).tolist() == [2, 24, 2]
    assert level_of(dates("9998-01-01", 24, "month"), "in", "year").labels == ("9998", "9999")


@pytest.mark.parametrize(
    ("attribute", "every", "told"),
    [
        (dates("2026-09-01", 8, "week"), "month", "a week is no part of one month; name a longer step"),
        (dates("2026-09-01", 8), "day", "a day is no part of one day"),
        (dates("2026-09-01", 8), "hour", "a day is no part of one hour"),
        (dates("2026-09-01", 33), "month", "at most 32 steps have levels"),
        (Attribute("age", edges=(0, 1, 2)), "week", "only 'dates' have a week"),
    ],
    ids=str,
)
def test_steps_that_are_no_parts_are_refused(
    attribute: Attribute, every: CalendarUnit, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpdist.spec.attributes.attribute_kind.MOST_STEPS", 32)
    with pytest.raises(InvalidInput, match=told):
        level_of(attribute, "a", every)


def test_levels_of_very_many_values_are_read_in_linear_time() -> None:
    """Every value was looked up in a tuple: 10^6 blocks never ended."""
    values = 100_000
    places = Attribute("place", edges=tuple(range(values + 1)), labels=tuple(map(str, range(values))))
    started = time.process_time()
    found = level_of(
        places, "half", {"low": [str(k) for k in range(values // 2)], "high": [str(k) for k in range(values // 2, values)]}
    )
    assert (found.groups[0], found.groups[-1]) == (0, 1)
    assert time.process_time() - started < 10


LEVELS = {"side": {"west": ["a"], "east": ["b"]}}


def titled(folder: Path, **titles: str) -> Job:
    work = {"categories": ["a", "b"], "other": "c", "levels": LEVELS, **({"level_titles": titles} if titles else {})}
    domain = {**small_release.spec()["domain"], "work": work}
    return load(small_release.write(folder, domain=domain, workload=[{"marginals": {"of": [["side"], ["side", "sex"]]}}]))


def test_titles_of_levels_stand_on_the_page_and_change_no_digest(tmp_path: Path) -> None:
    plain, named = titled(tmp_path / "plain"), titled(tmp_path / "named", side="Side of the river")
    assert plain.digest == named.digest
    facts = method_facts(named)
    assert facts["attributes"]["work"]["level_titles"] == {"side": "Side of the river"}
    words = Words("people", facts["attributes"])
    assert words.heading("side x sex", words.names).startswith("Side of the river and ")
    assert table_rows.titled_query(
        {"query": "side west, sex m", "side": "west", "sex": "m"}, titles_by_name(facts), {}
    ).startswith("Side of the river west, ")


def test_titles_are_of_levels_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="names 'sides'.*did you mean 'side'.*its levels are side"):
        _ = titled(tmp_path, sides="Side").measured.domain
