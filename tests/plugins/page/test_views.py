"""What the script of a page adds: values, series, logarithms, intervals in two forms, files, links to views."""

from __future__ import annotations

import csv
import io
import json
import runpy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.case_selection import always, slow_after_first
from tests.page.browsing import browser, page, unfolded, violations
from tests.plugins.page import gallery

__all__ = ["browser", "page"]  # fixtures


@pytest.fixture
def incomes(page: Any, tmp_path: Path) -> Any:
    page.goto(gallery.write(tmp_path, "incomes").as_uri())
    return page


def chart(page: Any, title: str) -> Any:
    figure = unfolded(page).locator(f"section:has(h3:text-is('{title}')) figure.chart")
    figure.locator("details.tools").first.evaluate("menu => { menu.open = true; }")
    return figure


def test_a_page_opens_within_half_a_second_of_its_main_thread(browser: Any, tmp_path: Path) -> None:
    opened = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "page_opening.py"))["opened"]
    whole, scripts, *_ = opened(browser, gallery.write(tmp_path, "towns"), "phone")
    assert 0.01 < scripts < whole < 0.5


def test_hover_and_keys_show_value_and_interval(incomes: Any) -> None:
    region = chart(incomes, "Region")
    region.scroll_into_view_if_needed()
    bar = region.locator("svg.wide").bounding_box()
    incomes.mouse.move(bar["x"] + 0.4 * bar["width"], bar["y"] + 35)
    tip = region.locator(".tip")
    assert tip.is_visible()
    north = tip.text_content()
    assert north.startswith("North")
    assert "95 % interval" in north
    incomes.mouse.move(5, 5)
    region.locator(".plot").focus()
    incomes.keyboard.press("ArrowDown")
    assert tip.text_content() == north
    incomes.keyboard.press("End")
    assert region.locator(".told").text_content().startswith("West: ")
    incomes.keyboard.press("Escape")
    assert tip.is_hidden()
    steps = chart(incomes, "Income")
    steps.locator(".plot").focus()
    incomes.keyboard.press("ArrowRight")
    assert steps.locator(".told").text_content().startswith("Income under 5000: ")
    heat = chart(incomes, "Income and Occupation")
    heat.locator(".plot").focus()
    incomes.keyboard.press("ArrowDown")
    incomes.keyboard.press("ArrowRight")
    assert heat.locator(".told").text_content().startswith("Not in universe, 5000 to under 10,000: ")


def test_a_reader_chooses_series_scale_and_interval_and_links_to_the_view(incomes: Any) -> None:
    cumulative = chart(incomes, "Cumulative Income by Region")
    lines = cumulative.locator("svg.wide g.marks path.outline")
    assert lines.count() == 4
    first = lines.first.get_attribute("d")
    cumulative.locator("select").select_option(label="South")
    assert lines.count() == 1
    cumulative.get_by_role("button", name="Log scale").click()
    ticks = [text for text in cumulative.locator("svg.wide g.scale text").all_text_contents() if text]
    assert ticks == ["1,000", "10,000", "100,000"]
    assert cumulative.locator("path.whisker").count() == 0
    cumulative.get_by_role("button", name="Interval as bars").click()
    assert cumulative.locator("svg.wide path.whisker").count() == 1
    assert cumulative.locator("svg.wide path.band").count() == 0
    view = cumulative.locator(".tools a").get_attribute("href")
    incomes.goto(incomes.url.split("#")[0])
    assert lines.first.get_attribute("d") == first
    incomes.goto(incomes.url.split("#")[0] + view)
    assert lines.count() == 1
    assert cumulative.locator("select").input_value() == "1"
    assert cumulative.get_by_role("button", name="Log scale").get_attribute("aria-pressed") == "true"
    assert cumulative.locator("svg.wide path.whisker").count() == 1
    bars = chart(incomes, "Region")
    bars.get_by_role("button", name="Log scale").click()
    assert bars.locator("svg.wide circle").count() == 4  # bars on a logarithmic scale would have no honest beginning


@pytest.mark.parametrize("screen", slow_after_first(1, ["wide", "narrow"]))
def test_a_row_or_a_column_of_a_map_is_chosen(incomes: Any, tmp_path: Path, screen: str) -> None:
    """All others fade; its answers and intervals stand below, in files, and in the link to the view."""
    incomes.set_viewport_size({"width": 1000 if screen == "wide" else 390, "height": 800})
    heat, occupation = chart(incomes, "Income and Occupation"), "Armed Forces"
    slices, rows = heat.locator(".slice"), heat.locator(".slice tr")
    assert slices.is_hidden()
    assert heat.locator(".chosen").count() == 0
    heat.locator("select").select_option(label=occupation)
    assert slices.locator("caption").text_content() == f"Occupation: {occupation}"
    assert heat.locator(f"svg.{screen} .chosen .rim").is_visible()
    with incomes.expect_download() as begun:
        heat.get_by_role("button", name="as CSV").click()
    begun.value.save_as(tmp_path / "some.csv")
    saved = list(csv.DictReader((tmp_path / "some.csv").open(encoding="utf-8")))
    assert rows.count() == len(saved) > 5
    for place, row in enumerate(saved):
        answer, half = float(row["answer"]), (float(row["high_95"]) - float(row["low_95"])) / 2
        text = rows.nth(place).text_content()
        assert row["series" if heat.locator("optgroup").first.locator("option").count() != len(saved) else "value"] in text
        value, spread = text.replace("\N{MINUS SIGN}", "-").replace(",", "").split(" ± ")
        assert value.endswith(f"{answer:.0f}")
        assert float(spread) == pytest.approx(half, abs=0.6)
    assert violations(incomes) == []
    view = heat.locator(".tools a").get_attribute("href")
    incomes.goto(incomes.url.split("#")[0])
    assert slices.is_hidden()
    incomes.goto(incomes.url.split("#")[0] + view)
    assert slices.locator("caption").text_content() == f"Occupation: {occupation}"
    heat.locator("select").select_option(index=0)
    assert slices.is_hidden()
    assert heat.locator(".chosen").count() == 0


