"""What a chart shows: numbers with intervals over the values of an attribute, before anything is laid out."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from dpdist.api.pages import FINER_THAN_DAYS, CalendarUnit, Matrix, Times, format_date
from dpdist.plugins.page.map_outlines import Ring

Kind = Literal["bars", "steps", "curve", "heat", "map"]
CumulativeKind = Literal["below", "at or below"]
SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
GIANT_FACTOR = 4
"""A bar that is so many times as long as the next one is broken."""
FEWEST_BARS_TO_BREAK = 5
"""Of fewer bars none is broken."""
MONTHS = {"month": 1, "quarter": 3, "year": 12}


@dataclass(frozen=True)
class Clock:
    """The times that the numbers of an attribute stand for.

    Attributes:
        start: the time of the number ``first_number``.
        step: how long one unit lasts.
    """

    first_number: float
    start: datetime.datetime
    step: CalendarUnit

    def time(self, number: float) -> datetime.datetime:
        """The time of a number; parts of months are rounded down to whole ones. Years beyond 9999 are the year 9999."""
        steps = number - self.first_number
        try:
            if self.step in SECONDS:
                return self.start + datetime.timedelta(seconds=steps * SECONDS[self.step])
            months = self.start.year * 12 + self.start.month - 1 + int(steps * MONTHS[self.step])
            return self.start.replace(year=months // 12, month=months % 12 + 1, day=min(self.start.day, 28))
        except (OverflowError, ValueError):
            return datetime.datetime.max.replace(microsecond=0)

    def text(self, number: float) -> str:
        """The time as readers know it, no finer than the step."""
        time = self.time(number)
        if self.step in FINER_THAN_DAYS:
            return format_date(time, "%-d %b %Y, %H:%M" + (":%S" if self.step == "second" else ""))
        return format_date(time, {"year": "%Y", "month": "%b %Y", "quarter": "%b %Y"}.get(self.step, "%-d %b %Y"))

    def texts(self, numbers: Iterable[float]) -> tuple[str, ...]:
        """The times of numbers as readers know them."""
        return tuple(self.text(float(number)) for number in numbers)

    def is_step_label(self, label: str) -> bool:
        """Whether a label is what files call the first time, and no word of the publisher's."""
        return label.startswith(Times(self.start, 1, self.step).label(0))


@dataclass(frozen=True)
class Axis:
    """The values of an attribute.

    Attributes:
        labels: one a value.
        edges: of an ordered attribute: value k lies in [edges[k], edges[k + 1]).
        open_low, open_high: whether the first and last value hold all that lies beyond, too.
        named: whether the labels are words of the publisher's, not the edges.
        unordered: how many values, from the first on, have no order of their own and are drawn by size.
    """

    title: str
    labels: Sequence[str]
    edges: Matrix | None = None
    open_low: bool = False
    open_high: bool = False
    named: bool = False
    clock: Clock | None = None
    unordered: int = 0

    @property
    def names(self) -> list[str]:
        """What each value is called."""
        return [str(label) for label in self.labels]

    @property
    def unit_steps(self) -> bool:
        """Whether the values are whole numbers that follow each other."""
        return self.edges is not None and bool((np.diff(self.edges) == 1).all()) and float(self.edges[0]).is_integer()

    @property
    def has_even_bins(self) -> bool:
        """Whether all bins are equally wide."""
        assert self.edges is not None
        widths = np.diff(self.edges)
        return bool(np.allclose(widths, widths[0], rtol=1e-9))

    def select(self, picked: Matrix | None) -> Axis:
        """Only the picked values, if any are named; of an ordered attribute they need not be neighbours."""
        if picked is None:
            return self
        indices = [int(index) for index in picked]
        edges = None if self.edges is None else np.array([self.edges[index] for index in (*indices, indices[-1] + 1)])
        return replace(self, labels=[self.labels[index] for index in indices], edges=edges)


@dataclass(frozen=True)
class Outlines:
    """The areas of a map, in steps of a grid.

    Attributes:
        areas: the rings of each value of the axis.
        other_areas: rings of areas that have no value.
        size: across and down.
    """

    areas: tuple[tuple[Ring, ...], ...]
    other_areas: tuple[Ring, ...]
    size: tuple[int, int]


@dataclass(frozen=True)
class Figure:
    """A chart to be.

    Attributes:
        axis: the values along which the numbers lie (rows of a heat map).
        series: a name for each column of the numbers.
        values, half: (values of the axis, series); half widths of 95 % intervals, NaN where none is known.
        measure: what the numbers are.
        column_axis: the columns' axis of a heat map.
        widths: of bins, by which counts are divided for the chart; None: counts are drawn.
        note: what a reader must know of the drawing.
        filled: whether the area below stands for counts.
        ends: between which the true numbers lie in any case, and intervals are cut.
        name: what readers call the chart; empty for its title, which is the name of its group of queries in the files.
        cumulative: of counts up to each value, whether they are those at or below it; ``axis.edges`` begin where each count is reached.
        dots: whether the numbers are no amounts, such as means: a bar from 0 would say nothing.
        outlines: of a map, where each value of the axis lies; its series are frames, of which one is seen at a time or some side by side.
        totals: labels of totals, which are no groups beside the others.
        sides: lower and upper ends of the intervals, where these are not symmetrical.
    """

    kind: Kind
    title: str
    axis: Axis
    series: tuple[str, ...]
    values: Matrix
    half: Matrix
    measure: str
    column_axis: Axis | None = None
    widths: Matrix | None = None
    note: str = ""
    filled: bool = False
    cumulative: CumulativeKind | Literal[""] = ""
    dots: bool = False
    outlines: Outlines | None = None
    sides: tuple[Matrix, Matrix] | None = None
    ends: tuple[float, float] = (-math.inf, math.inf)
    name: str = ""
    totals: frozenset[str] = frozenset()

    @property
    def heading(self) -> str:
        """What readers call the chart."""
        return self.name or self.title

    @property
    def heights(self) -> Matrix:
        """What is drawn: counts, or densities."""
        return self.values if self.widths is None else self.values / self.widths[:, None]

    @property
    def spreads(self) -> Matrix:
        """Half widths of what is drawn; 0 where none is known."""
        half = np.nan_to_num(self.half)
        return half if self.widths is None else half / self.widths[:, None]

    @property
    def intervals(self) -> tuple[Matrix, Matrix]:
        """Both ends of the intervals of what is drawn; the value itself where none is known."""
        if self.sides is not None:
            return self.sides
        half = np.nan_to_num(self.half)
        sides = (np.where(half > 0, np.clip(self.values + sign * half, *self.ends), self.values) for sign in (-1, 1))
        low, high = (interval_end if self.widths is None else interval_end / self.widths[:, None] for interval_end in sides)
        return low, high

    @property
    def reach(self) -> tuple[float, float]:
        """From the lowest to the highest point that is drawn; broken bars end before theirs."""
        low, high = self.intervals
        return float(np.minimum(self.heights, low).min()), min(float(np.maximum(self.heights, high).max()), self.broken_at)

    @property
    def broken_at(self) -> float:
        """Where the bars of a few values break that would flatten all others; infinite where there are none."""
        tops = np.sort(np.nan_to_num(np.maximum(self.heights, self.intervals[1])).max(axis=1))
        if (
            self.kind != "bars"
            or self.dots
            or len(tops) < FEWEST_BARS_TO_BREAK
            or tops[-2] <= 0
            or tops[-1] < GIANT_FACTOR * tops[-2]
        ):
            return math.inf
        return float(1.15 * tops[-2])
