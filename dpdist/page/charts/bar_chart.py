"""Horizontal bars with intervals, for values without an order; on phones long names stand above their bars."""

from __future__ import annotations

from dpdist.content.number_format import with_interval
from dpdist.page.charts.axis_ticks import Scale, scale
from dpdist.page.charts.chart_data import Figure
from dpdist.page.charts.svg_frame import NARROW, SERIES, Drawn, framed, group, legend
from dpdist.page.charts.text_layout import LINE, at, lines, width

NAME_ROOM = 250
"""Most pixels of the names beside the bars."""
SHORT_NAME = 100
"""On phones, too, names of at most so many pixels stand beside the bars."""
GAP = 9


def bars(figure: Figure, across: int) -> Drawn:
    """The chart, and where its bars are: ``tops`` of the values, ``thick`` of a bar, ``x`` of the scale's ends."""
    narrow, count = across == NARROW, len(figure.series)
    thick = 20 if count == 1 else 17
    texts = [
        [with_interval(v, h, side) for v, h, *side in zip(*rows, strict=True)]
        for rows in zip(figure.values, figure.half, *(figure.sides or ()), strict=True)
    ]
    value_room = max(width(text) for row in texts for text in row) + 10
    names = figure.axis.labels
    longest = max(map(width, names))
    above = narrow and longest > SHORT_NAME
    room = across - 4.0 if above else min(float(NAME_ROOM), longest + 2)
    left, right = (2.0 if above else room + 12), across - value_room - 2
    held = scale(*figure.reach, 4 if narrow else 6)
    head, start = _head(figure, across)
    y, tops, labels = start, [], []
    for name in names:
        rows = len(lines(name, room)[0])
        if above:
            labels.append(at(2, y + 12, name, room=room))
            y += rows * LINE + 1
            tops.append(y)
            y += count * thick + GAP
        else:
            tall = max(rows * LINE, count * thick)
            labels.append(at(left - 10, y + tall / 2 - (rows - 1) * LINE / 2 + 4.5, name, anchor="end", room=room))
            tops.append(y + (tall - count * thick) / 2)
            y += tall + GAP
    bottom = y - GAP + 4
    marks, values = _marks(figure, texts, tops, thick, held, (left, right))
    parts = [
        *head,
        group("scale", _grid(held, left, right, start - 4, bottom)),
        group("marks", marks),
        group("values", values),
        *labels,
    ]
    places = {"x": [left, right], "y": [start - 4, bottom], "tops": tops, "thick": thick, "scale": [held.low, held.high]}
    return Drawn(framed(figure, across, bottom + 24, parts), places)


def _head(figure: Figure, across: int) -> tuple[list[str], float]:
    """What is measured, and the names of the series; where the bars begin."""
    measured, _ = lines(figure.measure, across)
    parts = [at(0, 13, figure.measure, kind="soft", room=across)]
    y = 13.0 + len(measured) * LINE - 4
    if len(figure.series) > 1:
        swatches, tall = legend(figure.series, across, y)
        parts += swatches
        y += tall
    return parts, y + 4


def _grid(held: Scale, left: float, right: float, top: float, bottom: float) -> list[str]:
    """A line at every tick, and as many of their numbers, at even steps from 0, as stand beside each other."""
    zero, count = held.ticks.index(0.0), len(held.ticks)
    step = (held.part(held.ticks[1]) - held.part(held.ticks[0])) * (right - left)
    room = max(width(held.text(tick)) for tick in held.ticks) + 8
    every = next((few for few in range(1, count) if few * step >= room), count)
    parts = []
    for k, tick in enumerate(held.ticks):
        x = left + held.part(tick) * (right - left)
        kind = "axis" if tick == 0 else "grid"
        parts.append(f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" class="{kind}"/>')
        if (k - zero) % every == 0:
            text = held.text(tick)
            parts.append(at(max(x, width(text) / 2), bottom + 16, text, anchor="middle", kind="soft"))
    return parts


def _marks(
    figure: Figure, texts: list[list[str]], tops: list[float], thick: int, held: Scale, ends: tuple[float, float]
) -> tuple[list[str], list[str]]:
    def x(value: float) -> float:
        return ends[0] + held.part(value) * (ends[1] - ends[0])

    marks, values = [], []
    for s in range(len(figure.series)):
        boxes, whiskers, breaks = [], [], []
        for i, top in enumerate(tops):
            value, below, above = (float(part[i, s]) for part in (figure.heights, *figure.intervals))
            y, middle = top + s * thick, top + s * thick + (thick - 2) / 2
            low, high = x(below), x(above)
            if value > figure.broken_at:
                low = high = ends[1]
                gap = f"h8l-6 {thick - 2}h-8z"
                breaks.append(f"M{high - 30:.1f} {y:.1f}{gap}M{high - 18:.1f} {y:.1f}{gap}")
            if figure.dots:
                boxes.append(f"M{x(value):.1f} {middle - 5:.1f}l5 5l-5 5l-5 -5z")
            else:
                boxes.append(f"M{x(0):.1f} {y:.1f}H{min(x(value), ends[1]):.1f}v{thick - 2}H{x(0):.1f}z")
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
