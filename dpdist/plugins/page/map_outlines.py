"""Where the values of an attribute lie on a map: outlines of countries that come with dpdist, or of a user's GeoJSON file.

Points are rounded to a grid. Areas that have a border in common have its points in common, so that rounding opens no gap between them,
which the usual simplification, area by area, does.
"""

from __future__ import annotations

import importlib.resources
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.api import InvalidInput

COUNTRIES = "countries"
"""In place of a file: Natural Earth's countries at 1:110,000,000, in the public domain, by ISO 3166-1 (tools/countries.py)."""
FILE_BYTES = 2**26
MOST_POINTS = 6000
"""Points of all outlines together: a map of so many takes about 40 kB of a page."""
GRID_COLUMNS, GRID_ROWS = 1440, 1120
"""Most steps of the grid: half a pixel of a chart each, or more where there are many points."""
_WHOLE_EARTH = 90.0
"""Degrees of latitude beyond which a map is drawn in an equal-area projection of the Earth."""

LEAST_GAP = 30.0
"""Degrees of longitude without any area, from which on a map that reaches over 180 degrees is cut there instead."""

_Rings = list[NDArray[np.float64]]
Ring = tuple[tuple[int, int], ...]
Names = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Boundaries:
    """The areas of an attribute.

    Attributes:
        areas: the rings of each value that is on the map, in steps of a grid, downwards.
        others: rings of areas that are no value.
        size: of the grid, across and down.
        names: what values are called, by the code of a language; by an empty text in all languages.
    """

    areas: tuple[tuple[str, tuple[Ring, ...]], ...]
    others: tuple[Ring, ...]
    size: tuple[int, int]
    names: Names = field(default_factory=dict, hash=False)


def join_groups(boundaries: Boundaries, groups: Mapping[str, str]) -> Boundaries:
    """The areas of groups of values.

    Args:
        groups: the group of each value.
    """
    rings_by_group: dict[str, list[Ring]] = {}
    for name, rings in boundaries.areas:
        rings_by_group.setdefault(groups[name], []).extend(rings)
    return replace(boundaries, areas=tuple((group, _outline(rings)) for group, rings in rings_by_group.items()))


def boundaries(source: str, prop: str, values: Sequence[str], folder: Path) -> Boundaries:
    """The areas of some values.

    Args:
        source: ``countries``, or a GeoJSON file with polygons in degrees (WGS 84).
        prop: the property of its features that holds the value.
        values: of the attribute.
        folder: from which relative paths are taken.
    Raises: InvalidInput where there is no such file, or no value is on the map.
    """
    shapes, names = _countries(values) if source == COUNTRIES else _of_file(folder / source, prop)
    if not set(shapes) & set(values):
        cure = (
            "give ISO 3166-1 codes of 2 or 3 letters"
            if source == COUNTRIES
            else f"name the property that holds them, not {prop!r}"
        )
        raise InvalidInput(
            f"no value of the attribute is on the map {source!r}, which knows {', '.join(map(repr, list(shapes)[:3]))}; {cure}"
        )
    return replace(_on_grid(shapes, frozenset(values)), names=names)


def _countries(values: Sequence[str]) -> tuple[dict[str, _Rings], Names]:
    """All countries and their names, by the codes that the values are: of 2 letters or of 3."""
    text = importlib.resources.files("dpdist.plugins.page").joinpath("countries.json").read_text(encoding="utf-8")
    document = json.loads(text)
    code_index = int(max((len(value) for value in values), default=3) == 2)
    shapes = {
        name.split(" ")[code_index] if " " in name else name: [
            np.cumsum(np.array(ring, dtype=np.float64).reshape(-1, 2), axis=0) / document["units_per_degree"]
            for ring in rings
        ]
        for name, rings in document["shapes"].items()
    }
    names_by_code = {
        codes.split(" ")[code_index]: dict(zip(document["languages"], translations, strict=True))
        for codes, translations in document["names"].items()
    }
    return shapes, {
        language: {value: names_by_code[value][language] for value in values if value in names_by_code}
        for language in document["languages"]
    }


