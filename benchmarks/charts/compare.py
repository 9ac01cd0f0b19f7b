"""Four charts of one release by dpdist, by Observable Plot and by Vega-Lite, compiled to SVG before a page is published, side by side.

    dpdist run examples/birthplaces/release.yaml
    python -m venv vega && vega/bin/pip install vl-convert-python==1.9.0.post1
    npm install --prefix plot @observablehq/plot@0.6.17 jsdom@29.1.1
    python benchmarks/charts/compare.py releases/birthplaces-1995 --vega vega/bin/python --plot plot --out FOLDER [--table FILE]

Bars with intervals, curves with bands, a heat map of two attributes and a map, each in 720 and in 350 pixels; the peers get the numbers,
the classes, the colours (as CSS variables) and the pattern of hatched cells from dpdist. Bytes are those of the SVG in both widths; of
dpdist also with the numbers that its script reads. CPU seconds are those of a whole process that draws all of them, and of drawing them
again in it. In Chromium (playwright), in a page under the policy of dpdist's pages: what axe-core finds, how much of the style the policy
blocks, how many marks name their value to a screen reader or on hover without a script, the smallest letters on a phone, and pictures.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dpdist.plugins.page.chart_embedding import embed_chart
from dpdist.plugins.page.charts import NARROW, STYLE, WIDE, Axis, Figure, draw
from dpdist.plugins.page.charts.chart_data import Outlines
from dpdist.plugins.page.charts.heat_map import cell_classes, class_limits
from dpdist.plugins.page.map_outlines import boundaries
from dpdist.plugins.page.theme import DEFAULT_THEME

HERE = Path(__file__).parent
MEASURE = "People"
RULES = (
    ".at-350{display:none}@media(max-width:46rem){.at-350{display:block}.at-720{display:none}}"
    "body{margin:1rem;background:var(--paper);color:var(--ink);font:16px var(--font)}main{max-width:45rem}svg{max-width:100%;height:auto}"
)
PATTERN = (
    '<svg width="0" height="0" aria-hidden="true"><defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse">'
    '<path class="bed" d="M0 0h5v5H0z"/><path class="hatch" d="M-1 1L1 -1M0 5L5 0M4 6L6 4"/></pattern></defs></svg>'
)
NAMED = "document.querySelectorAll('main [aria-label]:not(svg):not(g), main title').length"
LETTERS = """Math.min(...[...document.querySelectorAll('main text')].filter((t) => t.textContent && t.getBoundingClientRect().width)
  .map((t) => {
    const svg = t.ownerSVGElement, wide = svg.getBoundingClientRect().width;
    return parseFloat(getComputedStyle(t).fontSize) * wide / (svg.viewBox.baseVal?.width || wide);
}))"""
"""Pixels of the smallest letters that are seen."""


def figures(release: Path) -> dict[str, Figure]:
    """The four charts from the published answers."""
    with (release / "answers.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))

    def table(group: str, along: str, series: str = "", **only: str) -> tuple[list[str], list[str], Any, Any]:
        kept = [row for row in rows if row["group"] == group and all(row[name] == text for name, text in only.items())]
        names = list(dict.fromkeys(row[along] for row in kept))
        columns = list(dict.fromkeys(row[series] for row in kept)) if series else [""]
        cells = {(row[along], row[series] if series else ""): row for row in kept}
        value, low, high = (
            np.array([[float(cells[n, c][k]) for c in columns] for n in names]) for k in ("answer", "low_95", "high_95")
        )
        return names, columns, value, (high - low) / 2

    names, _, value, half = table("subregion", "subregion")
    order = np.argsort(-value[:, 0])
    bars = Figure(
        "bars", "Subregion of birth", Axis("", [names[k] for k in order]), ("",), value[order], half[order], MEASURE
    )
    ages, sexes, value, half = table("region x sex x age", "age", "sex", region="Asia")
    starts = np.array([float(re.split(r"\D+", age)[0]) for age in ages])
    steps = Axis("Age (years)", ages, np.append(starts, 2 * starts[-1] - starts[-2]))
    series = Figure("steps", "Born in Asia, by age and sex", steps, tuple(sexes), value, half, MEASURE)
    ages, regions, value, half = table("region x sex x age", "age", "region", sex="Female")
    heat = Figure(
        "heat",
        "Women, by age and region of birth",
        replace(steps, labels=ages),
        tuple(regions),
        value,
        half,
        MEASURE,
        Axis("Region of birth", regions),
    )
    names, _, value, half = table("born", "born")
    shapes = boundaries("countries", "", names, release)
    places = dict(shapes.areas)
    on = [k for k, name in enumerate(names) if name in places]
    outlines = Outlines(tuple(places[names[k]] for k in on), shapes.others, shapes.size)
    world = Figure(
        "map",
        "Country of birth",
        Axis("Country of birth", [names[k] for k in on]),
        ("",),
        value[on],
        half[on],
        MEASURE,
        outlines=outlines,
    )
    return {"bars": bars, "series": series, "heat": heat, "map": world}


def chart_data(figure: Figure) -> dict[str, Any]:
    """What the peers get of a chart."""
    low, high = figure.intervals
    drowned = figure.kind in ("heat", "map")
    limits = class_limits(figure) if drowned else []
    kinds = cell_classes(figure, limits) if drowned else np.zeros(figure.values.shape, int)
    rows = [
        {
            "name": str(name),
            "series": s,
            "value": float(figure.values[i, j]),
            "low": float(low[i, j]),
            "high": float(high[i, j]),
            "kind": int(kinds[i, j]),
        }
        for i, name in enumerate(figure.axis.labels)
        for j, s in enumerate(figure.series)
    ]
    out: dict[str, Any] = {
        "kind": figure.kind,
        "title": figure.title,
        "measure": figure.measure,
        "axis": figure.axis.title,
        "limits": limits,
        "rows": rows,
    }
    if figure.axis.edges is not None:
        out["edges"] = figure.axis.edges.tolist()
    if figure.outlines is not None:
        out["size"] = figure.outlines.size
        out["areas"] = [list(map(list, rings)) for rings in figure.outlines.areas]
        out["others"] = [list(ring) for ring in figure.outlines.other_areas]
    return out


def ours(shown: dict[str, Figure], out: Path) -> tuple[float, float]:
    """Draw all; CPU seconds of a process that does only that, and of doing it again."""
    for name, figure in shown.items():
        for width in (WIDE, NARROW):
            (out / f"ours-{name}-{width}.svg").write_text(draw(figure, width).svg, encoding="utf-8")
    begin = time.process_time()
    for figure in shown.values():
        for width in (WIDE, NARROW):
            draw(figure, width)
    again = time.process_time() - begin
    return spent([sys.executable, "-c", "import dpdist.plugins.page.charts"]) + again, again


def spent(command: list[str]) -> float:
    """CPU seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def again_of(out: Path, maker: str) -> float:
    return float((out / f"{maker}.again").read_text())


