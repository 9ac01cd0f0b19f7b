"""A picture of a release, which pages show of a link to it: its title, its publisher, and its first chart."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from dpdist.content.destination import Written
from dpdist.content.number_format import capitalised, with_interval
from dpdist.content.release_content import Content
from dpdist.content.release_summary import answered
from dpdist.language import plural, recalled, say, speaking
from dpdist.operators import Matrix
from dpdist.page.assets import PREVIEW
from dpdist.page.chart_embedding import intervals_shown
from dpdist.page.charts.axis_ticks import scale
from dpdist.page.charts.chart_data import Figure
from dpdist.page.charts.png_raster import TALL, WIDE, NoLetter, Picture, Style, letters
from dpdist.page.release_page import all_figures
from dpdist.publish.output_file import Output, Unfinished
from dpdist.theme import LIGHT

LOOKED_THROUGH = 12
"""Charts among which one is sought that a small picture can show."""
MOST_BARS = 6
EDGE = 60
INK, SOFT, LINE, ACCENT, BARS, BAND = range(6)


class Preview(Output):
    """The picture, if the release has a chart of one series, and all letters are known that it would show."""

    files = r"preview\.png"
    about = "A picture of 1200 by 630 pixels, which sites show of a link to the page: title, publisher, and the first chart of one series."

    def write(self, release: Unfinished) -> Sequence[Written]:
        with speaking(release.content.certificate.get("language", "en")):
            data = picture(release.content, release.digits)
        return [] if data is None else [release.place.put(PREVIEW, data)]


def picture(content: Content, digits: int) -> bytes | None:
    """The PNG file; None where there is nothing to show, or a text is in letters that dpdist cannot draw."""
    shown = (each for each in islice(all_figures(content, digits), LOOKED_THROUGH) if _simple(each))
    if (figure := next(shown, None)) is None:
        return None
    colours = LIGHT | {name: own for name, own in (("accent", content.look.accent), ("c0", content.look.bars)) if own}
    drawn = Picture([*(colours[name] for name in ("ink", "soft", "line", "accent", "c0")), _pale(colours["c0"])])
    try:
        _draw(drawn, content, figure)
    except NoLetter:
        return None
    return drawn.png()


def _simple(figure: Figure) -> bool:
    return len(figure.series) == 1 and figure.values.size > 1 and figure.kind in ("bars", "steps", "curve")


def _pale(colour: str) -> str:
    return "#" + "".join(f"{round(255 + 0.3 * (int(colour[place : place + 2], 16) - 255)):02x}" for place in (1, 3, 5))


def _draw(drawn: Picture, content: Content, figure: Figure) -> None:
    drawn.box(0, 0, WIDE, 10, ACCENT)
    base = 68.0
    publisher = content.look.name or content.about.get("curator") or ""
    if publisher:
        drawn.write(EDGE, base, _fitting(publisher, WIDE - 2 * EDGE), ACCENT)
        base += 16
    for text in _lines(content.title, WIDE - 2 * EDGE):
        base += 50
        drawn.write(EDGE, base, text, INK, "bold")
        base += 4
    base += 46
    drawn.write(EDGE, base, _fitting(_heading(figure), WIDE - 2 * EDGE), SOFT)
    (_bars if figure.kind == "bars" else _curve)(drawn, figure, base + 28, TALL - 110)
    counted = recalled(content.certificate["method"]["counted"])
    told = plural(
        answered(content.certificate),
        "{count:,} answer about {counted}, with the size of its noise",
        "{count:,} answers about {counted}, each with the size of its noise",
        counted=counted,
    )
    footer = intervals_shown(figure), told
    for line, text in enumerate(footer):
        drawn.write(EDGE, TALL - 64 + 36 * line, _fitting(text, WIDE - 2 * EDGE), SOFT)


def _heading(figure: Figure) -> str:
    more = len(figure.values) - MOST_BARS
    cut = (
        say("the first {shown} of {all:,}", shown=MOST_BARS, all=len(figure.values))
        if figure.kind == "bars" and more > 0
        else ""
    )
    return " · ".join(filter(None, [capitalised(figure.heading), figure.measure.split(": ")[0], cut]))


def _bars(drawn: Picture, figure: Figure, top: float, bottom: float) -> None:
    """The first bars, their intervals, names and numbers."""
    rows = range(min(MOST_BARS, len(figure.values)))
    names = [_fitting(figure.axis.names[row], 360) for row in rows]
    texts = [with_interval(float(figure.values[row, 0]), float(figure.half[row, 0])) for row in rows]
    width = letters("text").width
    left, right = EDGE + max(map(width, names)) + 18, WIDE - EDGE - max(map(width, texts)) - 14
    held, tall = scale(*figure.reach), min(56.0, (bottom - top) / len(rows))
    low, high = figure.intervals

    def x(value: float) -> float:
        return left + float(np.clip(held.part(value), 0, 1)) * (right - left)

    for row in rows:
        value, upper, middle = figure.heights[row, 0], top + row * tall, top + (row + 0.5) * tall
        ends = sorted((x(0), x(value)))
        drawn.box(ends[0], upper + 5, ends[1], upper + tall - 5, BARS)
        after = ends[1]
        if value > figure.broken_at:
            for gap in (34, 20):
                drawn.clear(right - gap, upper + 5, right - gap + 6, upper + tall - 5)
        elif high[row, 0] > low[row, 0]:
            begin, after = x(low[row, 0]), x(high[row, 0])
            drawn.box(begin, middle - 1, after, middle + 1, INK)
            for end in (begin, after):
                drawn.box(end - 1, middle - 7, end + 1, middle + 7, INK)
        drawn.write(left - 14 - width(names[row]), middle + 9, names[row], INK)
        drawn.write(max(after, ends[1]) + 12, middle + 9, texts[row], INK)
    drawn.box(x(0) - 1, top, x(0) + 1, top + tall * len(rows), SOFT)


def _curve(drawn: Picture, figure: Figure, top: float, bottom: float) -> None:
    """The curve within its intervals, over round numbers; the first and the last value are named."""
    held, width, bottom = scale(*figure.reach, most=4), letters("text").width, bottom - 34
    left = EDGE + round(max(width(held.text(tick)) for tick in held.ticks)) + 14
    series = (_along(figure, part[:, 0], WIDE - EDGE - left) for part in (figure.heights, *figure.intervals))
    value, low, high = (bottom - (each - held.low) / (held.high - held.low) * (bottom - top) for each in series)
    for tick in held.ticks:
        y = bottom - held.part(tick) * (bottom - top)
        drawn.box(left, y - 1, WIDE - EDGE, y, SOFT if tick == 0 else LINE)
        drawn.write(left - 12 - width(held.text(tick)), y + 9, held.text(tick), SOFT)
    before = np.append(value[0], value[:-1])
    drawn.columns(left, high, low, BAND)
    drawn.columns(left, np.minimum(value, before) - 1.5, np.maximum(value, before) + 1.5, BARS)
    first, last = figure.axis.names[0], figure.axis.names[-1]
    drawn.write(left, bottom + 30, first, SOFT)
    drawn.write(WIDE - EDGE - width(last), bottom + 30, last, SOFT)


def _along(figure: Figure, part: Matrix, columns: int) -> Matrix:
    """A series at evenly spaced places between the first and the last edge of its axis."""
    edges = np.arange(len(part) + 1.0) if figure.axis.edges is None else figure.axis.edges
    if figure.kind == "steps":
        at = np.linspace(edges[0], edges[-1], columns, endpoint=False)
        return np.asarray(part[np.searchsorted(edges[1:-1], at, side="right")])
    return np.interp(np.linspace(edges[0], edges[-2], columns), edges[:-1], part)


def _fitting(text: str, room: float, style: Style = "text") -> str:
    """The text, or as much of it as the room holds. Raises: NoLetter."""
    width = letters(style).width
    if width(text) <= room:
        return text
    while text and width(text + "…") > room:
        text = text[:-1]
    return text.rstrip() + "…"


def _lines(text: str, room: float) -> list[str]:
    """A title in one line or two."""
    first, rest = "", text.split()
    while rest and letters("bold").width(f"{first} {rest[0]}") <= room:
        first = f"{first} {rest.pop(0)}".strip()
    lines = [first or rest.pop(0), " ".join(rest)]
    return [_fitting(line, room, "bold") for line in lines if line]