def _of_file(path: Path, prop: str) -> tuple[dict[str, _Rings], Names]:
    """The areas of a file, and their names where its features have a property ``name`` that tells them apart."""
    try:
        if path.stat().st_size > FILE_BYTES:
            raise InvalidInput(
                f"{path} is larger than {FILE_BYTES >> 20} MiB; a map needs no finer outlines than a simplified file has"
            )
        features = json.loads(path.read_bytes())["features"]
        shapes: dict[str, _Rings] = {}
        display_names: dict[str, str] = {}
        for feature in features:
            name = str(feature["properties"].get(prop))
            shapes.setdefault(name, []).extend(_rings(feature["geometry"] or {"type": None}))
            display_names[name] = str(feature["properties"].get("name") or name)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({error.strerror}); name a GeoJSON file beside the spec") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InvalidInput(f"{path} is no GeoJSON FeatureCollection of polygons") from None
    shapes = {name: rings for name, rings in shapes.items() if rings}
    far = np.max([np.abs(ring).max() for rings in shapes.values() for ring in rings], initial=0.0)
    if not far <= 360:  # also not a number
        raise InvalidInput(f"{path} holds coordinates of {far:,.0f}: write it in degrees (WGS 84, EPSG:4326)")
    return shapes, {"": display_names} if len(set(display_names.values())) == len(display_names) else {}


def _rings(geometry: Mapping[str, Any]) -> Iterator[NDArray[np.float64]]:
    """The rings of a polygon or of several, of at least three points."""
    kind = geometry["type"]
    polygons = {"Polygon": lambda: [geometry["coordinates"]], "MultiPolygon": lambda: geometry["coordinates"]}.get(
        kind, list
    )()
    for ring in (ring for polygon in polygons for ring in polygon):
        if len(ring) >= 3:
            yield np.array([(float(x), float(y)) for x, y, *_ in ring])


def _on_grid(shapes: Mapping[str, _Rings], values: frozenset[str]) -> Boundaries:
    """The outlines on the finest grid of which they take few enough points."""
    shapes = _join_at_antimeridian(shapes)
    all_points = np.concatenate([ring for rings in shapes.values() for ring in rings])
    (west, south), (east, north) = all_points.min(axis=0), all_points.max(axis=0)
    flat = {name: [_projected(ring, (west, east), (south, north)) for ring in rings] for name, rings in shapes.items()}
    points = np.concatenate([ring for rings in flat.values() for ring in rings])
    low, high = points.min(axis=0), points.max(axis=0)
    width, height = (float(extent) or 1.0 for extent in high - low)
    for coarser in (1, 2, 4, 8, 16):
        scale = min(GRID_COLUMNS / width, GRID_ROWS / height) / coarser
        drawn = {name: snap_to_grid([(ring - low) * scale for ring in rings]) for name, rings in flat.items()}
        if sum(len(ring) for rings in drawn.values() for ring in rings) <= MOST_POINTS:
            break
    else:
        raise InvalidInput(
            f"the map has {len(shapes):,} areas, more than can be told apart on a page; give fewer, such as those that are asked"
        )
    size = (math.ceil(width * scale), math.ceil(height * scale))
    turned = {name: tuple(tuple((x, size[1] - y) for x, y in ring) for ring in rings) for name, rings in drawn.items()}
    return Boundaries(
        tuple((name, rings) for name, rings in turned.items() if name in values),
        tuple(ring for name, rings in turned.items() if name not in values for ring in rings),
        size,
    )


def _join_at_antimeridian(shapes: Mapping[str, _Rings]) -> Mapping[str, _Rings]:
    """The areas without the widest gap between their longitudes: those on both sides of 180 degrees lie side by side."""
    rings = [ring for rings in shapes.values() for ring in rings]
    longitudes = np.unique(np.concatenate([ring[:, 0] % 360 for ring in rings]))
    gaps = np.diff(longitudes, append=longitudes[0] + 360)
    begin = longitudes[(int(gaps.argmax()) + 1) % len(longitudes)]
    wide = np.ptp(np.concatenate([ring[:, 0] for ring in rings]))
    if gaps.max() <= max(360 - wide, LEAST_GAP):
        return shapes
    turned = {
        name: [np.add(ring, ((ring[0, 0] - begin) % 360 + begin - ring[0, 0], 0)) for ring in rings]
        for name, rings in shapes.items()
    }
    all_longitudes = np.concatenate([ring[:, 0] for rings in turned.values() for ring in rings])
    return turned if np.ptp(all_longitudes) < wide else shapes  # areas that reach over the gap


