"""The page of a release: one file that loads nothing from anywhere."""

from __future__ import annotations

import importlib.resources
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Any

import jinja2
import numpy as np

from dpdist.arrays.vector import batches
from dpdist.domain import Domain
from dpdist.operators import Identity, Matrix, Prefix, Toeplitz
from dpdist.page import charts
from dpdist.page.content import Content, formats_of
from dpdist.page.notebook import over_bound
from dpdist.page.tables import query_names
from dpdist.workloads import Block

PAGE_ROWS = 100_000
"""Answers in the page's table; the files hold all of them."""
FIRST_ROWS = 50
"""Answers that are in the page itself: the others are shown by its script."""
MOST_SERIES = 4
MOST_POINTS = 2000
"""Steps of a series that a chart shows; of longer ones every k-th."""
MOST_TILES = 2500
"""Cells of a heat map on the page; larger tables are in the files."""
MOST_CHARTS = 200
"""Groups of queries that are drawn, the first ones; those after them are in the page's table and the files."""
MOST_MAPS = 12
"""Charts of one group of queries over three attributes or more."""
MOST_CHARGES = 60
"""Releases whose charges are drawn on a page: the latest."""


def page(content: Content, digits: int) -> str:
    """The self-contained HTML page: certificate, charts with error bars, tables. It loads nothing from anywhere."""
    sections: list[dict[str, Any]] = []
    listed: list[tuple[int, Block, tuple[Matrix, Matrix, Matrix]]] = []
    rows = drawn = 0
    for first, block in content.workload.block_starts():
        chart, numbers = None, None
        if block.queries <= content.sizes.chart_rows:
            numbers = content.rounded(first, first + block.queries, digits)
        if drawn < MOST_CHARTS and numbers is not None:
            chart = _chart(block, content.workload.domain, numbers[0], numbers[2])
        elif drawn < MOST_CHARTS:
            chart = _long_chart(content, first, block, digits)
        drawn += chart is not None
        fits = rows + block.queries <= PAGE_ROWS
        if fits and numbers is not None:
            listed.append((len(sections), block, numbers))
            rows += block.queries
        sections.append({"title": block.name, "chart": chart, "queries": block.queries, "listed": fits})
    data = _page_data(content, listed, [section["title"] for section in sections])
    budget = content.certificate.get("budget")
    return template("page.html").render(
        title=content.title,
        release=content.release,
        facts=content.certificate,
        burndown=burndown(budget["course"][-MOST_CHARGES:]) if budget else None,
        sections=sections,
        formats=formats_of(content),
        rows=rows,
        first=_first_rows(data),
        data=json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        script=importlib.resources.files("dpdist.page").joinpath("templates/page.js").read_text(encoding="utf-8"),
    )


def burndown(course: Sequence[tuple[str, float]]) -> str:
    """What is left of a budget after each release, as a share of what there was: an SVG."""
    left = 100.0 * np.array([1.0, *(share for _, share in course)])
    labels = ["begin", *(release for release, _ in course)]
    return charts.bars(labels, {"left": (left, np.zeros(left.size))}, "per cent of the budget left")


def template(name: str) -> jinja2.Template:
    """A page's template; it escapes the values it is given."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dpdist.page"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["over_bound"] = over_bound
    return environment.get_template(name)


def _page_data(
    content: Content, listed: list[tuple[int, Block, tuple[Matrix, Matrix, Matrix]]], groups: list[str]
) -> dict[str, Any]:
    """Columns of the page's table."""
    names = content.workload.domain.names
    out: dict[str, Any] = {"release": content.release, "groups": groups}
    out |= {"query": [], "group": [], "answer": [], "error": [], "half": []}
    for number, block, (answer, error, half) in listed:
        query, _ = query_names(block, names, 0, block.queries)
        out["query"] += query.to_pylist()
        out["group"] += [number] * block.queries
        out["answer"] += answer.tolist()
        out["error"] += error.tolist()
        out["half"] += [None if math.isnan(value) else value for value in half.tolist()]
    return out


