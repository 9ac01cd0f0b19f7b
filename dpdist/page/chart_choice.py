"""Which charts a group of queries gets: bars, steps, curves or a map, from the kinds of its attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpdist.content.number_format import listed, number_text, with_interval
from dpdist.domain import Domain
from dpdist.language import group_name, later, say
from dpdist.operators import Circulant, Groups, Identity, Matrix, Prefix, StepMeans, Toeplitz
from dpdist.page.charts import Axis, Figure
from dpdist.page.charts.area_map import MOST_PANELS
from dpdist.page.charts.chart_data import Outlines, Reached
from dpdist.page.headings import Words
from dpdist.workloads import Block

MOST_SERIES = 4
"""More values of the smaller attribute make a map."""
DWARFS = 8
"""A value whose highest count is so many times that of the others would leave them flat beside it."""
MOST_POINTS = 720
"""Points of a curve on the page; of longer ones the highest and the lowest of every few steps are drawn."""
MOST_TILES = 2500
"""Cells of a map; larger tables are in the files."""
MOST_BARS = 60
LARGEST = 30
"""Of more than ``MOST_BARS`` values the largest ones are drawn."""
MOST_FRAMES = 60
"""Maps of one group of queries, between which a slider moves."""
MOST_MAPS = 12
"""Charts of one group of queries over three attributes or more."""


def without_amounts(block: Block, domain: Domain, words: Words) -> tuple[Block, Words]:
    """A group of sums as charts know it: over its attributes alone, in the unit of the amounts. Other groups as they are."""
    amounts = sum(domain.attributes[axis].amounts is not None for axis in block.axes)
    if not (amounts or domain.sums_alone):
        return block, words
    unit = words.unit_of(block.name)
    words = words if unit is None else replace(words, counted=unit, answer="sum")
    if not block.separable or not amounts:
        return block, words
    if len(block.axes) == amounts:
        return replace(block, labels=tuple(("all",) for _ in block.axes)), words
    kept = len(block.axes) - amounts
    axes, factors, labels = block.axes[:kept], block.factors[:kept], block.labels[:kept]
    return replace(block, axes=axes, factors=factors, labels=labels, scales=(), names=block.names[:kept]), words


def figures_of(block: Block, domain: Domain, words: Words, values: Matrix, half: Matrix) -> list[tuple[str, Figure]]:
    """Charts with their subtitles, for blocks of plain attributes, CDFs, filters and short lists; none for others.

    Of three attributes or more, the smallest ones are taken value by value.
    """
    factors = tuple(f.unpadded for f in block.factors)
    if not block.separable or not all(
        isinstance(f, Identity | Groups | Prefix | Toeplitz | Circulant | StepMeans) for f in factors
    ):
        return _of_list(block, words, values, half)
    shape = tuple(len(labels) for labels in block.labels)
    block, values, half = replace(block, factors=factors, scales=()), values.reshape(shape), half.reshape(shape)
    if len(block.axes) > 2:
        return _maps(block, domain, replace(words, boundaries={}), values, half)
    beside = _beside(block, domain, words, values, half)
    ordered = tuple(map(slice, _on_axes(block, domain)))
    found = _plain(block, domain, words, values[ordered], half[ordered])
    totals = frozenset(label for axis in block.axes if (label := domain.attributes[axis].total) is not None)
    charts = [] if found is None else [("", replace(found, note=f"{found.note} {beside}".strip(), totals=totals))]
    return [*charts, *(("", each) for each in _on_map(block, domain, words, values[ordered], half[ordered]))]


def _on_map(block: Block, domain: Domain, words: Words, values: Matrix, half: Matrix) -> Iterator[Figure]:
    """A map of a group over an attribute whose values lie somewhere, alone or with one other: a frame for each value of that."""
    heads, names = block.heads(domain.names), [domain.names[axis] for axis in block.axes]
    place = next((k for k, name in enumerate(names) if name in words.boundaries), None)
    plain = all(isinstance(factor, Identity | Groups) for factor in block.factors)
    if place is None or not plain or (len(heads) == 2 and values.shape[1 - place] > MOST_FRAMES):
        return
    attribute, shapes = domain.attributes[block.axes[place]], words.boundaries[names[place]]
    level = next((level for level in attribute.levels if level.name == heads[place]), None)
    kinds: Sequence[str] = attribute.categories
    if level is not None:
        shapes = shapes.joined({kinds[k]: level.labels[group] for k, group in enumerate(level.groups)})
        kinds = level.labels
    areas = dict(shapes.areas)
    picked = np.array([k for k, value in enumerate(kinds) if value in areas])
    values, half = (np.moveaxis(each, place, 0)[picked].reshape(len(picked), -1) for each in (values, half))
    axes = [_axis(block, domain, words, k) for k in range(len(heads))]
    rows, across = axes[place], axes[1 - place] if len(heads) == 2 else None
    left = [str(label) for k, label in enumerate(rows.labels) if k not in set(picked.tolist())]
    notes = [say("Areas without a colour are not in the release.")] if shapes.others else []
    notes += [say("Not on the map: {names}; the table has them.", names=listed(left))] if left else []
    series = ("",) if across is None else tuple(across.names[: values.shape[1]])
    if len(series) > MOST_PANELS:
        told = later("Side by side are {shown} of {all}; the table has all, and the slider shows each where scripts run.")
        notes.append(say(told, shown=MOST_PANELS, all=len(series)))
    outlines = Outlines(tuple(areas[kinds[k]] for k in picked), shapes.others, shapes.size)
    yield Figure(
        "map",
        block.name,
        rows.some(picked),
        series,
        values,
        half,
        words.measure,
        across,
        note=" ".join(notes),
        outlines=outlines,
    )


def _on_axes(block: Block, domain: Domain) -> list[int]:
    """How many values stand on the axes of a chart: an ordered axis has no place for other and missing values."""
    attributes = [domain.attributes[place] for place in block.axes]
    levels = [head != a.name for a, head in zip(attributes, block.heads(domain.names), strict=True)]
    parts = zip(attributes, levels, block.labels, strict=True)
    return [min(len(part), a.values) if a.edges and not grouped else len(part) for a, grouped, part in parts]


def _beside(block: Block, domain: Domain, words: Words, values: Matrix, half: Matrix) -> str:
    """What is said of the counts of other and missing values that an ordered axis has no place for."""
    left = [part[drawn:] for part, drawn in zip(block.labels, _on_axes(block, domain), strict=True)]
    if not any(left):
        return ""
    if len(left) > 1:
        titles = (words.title(domain.names[place]) for place in block.axes)
        names = [f"{title} {label}" for title, labels in zip(titles, left, strict=True) for label in labels]
        return say("Not drawn: {names}; the table has them.", names=listed(names))
    first = len(values) - len(left[0])
    texts = [f"{label} {with_interval(float(values[first + k]), float(half[first + k]))}" for k, label in enumerate(left[0])]
    return say("Not drawn: {names}.", names=listed(texts))


def _of_list(block: Block, words: Words, values: Matrix, half: Matrix) -> list[tuple[str, Figure]]:
    """Bars for a list of named queries: predicates, ranges, totals."""
    if block.queries > MOST_BARS or len(block.labels) != 1:
        return []
    axis = Axis("", [str(label) for label in block.labels[0]])
    return [("", Figure("bars", block.name, axis, ("",), values[:, None], half[:, None], words.measure))]


def _axis(block: Block, domain: Domain, words: Words, k: int) -> Axis:
    """The values of a group's attribute, or of a level of it."""
    place, name = block.axes[k], block.heads(domain.names)[k]
    return words.axis(domain, place) if name == domain.names[place] else Axis(words.title(name), block.labels[k])


