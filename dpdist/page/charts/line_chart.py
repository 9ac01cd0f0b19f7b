"""Steps over bins and curves over time, each with its band of 95 % intervals."""

from __future__ import annotations

import math
from html import escape

import numpy as np

from dpdist.content.number_format import number_text
from dpdist.language import say
from dpdist.operators import Matrix
from dpdist.page.charts.axis_ticks import Scale, each_time, round_numbers, round_times, scale
from dpdist.page.charts.chart_data import Axis, Figure
from dpdist.page.charts.svg_frame import NARROW, SERIES, Drawn, framed, group, legend
from dpdist.page.charts.text_layout import LINE, at, lines, width

TALL, SHORT = 320, 290
"""Height of the plot itself: of a wide and of a narrow chart."""
NAMES = 170
"""Most pixels for the names of series beside the ends of their curves."""
MOST_DOTS = 60
"""Points of a curve that are marked one by one."""
TOGETHER = 4
"""Most curves in one plot; of more each has a small one of its own, on the same scale."""
PANEL_TALL, PANEL_GAP = 92.0, 18.0
TICK_GAP = 28
"""Pixels between the numbers below a curve."""
MOST_EDGES = 14
"""Bins of which each may have its own tick."""


def curves(figure: Figure, across: int) -> Drawn:
    """The chart, and where it is: ``x`` and ``y`` of the plot's sides, ``domain`` and ``scale`` of its numbers."""
    assert figure.axis.edges is not None
    if apart(figure):
        return _panels(figure, across)
    narrow, several = across == NARROW, len(figure.series) > 1
    held = scale(*figure.reach, most=5)
    beside = several and not narrow
    left = max(width(held.text(tick)) for tick in held.ticks) + 10
    right = across - (min(float(NAMES), max(map(width, figure.series))) + 16 if beside else 18.0)
    measure = f"{figure.measure} ({held.word})" if held.word else figure.measure
    head = [at(0, 13, measure, kind="soft", room=across)]
    top = 13.0 + len(lines(measure, across)[0]) * LINE - 6
    if several and not beside:
        swatches, tall = legend(figure.series, across, top)
        head += swatches
        top += tall
    top += 10
    bottom = top + (SHORT if narrow else TALL) - 60
    domain = _domain(figure)
    plot = _Plot(figure, held, (left, right), (top, bottom), domain)
    parts = [
        *head,
        group("scale", _levels(held, plot)),
        *_ticks(figure.axis, plot, (0.0, across - 1.0)),
        at((left + right) / 2, bottom + 38, figure.axis.title, anchor="middle", room=right, most=1),
        group("marks", [mark for s in range(len(figure.series)) for mark in plot.marks(s, s % SERIES)]),
        *(_names(figure, plot) if beside else []),
    ]
    places = {"x": [left, right], "y": [top, bottom], "domain": list(domain), "scale": [held.low, held.high]}
    return Drawn(framed(figure, across, bottom + 46, parts), places)


def apart(figure: Figure) -> bool:
    """Whether each series has a plot of its own: there are many, or the bands of three or more mostly cover each other."""
    if len(figure.series) <= 2:
        return False
    order = np.argsort(figure.heights, axis=1)
    heights, spreads = (np.take_along_axis(each, order, axis=1) for each in (figure.heights, figure.spreads))
    covered = np.diff(heights, axis=1) < spreads[:, 1:] + spreads[:, :-1]
    return len(figure.series) > TOGETHER or bool(covered.mean() > 0.5)


