"""A map of two attributes: classes of counts with a legend; cells that noise may have made stay grey."""

from __future__ import annotations

import numpy as np

from dpdist.content.number_format import number_text, plain
from dpdist.language import say
from dpdist.operators import Matrix
from dpdist.page.charts.axis_ticks import breaks, nice_step
from dpdist.page.charts.chart_data import Axis, Figure
from dpdist.page.charts.svg_frame import NARROW, Drawn, framed, group
from dpdist.page.charts.text_layout import LINE, at, lines, width

CLASSES = 7
TURNED = 190
"""Most pixels of the names above the columns of a wide map."""
UPRIGHT = 150.0
"""Most pixels of those above the columns of a narrow one."""


def heat(figure: Figure, across: int) -> Drawn:
    """The map, and where its cells are: ``x``, ``y`` of the first one, ``cell`` its size."""
    assert figure.across is not None
    narrow = across == NARROW
    rows, columns = figure.axis, figure.across
    limits = limits_of(figure)
    classes = classes_of(figure, limits)
    left = min(230.0 if not narrow else 118.0, max(map(width, map(str, rows.labels))) + 10)
    head, top = legend_of(figure, limits, across)
    titles = say("{rows} downwards, {columns} across", rows=rows.title, columns=columns.title)
    head.append(at(0, top + 12, titles, room=across))
    top += LINE * len(lines(titles, across)[0]) + 2
    wide = (across - left - 2) / len(columns.labels)
    flat = max(map(width, map(str, columns.labels))) + 6 <= wide
    turned = (
        0.0
        if flat
        else min(UPRIGHT, max(map(width, map(str, columns.labels))) + 8)
        if narrow
        else min(float(TURNED), 0.72 * max(map(width, map(str, columns.labels))) + 8)
    )
    wide = wide if flat or narrow else (across - left - 4 - turned) / (len(columns.labels) - 0.5)
    names, top = _column_names(columns, left, top, wide, flat, narrow, turned)
    tall = _cell_height(rows, narrow, left)
    bottom = top + tall * len(rows.labels)
    cells = _cells(classes, (left, top), (wide, tall), len(limits))
    values = _values(figure, classes, (left, top), (wide, tall))
    parts = [*head, *names, *_row_names(rows, left, top, tall), group("marks", cells), group("values", values)]
    parts.append(hatching("nn" if narrow else "nw"))
    places = {"x": [left, across], "y": [top, bottom], "cell": [wide, tall]}
    return Drawn(framed(figure, across, bottom + 10, parts), places)


def hatching(name: str, scale: float = 1.0) -> str:
    """The pattern of what noise may have made, for parts that are drawn ``scale`` times as large as the chart."""
    turned = "" if scale == 1 else f' patternTransform="scale({1 / scale:.2f})"'
    return (
        f'<defs><pattern id="{name}" width="5" height="5" patternUnits="userSpaceOnUse"{turned}>'
        '<path class="bed" d="M0 0h5v5H0z"/><path class="hatch" d="M-1 1L1 -1M0 5L5 0M4 6L6 4"/></pattern></defs>'
    )


def limits_of(figure: Figure) -> list[float]:
    """Limits of the classes: a few cells that are far larger than three quarters of the others share the last class."""
    peak = max(float(figure.values.max()), 1.0)
    clear = figure.values[figure.values > np.nan_to_num(figure.half)]
    usual = peak if clear.size == 0 else min(peak, 4 * max(float(np.quantile(clear, 0.75, method="lower")), 1.0))
    limits = breaks(usual, CLASSES)
    return limits if usual == peak else [*limits[:-1], float(np.ceil(peak))]


def classes_of(figure: Figure, limits: list[float]) -> Matrix:
    """Number of each cell's class; -1 where the interval holds zero."""
    found = np.searchsorted(np.array(limits[:-1]), figure.values, side="right")
    low = figure.values - np.where(np.isnan(figure.half), 0.0, figure.half)
    return np.where(low <= 0, -1, found)


