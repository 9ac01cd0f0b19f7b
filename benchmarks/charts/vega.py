"""The four charts by Vega-Lite, compiled to SVG by vl-convert (Vega in one wheel, without node): see compare.py."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import vl_convert

HATCH = "url(#hatch)"
CONFIG = {
    "background": None,
    "font": "system-ui, sans-serif",
    "axis": {
        "labelColor": "var(--ink)",
        "titleColor": "var(--soft)",
        "gridColor": "var(--line)",
        "domainColor": "var(--axis)",
        "tickColor": "var(--axis)",
        "labelFontSize": 13,
        "titleFontSize": 13,
        "labelLimit": 230,
    },
    "legend": {"labelColor": "var(--ink)", "titleColor": "var(--soft)", "labelFontSize": 13, "titleFontSize": 13},
    "view": {"stroke": None},
}


def spec(chart: dict[str, Any], width: int) -> dict[str, Any]:
    made = {"bars": bars, "steps": steps, "heat": heat}.get(chart["kind"], areas)
    return made(chart, width)


def classes(chart: dict[str, Any], width: int) -> dict[str, Any]:
    """Colours by class, with their legend."""
    shades = [HATCH, *(f"var(--h{k})" for k in range(7))]
    return {
        "field": "kind",
        "type": "ordinal",
        "scale": {"domain": list(range(-1, 7)), "range": shades},
        "legend": {
            "title": chart["measure"],
            "orient": "top",
            "columns": 8 if width > 400 else 4,
            "labelExpr": labels(chart["limits"]),
        },
    }


def bars(chart: dict[str, Any], width: int) -> dict[str, Any]:
    name = {"field": "name", "type": "nominal", "sort": None, "title": None}
    value = {"field": "value", "type": "quantitative", "title": chart["measure"]}
    layers = [
        {"mark": {"type": "bar", "color": "var(--c0)"}, "encoding": {"x": value}},
        {
            "mark": {"type": "errorbar", "ticks": True, "color": "var(--ink)"},
            "encoding": {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}},
        },
        {
            "mark": {"type": "text", "align": "left", "dx": 6, "color": "var(--ink)", "fontSize": 13},
            "encoding": {"x": {"field": "high", "type": "quantitative"}, "text": {"field": "value", "format": ",.0f"}},
        },
    ]
    return {
        "data": {"values": chart["rows"]},
        "width": width,
        "height": {"step": 28},
        "autosize": FIT,
        "encoding": {"y": name},
        "layer": layers,
    }


def steps(chart: dict[str, Any], width: int) -> dict[str, Any]:
    edges = chart["edges"]
    at = {row["name"]: edges[k] for k, row in enumerate(chart["rows"][:: len({r["series"] for r in chart["rows"]})])}
    rows = [{**row, "at": at[row["name"]]} for row in chart["rows"]]
    rows += [{**row, "at": edges[-1]} for row in rows if row["at"] == edges[-2]]
    x = {"field": "at", "type": "quantitative", "title": chart["axis"], "axis": {"grid": False}}
    colour = {
        "field": "series",
        "type": "nominal",
        "title": None,
        "scale": {"range": ["var(--c0)", "var(--c1)"]},
        "legend": {"orient": "top"},
    }
    layers = [
        {
            "mark": {"type": "area", "interpolate": "step-after", "opacity": 0.42},
            "encoding": {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}},
        },
        {
            "mark": {"type": "line", "interpolate": "step-after"},
            "encoding": {"y": {"field": "value", "type": "quantitative", "title": chart["measure"]}},
        },
    ]
    return {
        "data": {"values": rows},
        "width": width,
        "height": 260,
        "autosize": FIT,
        "encoding": {"x": x, "color": colour},
        "layer": layers,
    }


def heat(chart: dict[str, Any], width: int) -> dict[str, Any]:
    x = {
        "field": "series",
        "type": "nominal",
        "sort": None,
        "title": None,
        "axis": {"orient": "top", "labelAngle": 0 if width > 400 else -90},
    }
    y = {"field": "name", "type": "nominal", "sort": None, "title": chart["axis"]}
    mark = {"mark": {"type": "rect", "stroke": "var(--paper)"}, "encoding": {"color": classes(chart, width)}}
    return {
        "data": {"values": chart["rows"]},
        "width": width,
        "height": {"step": 24},
        "autosize": FIT,
        "encoding": {"x": x, "y": y},
        "layer": [mark],
    }


def areas(chart: dict[str, Any], width: int) -> dict[str, Any]:
    features = [feature(rings, row) for rings, row in zip(chart["areas"], chart["rows"], strict=True)]
    others = [feature(chart["others"], {"name": "", "kind": 7})]
    projection = {"type": "identity", "reflectY": False}
    layers = [
        {
            "data": {"values": others},
            "mark": {"type": "geoshape", "fill": None, "stroke": "var(--line)"},
            "projection": projection,
        },
        {
            "data": {"values": features},
            "mark": {"type": "geoshape", "stroke": "var(--paper)", "strokeWidth": 0.8},
            "projection": projection,
            "encoding": {"color": {**classes(chart, width), "field": "properties.kind"}},
        },
    ]
    return {"width": width, "height": round(width * chart["size"][1] / chart["size"][0]), "autosize": FIT, "layer": layers}


FIT = {"type": "fit", "contains": "padding"}


def feature(rings: list[Any], row: dict[str, Any]) -> dict[str, Any]:
    polygons = [[[*ring, ring[0]]] for ring in rings]
    return {"type": "Feature", "properties": row, "geometry": {"type": "MultiPolygon", "coordinates": polygons}}


def labels(limits: list[float]) -> str:
    texts = ["may be noise", *(f"from {limit:,.0f}" for limit in [0, *limits[:-1]])]
    return f"{json.dumps(texts)}[datum.value + 1]"


def main() -> None:
    folder = Path(sys.argv[1])
    charts = json.loads((folder / "charts.json").read_text(encoding="utf-8"))
    for _ in range(2):
        begin = time.process_time()
        for name, chart in charts.items():
            for width in (720, 350):
                whole = {"description": chart["title"], "config": CONFIG, **spec(chart, width)}
                (folder / f"vega-{name}-{width}.svg").write_text(vl_convert.vegalite_to_svg(whole), encoding="utf-8")
        (folder / "vega.again").write_text(str(time.process_time() - begin))


main()