def test_what_the_script_draws_is_what_was_printed(incomes: Any) -> None:
    """The script's marks, in the form in which Python drew them, lie where these lay."""
    for title in ("Income", "Cumulative Income by Region"):
        figure = chart(incomes, title)
        printed = figure.locator("svg.wide path.outline").first
        box = "one => { const b = one.getBBox(); return [b.x, b.y, b.width, b.height]; }"
        before, path = printed.evaluate(box), printed.get_attribute("d")
        figure.get_by_role("button", name="Interval as bars").click()
        assert printed.get_attribute("d") != path  # drawn anew
        assert printed.evaluate(box) == pytest.approx(before, abs=0.2)


@pytest.mark.parametrize("screen", always(["narrow"], ["wide", "narrow"]))
def test_small_charts_are_read_one_by_one(page: Any, tmp_path: Path, screen: str) -> None:
    """By pointer and by keys; intervals as bars and logarithms lie in each; the marks lie where they were printed."""
    page.set_viewport_size({"width": 1000 if screen == "wide" else 390, "height": 900})
    page.goto(gallery.write(tmp_path, "weeks").as_uri())
    figure = chart(page, "Week and Town")
    figure.scroll_into_view_if_needed()
    assert figure.locator("select").count() == 0
    data = json.loads(figure.locator("script").first.text_content())
    place = data["p"][screen == "narrow"]
    box = figure.locator(f"svg.{screen}").bounding_box()
    scale = box["width"] / float(figure.locator(f"svg.{screen}").get_attribute("viewBox").split()[2])
    for s, (dx, dy) in enumerate(place["offsets"]):
        middle = (place["x"][0] + place["x"][1]) / 2 + dx + 1, (place["y"][0] + place["y"][1]) / 2 + dy
        page.mouse.move(box["x"] + scale * middle[0], box["y"] + scale * middle[1])
        told = figure.locator(".tip").text_content()
        assert told.startswith(f"{data['x'][7]}, {data['s'][s]}")
        assert f"{data['v'][s][7]:.0f}".replace("-", "−") in told
        dot = figure.locator(f"svg.{screen} .here circle").bounding_box()
        assert (
            abs(dot["x"] + dot["width"] / 2 - box["x"] - scale * (middle[0] - 1))
            < scale * (place["x"][1] - place["x"][0]) / 14
        )
    figure.locator(".plot").focus()
    for key in ("Home", "ArrowDown", "ArrowDown"):  # from the last series on
        page.keyboard.press(key)
    assert data["s"][1] in figure.locator(".told").text_content()
    outlines = figure.locator(f"svg.{screen} path.outline")
    boxes = "all => all.map(one => { const b = one.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })"
    before = outlines.evaluate_all(boxes)
    figure.get_by_role("button", name="Interval as bars").click()
    assert np.allclose(outlines.evaluate_all(boxes), before, atol=0.3)
    assert figure.locator(f"svg.{screen} path.whisker").count() == 5
    figure.get_by_role("button", name="Log scale").click()
    rows = len({dx for dx, _ in place["offsets"]})
    named = [text for text in figure.locator(f"svg.{screen} g.scale text").all_text_contents() if text == "100"]
    assert len(named) == sum(dx == 0 for dx, _ in place["offsets"]) == -(-5 // rows)
    assert violations(page) == []


def test_charts_and_their_data_are_saved(incomes: Any, tmp_path: Path) -> None:
    region = chart(incomes, "Region")
    saved = {}
    for kind in ("SVG", "PNG", "CSV"):
        with incomes.expect_download() as begun:
            region.get_by_role("button", name=f"as {kind}").click()
        saved[kind] = tmp_path / begun.value.suggested_filename
        begun.value.save_as(saved[kind])
    assert [path.name for path in saved.values()] == ["made-up-region.svg", "made-up-region.png", "made-up-region.csv"]
    root = ElementTree.fromstring(saved["SVG"].read_text(encoding="utf-8"))
    text = " ".join(root.itertext())
    assert "var(--" in text
    assert "North" in text
    assert "Household incomes by region (made-up)" in text
    assert saved["PNG"].read_bytes().startswith(b"\x89PNG")
    assert saved["PNG"].stat().st_size > 10_000
    rows = list(csv.DictReader(io.StringIO(saved["CSV"].read_text(encoding="utf-8"))))
    assert [row["value"] for row in rows] == ["North", "South", "East", "West"]
    for row in rows:
        assert float(row["low_95"]) < float(row["answer"]) < float(row["high_95"])


def test_a_label_never_becomes_a_formula_or_markup_in_a_saved_file(page: Any, tmp_path: Path) -> None:
    path = gallery.write(tmp_path, "incomes")
    text = path.read_text(encoding="utf-8").replace('"North"', '"=1+\\u003cb>,\\"x"')
    path.write_text(text, encoding="utf-8")
    page.goto(path.as_uri())
    region = chart(page, "Region")
    with page.expect_download() as begun:
        region.get_by_role("button", name="as CSV").click()
    begun.value.save_as(tmp_path / "some.csv")
    first = next(csv.DictReader((tmp_path / "some.csv").open(encoding="utf-8")))
    assert first["value"] == "'=1+<b>,\"x"
    region.locator(".plot").focus()
    page.keyboard.press("ArrowDown")
    assert region.locator(".tip strong").text_content() == '=1+<b>,"x'
    assert region.locator(".tip b").count() == 0