def _panels(figure: Figure, across: int) -> Drawn:
    """A small plot for each series, and where they are: as one plot, and ``offsets`` of each from the first."""
    columns = 2 if across == NARROW else 3
    held = scale(*figure.reach, most=5)
    left = max(width(held.text(tick)) for tick in held.ticks) + 10
    measure = f"{figure.measure} ({held.word})" if held.word else figure.measure
    top = 13.0 + len(lines(measure, across)[0]) * LINE
    wide = (across - left - 8 - (columns - 1) * PANEL_GAP) / columns
    sides, ends, domain = (left, left + wide), (top + LINE, top + LINE + PANEL_TALL), _domain(figure)
    plot = _Plot(figure, held, sides, ends, domain)
    down = PANEL_TALL + 2 * LINE + 22
    offsets = [(s % columns * (wide + PANEL_GAP), s // columns * down) for s in range(len(figure.series))]
    levels, frames, marks = [], [], []
    for s, (right, below) in enumerate(offsets):
        place = f'<g transform="translate({right:.1f} {below:.1f})">'
        levels.append(f"{place}{''.join(_levels(held, plot, named=not right))}</g>")
        name = at(left, top + 10, figure.series[s], kind="name", room=wide, most=1)
        ticks = _ticks(figure.axis, plot, (left - PANEL_GAP / 3, left + wide + PANEL_GAP / 3))
        frames.append(f"{place}{name}{''.join(ticks)}</g>")
        marks.append(f"{place}{''.join(plot.marks(s, 0))}</g>")
    bottom = ends[1] + offsets[-1][1] + 40
    title = at((left + across) / 2, bottom, figure.axis.title, anchor="middle", room=across - left, most=1)
    head = at(0, 13, measure, kind="soft", room=across)
    parts = [head, group("scale", levels), *frames, group("marks", marks), title]
    places = {"x": list(sides), "y": list(ends), "domain": list(domain), "scale": [held.low, held.high]}
    return Drawn(framed(figure, across, bottom + 8, parts), {**places, "offsets": [list(each) for each in offsets]})


def _domain(figure: Figure) -> tuple[float, float]:
    edges = figure.axis.edges
    assert edges is not None
    if figure.kind == "steps":
        return float(edges[0]), float(edges[-1])
    last = float(edges[-2])
    return float(edges[0]), last if last > edges[0] else last + 1


class _Plot:
    """Numbers to pixels, and the marks of a figure."""

    def __init__(
        self, figure: Figure, held: Scale, sides: tuple[float, float], ends: tuple[float, float], domain: tuple[float, float]
    ) -> None:
        self.figure, self.held, self.sides, self.ends, self.domain = figure, held, sides, ends, domain

    def x(self, number: float | Matrix) -> Matrix:
        low, high = self.domain
        return np.asarray(self.sides[0] + (np.asarray(number) - low) / (high - low) * (self.sides[1] - self.sides[0]))

    def y(self, value: float | Matrix) -> Matrix:
        part = (np.asarray(value) - self.held.low) / (self.held.high - self.held.low)
        return np.asarray(self.ends[1] - part * (self.ends[1] - self.ends[0]))

    def marks(self, s: int, colour: int) -> list[str]:
        """The band and the outline of a series; what is filled stands on zero."""
        edges = self.figure.axis.edges
        assert edges is not None
        steps = self.figure.kind == "steps"
        places = self.x(edges) if steps else self.x(edges[:-1])
        value, low, high = (part[:, s] for part in (self.figure.heights, *self.figure.intervals))
        middle, parts = _outline(places, self.y(value), steps), []
        if self.figure.filled:
            zero = f"V{self.y(0.0):.1f}H{places[0]:.1f}z"
            parts.append(f'<path class="area f{colour}" d="{middle}{zero}"/>')
        if (self.figure.half[:, s] > 0).any():
            upper = _outline(places, self.y(high), steps)
            lower = _outline(places[::-1], self.y(low)[::-1], steps)
            parts.append(f'<path class="band f{colour}" d="{upper}L{lower[1:]}z"/>')
        parts.append(f'<path class="outline s{colour}" d="{middle}"/>')
        if not steps and len(places) <= MOST_DOTS:
            dots = "".join(f"M{x:.1f} {y:.1f}h.1" for x, y in zip(places, self.y(value), strict=True))
            parts.append(f'<path class="dots s{colour}" d="{dots}"/>')
        return parts


def _outline(places: Matrix, levels: Matrix, steps: bool) -> str:
    if steps:
        return f"M{places[0]:.1f} {levels[0]:.1f}" + "".join(
            (f"V{level:.1f}" if i else "") + f"H{place:.1f}"
            for i, (place, level) in enumerate(zip(places[1:], levels, strict=True))
        )
    tenths = np.rint(10 * np.column_stack([places, levels])).astype(np.int64)
    (first, *onward) = [f"{_tenths(x)} {_tenths(y)}" for x, y in np.diff(tenths, axis=0, prepend=0).tolist()]
    return f"M{first}" + ("l" + " ".join(onward) if onward else "").replace(" -", "-")


def _tenths(number: int) -> str:
    """A number of tenths, as short as a path allows."""
    whole, part = divmod(abs(number), 10)
    text = (str(whole) if whole or not part else "") + (f".{part}" if part else "")
    return f"-{text}" if number < 0 else text


def _levels(held: Scale, plot: _Plot, *, named: bool = True) -> list[str]:
    parts = []
    for tick in held.ticks:
        y = float(plot.y(tick))
        kind = "axis" if tick == 0 else "grid"
        parts.append(f'<path d="M{plot.sides[0]:.1f} {y:.1f}H{plot.sides[1]:.1f}" class="{kind}"/>')
        if named:
            parts.append(at(plot.sides[0] - 6, y + 4.5, held.text(tick), anchor="end", kind="soft"))
    return parts


def _ticks(axis: Axis, plot: _Plot, room: tuple[float, float]) -> list[str]:
    """Labels below the plot, within some room, that do not touch each other, and marks of open ends."""
    parts, free = [], -math.inf
    bottom, last = plot.ends[1], None
    shown = _places(axis, plot)
    low_text, high_text = _open_texts(axis)
    if high_text:
        last = (plot.sides[1], high_text, "end")
    if low_text:
        shown = [(axis.edges[0] if axis.edges is not None else 0.0, low_text), *(t for t in shown if t[0] > plot.domain[0])]
    stop = room[1] if last is None else plot.sides[1] - width(last[1]) - 10
    for number, text in shown:
        x, half = float(plot.x(number)), width(text) / 2
        begin = max(room[0], min(x - half, room[1] - 2 * half))
        if begin <= free or begin + 2 * half > stop:
            continue
        parts.append(f'<path d="M{x:.1f} {bottom:.1f}v5" class="axis"/>')
        parts.append(at(begin + half, bottom + 18, text, anchor="middle", kind="soft"))
        free = begin + 2 * half + 8
    if last is not None:
        parts.append(at(last[0], bottom + 18, last[1], anchor="end", kind="soft"))
    parts += _arrows(axis, plot)
    return parts


def _places(axis: Axis, plot: _Plot) -> list[tuple[float, str]]:
    """Numbers of the axis that may have a tick, and their texts."""
    assert axis.edges is not None
    edges, steps = axis.edges[:-1] if plot.figure.cumulative else axis.edges, plot.figure.kind == "steps"
    shift = 0.5 if steps and axis.unit_steps else 0.0
    low, high = plot.domain
    pixels = plot.sides[1] - plot.sides[0]
    room = int(pixels / 70)
    if axis.clock is not None and not steps and len(axis.labels) <= max(2, room):
        return each_time(axis.clock, list(map(float, edges[: len(axis.labels)])))
    if axis.clock is not None:
        return round_times(axis.clock, low, high, max(2, room))
    if axis.named:
        every = max(1, math.ceil(len(axis.labels) / 40))
        middle = (axis.edges[:-1] + axis.edges[1:]) / 2 if steps else axis.edges[:-1]
        return [(float(middle[i]), str(axis.labels[i])) for i in range(0, len(axis.labels), every)]
    if not axis.unit_steps and edges.size <= MOST_EDGES:
        return [(float(edge), number_text(float(edge))) for edge in edges]
    most = max(2, min(10, int(pixels / (max(width(number_text(end)) for end in (low, high)) + TICK_GAP))))
    whole = axis.unit_steps and (high - low) / most < 1.5
    numbers = list(map(float, edges[:-1])) if whole else round_numbers(low, high - shift, most)
    return [(number + shift, number_text(number)) for number in numbers if low <= number + shift <= high]


def _open_texts(axis: Axis) -> tuple[str, str]:
    """How the first and the last value are called that hold all that lies beyond."""
    if axis.edges is None or axis.named or axis.clock is not None:
        return "", ""
    return str(axis.labels[0]) if axis.open_low else "", str(axis.labels[-1]) if axis.open_high else ""


def _arrows(axis: Axis, plot: _Plot) -> list[str]:
    """Marks of open ends; the left one stands inside, for outside are the numbers of the scale."""
    (left, right), y = plot.sides, plot.ends[1]
    parts = []
    if axis.open_low:
        parts.append(
            f'<path class="open" d="M{left:.1f} {y:.1f}l7 -5v10z"><title>{escape(say("holds all lower values, too"))}</title></path>'
        )
    if axis.open_high:
        parts.append(
            f'<path class="open" d="M{right + 7:.1f} {y:.1f}l-7 -5v10z"><title>{escape(say("holds all higher values, too"))}</title></path>'
        )
    return parts


def _names(figure: Figure, plot: _Plot) -> list[str]:
    """Names beside the ends of the curves, moved apart where these meet, within the plot."""
    levels = [(float(plot.y(float(figure.heights[-1, s]))), s) for s in range(len(figure.series))]
    texts = [lines(name, NAMES, 2)[0] for name in figure.series]
    tall = [LINE * len(text) for text in texts]
    order = [s for _, s in sorted(levels)]
    at_level = {s: level - tall[s] / 2 for level, s in levels}
    floor = plot.ends[0] - 12
    for s in order:
        at_level[s] = floor = max(at_level[s], floor)
        floor += tall[s]
    ceiling = plot.ends[1] + 4
    for s in reversed(order):
        at_level[s] = min(at_level[s], ceiling - tall[s])
        ceiling = at_level[s]
    x, parts = plot.sides[1] + 8, []
    for level, s in levels:
        y = at_level[s]
        parts.append(f'<path class="outline s{s % SERIES}" d="M{x - 6:.1f} {level:.1f}L{x:.1f} {y + tall[s] / 2:.1f}"/>')
        parts.append(at(x + 4, y + 13, figure.series[s], room=NAMES, most=2))
    return parts
