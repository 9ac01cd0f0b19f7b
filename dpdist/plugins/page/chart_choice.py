"""Which charts a group of queries gets: bars, steps, curves or a map, from the kinds of its attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpdist.api.pages import (
    Block,
    Circulant,
    Domain,
    Groups,
    Identity,
    Matrix,
    Prefix,
    StepMeans,
    Toeplitz,
    join_with_and,
    number_text,
    say,
    translatable,
    translate_group_name,
)
from dpdist.plugins.page.chart_words import ChartWords
from dpdist.plugins.page.charts import Axis, Figure
from dpdist.plugins.page.charts.area_map import MOST_PANELS
from dpdist.plugins.page.charts.chart_data import CumulativeKind, Outlines
from dpdist.plugins.page.charts.text_layout import with_interval
from dpdist.plugins.page.map_outlines import join_groups

MOST_SERIES = 4
"""More values of the smaller attribute make a map."""
DWARFING_FACTOR = 8
"""A value whose highest count is so many times that of the others would leave them flat beside it."""
MOST_POINTS = 720
"""Points of a curve on the page; of longer ones the highest and the lowest of every few steps are drawn."""
MOST_TILES = 2500
"""Cells of a map; larger tables are in the files."""
MOST_BARS = 60
LARGEST_DRAWN = 30
"""Of more than ``MOST_BARS`` values the largest ones are drawn."""
MOST_FRAMES = 60
"""Maps of one group of queries, between which a slider moves."""
MOST_MAPS = 12
"""Charts of one group of queries over three attributes or more."""


def without_amounts(block: Block, domain: Domain, words: ChartWords) -> tuple[Block, ChartWords]:
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
    plain_count = len(block.axes) - amounts
    axes, factors, labels = block.axes[:plain_count], block.factors[:plain_count], block.labels[:plain_count]
    return replace(block, axes=axes, factors=factors, labels=labels, scales=(), names=block.names[:plain_count]), words


def figures_of(block: Block, domain: Domain, words: ChartWords, values: Matrix, half: Matrix) -> list[tuple[str, Figure]]:
    """Charts with their subtitles, for blocks of plain attributes, CDFs, filters and short lists; none for others.

    Of three attributes or more, the smallest ones are taken value by value.
    """
    factors = tuple(f.unpadded for f in block.factors)
    if not block.separable or not all(
        isinstance(f, Identity | Groups | Prefix | Toeplitz | Circulant | StepMeans) for f in factors
    ):
        return _list_figures(block, words, values, half)
    shape = tuple(len(labels) for labels in block.labels)
    block, values, half = replace(block, factors=factors, scales=()), values.reshape(shape), half.reshape(shape)
    if len(block.axes) > 2:
        return _sliced_figures(block, domain, replace(words, boundaries={}), values, half)
    undrawn_note = _undrawn_note(block, domain, words, values, half)
    drawn_slices = tuple(map(slice, _drawn_lengths(block, domain)))
    figure = _attribute_figure(block, domain, words, values[drawn_slices], half[drawn_slices])
    totals = frozenset(label for axis in block.axes if (label := domain.attributes[axis].total) is not None)
    charts = [] if figure is None else [("", replace(figure, note=f"{figure.note} {undrawn_note}".strip(), totals=totals))]
    return [
        *charts,
        *(("", area_map) for area_map in _area_maps(block, domain, words, values[drawn_slices], half[drawn_slices])),
    ]


def _area_maps(block: Block, domain: Domain, words: ChartWords, values: Matrix, half: Matrix) -> Iterator[Figure]:
    """A map of a group over an attribute whose values lie somewhere, alone or with one other: a frame for each value of that."""
    heads, names = block.heads(domain.names), [domain.names[axis] for axis in block.axes]
    map_axis = next((k for k, name in enumerate(names) if name in words.boundaries), None)
    has_value_rows = all(isinstance(factor, Identity | Groups) for factor in block.factors)
    if map_axis is None or not has_value_rows or (len(heads) == 2 and values.shape[1 - map_axis] > MOST_FRAMES):
        return
    attribute, shapes = domain.attributes[block.axes[map_axis]], words.boundaries[names[map_axis]]
    level = next((level for level in attribute.levels if level.name == heads[map_axis]), None)
    kinds: Sequence[str] = attribute.categories
    if level is not None:
        shapes = join_groups(shapes, {kinds[k]: level.labels[group] for k, group in enumerate(level.groups)})
        kinds = level.labels
    areas = dict(shapes.areas)
    picked = np.array([k for k, value in enumerate(kinds) if value in areas])
    values, half = (np.moveaxis(numbers, map_axis, 0)[picked].reshape(len(picked), -1) for numbers in (values, half))
    axes = [_axis(block, domain, words, k) for k in range(len(heads))]
    rows, frame_axis = axes[map_axis], axes[1 - map_axis] if len(heads) == 2 else None
    unmapped_labels = [str(label) for k, label in enumerate(rows.labels) if k not in set(picked.tolist())]
    notes = [say("Areas without a colour are not in the release.")] if shapes.others else []
    notes += (
        [say("Not on the map: {names}; the table has them.", names=join_with_and(unmapped_labels))]
        if unmapped_labels
        else []
    )
    series = ("",) if frame_axis is None else tuple(frame_axis.names[: values.shape[1]])
    if len(series) > MOST_PANELS:
        frames_note = translatable(
            "Side by side are {shown} of {all}; the table has all, and the slider shows each where scripts run."
        )
        notes.append(say(frames_note, shown=MOST_PANELS, all=len(series)))
    outlines = Outlines(tuple(areas[kinds[k]] for k in picked), shapes.others, shapes.size)
    yield Figure(
        "map",
        block.name,
        rows.select(picked),
        series,
        values,
        half,
        words.measure,
        frame_axis,
        note=" ".join(notes),
        outlines=outlines,
    )


def _drawn_lengths(block: Block, domain: Domain) -> list[int]:
    """How many values stand on the axes of a chart: an ordered axis has no place for other and missing values."""
    attributes = [domain.attributes[axis] for axis in block.axes]
    levels = [head != attribute.name for attribute, head in zip(attributes, block.heads(domain.names), strict=True)]
    axis_parts = zip(attributes, levels, block.labels, strict=True)
    return [
        min(len(labels), attribute.values) if attribute.edges and not grouped else len(labels)
        for attribute, grouped, labels in axis_parts
    ]


def _undrawn_note(block: Block, domain: Domain, words: ChartWords, values: Matrix, half: Matrix) -> str:
    """What is said of the counts of other and missing values that an ordered axis has no place for."""
    undrawn_labels = [
        axis_labels[drawn:] for axis_labels, drawn in zip(block.labels, _drawn_lengths(block, domain), strict=True)
    ]
    if not any(undrawn_labels):
        return ""
    if len(undrawn_labels) > 1:
        titles = (words.title(domain.names[axis]) for axis in block.axes)
        names = [f"{title} {label}" for title, labels in zip(titles, undrawn_labels, strict=True) for label in labels]
        return say("Not drawn: {names}; the table has them.", names=join_with_and(names))
    first_undrawn = len(values) - len(undrawn_labels[0])
    texts = [
        f"{label} {with_interval(float(values[first_undrawn + k]), float(half[first_undrawn + k]))}"
        for k, label in enumerate(undrawn_labels[0])
    ]
    return say("Not drawn: {names}.", names=join_with_and(texts))


def _list_figures(block: Block, words: ChartWords, values: Matrix, half: Matrix) -> list[tuple[str, Figure]]:
    """Bars for a list of named queries: predicates, ranges, totals."""
    if block.queries > MOST_BARS or len(block.labels) != 1:
        return []
    axis = Axis("", [str(label) for label in block.labels[0]])
    return [("", Figure("bars", block.name, axis, ("",), values[:, None], half[:, None], words.measure))]


def _axis(block: Block, domain: Domain, words: ChartWords, k: int) -> Axis:
    """The values of a group's attribute, or of a level of it."""
    axis_index, name = block.axes[k], block.heads(domain.names)[k]
    return words.axis(domain, axis_index) if name == domain.names[axis_index] else Axis(words.title(name), block.labels[k])


