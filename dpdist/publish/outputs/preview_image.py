"""A picture of a release, which pages show of a link to it: its title, its publisher, and its first chart."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from dpdist.content.destination import WrittenFile
from dpdist.content.number_format import capitalised, with_interval
from dpdist.content.release_content import ReleaseContent
from dpdist.content.release_summary import count_answered
from dpdist.language import plural, say, translate_certificate, use_language
from dpdist.operators import Matrix
from dpdist.page.assets import PREVIEW
from dpdist.page.chart_embedding import interval_caption
from dpdist.page.charts.axis_ticks import value_scale_of
from dpdist.page.charts.chart_data import Figure
from dpdist.page.charts.png_raster import PICTURE_HEIGHT, PICTURE_WIDTH, MissingLetter, Picture, Style, load_letters
from dpdist.page.release_page import all_figures
from dpdist.publish.output_file import Output, ReleaseDraft
from dpdist.theme import LIGHT

MOST_EXAMINED_CHARTS = 12
"""Charts among which one is sought that a small picture can show."""
MOST_BARS = 6
MARGIN = 60
TEXT_INK, SOFT_INK, RULE_INK, ACCENT_INK, BAR_INK, BAND_INK = range(6)


class Preview(Output):
    """The picture, if the release has a chart of one series, and all letters are known that it would show."""

    files = r"preview\.png"
    about = "A picture of 1200 by 630 pixels, which sites show of a link to the page: title, publisher, and the first chart of one series."

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        with use_language(release.content.certificate.get("language", "en")):
            data = preview_image(release.content, release.digits)
        return [] if data is None else [release.destination.write_bytes(PREVIEW, data)]


def preview_image(content: ReleaseContent, digits: int) -> bytes | None:
    """The PNG file; None where there is nothing to show, or a text is in letters that dpdist cannot draw."""
    shown = (
        figure_candidate
        for figure_candidate in islice(all_figures(content, digits), MOST_EXAMINED_CHARTS)
        if _is_simple(figure_candidate)
    )
    if (figure := next(shown, None)) is None:
        return None
    colours = LIGHT | {
        name: publisher_colour
        for name, publisher_colour in (("accent", content.theme.accent), ("c0", content.theme.bars))
        if publisher_colour
    }
    drawn = Picture([*(colours[name] for name in ("ink", "soft", "line", "accent", "c0")), _pale_colour(colours["c0"])])
    try:
        _draw_picture(drawn, content, figure)
    except MissingLetter:
        return None
    return drawn.png()


def _is_simple(figure: Figure) -> bool:
    return len(figure.series) == 1 and figure.values.size > 1 and figure.kind in ("bars", "steps", "curve")


def _pale_colour(colour: str) -> str:
    return "#" + "".join(f"{round(255 + 0.3 * (int(colour[start : start + 2], 16) - 255)):02x}" for start in (1, 3, 5))


def _draw_picture(drawn: Picture, content: ReleaseContent, figure: Figure) -> None:
    drawn.box(0, 0, PICTURE_WIDTH, 10, ACCENT_INK)
    base = 68.0
    publisher = content.theme.name or content.about.get("curator") or ""
    if publisher:
        drawn.write(MARGIN, base, _shorten_to_width(publisher, PICTURE_WIDTH - 2 * MARGIN), ACCENT_INK)
        base += 16
    for text in _title_lines(content.title, PICTURE_WIDTH - 2 * MARGIN):
        base += 50
        drawn.write(MARGIN, base, text, TEXT_INK, "bold")
        base += 4
    base += 46
    drawn.write(MARGIN, base, _shorten_to_width(_heading(figure), PICTURE_WIDTH - 2 * MARGIN), SOFT_INK)
    (_draw_bars if figure.kind == "bars" else _draw_curve)(drawn, figure, base + 28, PICTURE_HEIGHT - 110)
    counted = translate_certificate(content.certificate["method"]["counted"])
    count_text = plural(
        count_answered(content.certificate),
        "{count:,} answer about {counted}, with the size of its noise",
        "{count:,} answers about {counted}, each with the size of its noise",
        counted=counted,
    )
    footer = interval_caption(figure), count_text
    for line_number, text in enumerate(footer):
        drawn.write(
            MARGIN, PICTURE_HEIGHT - 64 + 36 * line_number, _shorten_to_width(text, PICTURE_WIDTH - 2 * MARGIN), SOFT_INK
        )


def _heading(figure: Figure) -> str:
    undrawn_count = len(figure.values) - MOST_BARS
    cut = (
        say("the first {shown} of {all:,}", shown=MOST_BARS, all=len(figure.values))
        if figure.kind == "bars" and undrawn_count > 0
        else ""
    )
    return " · ".join(filter(None, [capitalised(figure.heading), figure.measure.split(": ")[0], cut]))


def _draw_bars(drawn: Picture, figure: Figure, top: float, bottom: float) -> None:
    """The first bars, their intervals, names and numbers."""
    rows = range(min(MOST_BARS, len(figure.values)))
    names = [_shorten_to_width(figure.axis.names[row], 360) for row in rows]
    texts = [with_interval(float(figure.values[row, 0]), float(figure.half[row, 0])) for row in rows]
    width = load_letters("text").width
    left_edge, right_edge = MARGIN + max(map(width, names)) + 18, PICTURE_WIDTH - MARGIN - max(map(width, texts)) - 14
    value_scale, row_height = value_scale_of(*figure.reach), min(56.0, (bottom - top) / len(rows))
    low, high = figure.intervals

    def x(value: float) -> float:
        return left_edge + float(np.clip(value_scale.fraction(value), 0, 1)) * (right_edge - left_edge)

    for row in rows:
        value, upper, middle = figure.heights[row, 0], top + row * row_height, top + (row + 0.5) * row_height
        ends = sorted((x(0), x(value)))
        drawn.box(ends[0], upper + 5, ends[1], upper + row_height - 5, BAR_INK)
        after = ends[1]
        if value > figure.broken_at:
            for gap in (34, 20):
                drawn.clear(right_edge - gap, upper + 5, right_edge - gap + 6, upper + row_height - 5)
        elif high[row, 0] > low[row, 0]:
            begin, after = x(low[row, 0]), x(high[row, 0])
            drawn.box(begin, middle - 1, after, middle + 1, TEXT_INK)
            for end in (begin, after):
                drawn.box(end - 1, middle - 7, end + 1, middle + 7, TEXT_INK)
        drawn.write(left_edge - 14 - width(names[row]), middle + 9, names[row], TEXT_INK)
        drawn.write(max(after, ends[1]) + 12, middle + 9, texts[row], TEXT_INK)
    drawn.box(x(0) - 1, top, x(0) + 1, top + row_height * len(rows), SOFT_INK)


def _draw_curve(drawn: Picture, figure: Figure, top: float, bottom: float) -> None:
    """The curve within its intervals, over round numbers; the first and the last value are named."""
    value_scale, width, bottom = value_scale_of(*figure.reach, max_steps=4), load_letters("text").width, bottom - 34
    left_edge = MARGIN + round(max(width(value_scale.text(tick)) for tick in value_scale.ticks)) + 14
    series = (
        _sample_series(figure, numbers[:, 0], PICTURE_WIDTH - MARGIN - left_edge)
        for numbers in (figure.heights, *figure.intervals)
    )
    value, low, high = (
        bottom - (series_values - value_scale.low) / (value_scale.high - value_scale.low) * (bottom - top)
        for series_values in series
    )
    for tick in value_scale.ticks:
        y = bottom - value_scale.fraction(tick) * (bottom - top)
        drawn.box(left_edge, y - 1, PICTURE_WIDTH - MARGIN, y, SOFT_INK if tick == 0 else RULE_INK)
        drawn.write(left_edge - 12 - width(value_scale.text(tick)), y + 9, value_scale.text(tick), SOFT_INK)
    before = np.append(value[0], value[:-1])
    drawn.columns(left_edge, high, low, BAND_INK)
    drawn.columns(left_edge, np.minimum(value, before) - 1.5, np.maximum(value, before) + 1.5, BAR_INK)
    first_name, last_name = figure.axis.names[0], figure.axis.names[-1]
    drawn.write(left_edge, bottom + 30, first_name, SOFT_INK)
    drawn.write(PICTURE_WIDTH - MARGIN - width(last_name), bottom + 30, last_name, SOFT_INK)


def _sample_series(figure: Figure, numbers: Matrix, columns: int) -> Matrix:
    """A series at evenly spaced places between the first and the last edge of its axis."""
    edges = np.arange(len(numbers) + 1.0) if figure.axis.edges is None else figure.axis.edges
    if figure.kind == "steps":
        sample_points = np.linspace(edges[0], edges[-1], columns, endpoint=False)
        return np.asarray(numbers[np.searchsorted(edges[1:-1], sample_points, side="right")])
    return np.interp(np.linspace(edges[0], edges[-2], columns), edges[:-1], numbers)


def _shorten_to_width(text: str, max_width: float, style: Style = "text") -> str:
    """The text, or as much of it as the room holds. Raises: NoLetter."""
    width = load_letters(style).width
    if width(text) <= max_width:
        return text
    while text and width(text + "…") > max_width:
        text = text[:-1]
    return text.rstrip() + "…"


def _title_lines(text: str, max_width: float) -> list[str]:
    """A title in one line or two."""
    title_start, rest = "", text.split()
    while rest and load_letters("bold").width(f"{title_start} {rest[0]}") <= max_width:
        title_start = f"{title_start} {rest.pop(0)}".strip()
    title_lines = [title_start or rest.pop(0), " ".join(rest)]
    return [_shorten_to_width(title_line, max_width, "bold") for title_line in title_lines if title_line]
