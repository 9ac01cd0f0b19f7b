"""Steps over bins and curves over time, each with its band of 95 % intervals."""

from __future__ import annotations

import math
from html import escape

import numpy as np

from dpdist.api.pages import Matrix, number_text, say
from dpdist.plugins.page.charts.axis_ticks import Scale, round_numbers_within, round_time_ticks, time_ticks, value_scale_of
from dpdist.plugins.page.charts.chart_data import Axis, Figure
from dpdist.plugins.page.charts.svg_frame import NARROW, SERIES, RenderedChart, draw_legend, svg_document, svg_group
from dpdist.plugins.page.charts.text_layout import LINE_HEIGHT, svg_text, text_width, wrap_text

WIDE_HEIGHT, NARROW_HEIGHT = 320, 290
"""Height of the plot itself: of a wide and of a narrow chart."""
NAME_WIDTH = 170
"""Most pixels for the names of series beside the ends of their curves."""
MOST_DOTS = 60
"""Points of a curve that are marked one by one."""
MOST_SHARED_CURVES = 4
"""Most curves in one plot; of more each has a small one of its own, on the same scale."""
PANEL_HEIGHT, PANEL_GAP = 92.0, 18.0
TICK_GAP = 28
"""Pixels between the numbers below a curve."""
MOST_EDGES = 14
"""Bins of which each may have its own tick."""


def draw_curves(figure: Figure, chart_width: int) -> RenderedChart:
    """The chart, and where it is: ``x`` and ``y`` of the plot's sides, ``domain`` and ``scale`` of its numbers."""
    assert figure.axis.edges is not None
    if has_panels(figure):
        return _panels(figure, chart_width)
    narrow, several = chart_width == NARROW, len(figure.series) > 1
    value_scale = value_scale_of(*figure.reach, max_steps=5)
    has_end_names = several and not narrow
    left_edge = max(text_width(value_scale.text(tick)) for tick in value_scale.ticks) + 10
    right_edge = chart_width - (min(float(NAME_WIDTH), max(map(text_width, figure.series))) + 16 if has_end_names else 18.0)
    measure = f"{figure.measure} ({value_scale.word})" if value_scale.word else figure.measure
    head = [svg_text(0, 13, measure, kind="soft", max_width=chart_width)]
    top = 13.0 + len(wrap_text(measure, chart_width)[0]) * LINE_HEIGHT - 6
    if several and not has_end_names:
        swatches, legend_height = draw_legend(figure.series, chart_width, top)
        head += swatches
        top += legend_height
    top += 10
    bottom = top + (NARROW_HEIGHT if narrow else WIDE_HEIGHT) - 60
    domain = _domain(figure)
    plot = _Plot(figure, value_scale, (left_edge, right_edge), (top, bottom), domain)
    elements = [
        *head,
        svg_group("scale", _value_grid(value_scale, plot)),
        *_ticks(figure.axis, plot, (0.0, chart_width - 1.0)),
        svg_text(
            (left_edge + right_edge) / 2, bottom + 38, figure.axis.title, anchor="middle", max_width=right_edge, max_lines=1
        ),
        svg_group("marks", [path for s in range(len(figure.series)) for path in plot.marks(s, s % SERIES)]),
        *(_curve_names(figure, plot) if has_end_names else []),
    ]
    positions = {
        "x": [left_edge, right_edge],
        "y": [top, bottom],
        "domain": list(domain),
        "scale": [value_scale.low, value_scale.high],
    }
    return RenderedChart(svg_document(figure, chart_width, bottom + 46, elements), positions)


def has_panels(figure: Figure) -> bool:
    """Whether each series has a plot of its own: there are many, or the bands of three or more mostly cover each other."""
    if len(figure.series) <= 2:
        return False
    order = np.argsort(figure.heights, axis=1)
    heights, spreads = (np.take_along_axis(numbers, order, axis=1) for numbers in (figure.heights, figure.spreads))
    covered = np.diff(heights, axis=1) < spreads[:, 1:] + spreads[:, :-1]
    return len(figure.series) > MOST_SHARED_CURVES or bool(covered.mean() > 0.5)


