"""Which charts a group of queries gets: bars, steps, curves or a map, from the kinds of its attributes."""

from __future__ import annotations

import calendar
import datetime
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from dpdist.domain import Domain
from dpdist.language import group_name, later, recalled, say
from dpdist.operators import Circulant, Groups, Identity, Matrix, Padded, Prefix, Toeplitz
from dpdist.page.charts import Axis, Clock, Figure
from dpdist.page.charts.figure import Reached
from dpdist.page.numbers import capitalised, listed, number_text, with_interval
from dpdist.workloads import Block

MOST_SERIES = 4
"""More values of the smaller attribute make a map."""
MOST_POINTS = 1000
"""Points of a curve on the page; of longer ones the highest and the lowest of every few steps are drawn."""
MOST_TILES = 2500
"""Cells of a map; larger tables are in the files."""
MOST_BARS = 60
LARGEST = 30
"""Of more than ``MOST_BARS`` values the largest ones are drawn."""
MOST_LABELS = 100_000
"""Bins that are named for readers."""
_HEADINGS = {
    "count": later("{counted} with {told}"),
    "sum": later("Sum of {told}"),
    "deviations": later("Deviations of {told}"),
    "squares": later("Squares of {told}"),
    "products": later("Products of {told}"),
    "mean": later("Mean of {told}"),
    "variance": later("Variance of {told}"),
    "standard deviation": later("Standard deviation of {told}"),
    "covariance": later("Covariance of {told}"),
    "correlation": later("Correlation of {told}"),
}
"""Of the groups of queries about amounts."""
MOST_MAPS = 12
"""Charts of one group of queries over three attributes or more."""