def _plain(block: Block, domain: Domain, words: Words, values: Matrix, half: Matrix) -> Figure | None:
    names = list(block.heads(domain.names))
    axes = [_axis(block, domain, words, k) for k in range(len(names))]
    kinds = [
        "plain" if isinstance(f, Identity | Groups) else "up to" if isinstance(f, Prefix) else "filter"
        for f in block.factors
    ]
    if len(axes) == 1:
        return _along(block.name, axes[0], names[0], kinds[0], words, ("",), values[:, None], half[:, None])
    special = [k for k, kind in enumerate(kinds) if kind != "plain"]
    apart = None if special else _apart(axes, values)
    if not special and apart is None and min(values.shape) > MOST_SERIES:
        if values.size > MOST_TILES:
            return None
        return _map(block.name, axes, words, values, half)
    ordered = [k for k in (0, 1) if axes[k].edges is not None and values.shape[k] > 2]
    long = int(np.argmax(values.shape))
    along = (
        apart
        if apart is not None
        else special[0]
        if special
        else ordered[0]
        if len(ordered) == 1 and values.shape[1 - ordered[0]] <= MOST_SERIES
        else long
    )
    if along == 1:
        values, half = values.T, half.T
    series = tuple(
        f"{axes[1 - along].title.split(' (')[0]} {label}" if axes[1 - along].edges is not None else str(label)
        for label in axes[1 - along].labels
    )
    if len(series) > 2 * MOST_SERIES:
        return _map(block.name, [axes[along], axes[1 - along]], words, values, half) if values.size <= MOST_TILES else None
    return _along(block.name, axes[along], names[along], kinds[along], words, series, values, half)


