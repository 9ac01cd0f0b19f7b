"""Areas on a map, in the classes of a heat map: one map, or small ones side by side, of which the page's script shows one at a time."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

import numpy as np

from dpdist.api.pages import Matrix
from dpdist.plugins.page.charts.chart_data import Figure
from dpdist.plugins.page.charts.heat_map import cell_classes, class_limits, draw_class_legend, hatch_pattern
from dpdist.plugins.page.charts.svg_frame import NARROW, RenderedChart, svg_document, svg_group
from dpdist.plugins.page.charts.text_layout import LINE_HEIGHT, svg_text
from dpdist.plugins.page.map_outlines import Ring

MOST_PANELS = 12
"""Small maps side by side; of more frames some are picked, evenly."""
GAP = 14
MOST_HEIGHT = 560


def draw_maps(figure: Figure, chart_width: int) -> RenderedChart:
    """The chart, and where its maps are: ``shown`` frames at ``panels`` (x, y, scale), ``large`` one alone, ``at`` the middle of areas."""
    outlines = figure.outlines
    assert outlines is not None
    narrow, count = chart_width == NARROW, len(figure.series)
    limits = class_limits(figure)
    classes = cell_classes(figure, limits)
    shapes = "".join(f'<path id="{{name}}-{i}" class="shape" d="{_path(rings)}"/>' for i, rings in enumerate(outlines.areas))
    shapes += f'<path id="{{name}}-x" class="shape" d="{_path(outlines.other_areas)}"/>'
    name = f"m{zlib.crc32(shapes.encode()):x}"
    hatched = f"{name}{zlib.crc32(figure.title.encode()):x}{'n' if narrow else 'w'}"
    head, top = draw_class_legend(figure, limits, chart_width)
    grid_width, grid_height = outlines.size
    large = min(chart_width / grid_width, MOST_HEIGHT / grid_height)
    shown = np.unique(np.linspace(0, count - 1, min(count, MOST_PANELS)).round().astype(int)).tolist()
    columns = 1 if count == 1 else min(len(shown), 2 if narrow else 4)
    scale = min(large, ((chart_width + GAP) / columns - GAP) / grid_width)
    row_height = scale * grid_height + (LINE_HEIGHT + 6 if count > 1 else 0) + GAP
    marks, panels = [], []
    for k, frame in enumerate(shown):
        x, y = (k % columns) * (chart_width + GAP) / columns, top + k // columns * row_height
        if count > 1:
            marks.append(svg_text(x, y + 12, figure.series[frame], max_width=chart_width / columns - GAP, max_lines=1))
            y += LINE_HEIGHT + 2
        panels.append([round(x, 1), round(y, 1), round(scale, 4)])
        marks.append(_panel((name, hatched), classes[:, frame], (x, y, scale)))
    bottom = top + -(-len(shown) // columns) * row_height - GAP + 4
    defs = f'<defs id="{name}">{shapes.replace("{name}", name)}</defs>'
    patterns = (
        hatch_pattern("nn" if narrow else "nw") + hatch_pattern(f"{hatched}h", scale) + hatch_pattern(f"{hatched}l", large)
    )
    middles = [np.array(max(rings, key=len)).mean(axis=0).tolist() for rings in outlines.areas]
    positions = {
        "shown": shown,
        "panels": panels,
        "large": [0, round(top, 1), round(large, 4)],
        "at": middles,
        "tall": [bottom, top + large * grid_height],
    }
    return RenderedChart(
        svg_document(figure, chart_width, bottom, [*head, defs, patterns, svg_group("marks", marks)]),
        {"name": name, "hatch": hatched, **positions},
    )


def without_shapes(svgs: Iterable[str]) -> list[str]:
    """The charts of a page, in its order: shapes stand in the first one that has them, and the others refer to it."""
    defined_names: set[str] = set()

    def drop_repeated(match: re.Match[str]) -> str:
        is_defined = match[1] in defined_names
        defined_names.add(match[1])
        return "" if is_defined else match[0]

    return [re.sub(r'<defs id="(\w+)">.*?</defs>', drop_repeated, svg, flags=re.DOTALL) for svg in svgs]


def _panel(names: tuple[str, str], classes: Matrix, transform: tuple[float, float, float]) -> str:
    """One map: the areas by their classes, above those that have no value."""
    (x, y, scale), (name, hatched) = transform, names
    uses = [
        f'<use href="#{name}-{i}" ' + (f'fill="url(#{hatched}h)"/>' if k < 0 else f'class="h{k}"/>')
        for i, k in enumerate(classes)
    ]
    return f'<g transform="translate({x:.1f} {y:.1f}) scale({scale:.4f})"><use href="#{name}-x" class="other"/>{"".join(uses)}</g>'


def _path(rings: tuple[Ring, ...]) -> str:
    """Rings as a path of relative steps, which take fewer letters."""
    ring_paths = []
    for ring in rings:
        pairs = np.diff(np.array(ring), axis=0).tolist()
        ring_paths.append(
            f"M{ring[0][0]} {ring[0][1]}l" + "".join(f"{_signed(dx)}{_signed(dy)}" for dx, dy in pairs).lstrip() + "z"
        )
    return "".join(ring_paths)


def _signed(number: int) -> str:
    return f"{number}" if number < 0 else f" {number}"