def _attribute_figure(block: Block, domain: Domain, words: ChartWords, values: Matrix, half: Matrix) -> Figure | None:
    names = list(block.heads(domain.names))
    axes = [_axis(block, domain, words, k) for k in range(len(names))]
    kinds = [
        "plain" if isinstance(f, Identity | Groups) else "up to" if isinstance(f, Prefix) else "filter"
        for f in block.factors
    ]
    if len(axes) == 1:
        return _axis_figure(block.name, axes[0], names[0], kinds[0], words, ("",), values[:, None], half[:, None])
    special = [k for k, kind in enumerate(kinds) if kind != "plain"]
    panel_axis = None if special else _panel_axis(axes, values)
    if not special and panel_axis is None and min(values.shape) > MOST_SERIES:
        if values.size > MOST_TILES:
            return None
        return _heat_figure(block.name, axes, words, values, half)
    ordered = [k for k in (0, 1) if axes[k].edges is not None and values.shape[k] > 2]
    long = int(np.argmax(values.shape))
    chart_axis = (
        panel_axis
        if panel_axis is not None
        else special[0]
        if special
        else ordered[0]
        if len(ordered) == 1 and values.shape[1 - ordered[0]] <= MOST_SERIES
        else long
    )
    if chart_axis == 1:
        values, half = values.T, half.T
    series = tuple(
        f"{axes[1 - chart_axis].title.split(' (')[0]} {label}" if axes[1 - chart_axis].edges is not None else str(label)
        for label in axes[1 - chart_axis].labels
    )
    if len(series) > 2 * MOST_SERIES:
        return (
            _heat_figure(block.name, [axes[chart_axis], axes[1 - chart_axis]], words, values, half)
            if values.size <= MOST_TILES
            else None
        )
    return _axis_figure(block.name, axes[chart_axis], names[chart_axis], kinds[chart_axis], words, series, values, half)