def _apart(axes: Sequence[Axis], values: Matrix) -> int | None:
    """The order along which small charts are drawn, one a value of the other attribute; None where one value dwarfs the others."""
    ordered = [k for k in (0, 1) if axes[k].edges is not None]
    if len(ordered) != 1 or min(values.shape) <= MOST_SERIES or values.shape[1 - ordered[0]] > 2 * MOST_SERIES:
        return None
    peaks = np.nanmax(values, axis=ordered[0])
    return ordered[0] if peaks.max() <= DWARFS * np.median(peaks) else None


def _map(title: str, axes: Sequence[Axis], words: Words, values: Matrix, half: Matrix) -> Figure:
    rows, columns = axes
    if len(rows.labels) < len(columns.labels):
        rows, columns, values, half = columns, rows, values.T, half.T
    series = tuple(str(label) for label in columns.labels)
    return Figure("heat", title, rows, series, values, half, words.measure, columns)


def _along(
    title: str, axis: Axis, name: str, kind: str, words: Words, series: tuple[str, ...], values: Matrix, half: Matrix
) -> Figure:
    """One chart along an axis: bars for categories, steps for bins, a curve for filters and for many bins."""
    counted = words.measure
    if axis.edges is None:
        return _bars(title, axis, counted, series, values, half)
    if kind == "filter":
        return thinned(
            Figure(
                "curve", title, axis, series, values, half, f"{counted}: {group_name(title.split(' by ', maxsplit=1)[0])}"
            )
        )
    if kind == "up to":
        return thinned(_cumulative(title, axis, counted, words.title(name), series, values, half))
    notes, widths, measure = [], None, counted
    if not axis.even:
        widths = np.diff(axis.edges)
        measure = say("{counted} per {unit}", counted=counted, unit=words.per(name))
        told = later(
            "Bins differ in width: a step's height is the count divided by the width, so that its area stands for the count."
        )
        notes.append(say(told))
    if axis.open_low or axis.open_high:
        told = later(
            "The arrows mark open ends: the first and the last step also hold the {counted} with lower and higher values."
        )
        notes.append(say(told, counted=words.counted))
    figure = Figure(
        "steps", title, axis, series, values, half, measure, widths=widths, note=" ".join(notes), filled=len(series) == 1
    )
    return thinned(figure)


_UP_TO: dict[Reached, str] = {
    "below": later("{counted} below each value of {title}"),
    "at or below": later("{counted} at or below each value of {title}"),
}


def _cumulative(
    title: str, axis: Axis, counted: str, name: str, series: tuple[str, ...], values: Matrix, half: Matrix
) -> Figure:
    """Steps that rise where a count is reached: at whole numbers, or at the upper edges of bins."""
    assert axis.edges is not None
    edges, labels = axis.edges, axis.labels
    where: Reached = "at or below" if axis.unit_steps or axis.named else "below"
    if where == "below":
        reached = [say("below {high}", high=number_text(float(edge))) for edge in edges[1:]]
        labels = reached if axis.clock is None else axis.clock.texts(edges[1:])
        edges = np.append(edges[1:], edges[-1] + 0.03 * (edges[-1] - edges[0]))
    closed = replace(axis, edges=edges, labels=labels, open_low=False, open_high=False)
    return Figure(
        "steps", title, closed, series, values, half, say(_UP_TO[where], counted=counted, title=name), cumulative=where
    )


