"""What pages call places and times: names and dates in tables, charts and questions, in the page's language, and codes in files."""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpdist.content.release_content import ReleaseContent
from dpdist.domain import Attribute, Domain, even_edges
from dpdist.domain.calendar import Times
from dpdist.language.translation import use_language
from dpdist.plugins.page import release_page
from dpdist.plugins.page.answer_list import ListedGroup
from dpdist.plugins.page.chart_choice import figures_of
from dpdist.plugins.page.chart_words import ChartWords
from dpdist.plugins.page.charts import WIDE, draw
from dpdist.plugins.page.findings import finding_sentence
from dpdist.plugins.page.map_outlines import boundaries
from dpdist.plugins.page.value_labels import column_value_labels, relabel_for_tables, with_place_names
from dpdist.workloads.product_queries import listed_marginals, marginals
from tests.page.browsing import browser, page
from tests.plugins.page import gallery
from tests.support import small_release

__all__ = ["browser", "page"]  # fixtures


def spoken(content: ReleaseContent, language: str) -> str:
    return release_page.release_page(replace(content, certificate={**content.certificate, "language": language}), 1)


def data_of(text: str) -> dict[str, Any]:
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])


@pytest.mark.parametrize(("language", "first"), [("en", "1 Jan 2011"), ("de", "1. Jan. 2011"), ("fr", "1 janv. 2011")])
def test_tables_of_series_say_when(language: str, first: str, tmp_path: Path, page: Any) -> None:
    text = spoken(gallery.hours(60), language)
    assert f"<td>Time {first}, 00:00</td>" in text
    assert "Time at" not in text
    (tmp_path / "index.html").write_text(text, encoding="utf-8")
    page.goto((tmp_path / "index.html").as_uri())
    page.locator("#find").fill("11:00")
    found = page.locator("#answers tbody td:first-child").all_text_contents()
    assert found == 2 * [f"Time {day}{first[1:]}, 11:00" for day in (1, 2, 3)]  # of both filters


def test_a_series_that_begins_within_a_day_is_days_times_hours() -> None:
    """8,760 names took 130 kB a filter."""
    content = gallery.hours(200)
    block = content.workload.blocks[0]
    labels = [f"{2 + hour // 24} Jan, {hour % 24:02}:00" for hour in range(200)]
    numbers = tuple(np.where(np.arange(200) < 7, np.nan, 1.0) for _ in range(5))
    group = ListedGroup(0, replace(block, names=("Time",), labels=(tuple(labels),)), numbers, (-np.inf, np.inf))
    named = group.data()
    assert [len(part) for part in named["parts"]] == [9, 24]
    assert named["first"] == 7
    assert "query" not in named


def test_a_map_knows_the_names_of_its_places() -> None:
    content = gallery.births()
    english, german = spoken(content, "en"), spoken(content, "de")
    assert "Iran is the largest group" in english
    assert "Iran and Year 2023" in english
    assert "Country of birth Germany (DEU)" in json.dumps(data_of(english))
    assert '"Deutschland"' in german
    assert "Country of birth Deutschland (DEU)" in json.dumps(data_of(german))
    assert "born DEU" not in german
    assert content.workload.blocks[0].labels[0][12] == "DEU"  # what files say


def test_names_of_a_file_are_taken_where_they_tell_places_apart(tmp_path: Path) -> None:
    for names, called in ((("West", "East"), ["West", "East", "far"]), (("Land", "Land"), ["w", "e", "far"])):
        features = [
            {
                "properties": {"code": code, "name": name},
                "geometry": {"type": "Polygon", "coordinates": [[[x, 50], [x + 1, 50], [x + 1, 51], [x, 50]]]},
            }
            for x, (code, name) in enumerate(zip("we", names, strict=True))
        ]
        (tmp_path / "map.geojson").write_text(json.dumps({"features": features}))
        known = boundaries("map.geojson", "code", ("w", "e", "far"), tmp_path)
        domain = Domain((Attribute("land", categories=("w", "e", "far")),))
        shown = with_place_names(marginals(domain, ways=1), {"land": known})
        assert list(shown.domain.attributes[0].labels) == called
        assert list(shown.blocks[0].labels[0]) == called


def test_labels_of_the_publisher_stay(tmp_path: Path) -> None:
    domain = Domain((Attribute("born", categories=("DEU", "FRA"), labels=("Bonn", "Paris")),))
    known = boundaries("countries", "", ("DEU", "FRA"), tmp_path)
    workload = marginals(domain, ways=1)
    assert with_place_names(workload, {"born": known}) is workload


def test_questions_show_names_and_ask_by_codes(home: Path, tmp_path: Path, page: Any) -> None:
    domain = {"born": {"categories": ["DEU", "FRA"], "map": "countries"}}
    table = pa.table({"born": ["DEU", "FRA"] * 200})
    path = small_release.write(tmp_path / "data", table=table, domain=domain, workload=[{"marginals": {"ways": [1]}}])
    page.goto((Path(small_release.run(path, home).folder) / "index.html").as_uri())
    page.locator("[name=one-0-first]").select_option(label="Germany")
    page.locator("#ask button").click()
    assert "born=DEU" in page.locator("#asking ~ *", has_text="dpdist ask").last.text_content()