def legend_of(figure: Figure, limits: list[float], across: int) -> tuple[list[str], float]:
    """What is counted and the colours of the classes, and where they end."""
    parts = [at(0, 13, figure.measure, kind="soft", room=across)]
    y = 13.0 + LINE * len(lines(figure.measure, across)[0]) - 6
    step = min(64.0, (across - 20) / len(limits))
    parts += [
        f'<rect x="{k * step:.1f}" y="{y:.1f}" width="{step - 1:.1f}" height="13" class="h{k}"/>' for k in range(len(limits))
    ]
    free = -1.0
    for k, limit in enumerate([0.0, *limits]):
        text = plain(limit, 0 if limit >= 10 or float(limit).is_integer() else 1)
        half = width(text, 12) / 2
        x = min(max(k * step, half), across - half)
        if x - half > free:
            parts.append(at(x, y + 27, text, anchor="middle", kind="soft small"))
            free = x + half + 4
    y += 36
    if (classes_of(figure, limits) < 0).any():
        text = say("interval holds 0: the noise alone may have made it")
        parts.append(f'<rect x="0" y="{y:.1f}" width="13" height="13" class="hn"/>')
        parts.append(at(19, y + 11, text, kind="soft small", room=across - 20))
        y += 4 + LINE * len(lines(text, across - 20)[0])
    return parts, y + 6


def _column_names(
    columns: Axis, left: float, top: float, wide: float, flat: bool, narrow: bool, turned: float
) -> tuple[list[str], float]:
    """Names above the columns: level where they fit, else turned, or on phones upright; and where the cells begin."""
    if flat:
        return [
            *(at(left + (k + 0.5) * wide, top + 12, str(name), anchor="middle") for k, name in enumerate(columns.labels)),
        ], top + 18
    parts: list[str] = []
    top += turned
    room, angle, shift = (UPRIGHT - 10, 90, 4.5) if narrow else ((TURNED - 10) / 0.72, 45, 0.0)
    for k in range(0, len(columns.labels), max(1, int(np.ceil(14 / wide))) if narrow else 1):
        name = str(columns.labels[k])
        (text, *_), cut = lines(name, room, 1)
        x, y = left + (k + 0.5) * wide + shift, top - 4
        inner = at(0, 0, text) if not cut else at(0, 0, name, room=room, most=1)
        parts.append(f'<g transform="translate({x:.1f} {y:.1f}) rotate(-{angle})">{inner}</g>')
    return parts, top


def _cell_height(rows: Axis, narrow: bool, left: float) -> float:
    if rows.edges is not None:
        return float(np.clip(680 / len(rows.labels), 5, 24))
    most = max(len(lines(str(name), left - 8)[0]) for name in rows.labels)
    return max(22.0, most * LINE + 2) if len(rows.labels) <= 60 else 14.0 if not narrow else 17.0


def _row_names(rows: Axis, left: float, top: float, tall: float) -> list[str]:
    parts = []
    numbers = rows.edges if rows.unit_steps and not rows.named and rows.clock is None else None
    if numbers is not None and tall < LINE:
        step = max(1, int(nice_step(LINE / tall)))
        first = int(numbers[0])
        picked = [k for k in range(len(rows.labels)) if (first + k) % step == 0]
    else:
        every = max(1, int(np.ceil(14 / tall)))
        picked = list(range(0, len(rows.labels), every))
    for k in picked:
        name = str(rows.labels[k]) if numbers is None else number_text(float(numbers[k]))
        count = len(lines(name, left - 8)[0])
        parts.append(at(left - 6, top + (k + 0.5) * tall + 4.5 - (count - 1) * LINE / 2, name, anchor="end", room=left - 8))
    return parts


def _cells(classes: Matrix, start: tuple[float, float], cell: tuple[float, float], count: int) -> list[str]:
    """One path a class: a cell is a stroke as thick as it is tall, in half as many letters as a box."""
    wide, tall = cell
    gap = 1.0 if tall > 8 else 0.5
    middle, box = start[1] + (tall - gap) / 2, f"h{wide - gap:.1f}"
    parts = []
    for k in range(-1, count):
        rows, columns = np.nonzero(classes == k)
        if rows.size:
            path = "".join(
                f"M{start[0] + j * wide:.1f} {middle + i * tall:.1f}{box}" for i, j in zip(rows, columns, strict=True)
            )
            parts.append(f'<path class="k{"n" if k < 0 else k}" stroke-width="{tall - gap:.1f}" d="{path}"/>')
    return parts


def _values(figure: Figure, classes: Matrix, start: tuple[float, float], cell: tuple[float, float]) -> list[str]:
    """Numbers in cells that are large enough for them."""
    wide, tall = cell
    texts = [[plain(float(value)) for value in row] for row in figure.values]
    if tall < 15 or max(width(text, 12) for row in texts for text in row) > wide - 3:
        return []
    return [
        f'<text x="{start[0] + (j + 0.5) * wide:.1f}" y="{start[1] + (i + 0.5) * tall + 4:.1f}" text-anchor="middle" '
        f'class="small t{"n" if classes[i, j] < 0 else classes[i, j]}">{text}</text>'
        for i, row in enumerate(texts)
        for j, text in enumerate(row)
    ]
