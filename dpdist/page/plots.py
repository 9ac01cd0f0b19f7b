"""A chart as a page holds it: two SVGs, a caption, and its numbers for the page's script."""

from __future__ import annotations

import math
from typing import Any

from dpdist.page import charts
from dpdist.page.assets import embedded
from dpdist.page.charts.figure import Figure


def plot(figure: Figure, subtitle: str, release: str, source: str, counted: str, *, biased: bool = False) -> dict[str, Any]:
    """A chart for the templates: its SVGs, its caption, and its numbers for the script."""
    wide, narrow = (charts.draw(figure, width) for width in (charts.WIDE, charts.NARROW))
    caption = [figure.note]
    if biased or math.isnan(float(figure.half.max())):
        caption.append("No intervals are known for these answers.")
    elif (figure.half > 0).any():
        caption.append(
            {"bars": "Lines at the ends of bars are 95 % intervals.", "heat": ""}.get(figure.kind, "Shaded: 95 % intervals.")
        )
    axis = figure.axis
    if axis.clock is not None and axis.edges is not None:
        labels = [axis.clock.text(float(edge)) for edge in axis.edges[: len(axis.labels)]]
    else:
        before = f"{axis.title.split(' (')[0]} " if axis.edges is not None and not axis.named else ""
        labels = [f"{before}{label}" for label in axis.labels]
    data: dict[str, Any] = {
        "kind": figure.kind,
        "title": f"{figure.title}, {subtitle}" if subtitle else figure.title,
        "group": figure.title,
        "release": release,
        "source": f"{source} ({release}), differentially private",
        "counted": counted,
        "x": labels,
        "s": list(figure.series),
        "v": figure.values.T.tolist(),
        "h": [[None if math.isnan(half) else half for half in column] for column in figure.half.T.tolist()],
        "b": [end if math.isfinite(end) else None for end in figure.ends],
        "p": [_rounded(drawn.places) for drawn in (wide, narrow)],
        "filled": figure.filled,
    }
    if axis.edges is not None:
        data["e"] = axis.edges.tolist() if figure.kind == "steps" else axis.edges[:-1].tolist()
    if figure.across is not None:
        data["t"] = [axis.title, figure.across.title]
    if figure.widths is not None:
        data["w"] = figure.widths.tolist()
    return {
        "subtitle": subtitle,
        "caption": " ".join(filter(None, caption)),
        "wide": wide.svg,
        "narrow": narrow.svg,
        "data": embedded(data),
    }


def _rounded(places: dict[str, Any]) -> dict[str, Any]:
    def few(value: Any) -> Any:
        return [few(item) for item in value] if isinstance(value, list | tuple) else round(float(value), 2)

    return {name: value if name in ("scale", "domain") else few(value) for name, value in places.items()}
