"""Maps on the page: by eye, by mouse, by keyboard, without scripts; and in a release, where they change nothing that was asked."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.errors import DpdistError
from dpdist.plugins.page.map_outlines import Boundaries, boundaries, join_groups
from dpdist.spec import load
from tests.page.browsing import browser, page, shown, unfolded
from tests.plugins.page import gallery
from tests.support import small_release

__all__ = ["browser", "page"]  # fixtures

SQUARES = {
    "type": "FeatureCollection",
    "features": [
        {
            "type": "Feature",
            "properties": {"code": code},
            "geometry": {"type": "Polygon", "coordinates": [[[x, 50], [x + 1, 50], [x + 1, 51], [x, 51], [x, 50]]]},
        }
        for x, code in enumerate("abz")
    ],
}
OUTLINES = {"file": "squares.geojson", "property": "code"}


@pytest.fixture(scope="module")
def births(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gallery.write(tmp_path_factory.mktemp("births"), "births")


def frames(found: Any) -> tuple[Any, Any]:
    """The map of all years and that of single ones."""
    one, several = unfolded(found).locator("figure.chart:has(use)").all()
    return one, several


def test_a_map_says_its_values_to_mouse_and_keyboard(births: Path, page: Any) -> None:
    page.goto(births.as_uri())
    one, _ = frames(page)
    data = json.loads(one.locator("script").first.text_content())
    row = data["x"].index("Canada")
    area = one.locator(f"svg.wide g.marks use[href$='-{row}']")
    area.dispatch_event("pointermove")  # its box is a wide one: the middle may be water
    told = one.locator(".tip").text_content()
    assert told.startswith("Canada")
    assert f"{data['v'][0][row]:,.0f}" in told
    assert "95 % interval" in told
    one.locator(".plot").focus()
    page.keyboard.press("Home")
    assert one.locator(".tip strong").text_content() == "United States"
    assert one.locator("svg.wide .here use").count() == 1
    page.keyboard.press("ArrowDown")
    assert one.locator("p.told").text_content().startswith("Canada: ")
    assert "Hong Kong SAR China" not in data["x"]
    assert "Not on the map: Hong Kong SAR China" in one.locator("figcaption").text_content()


def test_areas_that_noise_may_have_made_are_hatched(births: Path, page: Any) -> None:
    page.goto(births.as_uri())
    _, several = frames(page)
    data = json.loads(several.locator("script").first.text_content())
    low = np.array(data["v"]) - np.array(data["h"])
    assert ((np.array(data["k"]) < 0) == (low <= 0)).all()
    assert (low <= 0).any()
    panels = several.locator("svg.wide g.marks > g").all()
    for frame, panel in zip(data["p"][0]["shown"], panels, strict=True):
        colours = panel.locator("use").evaluate_all("all => all.map(one => one.getAttribute('class'))")
        assert colours[1:] == [None if k < 0 else f"h{k}" for k in data["k"][frame]]
        assert panel.locator("use[fill^='url']").count() == int((low[frame] <= 0).sum())


def test_a_slider_moves_through_the_years(births: Path, page: Any) -> None:
    page.goto(births.as_uri())
    _, several = frames(page)
    slider, panels = several.locator("input[type=range]"), several.locator("svg.wide g.marks > g")
    assert panels.count() == 12
    assert several.locator("output").text_content() == "side by side"
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert panels.count() == 1
    assert several.locator("output").text_content() == slider.get_attribute("aria-valuetext") == "2012"
    data = json.loads(several.locator("script").first.text_content())
    colours = [use.get_attribute("class") for use in several.locator("svg.wide g.marks use").all()]
    assert colours[1:] == [None if k < 0 else f"h{k}" for k in data["k"][1]]
    several.locator(".plot").focus()
    page.keyboard.press("Home")
    assert several.locator(".tip strong").text_content() == "United States, 2012"
    link = several.locator(".tools a").evaluate("one => one.href")
    slider.focus()
    page.keyboard.press("Home")
    assert panels.count() == 12
    page.goto(link)
    assert frames(page)[1].locator("output").text_content() == "2012"
    with page.expect_download() as saved:
        frames(page)[1].locator("button[aria-label$='as SVG']").click()
    text = Path(saved.value.path()).read_text()
    ids = set(re.findall(r' id="([^"]+)"', text))
    assert set(re.findall(r'href="#([^"]+)"', text)) | set(re.findall(r"url\(#(m[^)]+)\)", text)) <= ids


def test_without_scripts_years_stand_side_by_side(births: Path, browser: Any) -> None:
    found = shown(browser, births, "phone", java_script_enabled=False)
    _, several = frames(found)
    assert several.locator("svg.narrow g.marks > g:visible").count() == 12
    assert several.locator("input").count() == 0
    assert "Side by side are 12 of 14" in several.locator("figcaption").text_content()
    found.context.close()


def test_a_page_with_maps_of_the_world_stays_small(births: Path) -> None:
    assert births.stat().st_size < 300_000
    assert births.read_text().count("use href") < 1000


def spec_of(folder: Path, **given: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "squares.geojson").write_text(json.dumps(SQUARES))
    domain = {**small_release.spec()["domain"], "work": {"categories": ["a", "b", "c"], **given}}
    return small_release.write(folder, domain=domain)


def test_a_release_draws_the_boundaries_that_its_user_gives(tmp_path: Path, home: Path) -> None:
    plain, drawn = load(spec_of(tmp_path / "plain")), load(spec_of(tmp_path / "drawn", map=OUTLINES))
    assert plain.digest == drawn.digest
    text = (small_release.run(spec_of(tmp_path / "drawn", map=OUTLINES), home).folder / "index.html").read_text()
    assert text.count("Not on the map: c; the table has them.") == 3  # alone, by age, by sex
    assert text.count("Areas without a colour are not in the release.") == 3
    assert len(re.findall(r'<path id="m\w+-\d+" class="shape"', text)) == 2  # which all maps share, of both widths


def test_a_level_has_a_map_where_its_values_have(tmp_path: Path, home: Path) -> None:
    levels = {"side": {"west": ["a"], "middle": ["b"], "east": ["c"]}}
    spec_of(tmp_path)
    domain = {**small_release.spec()["domain"], "work": {"categories": ["a", "b", "c"], "map": OUTLINES, "levels": levels}}
    asked = small_release.write(tmp_path, domain=domain, workload=[{"marginals": {"of": [["side"], ["work"]]}}])
    text = (small_release.run(asked, home).folder / "index.html").read_text()
    assert text.count("Not on the map: east; the table has them.") == 1
    assert len(re.findall(r'<path id="m\w+-\d+" class="shape"', text)) == 2 + 2  # shared by both widths


def inside(rings: Any, x: float, y: float) -> bool:
    """Whether a point lies within the rings, by the parity of what a ray crosses."""
    sides = [pair for ring in rings for pair in pairwise((*ring, ring[0]))]
    return sum((a[1] > y) != (b[1] > y) and x < (b[0] - a[0]) * (y - a[1]) / (b[1] - a[1]) + a[0] for a, b in sides) % 2 == 1


@pytest.mark.slow
def test_groups_of_areas_cover_what_their_areas_cover_without_borders_between_them() -> None:
    codes = [code for code, _ in boundaries("countries", "", ["FRA"], Path()).areas]
    assert codes == ["FRA"]
    countries = ["FRA", "DEU", "BEL", "NLD", "CHE", "AUT", "ITA", "USA", "CAN", "MEX"]
    shapes = boundaries("countries", "", countries, Path())
    groups = {code: "America" if code in ("USA", "CAN", "MEX") else "Europe" for code in countries}
    joined = dict(join_groups(shapes, groups).areas)
    assert set(joined) == {"America", "Europe"}
    drawn = np.random.default_rng(7)
    for x, y in drawn.uniform((0, 0), shapes.size, (2000, 2)):
        for group, rings in joined.items():
            among = sum(inside(found, x, y) for code, found in shapes.areas if groups[code] == group)
            assert inside(rings, x, y) == (among % 2 == 1)
    points = sum(len(ring) for rings in joined.values() for ring in rings)
    assert points < 0.8 * sum(len(ring) for _, rings in shapes.areas for ring in rings)
    square = {"a": "one", "b": "one"}
    two = Boundaries(
        (("a", (((0, 0), (4, 0), (4, 4), (0, 4)),)), ("b", (((4, 4), (4, 2), (4, 0), (8, 0), (8, 4)),))), (), (8, 4)
    )
    assert [{*ring} for ring in join_groups(two, square).areas[0][1]] == [{(0, 0), (8, 0), (8, 4), (0, 4)}]


def test_maps_that_cannot_be_drawn_are_refused_before_the_charge(tmp_path: Path) -> None:
    for given, told in (
        ("countries", "ISO 3166-1"),
        ({**OUTLINES, "property": "name"}, "name the property that holds them"),
        ({**OUTLINES, "file": "none.geojson"}, "cannot be read"),
        ("squares.geojson", "map"),
    ):
        with pytest.raises(DpdistError, match=told):
            load(spec_of(tmp_path, map=given))
