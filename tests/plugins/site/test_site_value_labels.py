"""A site calls the values of attributes as the pages of its releases do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dpdist.plugins.site import editions, site_pages
from dpdist.plugins.site.trends import read_value_labels
from tests.plugins.page.test_value_labels import AGE, BORN, born, browser, page
from tests.support import small_release

__all__ = ["browser", "page"]


@pytest.fixture
def sites(home: Path, tmp_path: Path) -> Path:
    """A German site of two releases by countries and by bins, some of which begin as a formula does."""
    asked: dict[str, Any] = {"domain": {"born": BORN, "age": AGE}, "language": "de"}
    asked["workload"] = [{"marginals": {"ways": [1]}}, {"cdf": {"of": "age", "by": ["born"]}}]
    for release, rows, day in (("t1", 300, "2026-11-09"), ("t2", 900, "2026-11-16")):
        small_release.run(
            small_release.write(tmp_path / release, table=born(rows), release=release, period=day, **asked), home
        )
    return site_pages.write_site("small", editions.releases_in(Path("releases"), "small")[0], [], Path("site")).resolve()


def test_a_site_calls_values_as_the_pages_of_its_releases_do(sites: Path, page: Any) -> None:
    for name, told in (
        ("index", "Geburtsland Deutschland: "),
        ("index", "Alter -10 bis unter 10"),
        ("compare", "<td>Geburtsland Deutschland, Alter unter 10</td>"),
        ("search", "Geburtsland Frankreich"),
    ):
        text = (sites / f"{name}.html").read_text()
        assert told in text
        assert not re.search("(DEU|FRA|to &lt;|to <|up to)", text)
    assert "born DEU, age up to -10 to <10" in (sites / "t1" / "answers.csv").read_text()
    page.goto((sites / "search.html").as_uri())
    page.fill("#find", "deutschland unter 10")
    page.locator("#found tbody tr", has_text="unter 10").locator("a").first.click()  # once the list is that of the words
    assert page.locator("#answers tbody td").first.text_content() == "Geburtsland Deutschland (DEU), Alter unter 10"
    page.context.close()


def test_what_a_site_calls_values_by_is_checked_as_all_other_files_are(sites: Path) -> None:
    path = Path("releases/t1/values.csv")
    assert read_value_labels(path)["age"]["-10 to <10"] == "-10 bis unter 10"
    assert '"\'-10 to <10"' in path.read_text()  # no formula for a spreadsheet
    path.write_text(path.read_text().replace("Deutschland", "Frankreich"))
    found, left_out = editions.releases_in(Path("releases"), "small")
    assert [one.release for one in found] == ["t2"]
    assert "releases/t1: published files were altered, values.csv for one" in left_out[0]