def _panel_axis(axes: Sequence[Axis], values: Matrix) -> int | None:
    """The order along which small charts are drawn, one a value of the other attribute; None where one value dwarfs the others."""
    ordered = [k for k in (0, 1) if axes[k].edges is not None]
    if len(ordered) != 1 or min(values.shape) <= MOST_SERIES or values.shape[1 - ordered[0]] > 2 * MOST_SERIES:
        return None
    peaks = np.nanmax(values, axis=ordered[0])
    return ordered[0] if peaks.max() <= DWARFING_FACTOR * np.median(peaks) else None


def _heat_figure(title: str, axes: Sequence[Axis], words: ChartWords, values: Matrix, half: Matrix) -> Figure:
    rows, columns = axes
    if len(rows.labels) < len(columns.labels):
        rows, columns, values, half = columns, rows, values.T, half.T
    series = tuple(str(label) for label in columns.labels)
    return Figure("heat", title, rows, series, values, half, words.measure, columns)


def _axis_figure(
    title: str, axis: Axis, name: str, kind: str, words: ChartWords, series: tuple[str, ...], values: Matrix, half: Matrix
) -> Figure:
    """One chart along an axis: bars for categories, steps for bins, a curve for filters and for many bins."""
    counted = words.measure
    if axis.edges is None:
        return _bar_figure(title, axis, counted, series, values, half)
    if kind == "filter":
        return thin_figure(
            Figure(
                "curve",
                title,
                axis,
                series,
                values,
                half,
                f"{counted}: {translate_group_name(title.split(' by ', maxsplit=1)[0])}",
            )
        )
    if kind == "up to":
        return thin_figure(_cumulative_figure(title, axis, counted, words.title(name), series, values, half))
    notes, widths, measure = [], None, counted
    if not axis.has_even_bins:
        widths = np.diff(axis.edges)
        measure = say("{counted} per {unit}", counted=counted, unit=words.density_unit(name))
        note_text = translatable(
            "Bins differ in width: a step's height is the count divided by the width, so that its area stands for the count."
        )
        notes.append(say(note_text))
    if axis.open_low or axis.open_high:
        note_text = translatable(
            "The arrows mark open ends: the first and the last step also hold the {counted} with lower and higher values."
        )
        notes.append(say(note_text, counted=words.counted))
    figure = Figure(
        "steps", title, axis, series, values, half, measure, widths=widths, note=" ".join(notes), filled=len(series) == 1
    )
    return thin_figure(figure)


_CUMULATIVE_MEASURES: dict[CumulativeKind, str] = {
    "below": translatable("{counted} below each value of {title}"),
    "at or below": translatable("{counted} at or below each value of {title}"),
}


def _cumulative_figure(
    title: str, axis: Axis, counted: str, name: str, series: tuple[str, ...], values: Matrix, half: Matrix
) -> Figure:
    """Steps that rise where a count is reached: at whole numbers, or at the upper edges of bins."""
    assert axis.edges is not None
    edges, labels = axis.edges, axis.labels
    reached_kind: CumulativeKind = "at or below" if axis.unit_steps or axis.named else "below"
    if reached_kind == "below":
        reached = [say("below {high}", high=number_text(float(edge))) for edge in edges[1:]]
        labels = reached if axis.clock is None else axis.clock.texts(edges[1:])
        edges = np.append(edges[1:], edges[-1] + 0.03 * (edges[-1] - edges[0]))
    closed = replace(axis, edges=edges, labels=labels, open_low=False, open_high=False)
    return Figure(
        "steps",
        title,
        closed,
        series,
        values,
        half,
        say(_CUMULATIVE_MEASURES[reached_kind], counted=counted, title=name),
        cumulative=reached_kind,
    )


