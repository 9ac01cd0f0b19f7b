"""Pages on phones and desks, light and dark, printed and read aloud: nothing is cut, collides, or is too small to read."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dpdist.content import answer_tables
from tests.case_selection import always
from tests.page.browsing import SCREENS, browser, shown, unfolded, violations
from tests.plugins.page import gallery
from tests.support import small_release
from tests.support.purchase_releases import purchases_with_amounts

__all__ = ["browser"]  # fixtures

TEXTS = """() => [...document.querySelectorAll('svg')].filter(svg => svg.getBoundingClientRect().width > 0).map(svg => {
    const frame = svg.getBoundingClientRect(), scale = frame.width / svg.viewBox.baseVal.width;
    return {frame: [frame.left, frame.top, frame.right, frame.bottom], texts: [...svg.querySelectorAll('text')].map(text => {
        const box = text.getBoundingClientRect();
        const matrix = text.getScreenCTM();
        return {text: text.textContent, size: parseFloat(getComputedStyle(text).fontSize) * scale, turned: Math.abs(matrix.b) > 1e-6,
                box: [box.left, box.top, box.right, box.bottom]};
    })};
})"""


@pytest.fixture(scope="module", params=always(["weeks", "towns"], gallery.GALLERY))
def gallery_page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gallery.write(tmp_path_factory.mktemp("gallery"), request.param)


@pytest.mark.parametrize("screen", SCREENS)
def test_charts_are_laid_out_for_the_screen(gallery_page: Path, browser: Any, screen: str) -> None:
    """Letters of 12 pixels and more; no text leaves its chart or touches another; nothing sticks out sideways."""
    page = unfolded(shown(browser, gallery_page, screen, java_script_enabled=True))
    charts = page.evaluate(TEXTS)
    assert charts
    for chart in charts:
        left, top, right, bottom = chart["frame"]
        for text in chart["texts"]:
            assert text["size"] >= 12, text
            x0, y0, x1, y1 = text["box"]
            assert left - 2 <= x0, (text, chart["frame"])
            assert x1 <= right + 2, (text, chart["frame"])
            assert top - 2 <= y0, (text, chart["frame"])
            assert y1 <= bottom + 2, (text, chart["frame"])
        level = [text for text in chart["texts"] if not text["turned"] and text["text"]]
        for i, one in enumerate(level):
            for other in level[i + 1 :]:
                wide = min(one["box"][2], other["box"][2]) - max(one["box"][0], other["box"][0])
                tall = min(one["box"][3], other["box"][3]) - max(one["box"][1], other["box"][1])
                assert wide < 1.5 or tall < 4, (one, other)
    assert page.evaluate("document.documentElement.scrollWidth") <= SCREENS[screen][0]
    for table in page.locator(".scroll").all() if screen == "desk" else ():
        assert table.evaluate("one => one.scrollWidth <= one.clientWidth + 1")  # tables are not clipped
    page.context.close()


@pytest.mark.parametrize(
    ("screen", "look"),
    [
        ("phone", "dark"),
        ("desk", "light"),
        pytest.param("phone", "light", marks=pytest.mark.slow),
        pytest.param("desk", "dark", marks=pytest.mark.slow),
    ],
)
def test_a_page_is_for_everybody(gallery_page: Path, browser: Any, screen: str, look: str) -> None:
    """No violation of axe-core's rules: landmarks, contrast, names, focus."""
    page = shown(browser, gallery_page, screen, look)
    assert violations(page) == []
    assert violations(unfolded(page)) == []
    assert page.locator("main").count() == 1
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 24, 31)"
    assert dark == (look == "dark")
    page.context.close()


def test_a_page_prints_light_and_whole(browser: Any, tmp_path: Path) -> None:
    """On paper: the wide charts, no controls, black on white also for a dark screen."""
    page = shown(browser, gallery.write(tmp_path, "incomes"), "phone", "dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--paper')") == "#ffffff"
    assert page.locator("svg.wide:visible").count() >= 6
    assert page.locator("figure.chart").evaluate_all("all => all.every(one => one.checkVisibility())")
    assert page.locator("svg.narrow:visible").count() == 0
    for part in (".tools", "#controls", "nav"):
        assert page.locator(f"{part}:visible").count() == 0, part
    page.context.close()


def test_a_page_without_scripts_has_its_charts_and_its_first_answers(browser: Any, tmp_path: Path) -> None:
    page = shown(browser, gallery.write(tmp_path, "incomes"), "phone", java_script_enabled=False)
    assert not page.locator("figure.chart").evaluate_all("all => all.some(one => one.checkVisibility())")
    unfolded(page)
    assert page.locator("svg.narrow:visible").count() >= 6
    assert page.locator("#answers tbody tr").count() == 50
    assert "all are in the files" in (page.locator("noscript").inner_html() or "")
    page.context.close()