def html(svgs: dict[int, str], title: str) -> str:
    """A page with both widths of one chart, under the policy of dpdist's pages: its own style by its digest, and nothing else."""
    style = DEFAULT_THEME.style() + STYLE.replace("text{", ":where(.wide,.narrow) text{", 1) + RULES
    parts = "".join(f'<div class="at-{width}">{svg}</div>' for width, svg in svgs.items())
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{digest}'; img-src data:\">"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width">{policy}<title>{title}</title>'
    body = f"<body>{PATTERN}<main><h1>{title}</h1>{parts}</main></body>"
    return f'<!doctype html><html lang="en"><head>{head}<style>{style}</style></head>{body}</html>'


def inspect_charts(out: Path, names: list[str], makers: list[str]) -> dict[tuple[str, str], dict[str, Any]]:
    """What Chromium and axe-core say of every chart, and pictures of it."""
    import axe_playwright_python
    from playwright.sync_api import sync_playwright

    axe = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    browser_path = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))))
    found: dict[tuple[str, str], dict[str, Any]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for maker in makers:
            for name in names:
                facts: dict[str, Any] = {"violations": set(), "blocked": 0}
                for width, look in ((1000, "light"), (390, "dark")):
                    context = browser.new_context(viewport={"width": width, "height": 700}, color_scheme=look)
                    page = context.new_page()
                    blocked: list[str] = []
                    page.on("console", lambda message, blocked=blocked: blocked.append(message.text))
                    page.goto((out / f"{maker}-{name}.html").as_uri())
                    facts["blocked"] = max(facts["blocked"], sum("Content Security Policy" in text for text in blocked))
                    page.screenshot(path=out / f"{maker}-{name}-{width}.png", full_page=True)
                    page.evaluate(axe)
                    told = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
                    facts["violations"] |= {one["id"] for one in told}
                    facts["named"] = page.evaluate(NAMED)
                    facts["letters"] = page.evaluate(LETTERS)
                    facts["wide"] = page.evaluate("document.documentElement.scrollWidth")
                    context.close()
                found[maker, name] = facts
        browser.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("release", type=Path)
    parser.add_argument("--vega", help="a Python with vl-convert-python")
    parser.add_argument("--plot", type=Path, help="a folder with node_modules of @observablehq/plot and jsdom")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", type=Path)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    shown = figures(asked.release)
    (asked.out / "charts.json").write_text(
        json.dumps({name: chart_data(figure) for name, figure in shown.items()}), encoding="utf-8"
    )
    cpu = {"ours": ours(shown, asked.out)}
    if asked.vega:
        cpu["vega"] = spent([asked.vega, str(HERE / "vega.py"), str(asked.out)]), again_of(asked.out, "vega")
    if asked.plot:
        os.environ["CHARTS_MODULES"] = str((asked.plot / "node_modules").resolve())
        cpu["plot"] = spent(["node", str(HERE / "plot.mjs"), str(asked.out)]), again_of(asked.out, "plot")
    sizes: dict[tuple[str, str], int] = {}
    for maker in cpu:
        for name, figure in shown.items():
            svgs = {
                width: (asked.out / f"{maker}-{name}-{width}.svg").read_text(encoding="utf-8") for width in (WIDE, NARROW)
            }
            sizes[maker, name] = sum(len(svg.encode()) for svg in svgs.values())
            (asked.out / f"{maker}-{name}.html").write_text(html(svgs, figure.title), encoding="utf-8")
    data = {name: len(embed_chart(figure, "", "r", "t", MEASURE)["data"]) for name, figure in shown.items()}
    table = written(list(shown), cpu, sizes, data, inspect_charts(asked.out, list(shown), list(cpu)))
    print(table)
    if asked.table:
        asked.table.write_text(table, encoding="utf-8")


def written(
    names: list[str],
    cpu: dict[str, tuple[float, float]],
    sizes: dict[tuple[str, str], int],
    data: dict[str, int],
    facts: dict[tuple[str, str], dict[str, Any]],
) -> str:
    called = {"ours": "dpdist", "vega": "Vega-Lite", "plot": "Observable Plot"}
    lines = [f"| | {' | '.join(called[maker] for maker in cpu)} |", "|---" * (len(cpu) + 1) + "|"]

    def row(text: str, of: Any) -> None:
        lines.append(f"| {text} | {' | '.join(str(of(maker)) for maker in cpu)} |")

    for name in names:
        beside = {"ours": f" (+ {data[name]:,} of numbers)"}
        row(
            f"{name}: bytes of SVG", lambda maker, name=name, beside=beside: f"{sizes[maker, name]:,}{beside.get(maker, '')}"
        )
    row("all: bytes of SVG", lambda maker: f"{sum(sizes[maker, name] for name in names):,}")
    row("CPU s, a process that draws all eight", lambda maker: f"{cpu[maker][0]:.2f}")
    row("CPU s, the eight again in it", lambda maker: f"{cpu[maker][1]:.3f}")
    row(
        "axe-core: violations",
        lambda maker: ", ".join(sorted(set().union(*(facts[maker, name]["violations"] for name in names)))) or "none",
    )
    row("styles that the policy blocks", lambda maker: sum(facts[maker, name]["blocked"] for name in names))
    row(
        "marks that name their value without a script",
        lambda maker: ", ".join(f"{name} {facts[maker, name]['named']}" for name in names),
    )
    row("smallest letters at 390 pixels", lambda maker: f"{min(facts[maker, name]['letters'] for name in names):.1f}")
    row(
        "page wider than a phone",
        lambda maker: ", ".join(name for name in names if facts[maker, name]["wide"] > 390) or "none",
    )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
