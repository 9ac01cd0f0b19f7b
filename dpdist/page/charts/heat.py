"""A map of two attributes: classes of counts with a legend; cells that noise may have made stay grey."""

from __future__ import annotations

import numpy as np

from dpdist.operators import Matrix
from dpdist.page.charts.drawing import NARROW, Drawn, framed, group
from dpdist.page.charts.figure import Axis, Figure
from dpdist.page.charts.scales import breaks, nice_step
from dpdist.page.charts.text import LINE, at, lines, width
from dpdist.page.numbers import number_text, plain

CLASSES = 7
KEY = "columns are named below"
TURNED = 190
"""Most pixels of the names above the columns of a wide map."""


def heat(figure: Figure, across: int) -> Drawn:
    """The map, and where its cells are: ``x``, ``y`` of the first one, ``cell`` its size."""
    assert figure.across is not None
    narrow = across == NARROW
    rows, columns = figure.axis, figure.across
    limits = breaks(max(float(figure.values.max()), 1.0), CLASSES)
    classes = _classes(figure, limits)
    left = min(230.0 if not narrow else 118.0, max(map(width, map(str, rows.labels))) + 10)
    head, top = _legend(figure, limits, across)
    titles = f"{rows.title} downwards, {columns.title} across"
    head.append(at(0, top + 12, titles, room=across))
    top += LINE * len(lines(titles, across)[0]) + 2
    wide = (across - left - 2) / len(columns.labels)
    flat = max(map(width, map(str, columns.labels))) + 6 <= wide
    turned = 0.0 if flat or narrow else min(float(TURNED), 0.72 * max(map(width, map(str, columns.labels))) + 8)
    wide = wide if flat or narrow else (across - left - 4 - turned) / (len(columns.labels) - 0.5)
    names, top = _column_names(columns, left, top, wide, flat, narrow, turned)
    tall = _cell_height(rows, narrow, left)
    bottom = top + tall * len(rows.labels)
    cells = _cells(classes, (left, top), (wide, tall), len(limits))
    values = _values(figure, classes, (left, top), (wide, tall))
    parts = [*head, *names, *_row_names(rows, left, top, tall), group("marks", cells), group("values", values)]
    height = bottom + 6
    if narrow and not flat:
        key, height = _key(columns, across, bottom + 8)
        parts += key
    places = {"x": [left, across], "y": [top, bottom], "cell": [wide, tall]}
    return Drawn(framed(figure, across, height + 4, parts), places)


def _classes(figure: Figure, limits: list[float]) -> Matrix:
    """Number of each cell's class; -1 where the interval holds zero."""
    found = np.searchsorted(np.array(limits[:-1]), figure.values, side="right")
    low = figure.values - np.where(np.isnan(figure.half), 0.0, figure.half)
    return np.where(low <= 0, -1, found)


def _legend(figure: Figure, limits: list[float], across: int) -> tuple[list[str], float]:
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
    if (figure.spreads > 0).any():
        text = "interval holds 0: the noise alone may have made it"
        parts.append(f'<rect x="0" y="{y:.1f}" width="13" height="13" class="hn"/>')
        parts.append(at(19, y + 11, text, kind="soft small", room=across - 20))
        y += 4 + LINE * len(lines(text, across - 20)[0])
    return parts, y + 6


def _column_names(
    columns: Axis, left: float, top: float, wide: float, flat: bool, narrow: bool, turned: float
) -> tuple[list[str], float]:
    """Names above the columns: level where they fit, else turned, or on phones numbered; and where the cells begin."""
    parts = []
    if narrow and not flat:
        parts.append(at(left, top + 12, KEY, kind="soft small", room=350 - left))
        top += LINE * len(lines(KEY, 350 - left)[0]) + 2
        every = 1 if wide >= 17 else 2 if wide >= 9 else 5
        parts += [
            at(left + (k + 0.5) * wide, top + 12, str(k + 1), anchor="middle", kind="small")
            for k in range(0, len(columns.labels), every)
        ]
        return parts, top + 18
    if flat:
        return [
            *parts,
            *(at(left + (k + 0.5) * wide, top + 12, str(name), anchor="middle") for k, name in enumerate(columns.labels)),
        ], top + 18
    top += turned
    for k, name in enumerate(columns.labels):
        (text, *_), cut = lines(str(name), (TURNED - 10) / 0.72, 1)
        x, y = left + (k + 0.5) * wide, top - 4
        inner = at(0, 0, text) if not cut else at(0, 0, str(name), room=(TURNED - 10) / 0.72, most=1)
        parts.append(f'<g transform="translate({x:.1f} {y:.1f}) rotate(-45)">{inner}</g>')
    return parts, top


def _cell_height(rows: Axis, narrow: bool, left: float) -> float:
    if rows.edges is not None:
        return float(np.clip(680 / len(rows.labels), 5, 24))
    most = max(len(lines(str(name), left - 8)[0]) for name in rows.labels)
    return max(22.0, most * LINE + 2) if len(rows.labels) <= 60 else 14.0 if not narrow else 17.0


def _row_names(rows: Axis, left: float, top: float, tall: float) -> list[str]:
    parts = []
    if rows.edges is not None and not rows.named and tall < LINE and rows.unit_steps:
        step = max(1, int(nice_step(LINE / tall)))
        first = int(rows.edges[0])
        picked = [k for k in range(len(rows.labels)) if (first + k) % step == 0]
    else:
        every = max(1, int(np.ceil(14 / tall)))
        picked = list(range(0, len(rows.labels), every))
    for k in picked:
        name = (
            number_text(float(rows.edges[k]))
            if rows.edges is not None and rows.unit_steps and not rows.named
            else str(rows.labels[k])
        )
        count = len(lines(name, left - 8)[0])
        parts.append(at(left - 6, top + (k + 0.5) * tall + 4.5 - (count - 1) * LINE / 2, name, anchor="end", room=left - 8))
    return parts


def _cells(classes: Matrix, start: tuple[float, float], cell: tuple[float, float], count: int) -> list[str]:
    """One path a class."""
    wide, tall = cell
    gap = 1.0 if tall > 8 else 0.5
    box = f"h{wide - gap:.1f}v{tall - gap:.1f}h-{wide - gap:.1f}z"
    parts = []
    for k in range(-1, count):
        rows, columns = np.nonzero(classes == k)
        if rows.size:
            path = "".join(
                f"M{start[0] + j * wide:.1f} {start[1] + i * tall:.1f}{box}" for i, j in zip(rows, columns, strict=True)
            )
            parts.append(f'<path class="h{"n" if k < 0 else k}" d="{path}"/>')
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


def _key(columns: Axis, across: int, top: float) -> tuple[list[str], float]:
    """Names of numbered columns, one below the other."""
    parts, y = [], top
    for k, name in enumerate(columns.labels):
        parts.append(at(24, y + 12, f"{k + 1}", anchor="end", kind="soft small"))
        parts.append(at(31, y + 12, str(name), room=across - 34))
        y += LINE * len(lines(str(name), across - 34)[0]) + 1
    return parts, y
