"""A chart as a page holds it: two SVGs, a caption, and its numbers for the page's script."""

from __future__ import annotations

import math
from typing import Any

from dpdist.api.pages import digits_for, format_number, say
from dpdist.plugins.page import charts
from dpdist.plugins.page.assets import embed_json
from dpdist.plugins.page.charts.chart_data import Figure
from dpdist.plugins.page.charts.heat_map import cell_classes, class_limits
from dpdist.plugins.page.charts.line_chart import has_panels

THINNEST_VISIBLE = 0.025
"""Intervals of so small a part of a chart's height cannot be seen beside its lines."""


def embed_chart(figure: Figure, subtitle: str, release: str, source: str, counted: str) -> dict[str, Any]:
    """A chart for the templates: its SVGs, its caption, and its numbers for the script."""
    wide, narrow = (charts.draw(figure, width) for width in (charts.WIDE, charts.NARROW))
    caption = [figure.note, interval_caption(figure)]
    axis = figure.axis
    if axis.clock is not None:
        labels = axis.names
    else:
        before = f"{axis.title.split(' (')[0]} " if axis.edges is not None and not axis.named else ""
        labels = [f"{before}{label}" for label in axis.labels]
    data: dict[str, Any] = {
        "kind": figure.kind,
        "title": ", ".join(filter(None, [figure.heading, subtitle])),
        "group": figure.title,
        "release": release,
        "source": say("{source} ({release}), differentially private", source=source, release=release),
        "counted": counted,
        "x": labels,
        "s": list(figure.series),
        "v": figure.values.T.tolist(),
        "h": [
            _collapse_constant([None if math.isnan(half) else half for half in column]) for column in figure.half.T.tolist()
        ],
        "b": [end if math.isfinite(end) else None for end in figure.ends],
        "p": [_round_positions(svg_chart.positions) for svg_chart in (wide, narrow)],
        "filled": figure.filled,
    }
    if figure.sides is not None:
        data["r"] = [side_values.T.tolist() for side_values in figure.sides]
    if figure.dots:
        data["dots"] = True
    if axis.edges is not None:
        edges = (axis.edges if figure.kind == "steps" else axis.edges[:-1]).tolist()
        data["e"] = [int(edge) if edge.is_integer() else edge for edge in edges]
    if figure.outlines is not None:
        data["k"] = cell_classes(figure, class_limits(figure)).T.tolist()
    if figure.column_axis is not None:
        data["t"] = [axis.title, figure.column_axis.title]
    if figure.widths is not None:
        data["w"] = figure.widths.tolist()
    return {
        "subtitle": subtitle,
        "caption": " ".join(filter(None, caption)),
        "wide": wide.svg,
        "narrow": narrow.svg,
        "data": embed_json(data),
    }


def _collapse_constant(column: list[float | None]) -> list[float | None]:
    """A column of one number as that number alone."""
    return column[:1] if len(set(column)) == 1 else column


def interval_caption(figure: Figure) -> str:
    """How a chart shows its intervals, and how wide they are where a curve hides them."""
    if math.isnan(float(figure.half.max())):
        return say("No intervals are known for these answers.")
    if not (figure.half > 0).any() or figure.kind in ("heat", "map"):
        return ""
    if figure.kind == "bars":
        return say("Lines are 95 % intervals." if figure.dots else "Lines at the ends of bars are 95 % intervals.")
    low, high = figure.reach
    thin = 3 * THINNEST_VISIBLE if has_panels(figure) else THINNEST_VISIBLE  # small charts are a third as tall
    if 2 * float(figure.spreads.max()) < thin * (max(0.0, high) - min(0.0, low)):
        widest = float(figure.half.max())
        widest_text = format_number(widest, digits_for(widest))
        return say("95 % intervals are hardly wider than the lines: ± {most} at most.", most=widest_text)
    return say("Shaded: 95 % intervals.")


def _round_positions(positions: dict[str, Any]) -> dict[str, Any]:
    def few(value: Any) -> Any:
        return [few(item) for item in value] if isinstance(value, list | tuple) else round(float(value), 2)

    return {
        name: value if name in ("scale", "domain", "name", "hatch", "shown", "panels", "large") else few(value)
        for name, value in positions.items()
    }