def _bar_figure(title: str, axis: Axis, counted: str, series: tuple[str, ...], values: Matrix, half: Matrix) -> Figure:
    order = np.arange(len(values))
    order[: axis.unordered] = np.argsort(-values[: axis.unordered].sum(axis=1), kind="stable")
    axis, values, half = axis.select(order), values[order], half[order]
    figure = Figure("bars", title, axis, series, values, half, counted)
    if math.isfinite(figure.broken_at):
        figure = replace(figure, note=say("Broken bars are longer than they are drawn."))
    if len(values) * len(series) <= MOST_BARS:
        return figure
    drawn_count = max(4, LARGEST_DRAWN // len(series))
    picked = np.argsort(-values.sum(axis=1), kind="stable")[:drawn_count]
    note_text = translatable("Drawn are the {most} largest of {all:,}, in the order of their answers; the table has all.")
    note = say(note_text, most=drawn_count, all=len(values))
    return replace(
        figure, axis=axis.select(picked), values=values[picked], half=half[picked], note=f"{figure.note} {note}".strip()
    )


def thin_figure(figure: Figure) -> Figure:
    """The figure with at most about ``MOST_POINTS`` points, the highest and the lowest of every few steps: no peak is lost."""
    count, series = figure.values.shape
    if count <= MOST_POINTS:
        return figure
    buckets = max(2, MOST_POINTS // (2 * series))
    bucket_size = math.ceil(count / buckets)
    picked = extremes(figure.heights, bucket_size)
    note = say("Drawn are the highest and the lowest of every {every:,} values; the table has all.", every=bucket_size)
    return replace(
        figure,
        kind="curve",
        axis=figure.axis.select(picked),
        values=figure.values[picked],
        half=figure.half[picked],
        widths=None if figure.widths is None else figure.widths[picked],
        note=f"{figure.note} {note}".strip(),
        filled=False,
    )


def extremes(heights: Matrix, bucket_size: int) -> Matrix:
    """Rows that hold the highest or the lowest value of some series among ``bucket_size`` rows; the first and the last, too."""
    count = heights.shape[0]
    picked = {0, count - 1}
    for start in range(0, count, bucket_size):
        bucket = heights[start : start + bucket_size]
        picked |= {start + int(row) for row in (*bucket.argmax(axis=0), *bucket.argmin(axis=0))}
    return np.array(sorted(picked))


def _sliced_figures(
    block: Block, domain: Domain, words: ChartWords, values: Matrix, half: Matrix
) -> list[tuple[str, Figure]]:
    """A chart for each value of the smallest attribute but the last two; none when there are too many."""
    slice_axis = int(np.argmin(values.shape))
    if math.prod(sorted(values.shape)[:-2]) > MOST_MAPS:
        return []
    other_axes = [i for i in range(values.ndim) if i != slice_axis]
    figures: list[tuple[str, Figure]] = []
    for i, label in enumerate(block.labels[slice_axis]):
        title = f"{words.title(block.heads(domain.names)[slice_axis])} {label}"
        slice_block = replace(
            block,
            name=f"{block.name}, {title}",
            axes=tuple(block.axes[j] for j in other_axes),
            factors=tuple(block.factors[j] for j in other_axes),
            labels=tuple(block.labels[j] for j in other_axes),
            scales=(),
            names=tuple(block.heads(domain.names)[j] for j in other_axes) if block.names else (),
        )
        slice_numbers = [np.take(numbers, i, axis=slice_axis).ravel() for numbers in (values, half)]
        slice_figures = figures_of(slice_block, domain, words, slice_numbers[0], slice_numbers[1])
        if not slice_figures:
            return []
        figures += [(title if not subtitle else f"{title}, {subtitle}", figure) for subtitle, figure in slice_figures]
    return figures


def long_figure(block: Block, domain: Domain, words: ChartWords, read_batches: Callable[[], Any]) -> Figure | None:
    """Some points of a long series, read batch by batch; None for other blocks.

    Args:
        read_batches: yields (first row, answers, half widths) of the block's rows, in order.
    """
    attribute = domain.attributes[block.axes[0]]
    (factor, *other_factors) = (f.unpadded for f in block.factors)
    if other_factors or not isinstance(factor, Toeplitz) or not attribute.edges:
        return None
    bucket_size = math.ceil(2 * block.queries / MOST_POINTS)
    rows, values, half = [], [], []
    for first_row, answer, half_widths in read_batches():
        picked = extremes(answer[:, None], bucket_size)
        rows.append(first_row + picked)
        values.append(answer[picked])
        half.append(half_widths[picked])
    picked_rows = np.concatenate(rows)
    axis = words.axis(domain, block.axes[0], picked_rows)
    note = say("Drawn are the highest and the lowest of every {every:,} steps; the files have all.", every=bucket_size)
    counted = words.measure
    columns = (np.concatenate(values)[:, None], np.concatenate(half)[:, None])
    return Figure("curve", block.name, axis, ("",), *columns, f"{counted}: {translate_group_name(block.name)}", note=note)