def _projected(
    ring: NDArray[np.float64], longitude_range: tuple[float, float], latitude_range: tuple[float, float]
) -> NDArray[np.float64]:
    """Degrees as places on a plane: of much of the Earth in Equal Earth, of a region with the aspect of its middle.

    Source: Savric, Patterson & Jenny 2018, The Equal Earth map projection.
    """
    longitude, latitude = np.radians(ring).T
    if latitude_range[1] - latitude_range[0] <= _WHOLE_EARTH:
        return np.column_stack((longitude * math.cos(math.radians(sum(latitude_range) / 2)), latitude))
    t = np.arcsin(math.sqrt(3) / 2 * np.sin(latitude))
    a1, a2, a3, a4 = 1.340264, -0.081106, 0.000893, 0.003796
    slope = a1 + 3 * a2 * t**2 + t**6 * (7 * a3 + 9 * a4 * t**2)
    middle = math.radians(sum(longitude_range) / 2)
    x = 2 * math.sqrt(3) * (longitude - middle) * np.cos(t) / (3 * slope)
    return np.column_stack((x, t * (a1 + a2 * t**2 + t**6 * (a3 + a4 * t**2))))


def snap_to_grid(rings: Sequence[NDArray[np.float64]]) -> tuple[Ring, ...]:
    """The rings of an area on the grid of whole numbers; of an area that is too small for it, a dot.

    Args:
        rings: (points, 2) each, in steps of the grid.
    """
    grid_rings = tuple(filter(None, map(_rounded, rings)))
    if grid_rings or not rings:
        return grid_rings
    x, y = (int(coordinate) for coordinate in np.rint(rings[0].mean(axis=0)))
    return (((x - 1, y), (x, y - 1), (x + 1, y), (x, y + 1)),)


def _outline(rings: Sequence[Ring]) -> tuple[Ring, ...]:
    """The outlines of areas together: steps of the grid that border two of them are left out."""
    edges: set[tuple[tuple[int, int], tuple[int, int]]] = set()
    for ring in rings:
        for (x, y), (next_x, next_y) in pairwise((*ring, ring[0])):
            steps = math.gcd(next_x - x, next_y - y)
            step_x, step_y = (next_x - x) // max(1, steps), (next_y - y) // max(1, steps)
            points = [(x + k * step_x, y + k * step_y) for k in range(steps + 1)]
            edges ^= {(min(pair), max(pair)) for pair in pairwise(points)}
    neighbours: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for begin, end in sorted(edges):
        neighbours.setdefault(begin, []).append(end)
        neighbours.setdefault(end, []).append(begin)
    outlines = []
    for start, ends in neighbours.items():
        while ends:
            walk = [start]
            while len(walk) == 1 or walk[-1] != start:
                walk.append(neighbours[walk[-1]].pop())
                neighbours[walk[-1]].remove(walk[-2])
            outlines.append(_rounded(np.array(walk)))
    return tuple(filter(None, outlines))


def _rounded(points: NDArray[np.float64]) -> Ring:
    """A ring without points that lie on one place or on a straight line; empty where nothing of it is left."""
    grid = [(int(x), int(y)) for x, y in np.rint(points)]
    grid = [grid[0], *(point for before, point in pairwise(grid) if point != before)]
    if len(grid) > 1 and grid[-1] == grid[0]:
        grid.pop()
    around = zip([grid[-1], *grid[:-1]], grid, [*grid[1:], grid[0]], strict=True)
    corners = tuple(
        here
        for before, here, after in around
        if (before[0] - here[0]) * (after[1] - here[1]) != (before[1] - here[1]) * (after[0] - here[0])
    )
    return corners if len(corners) >= 3 else ()
