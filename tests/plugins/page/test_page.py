"""The published page in a real browser: it renders, its table searches, sorts and downloads, and it loads nothing."""

from __future__ import annotations

import csv
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist import workloads
from dpdist.arrays.lazy_vector import ArrayVector, Constant
from dpdist.content.release_content import ReleaseContent
from dpdist.domain import Attribute, Domain
from dpdist.errors import InvalidInput
from dpdist.plugins.page import page_export, release_page
from dpdist.privacy import keys
from dpdist.publish import release_folder
from dpdist.workloads.product_queries import marginals
from tests.page.browsing import browser, page, shown
from tests.plugins.page import gallery
from tests.plugins.page.gallery import attribute
from tests.plugins.page.gallery import certificate as report_certificate
from tests.support import small_release
from tests.support.small_release import run

__all__ = ["browser", "page"]  # fixtures


def cells(page: Any) -> list[list[str]]:
    return page.eval_on_selector_all("#answers tbody tr", "rows => rows.map(r => [...r.cells].map(c => c.textContent))")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release that no test changes, with the same noise in every run."""
    folder = tmp_path_factory.mktemp("published")
    keys.initialise(folder / "home")
    (folder / "home" / "root.key").write_text("5c" * 32 + "\n")
    path = small_release.write(folder / "data", title="People & <work>", output={"folder": str(folder / "release")})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpdist.privacy.ledger.budget_ledger._new_salt", lambda: bytes(range(32)))
        return Path(run(path, folder / "home").folder)


def test_it_renders_and_the_table_works(published: Path, page: Any, tmp_path: Path) -> None:
    expected = release_folder.load_release(published)[0].to_pylist()
    page.goto((published / "index.html").as_uri())
    assert page.title() == "People & <work>"
    assert page.locator("svg:visible").count() >= 5
    for chart in page.locator("svg[role=img]:visible").all():
        assert chart.bounding_box()["height"] > 50
        assert chart.get_attribute("role") == "img"
        assert chart.get_attribute("aria-label")
    assert page.locator("#count").text_content() == f"{len(expected)} of {len(expected)} answers"
    assert [row[0] for row in cells(page)] == [row["query"] for row in expected[:50]]
    page.click("#after")
    assert cells(page)[0][0] == expected[50]["query"]
    page.click("th button[data-column='1']")
    values = [float(row[1].replace(",", "")) for row in cells(page)]
    assert values == sorted(values)
    assert page.get_attribute("#answers th:nth-child(2)", "aria-sort") == "ascending"
    page.click("th button[data-column='1']")
    values = [float(row[1].replace(",", "")) for row in cells(page)]
    assert values == sorted(values, reverse=True)
    assert values[0] == pytest.approx(round(max(row["answer"] for row in expected), 1))
    page.fill("#find", "sex f work")
    wanted = [row for row in expected if "sex f" in row["query"] and "work" in row["query"]]
    assert page.locator("#count").text_content() == f"{len(wanted)} of {len(expected)} answers"
    with page.expect_download() as begun:
        page.click("#download")
    begun.value.save_as(tmp_path / "some.csv")
    rows = list(csv.DictReader((tmp_path / "some.csv").open()))
    assert begun.value.suggested_filename == "small-1.csv"
    assert {row["query"] for row in rows} == {row["query"] for row in wanted}
    by_query = {(row["group"], row["query"]): row for row in wanted}
    for row in rows:
        same = by_query[row["group"], row["query"]]
        for name in ("answer", "standard_error", "low_95", "high_95"):
            assert float(row[name]) == pytest.approx(same[name], abs=2e-6)


def test_a_view_of_the_table_has_a_link(published: Path, page: Any) -> None:
    """Words, group, column and direction; what no table has is left aside."""
    address = (published / "index.html").as_uri()
    page.goto(address)
    page.fill("#find", "sex f")
    page.select_option("#group", index=2)
    for _ in range(2):
        page.click("th button[data-column='1']")
    shown, link = cells(page), page.locator("#view").evaluate("one => one.href")
    page.goto(address)
    assert cells(page) != shown
    page.goto(link)
    assert cells(page) == shown
    assert page.get_attribute("#answers th:nth-child(2)", "aria-sort") == "descending"
    assert page.locator("#table").is_visible()
    page.goto(address)
    page.goto(address + "#rows=1&group=none&sort=99&find=sex")
    assert page.locator("#find").input_value() == "sex"
    assert page.locator("th[aria-sort='none']").count() == 4
    assert page.locator("#group").input_value() == ""


def test_names_stay_beside_their_numbers_on_a_phone(published: Path, browser: Any) -> None:
    found = shown(browser, published / "index.html", "phone")
    box = "document.querySelector('#answers td').getBoundingClientRect().left"
    before = found.evaluate(box)
    found.evaluate("document.querySelector('.tall').scrollLeft = 120")
    assert found.evaluate("document.querySelector('.tall').scrollLeft") > 20
    assert found.evaluate(box) == before
    found.context.close()


def test_by_keyboard_alone(published: Path, page: Any) -> None:
    """Tab reaches every control in order; Enter sorts; focus is visible."""
    page.goto((published / "index.html").as_uri())
    page.focus("#find")
    page.keyboard.type("male")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "group"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "download"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "copy"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "view"
    page.keyboard.press("Tab")  # the scrolling region
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "query"
    page.keyboard.press("Enter")
    assert page.get_attribute("#answers th:nth-child(1)", "aria-sort") == "ascending"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


@pytest.mark.slow
def test_a_hundred_thousand_answers(page: Any, tmp_path: Path) -> None:
    """They are all in the table, and the page stays usable: a search draws 50 rows. The time is told, not asserted."""
    domain = Domain((Attribute("a", edges=tuple(range(401))), Attribute("b", edges=tuple(range(251)))))
    workload = workloads.marginals(domain, ways=(2,))
    state = np.random.default_rng(0)
    method = {"counted": "records", "asked": [], "attributes": {name: attribute(name, "numbers") for name in "ab"}}
    certificate = report_certificate(100_000, method=method)
    content = ReleaseContent(
        "big",
        "Big",
        workload,
        ArrayVector(state.normal(100, 30, 100_000)),
        Constant(2.5, 100_000),
        Constant(4.9, 100_000),
        certificate,
    )
    file = tmp_path / "index.html"
    file.write_text(release_page.release_page(content, 2))
    begun = time.monotonic()
    page.goto(file.as_uri())
    page.wait_for_function("document.getElementById('count').textContent.startsWith('100,000 of')")
    print(f"100,000 answers ({file.stat().st_size / 2**20:.1f} MiB) are shown after {time.monotonic() - begun:.2f} s")
    page.fill("#find", "a 399 b 249")
    page.wait_for_function("document.getElementById('count').textContent.startsWith('1 of')")
    assert len(cells(page)) == 1


def test_the_page_as_a_document(published: Path, browser: Any, tmp_path: Path) -> None:
    """PDF and PNG by 'dpdist export'; what cannot be saved is reported in one line."""
    del browser
    for name, begins in (("page.pdf", b"%PDF-"), ("page.png", b"\x89PNG")):
        page_export.save(published / "index.html", tmp_path / name)
        content = (tmp_path / name).read_bytes()
        assert content.startswith(begins)
        assert len(content) > 20_000
    with pytest.raises(InvalidInput, match="saved as .pdf or .png, found 'page.doc'"):
        page_export.save(published / "index.html", tmp_path / "page.doc")


def test_marginals_of_three_attributes_are_drawn_value_by_value(home: Path, page: Any) -> None:
    """One chart for each sex and work, over ages, under its name; beyond a dozen of them none."""
    every = {"marginals": {"of": [["age", "sex", "work"]]}}
    domain = small_release.spec()["domain"]
    domain["sex"]["title"] = "Sex at birth"
    folder = run(
        small_release.write(home.parent / "data", table=small_release.records(), domain=domain, workload=[every]), home
    ).folder
    page.goto((folder / "index.html").as_uri())
    figures = page.locator("section figure")
    assert figures.locator("svg:visible").count() == 2
    assert figures.locator("p strong").all_text_contents() == ["Sex at birth f", "Sex at birth m"]
    text = figures.first.locator("svg:visible").text_content()
    assert all(name in text for name in "abc")


@pytest.mark.parametrize(
    ("gap", "said"),
    [
        (5e-7, "no matrix mechanism has a total squared error lower by more than 5×10⁻⁷ of this one"),
        (1.6, "no matrix mechanism has less than 38% of this one"),  # 1 / 2.6 is 38.46 %
    ],
)
def test_a_wide_gap_is_told_as_a_share(gap: float, said: str) -> None:
    """It was said that an error may be lower by more than itself."""
    content = gallery.incomes()
    content.certificate["mechanism"]["certified_gap"] = gap
    assert said in release_page.release_page(content, 1).replace("\N{NO-BREAK SPACE}", "")


@pytest.mark.parametrize("language", ["en", "de"])
def test_a_category_that_reads_as_a_power_of_ten_stays_as_it_is_written(language: str) -> None:
    domain = Domain((Attribute("dose", categories=("1e-06", "2e-07")),))
    method = {"counted": "trials", "attributes": {"dose": gallery.attribute("Dose", "2 categories: 1e-06, 2e-07")}}
    content = gallery.content("Trials of 2e-07", marginals(domain, ways=(1,)), np.array([100.0, 4000.0]), 18.0, method)
    page = release_page.release_page(replace(content, certificate={**content.certificate, "language": language}), 1)
    assert "10⁻⁷" in page  # that of the gap
    assert not re.search("[12]\N{NO-BREAK SPACE}×|10⁻⁶", page)
    assert page.count("2e-07") > 5


def test_sums_that_a_mean_asks_for_again_have_one_card(home: Path) -> None:
    """A sum and a mean of one table had two cards with the same numbers; what is asked once has its card in any case."""
    table = {"marginals": {"of": [["sex"]]}}
    sums, domain = {"age": {"from": 0, "to": 11}}, {"sex": {"categories": ["f", "m"]}}
    workload = [{**table, "sum": "age"}, {**table, "mean": "age"}, table]
    path = small_release.write(home.parent / "data", sums=sums, domain=domain, workload=workload)
    text = (run(path, home).folder / "index.html").read_text()
    assert re.findall(r"<h3[^>]*>(?:<[^>]*>)*([^<]*)", text) == ["Sum of age by sex", "sex"]


def test_one_answer_is_no_answers(home: Path) -> None:
    path = small_release.write(home.parent / "data", workload=[{"marginals": {"ways": [0]}}], language="de")
    text = (run(path, home).folder / "index.html").read_text()
    assert "1 Ergebnis über Datensätze, mit der Größe seines Rauschens" in text