BORN = {"categories": ["DEU", "FRA"], "map": "countries", "title": "Geburtsland"}


AGE = {"from": -10, "to": 30, "width": 20, "title": "Alter"}


def born(rows: int) -> pa.Table:
    return pa.table({"born": ["DEU", "DEU", "FRA"] * rows, "age": [-3, 12, 20] * rows})


def test_columns_of_series_and_of_long_groups() -> None:
    content = gallery.hours(60)
    called = column_value_labels(content.workload, {}, ChartWords.of(content.certificate), 60)
    assert called["hour"]["at 13"] == "1 Jan 2011, 13:00"
    assert column_value_labels(content.workload, {}, ChartWords.of(content.certificate), 59) == {}


@pytest.mark.parametrize(("every", "called"), [("day", ["1 Nov 2026", "2 Nov 2026"]), ("week", [])])
def test_days_are_dates_and_weeks_their_numbers(every: Any, called: list[str]) -> None:
    times = Times(datetime.datetime(2026, 11, 1), 2, every)
    domain = Domain((Attribute("d", edges=even_edges(0, 1, 2), times=times),))
    words = ChartWords("visits", {"d": {"time": {"start": "2026-11-01T00:00:00", "step": every}}})
    found = column_value_labels(marginals(domain, ways=1), {}, words, 2)
    assert list(found.get("d", {}).values()) == called


def test_statistics_are_of_places_by_name(home: Path, tmp_path: Path) -> None:
    """In tables, on the summary, and in pictures by size; files keep the codes."""
    table = born(300).append_column("paid", pa.array([1.0, 2.0, 9.0] * 300))
    asked: dict[str, Any] = {"domain": {"born": BORN}, "sums": {"paid": {"from": 0, "to": 10}}}
    asked["quantiles"] = {"of": {"paid": {"from": 0, "to": 10, "step": 1}}, "by": ["born"]}
    asked["workload"] = [{"marginals": {"ways": [1]}}, {"marginals": {"of": [["born"]]}, "mean": "paid"}]
    folder = Path(small_release.run(small_release.write(tmp_path / "data", table=table, **asked), home).folder)
    text = (folder / "index.html").read_text()
    means, quantiles = (text.partition(f'<h2 id="{name}">')[2].partition("<h2")[0] for name in ("means", "quantiles"))
    assert "<td>Geburtsland Germany (DEU)</td>" in means
    assert "<td>Germany (DEU)</td>" in quantiles
    drawn = means.partition("<table>")[0]
    assert "DEU" not in drawn
    assert drawn.index("France") < drawn.index("Germany")  # the larger mean first
    assert "born DEU" in (folder / "means.csv").read_text()


DAYS = {"time": {"start": "2026-03-02T00:00:00", "step": "day"}}
WEEKS = {"time": {"start": "2026-03-02T00:00:00", "step": "week"}}


def dated(every: str, **others: Any) -> Attribute:
    return Attribute("day", edges=even_edges(0, 1, 9), times=Times(datetime.datetime(2026, 3, 2), 9, every), **others)


@pytest.mark.parametrize(
    ("attribute", "facts", "first", "last"),
    [
        (dated("day"), DAYS, "2. März 2026", "10. März 2026"),
        (dated("day", outside="clip"), DAYS, "2. März 2026 oder früher", "10. März 2026 oder später"),
        (dated("week"), WEEKS, "2026-W10", "2026-W18"),
        (dated("week", outside="clip"), WEEKS, "2026-W10 oder früher", "2026-W18 oder später"),
        (dated("day", labels=tuple("abcdefghi")), DAYS, "a", "i"),
        (
            *(Attribute("day", edges=even_edges(5, 1, 9), outside="clip"), DAYS),
            *("2. März 2026 oder früher", "10. März 2026 oder später"),
        ),
    ],
)
def test_charts_and_tables_call_times_alike(attribute: Attribute, facts: dict[str, Any], first: str, last: str) -> None:
    """Heat maps and what is said of them, too; and steps that the publisher has words for are called so."""
    domain, words = Domain((attribute, Attribute("hour", edges=tuple(range(8))))), ChartWords("records", {"day": facts})
    (block,) = listed_marginals(domain, [("day", "hour")]).blocks
    with use_language("de"):
        shown = relabel_for_tables(block, domain, words).labels[0]
        ((_, figure),) = figures_of(block, domain, words, np.arange(63.0)[::-1], np.full(63, 0.1))
        told, drawn = finding_sentence(figure, "records"), draw(figure, WIDE).svg
    assert (shown[0], shown[-1]) == (figure.axis.labels[0], figure.axis.labels[-1]) == (first, last)
    assert figure.kind == "heat"
    assert told.startswith(f"day {first} und hour 0 ist die häufigste Kombination")
    assert f">{last.removesuffix(' oder später')}" in drawn
