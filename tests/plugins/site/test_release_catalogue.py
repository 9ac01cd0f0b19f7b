"""What a site says of its releases to readers who follow them: calendar, feeds, search, licence and citation."""

from __future__ import annotations

import datetime
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from dpdist.plugins.site import editions, feeds, release_catalogue, site_pages
from dpdist.privacy import keys
from tests.case_selection import slow_after_first
from tests.page.browsing import browser, page, shown, violations
from tests.support import small_release
from tests.support.small_release import run

__all__ = ["browser", "page"]  # fixtures

ABOUT = {
    "curator": "City library", "description": "Visitors, by age; \"all\" branches", "intended_use": "Planning", "region": "Hamburg",
    "license": "CC-BY-4.0", "contact": "statistics@example.org", "address": "https://example.org/visitors",
}  # fmt: skip


@pytest.fixture(scope="module")
def weekly_releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two weeks, of which the second has many more records and was revised."""
    folder = tmp_path_factory.mktemp("made")
    keys.initialise(folder / "home")
    options: dict[str, Any] = {"ledger": {"dataset": "visits", "cap": {"rho": 0.4, "per": "week"}}, "about": ABOUT}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for seed, (release, day) in enumerate([("w1", "2026-11-09"), ("w2", "2026-11-16"), ("w2-revised", "2026-11-16")]):
            changed = {**options, "about": {**ABOUT, "published": "2026-12-01"}} if "revised" in release else options
            table = small_release.records(1000 + 2000 * (seed > 0), seed=seed)
            title = f"Visits of {day}; all, every one"
            path = small_release.write(folder / "data", table=table, release=release, period=day, title=title, **changed)
            run(path, folder / "home")
    return folder


@pytest.fixture
def weekly_editions(weekly_releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[editions.Edition]:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(weekly_releases / "releases", "releases")
    return editions.releases_in(Path("releases"), "visits")[0]


@pytest.mark.parametrize(
    ("titles", "called"),
    [
        (
            ["Rentals in Washington, week of 2011-06-06", "Rentals in Washington, week of 2011-06-13"],
            "Rentals in Washington",
        ),
        (["Rentals (May)", "Rentals (June)", "w3"], "Rentals"),
        (["Rentals of 2011-06-06", "Rentals of 2011-06-13"], "visits"),
        (["Rentals", "Rentals"], "Rentals"),
        (["w1"], "visits"),
    ],
)
def test_a_site_is_called_what_its_titles_have_in_common(titles: list[str], called: str) -> None:
    ones = [editions.Edition(Path(), {"release": f"w{k}", "dataset": "visits"}) for k in range(1, len(titles) + 1)]
    entries = [
        release_catalogue.CatalogueEntry(one, title, None, 1, "", "") for one, title in zip(ones, titles, strict=True)
    ]
    assert release_catalogue.site_name(entries) == called


def test_a_site_is_headed_by_its_title_and_names_its_data_set(weekly_editions: list[editions.Edition]) -> None:
    for one in weekly_editions:
        titled = one.folder / "citation.json"
        titled.write_text(titled.read_text().replace("Visits of", "Visits, week of"))
    site_pages.write_site("visits", weekly_editions, (), Path("site"), address="https://example.org/v")
    index = Path("site/index.html").read_text()
    assert re.search(r"<h1>Visits</h1>\n<p[^>]*>Data set <code>visits</code>", index)
    assert "<title>Visits: differentially private releases</title>" in index
    assert "<h1>Methodology of Visits</h1>" in Path("site/methodology.html").read_text()
    assert b"X-WR-CALNAME:Visits\r\n" in Path("site/calendar.ics").read_bytes()
    assert ">visits/w1</guid>" in Path("site/feed.xml").read_text()


def test_calendar_of_releases_revisions_and_what_comes(weekly_editions: list[editions.Edition]) -> None:
    coming = [datetime.date(2026, 12, 7), datetime.date(2026, 11, 30)]
    site_pages.write_site("visits", weekly_editions, (), Path("site"), address="https://example.org/v", coming=coming)
    written = Path("site/calendar.ics").read_bytes()
    assert all(len(line) <= 75 for line in written.split(b"\r\n"))
    lines = written.decode().replace("\r\n ", "").split("\r\n")
    days = [line.partition(":")[2] for line in lines if line.startswith("DTSTART")]
    assert days == ["20261109", "20261116", "20261201", "20261130", "20261207"]
    ends = [line.partition(":")[2] for line in lines if line.startswith("DTEND")]
    assert ends == ["20261110", "20261117", "20261202", "20261201", "20261208"]
    assert [line for line in lines if line.startswith("SUMMARY")] == [
        r"SUMMARY:Visits of 2026-11-09\; all\, every one", r"SUMMARY:Visits of 2026-11-16\; all\, every one",
        r"SUMMARY:Visits of 2026-11-16\; all\, every one\, revision 2", "SUMMARY:visits: next release", "SUMMARY:visits: next release",
    ]  # fmt: skip
    assert "URL:https://example.org/v/w2-revised/index.html" in lines
    assert (
        len({line for line in lines if line.startswith("UID")})
        == lines.count("BEGIN:VEVENT")
        == lines.count("END:VEVENT")
        == 5
    )
    front = Path("site/index.html").read_text()
    assert "The next release is on 30 November 2026." in front
    assert "Announced: 30 November 2026, 7 December 2026." in front
    assert re.findall(r"<td>(\d+ \w+ 2026)</td>", front)[1::2] == ["1 December 2026", "16 November 2026", "9 November 2026"]


def test_entries_of_feeds_say_what_changed(weekly_editions: list[editions.Edition], monkeypatch: pytest.MonkeyPatch) -> None:
    site_pages.write_site("visits", weekly_editions, (), Path("site"))
    revised, replaced, first = json.loads(Path("site/feed.json").read_text())["items"]
    assert re.fullmatch(
        r"Period 16 November 2026\. Replaces w2\. .+ more records than in the period of 9 November 2026\. .+"
        r"\d+ answers, each with its 95 % interval; epsilon .+",
        revised["content_text"],
    )
    assert "Replaced by w2-revised." in replaced["content_text"]
    assert not re.search("more|fewer|Replace", first["content_text"] + replaced["content_text"].replace("Replaced by", ""))
    monkeypatch.setattr("dpdist.plugins.site.feeds.MOST_ENTRIES", 2)
    site_pages.write_site("visits", weekly_editions, (), Path("site"))
    assert json.loads(Path("site/feed.json").read_text())["items"] == [revised, replaced]
    assert Path("site/calendar.ics").read_text().count("BEGIN:VEVENT") == 3


def test_a_line_of_a_calendar_is_cut_between_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("dpdist.plugins.site.feeds.MOST_OCTETS", 3)
        assert feeds._fold_line("ab€cé") == "ab\r\n €\r\n cé"
    for text in ("é" * 100, "x" * 74, "x" * 75, ""):
        folded = feeds._fold_line(text)
        assert folded.replace("\r\n ", "") == text
        assert all(len(line.encode()) <= 75 for line in folded.split("\r\n"))


def test_licence_contact_and_citation(weekly_editions: list[editions.Edition]) -> None:
    assert release_catalogue.publication_facts(release_catalogue.catalogue_entries(weekly_editions)[-1]) == {
        "cited": "City library (2026): Visits of 2026-11-16; all, every one. Differentially private release w2-revised. "
        "https://example.org/visitors",
        "curator": "City library",
        "contact": "statistics@example.org",
        "license": "CC-BY-4.0",
        "address": "https://example.org/visitors",
    }
    site_pages.write_site("visits", weekly_editions, (), Path("site"))
    front = Path("site/index.html").read_text()
    for target in ("mailto:statistics@example.org", "https://spdx.org/licenses/CC-BY-4.0.html", "w2-revised/citation.bib"):
        assert f'href="{target}"' in front


def test_long_lists_are_folded(weekly_editions: list[editions.Edition], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpdist.plugins.site.site_pages.MOST_LIST_ROWS", 1)
    site_pages.write_site("visits", weekly_editions, (), Path("site"))
    shown_first, folded = Path("site/index.html").read_text().split("2 earlier releases</summary>")
    assert ('href="w2-revised/release.json"' in shown_first, 'href="w1/release.json"' in shown_first) == (True, False)
    assert 'href="w1/release.json"' in folded.partition("</details>")[0]


@pytest.mark.parametrize("language", slow_after_first(1, ["de", "fr", "es"]))
def test_the_list_of_releases_fits_a_desk(weekly_editions: list[editions.Edition], page: Any, language: str) -> None:
    """With revisions and days of publishing it was a third wider than the page in German."""
    weekly_editions[-1].certificate["language"] = language
    site_pages.write_site("visits", weekly_editions, (), Path("site"))
    page.set_viewport_size({"width": 1400, "height": 900})
    page.goto(Path("site/index.html").resolve().as_uri())
    assert page.evaluate("(one => one.scrollWidth - one.clientWidth)(document.querySelector('.list'))") == 0


def test_days_of_publishing_have_a_column_where_one_is_known(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Releases without a period or a day of publishing had a column without entries."""
    monkeypatch.chdir(tmp_path)
    run(small_release.write(tmp_path / "data", release="once"), home)
    site_pages.write_site("small", editions.releases_in(Path("releases"), "small")[0], (), Path("site"))
    assert '<th scope="col">published</th>' not in Path("site/index.html").read_text()