def _first_rows(data: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """What the table shows before, or without, the page's script."""
    columns = (data[name][:FIRST_ROWS] for name in ("query", "answer", "error", "half"))
    return [
        (query, f"{a:,.1f}", f"{e:,.2f}", "not known" if h is None else f"{a - h:,.1f} to {a + h:,.1f}")
        for query, a, e, h in zip(*columns, strict=True)
    ]


def _chart(block: Block, domain: Domain, values: Matrix, half: Matrix) -> str | None:
    """SVGs for blocks of plain attributes and for CDFs, None for others and for answers without intervals.

    Of three attributes or more, the smallest ones are taken value by value.
    """
    plain = block.separable and all(isinstance(f, Identity | Prefix | Toeplitz) for f in block.factors)
    if not plain or np.isnan(half).any():
        return None
    if len(block.axes) > 2:
        return _maps(block, domain, values, half)
    ordered = [bool(domain.attributes[axis].edges) for axis in block.axes]
    names = [domain.names[axis] for axis in block.axes]
    if len(block.factors) == 1:
        draw = charts.lines if ordered[0] else charts.bars
        every = math.ceil(values.size / MOST_POINTS)
        return draw(block.labels[0][::every], {block.name: (values[::every], half[::every])}, names[0])
    shape = tuple(len(labels) for labels in block.labels)
    grid, spread = values.reshape(shape), half.reshape(shape)
    cumulative = [isinstance(f, Prefix | Toeplitz) for f in block.factors]
    if not any(cumulative) and min(shape) > MOST_SERIES:
        if values.size > MOST_TILES:
            return None
        return charts.heat(block.labels[0], block.labels[1], grid, spread, (names[0], names[1]))
    along = cumulative.index(True) if any(cumulative) else int(np.argmax(shape))
    if along == 1:
        grid, spread = grid.T, spread.T
    every = math.ceil(grid.shape[0] / MOST_POINTS)
    series = {label: (grid[::every, i], spread[::every, i]) for i, label in enumerate(block.labels[1 - along])}
    draw = charts.lines if ordered[along] else charts.bars
    return draw(block.labels[along][::every], series, names[along])


def _maps(block: Block, domain: Domain, values: Matrix, half: Matrix) -> str | None:
    """One chart for every value of the smallest attribute; None where that would be more than ``MOST_MAPS``."""
    shape = [len(labels) for labels in block.labels]
    place = int(np.argmin(shape))
    least_maps = math.prod(sorted(shape)[:-2])
    if least_maps > MOST_MAPS:
        return None
    grid, spread = (np.moveaxis(each.reshape(shape), place, 0) for each in (values, half))
    rest = [i for i in range(len(shape)) if i != place]
    out = []
    for i, label in enumerate(block.labels[place]):
        title = f"{domain.names[block.axes[place]]} {label}"
        part = replace(
            block,
            name=f"{block.name}, {title}",
            axes=tuple(block.axes[j] for j in rest),
            factors=tuple(block.factors[j] for j in rest),
            labels=tuple(block.labels[j] for j in rest),
            scales=(),
        )
        chart = _chart(part, domain, grid[i].ravel(), spread[i].ravel())
        if chart is None:
            return None
        out.append(f"<p>{escape(title)}</p>{chart}")
    return "".join(out)


def _long_chart(content: Content, first: int, block: Block, digits: int) -> str | None:
    """Some points of a long series, read batch by batch; None for other blocks."""
    domain = content.workload.domain
    if len(block.factors) != 1 or not isinstance(block.factors[0], Toeplitz) or not domain.attributes[block.axes[0]].edges:
        return None
    every = math.ceil(block.queries / MOST_POINTS)
    values, half = [], []
    for start, stop in batches(block.queries):
        answer, _, width = content.rounded(first + start, first + stop, digits)
        picked = slice(-start % every, None, every)
        values.append(answer[picked])
        half.append(width[picked])
    points = {block.name: (np.concatenate(values), np.concatenate(half))}
    return charts.lines(block.labels[0][::every], points, domain.names[block.axes[0]])