def test_a_link_opens_the_chart_that_it_leads_to(browser: Any, tmp_path: Path) -> None:
    """From the contents, and from an address, to a table and to a view of its chart; all others stay folded."""
    path = gallery.write(tmp_path, "incomes")
    opened = "all => all.filter(one => one.open).map(one => one.querySelector('.whole').id)"
    page = shown(browser, path, "desk")
    groups = page.locator(".group > details")
    assert groups.evaluate_all(opened) == []
    page.locator("nav .unfolded a[href='#group-3']").click()
    assert page.locator("#group-3 svg.wide").first.is_visible()
    assert groups.evaluate_all(opened) == ["group-3"]
    holder = page.locator("figure.chart").nth(3).evaluate("one => one.closest('.whole').id")
    for view, group in (("#group-2", "group-2"), ("#chart=3&log=1", holder)):
        page.goto("about:blank")
        page.goto(path.as_uri() + view)
        assert groups.evaluate_all(opened) == [group]
        seen = "one => { const box = one.getBoundingClientRect(); return box.top < innerHeight && box.bottom > 0; }"
        assert page.locator(f"#{group} figure.chart").first.evaluate(seen)
    page.context.close()


def test_a_button_opens_and_closes_all_charts(browser: Any, tmp_path: Path) -> None:
    page = shown(browser, gallery.write(tmp_path, "incomes"), "phone")
    groups, button = page.locator(".group > details"), page.locator("button.fold")
    assert button.text_content() == "Open all charts"
    groups.first.locator("summary").first.click()
    button.click()
    assert groups.evaluate_all("all => all.every(one => one.open)")
    page.wait_for_function("document.querySelector('button.fold').textContent === 'Close all charts'")
    button.click()
    assert not groups.evaluate_all("all => all.some(one => one.open)")
    page.context.close()


def test_what_was_opened_for_print_is_closed_afterwards(browser: Any, tmp_path: Path) -> None:
    page = shown(browser, gallery.write(tmp_path, "incomes"), "desk")
    groups = page.locator(".group > details")
    groups.nth(1).locator("summary").first.click()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert groups.evaluate_all("all => all.every(one => one.open)")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert groups.evaluate_all("all => all.map(one => one.open)").count(True) == 1
    page.context.close()


def test_answers_come_first(browser: Any, tmp_path: Path) -> None:
    """In words, in pictures, then how to read them, guarantee, method, exclusions, budget."""
    page = shown(browser, gallery.write(tmp_path, "incomes"), "desk")
    order = [
        "answers-begin",
        "name-1",
        "table",
        "reading",
        "guarantee",
        "method",
        "exclusions",
        "budget",
        "files",
    ]
    tops = page.evaluate("names => names.map(name => document.getElementById(name).getBoundingClientRect().top)", order)
    assert tops == sorted(tops)
    assert "households" in page.locator(".finding").first.text_content()
    page.context.close()


def test_no_script_but_the_page_s_own_runs(browser: Any, tmp_path: Path) -> None:
    """A script or a style that slips into the page past all escaping is refused by the policy, and so is any connection."""
    path = gallery.write(tmp_path, "incomes")
    text = path.read_text(encoding="utf-8")
    strange = "<script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\"><style>main{display:none}</style>"
    path.write_text(text.replace('<h2 id="files">', strange + '<h2 id="files">', 1), encoding="utf-8")
    assert strange in path.read_text(encoding="utf-8")
    page = shown(browser, path, "desk")
    assert page.title() == "Household incomes by region"
    assert page.locator("main").is_visible()
    assert page.evaluate("fetch('data:text/plain,x').then(() => 'sent', () => 'refused')") == "refused"
    assert page.locator(".tools").count() > 0  # its own script ran
    page.context.close()


def test_a_page_of_two_thousand_answers_lists_them_in_little_room(browser: Any, tmp_path: Path) -> None:
    """Names and intervals that the script makes of parts are those of the files, to the last digit."""
    made = gallery.towns()
    count = made.workload.shape[0]
    path = gallery.write(tmp_path, "towns")
    held = re.search(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8")).group(1)
    assert len(held) < 25 * count > 25 * 1500
    page = shown(browser, path, "desk")
    with page.expect_download() as saved:
        page.locator("#download").click()
    rows = list(csv.DictReader(Path(saved.value.path()).read_text(encoding="utf-8").splitlines()))
    table = pa.concat_tables(answer_tables.answer_batches(made, 0, count, 1)).to_pylist()
    assert [row["query"].lower() for row in rows] == [row["query"].lower() for row in table]  # titles are capitalised
    for name in ("answer", "standard_error", "low_95", "high_95"):
        assert [float(row[name]) for row in rows] == [row[name] for row in table]
    page.context.close()


def test_single_questions_are_drawn_side_by_side(browser: Any, tmp_path: Path) -> None:
    page = shown(browser, gallery.write(tmp_path, "towns"), "desk")
    section = page.locator("section:has(h3:text-is('age >= 18'))")
    assert {"age >= 18", "age >= 65"} <= set(section.locator("svg.wide text").all_text_contents())
    page.context.close()


def test_a_phone_shows_the_whole_interval_of_a_quantile(browser: Any, home: Path) -> None:
    quantiles = {
        "of": {"amount": {"from": 0, "to": 5000, "step": 0.01, "unit": "EUR", "title": "Amount paid"}},
        "by": ["sex"],
        "at": [0.5, 0.999],
    }
    done = small_release.run(small_release.write(home.parent, table=purchases_with_amounts(), quantiles=quantiles), home)
    found = shown(browser, Path(done.folder) / "index.html", "phone")
    widths = "() => { const box = document.querySelector('#quantiles + p + .scroll'); return [box.clientWidth, box.scrollWidth]; }"
    try:
        seen, needed = found.evaluate(widths)
        assert needed <= seen
        assert "share of records up to it" in found.inner_text("#quantiles + p + .scroll thead")
    finally:
        found.context.close()
