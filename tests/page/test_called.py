"""What pages call places and times: names and dates in tables, charts and questions, in the page's language, and codes in files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpdist.domain import Attribute, Domain
from dpdist.domain.boundaries import boundaries
from dpdist.page import document
from dpdist.page.called import with_places
from dpdist.page.content import Content
from dpdist.page.listing import ListedGroup
from dpdist.workloads.products import marginals
from tests import small
from tests.page import gallery
from tests.page.browsing import browser, page

__all__ = ["browser", "page"]  # fixtures


def spoken(content: Content, language: str) -> str:
    return document.page(replace(content, certificate={**content.certificate, "language": language}), 1)


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
        shown = with_places(marginals(domain, ways=1), {"land": known})
        assert list(shown.domain.attributes[0].labels) == called
        assert list(shown.blocks[0].labels[0]) == called


def test_labels_of_the_publisher_stay(tmp_path: Path) -> None:
    domain = Domain((Attribute("born", categories=("DEU", "FRA"), labels=("Bonn", "Paris")),))
    known = boundaries("countries", "", ("DEU", "FRA"), tmp_path)
    workload = marginals(domain, ways=1)
    assert with_places(workload, {"born": known}) is workload


def test_questions_show_names_and_ask_by_codes(home: Path, tmp_path: Path, page: Any) -> None:
    domain = {"born": {"categories": ["DEU", "FRA"], "map": "countries"}}
    table = pa.table({"born": ["DEU", "FRA"] * 200})
    path = small.write(tmp_path / "data", table=table, domain=domain, workload=[{"marginals": {"ways": [1]}}])
    page.goto((Path(small.run(path, home).folder) / "index.html").as_uri())
    page.locator("[name=one-0-first]").select_option(label="Germany")
    page.locator("#ask button").click()
    assert "born=DEU" in page.locator("#asking ~ *", has_text="dpdist ask").last.text_content()