def _panels(figure: Figure, chart_width: int) -> RenderedChart:
    """A small plot for each series, and where they are: as one plot, and ``offsets`` of each from the first."""
    columns = 2 if chart_width == NARROW else 3
    value_scale = value_scale_of(*figure.reach, max_steps=5)
    left_edge = max(text_width(value_scale.text(tick)) for tick in value_scale.ticks) + 10
    measure = f"{figure.measure} ({value_scale.word})" if value_scale.word else figure.measure
    top = 13.0 + len(wrap_text(measure, chart_width)[0]) * LINE_HEIGHT
    panel_width = (chart_width - left_edge - 8 - (columns - 1) * PANEL_GAP) / columns
    sides = (left_edge, left_edge + panel_width)
    ends = (top + LINE_HEIGHT, top + LINE_HEIGHT + PANEL_HEIGHT)
    domain = _domain(figure)
    plot = _Plot(figure, value_scale, sides, ends, domain)
    row_height = PANEL_HEIGHT + 2 * LINE_HEIGHT + 22
    offsets = [(s % columns * (panel_width + PANEL_GAP), s // columns * row_height) for s in range(len(figure.series))]
    levels, frames, marks = [], [], []
    for s, (x_offset, y_offset) in enumerate(offsets):
        group_start = f'<g transform="translate({x_offset:.1f} {y_offset:.1f})">'
        levels.append(f"{group_start}{''.join(_value_grid(value_scale, plot, named=not x_offset))}</g>")
        name = svg_text(left_edge, top + 10, figure.series[s], kind="name", max_width=panel_width, max_lines=1)
        ticks = _ticks(figure.axis, plot, (left_edge - PANEL_GAP / 3, left_edge + panel_width + PANEL_GAP / 3))
        frames.append(f"{group_start}{name}{''.join(ticks)}</g>")
        marks.append(f"{group_start}{''.join(plot.marks(s, 0))}</g>")
    bottom = ends[1] + offsets[-1][1] + 40
    title = svg_text(
        (left_edge + chart_width) / 2,
        bottom,
        figure.axis.title,
        anchor="middle",
        max_width=chart_width - left_edge,
        max_lines=1,
    )
    head = svg_text(0, 13, measure, kind="soft", max_width=chart_width)
    elements = [head, svg_group("scale", levels), *frames, svg_group("marks", marks), title]
    positions = {"x": list(sides), "y": list(ends), "domain": list(domain), "scale": [value_scale.low, value_scale.high]}
    return RenderedChart(
        svg_document(figure, chart_width, bottom + 8, elements),
        {**positions, "offsets": [list(offset) for offset in offsets]},
    )


def _domain(figure: Figure) -> tuple[float, float]:
    edges = figure.axis.edges
    assert edges is not None
    if figure.kind == "steps":
        return float(edges[0]), float(edges[-1])
    last_edge = float(edges[-2])
    return float(edges[0]), last_edge if last_edge > edges[0] else last_edge + 1


class _Plot:
    """Numbers to pixels, and the marks of a figure."""

    def __init__(
        self,
        figure: Figure,
        value_scale: Scale,
        sides: tuple[float, float],
        ends: tuple[float, float],
        domain: tuple[float, float],
    ) -> None:
        self.figure, self.value_scale, self.sides, self.ends, self.domain = figure, value_scale, sides, ends, domain

    def x(self, number: float | Matrix) -> Matrix:
        low, high = self.domain
        return np.asarray(self.sides[0] + (np.asarray(number) - low) / (high - low) * (self.sides[1] - self.sides[0]))

    def y(self, value: float | Matrix) -> Matrix:
        fraction = (np.asarray(value) - self.value_scale.low) / (self.value_scale.high - self.value_scale.low)
        return np.asarray(self.ends[1] - fraction * (self.ends[1] - self.ends[0]))

    def marks(self, s: int, colour: int) -> list[str]:
        """The band and the outline of a series; what is filled stands on zero."""
        edges = self.figure.axis.edges
        assert edges is not None
        steps = self.figure.kind == "steps"
        x_positions = self.x(edges) if steps else self.x(edges[:-1])
        value, low, high = (numbers[:, s] for numbers in (self.figure.heights, *self.figure.intervals))
        middle, elements = _outline(x_positions, self.y(value), steps), []
        if self.figure.filled:
            zero = f"V{self.y(0.0):.1f}H{x_positions[0]:.1f}z"
            elements.append(f'<path class="area f{colour}" d="{middle}{zero}"/>')
        if (self.figure.half[:, s] > 0).any():
            upper = _outline(x_positions, self.y(high), steps)
            lower = _outline(x_positions[::-1], self.y(low)[::-1], steps)
            elements.append(f'<path class="band f{colour}" d="{upper}L{lower[1:]}z"/>')
        elements.append(f'<path class="outline s{colour}" d="{middle}"/>')
        if not steps and len(x_positions) <= MOST_DOTS:
            dots = "".join(f"M{x:.1f} {y:.1f}h.1" for x, y in zip(x_positions, self.y(value), strict=True))
            elements.append(f'<path class="dots s{colour}" d="{dots}"/>')
        return elements


def _outline(x_positions: Matrix, levels: Matrix, steps: bool) -> str:
    if steps:
        return f"M{x_positions[0]:.1f} {levels[0]:.1f}" + "".join(
            (f"V{level:.1f}" if i else "") + f"H{x_position:.1f}"
            for i, (x_position, level) in enumerate(zip(x_positions[1:], levels, strict=True))
        )
    tenths = np.rint(10 * np.column_stack([x_positions, levels])).astype(np.int64)
    (first_step, *more_steps) = [
        f"{_format_tenths(x)} {_format_tenths(y)}" for x, y in np.diff(tenths, axis=0, prepend=0).tolist()
    ]
    return f"M{first_step}" + ("l" + " ".join(more_steps) if more_steps else "").replace(" -", "-")


def _format_tenths(number: int) -> str:
    """A number of tenths, as short as a path allows."""
    whole, tenth = divmod(abs(number), 10)
    text = (str(whole) if whole or not tenth else "") + (f".{tenth}" if tenth else "")
    return f"-{text}" if number < 0 else text


def _value_grid(value_scale: Scale, plot: _Plot, *, named: bool = True) -> list[str]:
    elements = []
    for tick in value_scale.ticks:
        y = float(plot.y(tick))
        kind = "axis" if tick == 0 else "grid"
        elements.append(f'<path d="M{plot.sides[0]:.1f} {y:.1f}H{plot.sides[1]:.1f}" class="{kind}"/>')
        if named:
            elements.append(svg_text(plot.sides[0] - 6, y + 4.5, value_scale.text(tick), anchor="end", kind="soft"))
    return elements


def _ticks(axis: Axis, plot: _Plot, x_range: tuple[float, float]) -> list[str]:
    """Labels below the plot, within some room, that do not touch each other, and marks of open ends."""
    elements, free = [], -math.inf
    bottom, end_label = plot.ends[1], None
    shown = _tick_candidates(axis, plot)
    low_text, high_text = _open_texts(axis)
    if high_text:
        end_label = (plot.sides[1], high_text, "end")
    if low_text:
        shown = [(axis.edges[0] if axis.edges is not None else 0.0, low_text), *(t for t in shown if t[0] > plot.domain[0])]
    stop = x_range[1] if end_label is None else plot.sides[1] - text_width(end_label[1]) - 10
    for number, text in shown:
        x, half = float(plot.x(number)), text_width(text) / 2
        begin = max(x_range[0], min(x - half, x_range[1] - 2 * half))
        if begin <= free or begin + 2 * half > stop:
            continue
        elements.append(f'<path d="M{x:.1f} {bottom:.1f}v5" class="axis"/>')
        elements.append(svg_text(begin + half, bottom + 18, text, anchor="middle", kind="soft"))
        free = begin + 2 * half + 8
    if end_label is not None:
        elements.append(svg_text(end_label[0], bottom + 18, end_label[1], anchor="end", kind="soft"))
    elements += _arrows(axis, plot)
    return elements


def _tick_candidates(axis: Axis, plot: _Plot) -> list[tuple[float, str]]:
    """Numbers of the axis that may have a tick, and their texts."""
    assert axis.edges is not None
    edges, steps = axis.edges[:-1] if plot.figure.cumulative else axis.edges, plot.figure.kind == "steps"
    shift = 0.5 if steps and axis.unit_steps else 0.0
    low, high = plot.domain
    pixels = plot.sides[1] - plot.sides[0]
    max_labels = int(pixels / 70)
    if axis.clock is not None and not steps and len(axis.labels) <= max(2, max_labels):
        return time_ticks(axis.clock, list(map(float, edges[: len(axis.labels)])))
    if axis.clock is not None:
        return round_time_ticks(axis.clock, low, high, max(2, max_labels))
    if axis.named:
        label_interval = max(1, math.ceil(len(axis.labels) / 40))
        middle = (axis.edges[:-1] + axis.edges[1:]) / 2 if steps else axis.edges[:-1]
        return [(float(middle[i]), str(axis.labels[i])) for i in range(0, len(axis.labels), label_interval)]
    if not axis.unit_steps and edges.size <= MOST_EDGES:
        return [(float(edge), number_text(float(edge))) for edge in edges]
    max_numbers = max(2, min(10, int(pixels / (max(text_width(number_text(end)) for end in (low, high)) + TICK_GAP))))
    whole = axis.unit_steps and (high - low) / max_numbers < 1.5
    numbers = list(map(float, edges[:-1])) if whole else round_numbers_within(low, high - shift, max_numbers)
    return [(number + shift, number_text(number)) for number in numbers if low <= number + shift <= high]


def _open_texts(axis: Axis) -> tuple[str, str]:
    """How the first and the last value are called that hold all that lies beyond."""
    if axis.edges is None or axis.named or axis.clock is not None:
        return "", ""
    return str(axis.labels[0]) if axis.open_low else "", str(axis.labels[-1]) if axis.open_high else ""


def _arrows(axis: Axis, plot: _Plot) -> list[str]:
    """Marks of open ends; the left one stands inside, for outside are the numbers of the scale."""
    (left_edge, right_edge), y = plot.sides, plot.ends[1]
    elements = []
    if axis.open_low:
        elements.append(
            f'<path class="open" d="M{left_edge:.1f} {y:.1f}l7 -5v10z"><title>{escape(say("holds all lower values, too"))}</title></path>'
        )
    if axis.open_high:
        elements.append(
            f'<path class="open" d="M{right_edge + 7:.1f} {y:.1f}l-7 '
            f'-5v10z"><title>{escape(say("holds all higher values, too"))}</title></path>'
        )
    return elements


def _curve_names(figure: Figure, plot: _Plot) -> list[str]:
    """Names beside the ends of the curves, moved apart where these meet, within the plot."""
    levels = [(float(plot.y(float(figure.heights[-1, s]))), s) for s in range(len(figure.series))]
    texts = [wrap_text(name, NAME_WIDTH, 2)[0] for name in figure.series]
    name_heights = [LINE_HEIGHT * len(text) for text in texts]
    order = [s for _, s in sorted(levels)]
    at_level = {s: level - name_heights[s] / 2 for level, s in levels}
    floor = plot.ends[0] - 12
    for s in order:
        at_level[s] = floor = max(at_level[s], floor)
        floor += name_heights[s]
    ceiling = plot.ends[1] + 4
    for s in reversed(order):
        at_level[s] = min(at_level[s], ceiling - name_heights[s])
        ceiling = at_level[s]
    x, elements = plot.sides[1] + 8, []
    for level, s in levels:
        y = at_level[s]
        elements.append(
            f'<path class="outline s{s % SERIES}" d="M{x - 6:.1f} {level:.1f}L{x:.1f} {y + name_heights[s] / 2:.1f}"/>'
        )
        elements.append(svg_text(x + 4, y + 13, figure.series[s], max_width=NAME_WIDTH, max_lines=2))
    return elements
