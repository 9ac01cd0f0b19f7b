"""Areas on a map, in the classes of a heat map: one map, or small ones side by side, of which the page's script shows one at a time."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

import numpy as np

from dpdist.domain.map_boundaries import Ring
from dpdist.operators import Matrix
from dpdist.page.charts.chart_data import Figure
from dpdist.page.charts.heat_map import classes_of, hatching, legend_of, limits_of
from dpdist.page.charts.svg_frame import NARROW, Drawn, framed, group
from dpdist.page.charts.text_layout import LINE, at

MOST_PANELS = 12
"""Small maps side by side; of more frames some are picked, evenly."""
GAP = 14
MOST_TALL = 560


def maps(figure: Figure, across: int) -> Drawn:
    """The chart, and where its maps are: ``shown`` frames at ``panels`` (x, y, scale), ``large`` one alone, ``at`` the middle of areas."""
    outlines = figure.outlines
    assert outlines is not None
    narrow, count = across == NARROW, len(figure.series)
    limits = limits_of(figure)
    classes = classes_of(figure, limits)
    shapes = "".join(f'<path id="{{name}}-{i}" class="shape" d="{_path(rings)}"/>' for i, rings in enumerate(outlines.areas))
    shapes += f'<path id="{{name}}-x" class="shape" d="{_path(outlines.others)}"/>'
    name = f"m{zlib.crc32(shapes.encode()):x}"
    hatched = f"{name}{zlib.crc32(figure.title.encode()):x}{'n' if narrow else 'w'}"
    head, top = legend_of(figure, limits, across)
    wide, tall = outlines.size
    large = min(across / wide, MOST_TALL / tall)
    shown = np.unique(np.linspace(0, count - 1, min(count, MOST_PANELS)).round().astype(int)).tolist()
    columns = 1 if count == 1 else min(len(shown), 2 if narrow else 4)
    scale = min(large, ((across + GAP) / columns - GAP) / wide)
    down = scale * tall + (LINE + 6 if count > 1 else 0) + GAP
    marks, panels = [], []
    for k, frame in enumerate(shown):
        x, y = (k % columns) * (across + GAP) / columns, top + k // columns * down
        if count > 1:
            marks.append(at(x, y + 12, figure.series[frame], room=across / columns - GAP, most=1))
            y += LINE + 2
        panels.append([round(x, 1), round(y, 1), round(scale, 4)])
        marks.append(_panel((name, hatched), classes[:, frame], (x, y, scale)))
    bottom = top + -(-len(shown) // columns) * down - GAP + 4
    defs = f'<defs id="{name}">{shapes.replace("{name}", name)}</defs>'
    patterns = hatching("nn" if narrow else "nw") + hatching(f"{hatched}h", scale) + hatching(f"{hatched}l", large)
    middles = [np.array(max(rings, key=len)).mean(axis=0).tolist() for rings in outlines.areas]
    places = {
        "shown": shown,
        "panels": panels,
        "large": [0, round(top, 1), round(large, 4)],
        "at": middles,
        "tall": [bottom, top + large * tall],
    }
    return Drawn(
        framed(figure, across, bottom, [*head, defs, patterns, group("marks", marks)]),
        {"name": name, "hatch": hatched, **places},
    )


def without_shapes(svgs: Iterable[str]) -> list[str]:
    """The charts of a page, in its order: shapes stand in the first one that has them, and the others refer to it."""
    seen: set[str] = set()

    def first(found: re.Match[str]) -> str:
        known = found[1] in seen
        seen.add(found[1])
        return "" if known else found[0]

    return [re.sub(r'<defs id="(\w+)">.*?</defs>', first, svg, flags=re.DOTALL) for svg in svgs]


def _panel(names: tuple[str, str], classes: Matrix, place: tuple[float, float, float]) -> str:
    """One map: the areas by their classes, above those that have no value."""
    (x, y, scale), (name, hatched) = place, names
    uses = [
        f'<use href="#{name}-{i}" ' + (f'fill="url(#{hatched}h)"/>' if k < 0 else f'class="h{k}"/>')
        for i, k in enumerate(classes)
    ]
    return f'<g transform="translate({x:.1f} {y:.1f}) scale({scale:.4f})"><use href="#{name}-x" class="other"/>{"".join(uses)}</g>'


def _path(rings: tuple[Ring, ...]) -> str:
    """Rings as a path of relative steps, which take fewer letters."""
    parts = []
    for ring in rings:
        pairs = np.diff(np.array(ring), axis=0).tolist()
        parts.append(
            f"M{ring[0][0]} {ring[0][1]}l" + "".join(f"{_signed(dx)}{_signed(dy)}" for dx, dy in pairs).lstrip() + "z"
        )
    return "".join(parts)


def _signed(number: int) -> str:
    return f"{number}" if number < 0 else f" {number}"
