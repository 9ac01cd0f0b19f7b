"""The site over all releases of a data set, and the notebook's view of one."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from dpdist.api.holds import ReleaseHold
from dpdist.errors import InvalidInput
from dpdist.pipeline.release_audit import _check_copy
from dpdist.plugins.site import editions, release_comparison, site_pages, trends
from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.publish import release_folder
from tests.page.browsing import browser, page, shown, violations
from tests.support import small_release
from tests.support.small_release import run

__all__ = ["browser", "page"]  # fixtures


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two weeks, the second one revised; and a release of another data set beside them."""
    folder = tmp_path_factory.mktemp("weeks")
    home = folder / "home"
    keys.initialise(home)
    (home / "root.key").write_text("5c" * 32 + "\n")
    (folder / "work").mkdir()
    ledger = {"dataset": "weekly", "cap": {"rho": 0.4, "per": "week"}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpdist.privacy.ledger.budget_ledger._new_salt", lambda: bytes(range(32)))
        patch.chdir(folder / "work")
        for seed, (release, day) in enumerate([("w1", "2026-11-09"), ("w2", "2026-11-16"), ("w2-revised", "2026-11-16")]):
            data = folder / release
            run(
                small_release.write(
                    data, table=small_release.records(seed=seed), release=release, period=day, ledger=ledger
                ),
                home,
            )
        run(small_release.write(folder / "other", table=small_release.records(seed=9), release="other"), home)
    return folder


@pytest.fixture
def three(weeks: Path, home: Path) -> Path:
    """The releases of ``weeks`` with their state, in folders of the test's own."""
    shutil.copytree(weeks, home.parent, dirs_exist_ok=True)
    return home


def test_site(three: Path) -> None:
    found = editions.releases_in(Path("releases"), "weekly")[0]
    assert [one.certificate["release"] for one in found] == ["w1", "w2", "w2-revised"]
    with open_ledger(three) as ledger:
        folder = site_pages.write_site("weekly", found, ledger.budgets(charges=True), Path("site"))
        again = site_pages.write_site("weekly", found, ledger.budgets(charges=True), Path("site"))
    assert folder == again
    page = (folder / "index.html").read_text()
    for one in found:
        release = one.certificate["release"]
        assert f'href="{release}/index.html?series=w1,w2,w2-revised"' in page
        assert (folder / release / "index.html").read_bytes() == (one.folder / "index.html").read_bytes()
    assert "other/" not in page
    assert re.findall(r'<h3 id="name-\d+">([^<]+)', page) == [
        "age", "sex", "work", "age and sex", "age and work", "sex and work", "Cumulative age by sex"
    ]  # fmt: skip
    assert page.count('<svg class="wide"') == page.count('<svg class="narrow"') == 7 + 1  # each group and the budget
    assert "2 releases charged; 50\N{NO-BREAK SPACE}% is left" in page
    assert "1 release charged; 75\N{NO-BREAK SPACE}% is left" in page
    assert "is revision 2 and replaces w2." in page
    assert re.search(r"replaces w2\. age: this edition revises w2; \d+ of \d+ answers differ, by [\d.,]+ at most\.", page)
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def test_a_site_shows_what_was_held_voided_and_published_again_with_reasons(three: Path) -> None:
    """On the page, and in the certificate of the series beside the digests of its releases."""
    found = editions.releases_in(Path("releases"), "weekly")[0]
    events = [
        {"event": "held", "at": "2026-11-23T01:00:00+00:00", "reason": "a is 3, where 7 earlier periods make 9 ± 1 likely"},
        {"event": "void", "at": "2026-11-24T01:00:00+00:00", "reason": "half of the <files> were missing"},
    ]
    folder = site_pages.write_site(
        "weekly", found, [], Path("site"), holds=[ReleaseHold("w2-first", "weekly", "2026-11-16", events)]
    )
    page = (folder / "index.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert "held, because a is 3, where 7 earlier periods make 9 ± 1 likely" in page
    assert "void and never published, because half of the &lt;files&gt; were missing" in page
    assert "This period was published as w2, w2-revised." in page
    series = json.loads((folder / "series.json").read_text())
    (held,) = series["held"]
    assert (held["state"], held["events"], held["published_again"]) == ("void", events, ["w2", "w2-revised"])
    digests = [hashlib.sha256((folder / one.release / "release.json").read_bytes()).hexdigest() for one in found]
    assert [release["certificate"] for release in series["releases"]] == digests
    assert [release["replaces"] for release in series["releases"]] == [None, None, "w2"]
    text = (folder / "w2" / "release.json").read_bytes()
    assert _check_copy(folder / "w2", text) == ""
    (folder / "series.json").write_text((folder / "series.json").read_text().replace(digests[1], 64 * "0"))
    assert "series.json names another certificate of it" in _check_copy(folder / "w2", text)


def test_sites_of_two_data_sets_never_overwrite_each_other(three: Path) -> None:
    found = editions.releases_in(Path("releases"), "weekly")[0]
    site_pages.write_site("weekly", found, [], Path("site"))
    other = editions.releases_in(Path("releases"), found[0].certificate["dataset"])[0]
    before = Path("site/index.html").read_bytes()
    with pytest.raises(InvalidInput, match=r"site is the site of 'weekly'; choose another folder with --out"):
        site_pages.write_site("another", other, [], Path("site"))
    assert Path("site/index.html").read_bytes() == before


def test_a_page_reached_from_the_site_leads_on_and_back(three: Path, page: Any) -> None:
    """By the ids in its address, which are names and nothing else: the published page is the same everywhere."""
    folder = site_pages.write_site("weekly", editions.releases_in(Path("releases"), "weekly")[0], [], Path("site")).resolve()
    page.goto((folder / "index.html").as_uri())
    page.locator("#releases ~ .scroll a", has_text="w2").last.click()
    series = page.locator("#series")
    series.get_by_role("link").first.wait_for()  # a script puts them there, once the page was opened
    assert series.get_by_role("link").all_text_contents() == ["All releases of weekly", "Previous: w1", "Next: w2-revised"]
    series.get_by_role("link", name="Previous").click()
    page.wait_for_url("**/w1/index.html*")
    series.get_by_role("link").first.wait_for()
    assert page.locator("h1").is_visible()
    assert "/w1/index.html" in page.url
    assert series.get_by_role("link").all_text_contents() == ["All releases of weekly", "Next: w2", "Latest: w2-revised"]
    series.get_by_role("link", name="All releases").click()
    assert page.url.endswith("site/index.html")
    for given in ("", "?series=", "?series=w1,javascript:alert(1)", "?series=w1,../../x"):
        page.goto((folder / "w1" / "index.html").as_uri() + given)
        assert series.is_hidden()


def test_titles_of_levels_stand_on_the_page_and_the_site(home: Path, tmp_path: Path) -> None:
    """In headings, sentences, charts and tables; files keep the names."""
    levels = {"side": {"west": ["a"], "east": ["b", "c"]}}
    work = {"categories": ["a", "b", "c"], "levels": levels, "level_titles": {"side": "Side of the river"}}
    domain, workload = (
        {**small_release.spec()["domain"], "work": work},
        [{"marginals": {"of": [["side"], ["side", "sex", "age"]]}}],
    )
    for release, day in (("t1", "2026-11-09"), ("t2", "2026-11-16")):
        table = small_release.records(3000 if release == "t1" else 2000)
        run(
            small_release.write(
                tmp_path / release, table=table, release=release, period=day, domain=domain, workload=workload
            ),
            home,
        )
    found = editions.releases_in(Path("releases"), "small")[0]
    folder = site_pages.write_site("small", found, [], Path("site"))
    for name in ("index", "compare", "search", "t1/index"):
        words = (folder / f"{name}.html").read_text()
        assert "Side of the river west" in words
        assert ">Side of the river" in words or name == "compare"
        assert "side west" not in words.lower()
    assert "side west" in (folder / "t1" / "answers.csv").read_text()
    assert "Sex f: " in re.findall(r'class="finding">([^<]+)', (folder / "t1" / "index.html").read_text())[1]


def test_site_compares_explains_and_feeds(three: Path, browser: Any) -> None:
    """Any two releases with the interval of every difference, a methodology from the spec, two feeds; axe-core finds nothing."""
    found = editions.releases_in(Path("releases"), "weekly")[0]
    with open_ledger(three) as ledger:
        folder = site_pages.write_site(
            "weekly", found, ledger.budgets(charges=True), Path("site"), address="https://example.org/t/"
        )
    items = json.loads((folder / "feed.json").read_text())["items"]
    assert [item["url"] for item in items] == [f"https://example.org/t/{one.release}/index.html" for one in found[::-1]]
    assert items[0]["date_published"] == "2026-11-16T00:00:00Z"
    feed = ElementTree.parse(folder / "feed.xml").getroot()
    assert (feed.tag, feed.get("version")) == ("rss", "2.0")
    assert [item.findtext("title") for item in feed.iter("item")] == [
        "weekly, 16 November 2026 (w2-revised), revision 2", "weekly, 16 November 2026 (w2)", "weekly, 9 November 2026 (w1)"
    ]  # fmt: skip
    (itself,) = feed.iter("{http://www.w3.org/2005/Atom}link")
    assert itself.attrib == {"href": "https://example.org/t/feed.xml", "rel": "self", "type": "application/rss+xml"}
    assert feed.findtext("channel/item/pubDate") == "Mon, 16 Nov 2026 00:00:00 +0000"
    words = " ".join((folder / "methodology.html").read_text().split())
    for text in (
        "whole numbers from 0 to 11", "Counts of every combination of values of any 1 and 2 attributes.",
        "Counts at or below each value of age, for each sex (weight 2).", "a record with any other value would have stopped",
    ):  # fmt: skip
        assert text in words
    page = shown(browser, (folder / "compare.html").resolve(), "phone")
    by_hand = {one.release: trends.read_answers(one, trends.ReaderNames({}, {})) for one in found}
    page.select_option("#first", "w1")
    page.select_option("#second", "w2-revised")
    listed = release_comparison.differences(by_hand["w1"], by_hand["w2-revised"], shares_draws=False)
    rows = page.eval_on_selector_all("#differences tbody tr", "rows => rows.map(r => [...r.cells].map(c => c.textContent))")
    assert [row[0] for row in rows] == [one.query for one in listed[:20]]
    for row, one in zip(rows, listed, strict=False):
        change, half = (float(part.replace("−", "-").replace(",", "")) for part in row[1].split(" ± "))
        assert change == pytest.approx(one.change, abs=0.51)
        assert half == pytest.approx(one.half, abs=0.51)
        assert (row[2] == "yes") == one.sure
    told = page.locator("#told").text_content()
    assert f"{sum(one.sure for one in listed)} of {len(listed)} differences" in told
    page.fill("#words", "sex f")
    assert all("sex f" in text for text in page.locator("#differences tbody td:first-child").all_text_contents())
    assert violations(page) == []
    page.context.close()
    for name in ("index", "methodology", "search"):
        page = shown(browser, (folder / f"{name}.html").resolve(), "phone", "dark")
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.context.close()


def test_pages_and_site_tell_nothing_that_is_private(home: Path) -> None:
    """Paths, columns and files of the spec, and counts of left-out records, reach neither page nor certificate nor site."""
    table = small_release.records().rename_columns(["secretcolumn", "sex", "work", "person"])
    records = {"path": "records.parquet", "columns": {"age": "secretcolumn"}, "called": "visits"}
    path = small_release.write(home.parent / "secretfolder", table=table, records=records)
    run(path, home)
    with open_ledger(home) as ledger:
        site_pages.write_site(
            "small", editions.releases_in(Path("releases"), "small")[0], ledger.budgets(charges=True), Path("site")
        )
    written = [file for file in Path("site").rglob("*") if file.is_file() and file.suffix in (".html", ".json", ".csv")]
    assert len(written) >= 5
    for file in written:
        text = file.read_text(encoding="utf-8")
        for secret in ("secret", "records.parquet", str(home), str(home.parent)):
            assert secret not in text, (file, secret)
    assert "visits" in Path("site/small-1/index.html").read_text()


def test_site_in_a_browser_of_its_own_folder_only(three: Path) -> None:
    del three
    with pytest.raises(
        InvalidInput, match="no complete release of 'nothing' lies below releases; there are releases of small, weekly"
    ):
        editions.releases_in(Path("releases"), "nothing")
    Path("mine").mkdir()
    with pytest.raises(InvalidInput, match="mine exists and is not a site that dpdist wrote"):
        site_pages.write_site("weekly", editions.releases_in(Path("releases"), "weekly")[0], (), Path("mine"))
    (Path("releases") / "w1" / "answers.csv").write_text("altered")
    found, left_out = editions.releases_in(Path("releases"), "weekly")
    assert [one.certificate["release"] for one in found] == ["w2", "w2-revised"]
    assert [line.partition(":")[0] for line in left_out] == ["releases/w1"]
    assert "answers.csv for one" in left_out[0]


def test_site_takes_no_drafts_and_follows_no_forged_id(home: Path) -> None:
    """A draft of a killed run, an id that leads out of the target, a link to a folder outside, one release twice."""
    run(small_release.write(home.parent / "data"), home)
    whole = Path("releases/small-1")
    shutil.copytree(whole, "releases/.small-1.0123456789ab")
    for name, release in (("forged", "../../escaped"), ("linking", "linking")):
        shutil.copytree(whole, f"releases/{name}")
        facts = json.loads((whole / "release.json").read_text())
        Path(f"releases/{name}/release.json").write_text(json.dumps({**facts, "release": release}))
        small_release.sign(Path(f"releases/{name}"))
    Path("private").mkdir()
    Path("private/root.key").write_text("secret")
    Path("releases/linking/extra").symlink_to(Path("private").resolve())
    found = editions.releases_in(Path("releases"), "small")[0]
    assert [one.folder for one in found] == [whole]
    site_pages.write_site("small", found, (), Path("out/site"))
    assert sorted(path.name for path in Path("out").iterdir()) == ["site"]
    assert not Path("escaped").exists()
    assert not list(Path("out").rglob("root.key"))
    shutil.copytree(whole, "releases/copy")
    with pytest.raises(InvalidInput, match="both hold release 'small-1'; move one of them away"):
        site_pages.write_site("small", editions.releases_in(Path("releases"), "small")[0], (), Path("out/site"))


def test_the_page_shows_the_budget_up_to_its_release(three: Path) -> None:
    """What a release's page says of the budget follows from the ledger, and later charges do not change it."""
    courses = {}
    for release in ("w1", "w2", "w2-revised", "other"):
        facts = release_folder.certificate_of(Path("releases", release))
        courses[release] = (facts["budget"]["period"], facts["budget"]["course"])
    assert courses["w1"] == ("2026-W46", [["w1", 0.75]])
    assert courses["w2"] == ("2026-W47", [["w2", 0.75]])
    assert courses["w2-revised"] == ("2026-W47", [["w2", 0.75], ["w2-revised", 0.5]])
    assert courses["other"][0] == "total"
    page = Path("releases/w2-revised/index.html").read_text()
    assert "this is 2026-W47" in page
    assert "2 releases were charged up to this one; 50\N{NO-BREAK SPACE}% is left." in page
    shown = Path("releases/w2/index.html").read_bytes()
    for path in sorted(Path("releases/w2").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    Path("releases/w2").rmdir()
    run(three.parent / "w2" / "release.yaml", three)
    assert Path("releases/w2/index.html").read_bytes() == shown