def _bars(title: str, axis: Axis, counted: str, series: tuple[str, ...], values: Matrix, half: Matrix) -> Figure:
    order = np.arange(len(values))
    order[: axis.unordered] = np.argsort(-values[: axis.unordered].sum(axis=1), kind="stable")
    axis, values, half = axis.some(order), values[order], half[order]
    figure = Figure("bars", title, axis, series, values, half, counted)
    if math.isfinite(figure.broken_at):
        figure = replace(figure, note=say("Broken bars are longer than they are drawn."))
    if len(values) * len(series) <= MOST_BARS:
        return figure
    most = max(4, LARGEST // len(series))
    picked = np.argsort(-values.sum(axis=1), kind="stable")[:most]
    told = later("Drawn are the {most} largest of {all:,}, in the order of their answers; the table has all.")
    note = say(told, most=most, all=len(values))
    return replace(figure, axis=axis.some(picked), values=values[picked], half=half[picked], note=note)


def thinned(figure: Figure) -> Figure:
    """The figure with at most about ``MOST_POINTS`` points, the highest and the lowest of every few steps: no peak is lost."""
    count, series = figure.values.shape
    if count <= MOST_POINTS:
        return figure
    buckets = max(2, MOST_POINTS // (2 * series))
    every = math.ceil(count / buckets)
    picked = extremes(figure.heights, every)
    note = say("Drawn are the highest and the lowest of every {every:,} values; the table has all.", every=every)
    return replace(
        figure,
        kind="curve",
        axis=figure.axis.some(picked),
        values=figure.values[picked],
        half=figure.half[picked],
        widths=None if figure.widths is None else figure.widths[picked],
        note=f"{figure.note} {note}".strip(),
        filled=False,
    )


def extremes(heights: Matrix, every: int) -> Matrix:
    """Rows that hold the highest or the lowest value of some series among ``every`` rows; the first and the last, too."""
    count = heights.shape[0]
    picked = {0, count - 1}
    for start in range(0, count, every):
        part = heights[start : start + every]
        picked |= {start + int(row) for row in (*part.argmax(axis=0), *part.argmin(axis=0))}
    return np.array(sorted(picked))


def _maps(block: Block, domain: Domain, words: Words, values: Matrix, half: Matrix) -> list[tuple[str, Figure]]:
    """A chart for each value of the smallest attribute but the last two; none when there are too many."""
    place = int(np.argmin(values.shape))
    if math.prod(sorted(values.shape)[:-2]) > MOST_MAPS:
        return []
    rest = [i for i in range(values.ndim) if i != place]
    out: list[tuple[str, Figure]] = []
    for i, label in enumerate(block.labels[place]):
        title = f"{words.title(block.heads(domain.names)[place])} {label}"
        part = replace(
            block,
            name=f"{block.name}, {title}",
            axes=tuple(block.axes[j] for j in rest),
            factors=tuple(block.factors[j] for j in rest),
            labels=tuple(block.labels[j] for j in rest),
            scales=(),
            names=tuple(block.heads(domain.names)[j] for j in rest) if block.names else (),
        )
        some = [np.take(each, i, axis=place).ravel() for each in (values, half)]
        inner = figures_of(part, domain, words, some[0], some[1])
        if not inner:
            return []
        out += [(title if not subtitle else f"{title}, {subtitle}", figure) for subtitle, figure in inner]
    return out


def long_figure(block: Block, domain: Domain, words: Words, parts: Callable[[], Any]) -> Figure | None:
    """Some points of a long series, read batch by batch; None for other blocks.

    Args:
        parts: yields (first row, answers, half widths) of the block's rows, in order.
    """
    attribute = domain.attributes[block.axes[0]]
    (factor, *others) = (f.unpadded for f in block.factors)
    if others or not isinstance(factor, Toeplitz) or not attribute.edges:
        return None
    every = math.ceil(2 * block.queries / MOST_POINTS)
    rows, values, half = [], [], []
    for first, answer, spread in parts():
        picked = extremes(answer[:, None], every)
        rows.append(first + picked)
        values.append(answer[picked])
        half.append(spread[picked])
    where = np.concatenate(rows)
    axis = words.axis(domain, block.axes[0], where)
    note = say("Drawn are the highest and the lowest of every {every:,} steps; the files have all.", every=every)
    counted = words.measure
    columns = (np.concatenate(values)[:, None], np.concatenate(half)[:, None])
    return Figure("curve", block.name, axis, ("",), *columns, f"{counted}: {group_name(block.name)}", note=note)