@dataclass(frozen=True)
class Words:
    """What a release calls its records and attributes: the part of its certificate that charts need.

    Attributes:
        counted: the records, in the plural.
        attributes: title, unit, time and what happens to values outside, by attribute.
        amounts: title and unit, by column of amounts.
        answer: what an answer is: a count, or a sum of amounts.
    """

    counted: str
    attributes: dict[str, dict[str, Any]]
    amounts: dict[str, dict[str, Any]] = field(default_factory=dict)
    answer: str = "count"

    @staticmethod
    def of(certificate: dict[str, Any]) -> Words:
        """Those of a certificate; of older ones the plain names."""
        method = certificate.get("method") or {}
        return Words(recalled(method.get("counted", "records")), method.get("attributes", {}), method.get("sums", {}))

    @property
    def measure(self) -> str:
        """What an axis counts, as a heading of its own; a unit of amounts as it is written."""
        return self.counted if self.answer == "sum" else capitalised(self.counted)

    def title(self, name: str) -> str:
        """The title of an attribute, or of a column of amounts."""
        facts = self.attributes.get(name) or self.amounts.get(name, {})
        return str(facts.get("title") or name)

    def heading(self, group: str, names: Iterable[str]) -> str:
        """A group of queries as readers call it: attributes by their titles, where its name is made of these names."""
        known, parts = set(names), group.split(" x ")
        if known >= set(parts):
            return listed([self.title(name) for name in parts])
        of, _, by = group.removeprefix("cdf of ").partition(" by ")
        others = by.split(", ") if by else []
        if group.startswith("cdf of ") and known >= {of, *others}:
            grouped = self._by(listed([self.title(name) for name in others]) if by else "")
            return say("Cumulative {title}{grouped}", title=self.title(of), grouped=grouped)
        what, _, rest = group.partition(" of ")
        added, _, by = rest.partition(" by ")
        columns = added.split(" and ")
        if what in _HEADINGS and set(columns) <= set(self.amounts):
            told = listed([self.title(column) for column in columns])
            grouped = self._by(self.heading(by, names) if by else "")
            return say(_HEADINGS[what], counted=capitalised(self.counted), told=told) + grouped
        head, _, by = group.partition(" by ")
        over = by.split(", ") if by else []
        if known >= set(over):
            return group_name(head) + self._by(listed([self.title(name) for name in over]) if by else "")
        return group

    @staticmethod
    def _by(others: str) -> str:
        return say(" by {others}", others=others) if others else ""

    def unit_of(self, group: str) -> str | None:
        """What the answers of a group of sums are measured in; None for other groups, which count records."""
        what, _, rest = group.partition(" of ")
        columns = rest.partition(" by ")[0].partition(",")[0].split(" and ")
        if what == "count" or what not in self._units or not set(columns) <= set(self.amounts):
            return None
        units = [
            str(self.amounts[column].get("unit") or say("units of {title}", title=self.title(column))) for column in columns
        ]
        unit = units[0] if len(units) == 1 else say("{unit} times {other}", unit=units[0], other=units[1])
        return say(self._units[what], unit=unit)

    _units: ClassVar = {
        "count": "",
        "sum": "{unit}",
        "deviations": "{unit}",
        "squares": later("{unit} squared"),
        "products": "{unit}",
        "mean": "{unit}",
        "variance": later("{unit} squared"),
    }

    def axis(self, domain: Domain, place: int, picked: Matrix | None = None) -> Axis:
        """The values of an attribute of the domain, or some: of an ordered attribute they need not be neighbours.

        Of many values only the names and the edges of those that are picked are made.
        """
        attribute = domain.attributes[place]
        facts = self.attributes.get(attribute.name, {})
        unit, title = facts.get("unit"), self.title(attribute.name)
        shown = title if not unit or unit in title else f"{title} ({unit})"
        if attribute.categories:
            return Axis(
                shown, attribute.labels, unordered=0 if _has_order(attribute.categories) else len(attribute.categories)
            ).some(picked)
        edges: Any = attribute.edges if picked is not None else np.asarray(attribute.edges, dtype=np.float64)
        open_ends = attribute.outside == "clip"
        named = bool(attribute.named)
        time = facts.get("time")
        clock = (
            None if time is None else Clock(float(edges[0]), datetime.datetime.fromisoformat(time["start"]), time["step"])
        )
        if attribute.values > MOST_LABELS:
            labels = attribute.labels  # all: those that are drawn are picked, and only they are made
        elif named:
            labels = attribute.labels[: attribute.values]
        else:
            labels = bin_names(np.asarray(edges, dtype=np.float64), open_ends=open_ends)
        return Axis(shown, labels, edges, open_ends, open_ends, named, clock).some(picked)

    def per(self, name: str) -> str:
        """What a density is per: one unit of an attribute."""
        unit = self.attributes.get(name, {}).get("unit")
        if not unit:
            return say("unit of {title}", title=self.title(name))
        return str(unit[:-1] if unit.endswith("s") and not unit.endswith("ss") else unit)


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


def bin_names(edges: Matrix, *, open_ends: bool) -> tuple[str, ...]:
    """What readers call bins: whole numbers by themselves, others from edge to edge; what lies beyond counts in open ends."""
    texts = [number_text(float(edge)) for edge in edges]
    whole = bool((np.diff(edges) == 1).all()) and float(edges[0]).is_integer()
    names = texts[:-1] if whole else [say("{low} to under {high}", low=low, high=high) for low, high in pairwise(texts)]
    if open_ends and len(names) > 1:
        names[0] = say("{high} or less", high=texts[0]) if whole else say("under {high}", high=texts[1])
        names[-1] = say("{low} or more", low=texts[-2])
    return tuple(names)


def _has_order(categories: Sequence[str]) -> bool:
    """Whether categories are days of the week, months, or begin with a number: they stay in the order of the domain."""
    names = {
        name.lower()
        for part in (calendar.day_name, calendar.day_abbr, calendar.month_name, calendar.month_abbr)
        for name in part
    }
    return all(
        text.lower() in names or re.match(r"\W*(?:(?:under|over|above|below|up to) )?\d", text) for text in categories
    )


