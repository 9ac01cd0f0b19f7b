"""Horizontal bars with intervals, for values without an order; on phones long names stand above their bars."""

from __future__ import annotations

from dpdist.plugins.page.charts.axis_ticks import Scale, value_scale_of
from dpdist.plugins.page.charts.chart_data import Figure
from dpdist.plugins.page.charts.svg_frame import NARROW, SERIES, RenderedChart, draw_legend, svg_document, svg_group
from dpdist.plugins.page.charts.text_layout import LINE_HEIGHT, svg_text, text_width, with_interval, wrap_text

NAME_ROOM = 250
"""Most pixels of the names beside the bars."""
SHORT_NAME = 100
"""On phones, too, names of at most so many pixels stand beside the bars."""
GAP = 9


def draw_bars(figure: Figure, chart_width: int) -> RenderedChart:
    """The chart, and where its bars are: ``tops`` of the values, ``thick`` of a bar, ``x`` of the scale's ends."""
    narrow, count = chart_width == NARROW, len(figure.series)
    bar_height = 20 if count == 1 else 17
    texts = [
        [with_interval(v, h, interval_ends) for v, h, *interval_ends in zip(*rows, strict=True)]
        for rows in zip(figure.values, figure.half, *(figure.sides or ()), strict=True)
    ]
    value_room = max(text_width(text) for row in texts for text in row) + 10
    names = figure.axis.labels
    longest = max(map(text_width, names))
    above = narrow and longest > SHORT_NAME
    name_width = chart_width - 4.0 if above else min(float(NAME_ROOM), longest + 2)
    left_edge, right_edge = (2.0 if above else name_width + 12), chart_width - value_room - 2
    value_scale = value_scale_of(*figure.reach, 4 if narrow else 6)
    head_elements, first_y = _measure_and_legend(figure, chart_width)
    y, tops, labels = first_y, [], []
    for name in names:
        rows = len(wrap_text(name, name_width)[0])
        if above:
            labels.append(svg_text(2, y + 12, name, max_width=name_width))
            y += rows * LINE_HEIGHT + 1
            tops.append(y)
            y += count * bar_height + GAP
        else:
            row_height = max(rows * LINE_HEIGHT, count * bar_height)
            labels.append(
                svg_text(
                    left_edge - 10,
                    y + row_height / 2 - (rows - 1) * LINE_HEIGHT / 2 + 4.5,
                    name,
                    anchor="end",
                    max_width=name_width,
                )
            )
            tops.append(y + (row_height - count * bar_height) / 2)
            y += row_height + GAP
    bottom = y - GAP + 4
    marks, values = _marks(figure, texts, tops, bar_height, value_scale, (left_edge, right_edge))
    elements = [
        *head_elements,
        svg_group("scale", _tick_grid(value_scale, left_edge, right_edge, first_y - 4, bottom)),
        svg_group("marks", marks),
        svg_group("values", values),
        *labels,
    ]
    positions = {
        "x": [left_edge, right_edge],
        "y": [first_y - 4, bottom],
        "tops": tops,
        "thick": bar_height,
        "scale": [value_scale.low, value_scale.high],
    }
    return RenderedChart(svg_document(figure, chart_width, bottom + 24, elements), positions)


def _measure_and_legend(figure: Figure, chart_width: int) -> tuple[list[str], float]:
    """What is measured, and the names of the series; where the bars begin."""
    measured, _ = wrap_text(figure.measure, chart_width)
    elements = [svg_text(0, 13, figure.measure, kind="soft", max_width=chart_width)]
    y = 13.0 + len(measured) * LINE_HEIGHT - 4
    if len(figure.series) > 1:
        swatches, legend_height = draw_legend(figure.series, chart_width, y)
        elements += swatches
        y += legend_height
    return elements, y + 4


def _tick_grid(value_scale: Scale, left_edge: float, right_edge: float, top: float, bottom: float) -> list[str]:
    """A line at every tick, and as many of their numbers, at even steps from 0, as stand beside each other."""
    zero, count = value_scale.ticks.index(0.0), len(value_scale.ticks)
    step = (value_scale.fraction(value_scale.ticks[1]) - value_scale.fraction(value_scale.ticks[0])) * (
        right_edge - left_edge
    )
    text_room = max(text_width(value_scale.text(tick)) for tick in value_scale.ticks) + 8
    label_interval = next((ticks_apart for ticks_apart in range(1, count) if ticks_apart * step >= text_room), count)
    elements = []
    for k, tick in enumerate(value_scale.ticks):
        x = left_edge + value_scale.fraction(tick) * (right_edge - left_edge)
        kind = "axis" if tick == 0 else "grid"
        elements.append(f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" class="{kind}"/>')
        if (k - zero) % label_interval == 0:
            text = value_scale.text(tick)
            elements.append(svg_text(max(x, text_width(text) / 2), bottom + 16, text, anchor="middle", kind="soft"))
    return elements


def _marks(
    figure: Figure, texts: list[list[str]], tops: list[float], bar_height: int, value_scale: Scale, ends: tuple[float, float]
) -> tuple[list[str], list[str]]:
    def x(value: float) -> float:
        return ends[0] + value_scale.fraction(value) * (ends[1] - ends[0])

    marks, values = [], []
    for s in range(len(figure.series)):
        boxes, whiskers, breaks = [], [], []
        for i, top in enumerate(tops):
            value, below, above = (float(numbers[i, s]) for numbers in (figure.heights, *figure.intervals))
            y, middle = top + s * bar_height, top + s * bar_height + (bar_height - 2) / 2
            low, high = x(below), x(above)
            if value > figure.broken_at:
                low = high = ends[1]
                gap = f"h8l-6 {bar_height - 2}h-8z"
                breaks.append(f"M{high - 30:.1f} {y:.1f}{gap}M{high - 18:.1f} {y:.1f}{gap}")
            if figure.dots:
                boxes.append(f"M{x(value):.1f} {middle - 5:.1f}l5 5l-5 5l-5 -5z")
            else:
                boxes.append(f"M{x(0):.1f} {y:.1f}H{min(x(value), ends[1]):.1f}v{bar_height - 2}H{x(0):.1f}z")
            if figure.half[i, s] > 0 and high > low:
                whiskers.append(
                    f"M{low:.1f} {middle:.1f}H{high:.1f}M{low:.1f} {middle - 4:.1f}v8M{high:.1f} {middle - 4:.1f}v8"
                )
            values.append(
                f'<text x="{max(high, min(x(value), ends[1]), x(0)) + 6:.1f}" y="{middle + 4.5:.1f}">{texts[i][s]}</text>'
            )
        marks.append(f'<path class="f{s % SERIES}" d="{"".join(boxes)}"/>')
        if breaks:
            marks.append(f'<path class="break" d="{"".join(breaks)}"/>')
        if whiskers:
            marks.append(f'<path class="whisker" d="{"".join(whiskers)}"/>')
    return marks, values