def test_search_over_all_tables_from_the_file_system(weekly_editions: list[editions.Edition], page: Any) -> None:
    site_pages.write_site("visits", weekly_editions, (), Path("site"))
    page.goto(Path("site/search.html").resolve().as_uri())
    assert page.locator("[data-table]:visible").count() == 7
    page.fill("#find", "sex f work b")
    assert page.locator("#told").text_content() == "1 of 1 answers"
    name, answer, _ = page.locator("#found tbody td").all_text_contents()
    rows = {row["query"]: row for row in _rows("w2-revised")}
    assert name in rows
    assert float(answer.split(" ± ")[0].replace(",", "")) == pytest.approx(rows[name]["answer"], abs=0.5)
    assert page.locator("[data-table]:visible").count() == 1
    page.locator("#found tbody a").click()
    assert "/w2-revised/index.html?series=w1,w2,w2-revised&find=" in page.url
    page.wait_for_function("words => document.querySelector('#find')?.value === words", arg=name)
    assert page.locator("#count").text_content() == f"1 of {len(rows)} answers"
    page.go_back()
    page.wait_for_function("words => document.querySelector('#find')?.value === words", arg="sex f work b")
    page.fill("#find", "no such words")
    assert page.locator("#told").text_content() == "0 of 0 answers"
    page.fill("#find", "sex")
    assert page.locator("#found tbody tr").count() == 50


def _rows(release: str) -> list[dict[str, Any]]:
    from dpdist.publish import release_folder

    return release_folder.first_rows(Path("releases", release), group=None, limit=0)[0]


def test_tables_that_are_too_large_are_named_and_not_searched(
    weekly_editions: list[editions.Edition], page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpdist.plugins.site.site_pages.MOST_SEARCHED_ANSWERS", 20)
    site_pages.write_site("visits", weekly_editions, (), Path("site"))
    page.goto(Path("site/search.html").resolve().as_uri())
    assert page.locator("[data-table]:visible").count() == 7
    assert "The answers of 4 tables are too many to be searched here" in page.locator("main").text_content()
    page.fill("#find", "age 3")
    assert page.locator("#found tbody tr").count() == 1


@pytest.mark.parametrize(("screen", "look"), slow_after_first(1, [("phone", "dark"), ("desk", "light")]))
def test_search_is_accessible(weekly_editions: list[editions.Edition], browser: Any, screen: str, look: str) -> None:
    site_pages.write_site("visits", weekly_editions, (), Path("site"))
    page = shown(browser, Path("site/search.html").resolve(), screen, look)
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.fill("#find", "sex")
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    page.context.close()
