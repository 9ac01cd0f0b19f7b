"""Outlines on a grid: borders stay common, areas keep their sizes, a page can hold them; files that are no map are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.errors import InvalidInput
from dpdist.plugins.page.map_outlines import Boundaries, Ring, _projected, boundaries


def area(rings: tuple[Ring, ...]) -> float:
    """By the shoelace formula."""
    total = 0.0
    for ring in rings:
        x, y = np.array(ring, dtype=np.float64).T
        total += abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2
    return total


def jagged(points: int) -> list[tuple[float, float]]:
    """A border from south to north."""
    sides = 10 + np.random.default_rng(1).normal(0, 0.05, points)
    return list(zip(sides.tolist(), np.linspace(50, 52, points).tolist(), strict=True))


def file(folder: Path, features: list[tuple[Any, list[Any]]], kind: str = "Polygon") -> str:
    made = [
        {"type": "Feature", "properties": {"code": code}, "geometry": {"type": kind, "coordinates": rings}}
        for code, rings in features
    ]
    (folder / "map.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": made}))
    return "map.geojson"


def touching_regions(folder: Path, points: int) -> Boundaries:
    border = jagged(points)
    west, east = [(8, 50), *border, (8, 52), (8, 50)], [(12, 52), (12, 50), *border, (12, 52)]
    return boundaries(file(folder, [("w", [west]), ("e", [east])]), "code", ("w", "e", "far"), folder)


def test_what_two_areas_have_in_common_they_keep_in_common(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fine = touching_regions(tmp_path, 900)
    monkeypatch.setattr("dpdist.plugins.page.map_outlines.MOST_POINTS", 300)
    coarse = touching_regions(tmp_path, 900)
    sizes = []
    for found in (fine, coarse):
        areas = dict(found.areas)
        assert set(areas) == {"w", "e"}
        # nothing lies between them or in both: the grid is as large as the two
        assert area(areas["w"]) + area(areas["e"]) == pytest.approx(
            area((((0, 0), (found.size[0], 0), found.size, (0, found.size[1])),)), rel=0.02
        )
        west, east = ({point for ring in areas[name] for point in ring} for name in ("w", "e"))
        assert len(west & east) >= 0.8 * min(len(west), len(east))
        sizes.append(len(west))
    monkeypatch.setattr("dpdist.plugins.page.map_outlines.MOST_POINTS", 3)
    with pytest.raises(InvalidInput, match="give fewer"):
        touching_regions(tmp_path, 5)
    assert sizes[1] < 300 < sizes[0]


def test_an_area_that_is_too_small_is_a_dot() -> None:
    found = boundaries("countries", "", ("TTO", "CHN"), Path())
    assert {name: len(rings[0]) for name, rings in found.areas}["TTO"] == 4


def test_a_region_has_the_aspect_of_its_middle(tmp_path: Path) -> None:
    found = touching_regions(tmp_path, 5)
    assert found.size[0] / found.size[1] == pytest.approx(4 * np.cos(np.radians(51)) / 2, rel=0.02)


def box(west: float, east: float) -> list[list[tuple[float, float]]]:
    return [[(west, 50), (east, 50), (east, 54), (west, 54), (west, 50)]]


def test_areas_on_both_sides_of_180_degrees_lie_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As islands of Alaska do; but a map of areas all around the Earth, or of one that reaches over the gap, is cut at 180 degrees."""
    sides = [("w", box(172, 180)), ("e", box(-180, -170)), ("far", box(-150, -140))]
    found = boundaries(file(tmp_path, sides), "code", ("w", "e", "far"), tmp_path)
    across = {name: sorted(x for x, _ in rings[0]) for name, rings in found.areas}
    assert across["w"][-1] == across["e"][0]
    assert across["w"][0] == 0
    assert across["far"][-1] == pytest.approx(found.size[0], abs=1)
    assert found.size[0] / found.size[1] == pytest.approx(48 * np.cos(np.radians(52)) / 4, rel=0.05)
    over = boundaries(
        file(tmp_path, [*sides, ("over", box(-100, 100)), ("more", box(90, 110))]), "code", ("w", "over"), tmp_path
    )
    assert max(x for x, _ in dict(over.areas)["w"][0]) == over.size[0]
    monkeypatch.setattr("dpdist.plugins.page.map_outlines.LEAST_GAP", 350.0)
    cut = boundaries(file(tmp_path, sides), "code", ("w", "e", "far"), tmp_path)
    assert min(x for x, _ in dict(cut.areas)["w"][0]) > cut.size[0] * 0.9


def test_countries_keep_their_areas() -> None:
    """Square kilometres of the CIA's World Factbook: a map in degrees would show Greenland three times as large as Algeria."""
    true = {"GRL": 2_166, "DZA": 2_382, "BRA": 8_516, "CAN": 9_985, "IND": 3_287}
    areas = {name: area(rings) for name, rings in boundaries("countries", "", tuple(true), Path()).areas}
    for name, size in true.items():
        assert areas[name] / areas["DZA"] == pytest.approx(size / true["DZA"], rel=0.12), name


def test_a_degree_of_the_equator_has_its_area_and_north_is_above() -> None:
    (x, _), (_, y) = _projected(np.array([[1.0, 0.0], [0.0, 1.0]]), (-180, 180), (-90, 90))
    assert x * y == pytest.approx(np.radians(1) ** 2, rel=1e-4)
    areas = dict(boundaries("countries", "", ("CAN", "BRA"), Path()).areas)
    north, south = (np.mean([y for ring in areas[name] for _, y in ring]) for name in ("CAN", "BRA"))
    assert north < south


def test_countries_are_known_by_both_codes() -> None:
    long = boundaries("countries", "", ("FRA", "NOR", "XKX", "HKG"), Path())
    short = boundaries("countries", "", ("FR", "NO", "XK", "HK"), Path())
    assert {name for name, _ in long.areas} == {"FRA", "NOR", "XKX"}
    assert {name for name, _ in short.areas} == {"FR", "NO", "XK"}
    assert len(long.others) > 150


@pytest.mark.parametrize(
    ("features", "told"),
    [
        ([("a", [[(0, 0), (1, 0), (1, 1)]])], "no value of the attribute is on the map"),
        ([("w", [[(500000, 5000000), (500001, 5000000), (500001, 5000001)]])], "degrees"),
        ([("w", [])], "no value of the attribute is on the map"),
        ([("w", [[("x", 0), (1, 0), (1, 1)]])], "no GeoJSON"),
        ([("w", [[(0,), (1,), (1,)]])], "no GeoJSON"),
        ([("w", [[(0, 0), (float("nan"), 0), (1, 1)]])], "degrees"),
    ],
)
def test_files_that_are_no_map_are_refused_in_a_line(features: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=told) as refused:
        boundaries(file(tmp_path, features), "code", ("w",), tmp_path)
    assert "\n" not in str(refused.value)


def test_other_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text").write_text("[1, 2]")
    for name, told in (("missing", "cannot be read"), ("text", "no GeoJSON")):
        with pytest.raises(InvalidInput, match=told):
            boundaries(name, "code", ("w",), tmp_path)
    with pytest.raises(InvalidInput, match="ISO 3166-1"):
        boundaries("countries", "", ("Germany",), Path())
    monkeypatch.setattr("dpdist.plugins.page.map_outlines.FILE_BYTES", 10)
    with pytest.raises(InvalidInput, match="larger"):
        touching_regions(tmp_path, 5)