def figures_of(block: Block, domain: Domain, words: Words, values: Matrix, half: Matrix) -> list[tuple[str, Figure]]:
    """Charts with their subtitles, for blocks of plain attributes, CDFs, filters and short lists; none for others.

    Of three attributes or more, the smallest ones are taken value by value.
    """
    factors = tuple(f.operator if isinstance(f, Padded) else f for f in block.factors)
    if not block.separable or not all(isinstance(f, Identity | Groups | Prefix | Toeplitz | Circulant) for f in factors):
        return _of_list(block, words, values, half)
    shape = tuple(len(labels) for labels in block.labels)
    block, values, half = replace(block, factors=factors, scales=()), values.reshape(shape), half.reshape(shape)
    if len(block.axes) > 2:
        return _maps(block, domain, words, values, half)
    beside = _beside(block, domain, values, half)
    ordered = tuple(map(slice, _on_axes(block, domain)))
    found = _plain(block, domain, words, values[ordered], half[ordered])
    return [] if found is None else [("", replace(found, note=f"{found.note} {beside}".strip()))]


def _on_axes(block: Block, domain: Domain) -> list[int]:
    """How many values stand on the axes of a chart: an ordered axis has no place for other and missing values."""
    attributes = [domain.attributes[place] for place in block.axes]
    levels = [head != a.name for a, head in zip(attributes, block.heads(domain.names), strict=True)]
    parts = zip(attributes, levels, block.labels, strict=True)
    return [min(len(part), a.values) if a.edges and not grouped else len(part) for a, grouped, part in parts]


def _beside(block: Block, domain: Domain, values: Matrix, half: Matrix) -> str:
    """What is said of the counts of other and missing values that an ordered axis has no place for."""
    left = [part[drawn:] for part, drawn in zip(block.labels, _on_axes(block, domain), strict=True)]
    if not any(left):
        return ""
    if len(left) > 1:
        names = [
            f"{domain.names[place]} {label}" for place, labels in zip(block.axes, left, strict=True) for label in labels
        ]
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


def _plain(block: Block, domain: Domain, words: Words, values: Matrix, half: Matrix) -> Figure | None:
    names = list(block.heads(domain.names))
    axes = [
        words.axis(domain, place) if name == domain.names[place] else Axis(name, labels)
        for place, name, labels in zip(block.axes, names, block.labels, strict=True)
    ]
    kinds = [
        "plain" if isinstance(f, Identity | Groups) else "up to" if isinstance(f, Prefix) else "filter"
        for f in block.factors
    ]
    if len(axes) == 1:
        return _along(block.name, axes[0], names[0], kinds[0], words, ("",), values[:, None], half[:, None])
    special = [k for k, kind in enumerate(kinds) if kind != "plain"]
    if not special and min(values.shape) > MOST_SERIES:
        if values.size > MOST_TILES:
            return None
        return _map(block.name, axes, words, values, half)
    ordered = [k for k in (0, 1) if axes[k].edges is not None and values.shape[k] > 2]
    long = int(np.argmax(values.shape))
    along = (
        special[0] if special else ordered[0] if len(ordered) == 1 and values.shape[1 - ordered[0]] <= MOST_SERIES else long
    )
    if along == 1:
        values, half = values.T, half.T
    series = tuple(
        f"{names[1 - along]} {label}" if axes[1 - along].edges is not None else str(label)
        for label in axes[1 - along].labels
    )
    if len(series) > 2 * MOST_SERIES:
        return _map(block.name, [axes[along], axes[1 - along]], words, values, half) if values.size <= MOST_TILES else None
    return _along(block.name, axes[along], names[along], kinds[along], words, series, values, half)


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
        labels = reached if axis.clock is None else labels
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
        title = f"{block.heads(domain.names)[place]} {label}"
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
    (factor, *others) = (f.operator if isinstance(f, Padded) else f for f in block.factors)
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
