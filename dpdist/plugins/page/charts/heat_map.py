"""A map of two attributes: classes of counts with a legend; cells that noise may have made stay grey."""

from __future__ import annotations

import numpy as np

from dpdist.api.pages import Matrix, format_number, number_text, say
from dpdist.plugins.page.charts.axis_ticks import nice_step, rounded_class_limits
from dpdist.plugins.page.charts.chart_data import Axis, Figure
from dpdist.plugins.page.charts.svg_frame import NARROW, RenderedChart, svg_document, svg_group
from dpdist.plugins.page.charts.text_layout import LINE_HEIGHT, svg_text, text_width, wrap_text

CLASSES = 7
TURNED_HEIGHT = 190
"""Most pixels of the names above the columns of a wide map."""
UPRIGHT_HEIGHT = 150.0
"""Most pixels of those above the columns of a narrow one."""


def draw_heat_map(figure: Figure, chart_width: int) -> RenderedChart:
    """The map, and where its cells are: ``x``, ``y`` of the first one, ``cell`` its size."""
    assert figure.column_axis is not None
    narrow = chart_width == NARROW
    rows, columns = figure.axis, figure.column_axis
    limits = class_limits(figure)
    classes = cell_classes(figure, limits)
    left_edge = min(230.0 if not narrow else 118.0, max(map(text_width, map(str, rows.labels))) + 10)
    head, top = draw_class_legend(figure, limits, chart_width)
    titles = say("{rows} downwards, {columns} across", rows=rows.title, columns=columns.title)
    head.append(svg_text(0, top + 12, titles, max_width=chart_width))
    top += LINE_HEIGHT * len(wrap_text(titles, chart_width)[0]) + 2
    cell_width = (chart_width - left_edge - 2) / len(columns.labels)
    is_level = max(map(text_width, map(str, columns.labels))) + 6 <= cell_width
    name_height = (
        0.0
        if is_level
        else min(UPRIGHT_HEIGHT, max(map(text_width, map(str, columns.labels))) + 8)
        if narrow
        else min(float(TURNED_HEIGHT), 0.72 * max(map(text_width, map(str, columns.labels))) + 8)
    )
    cell_width = (
        cell_width if is_level or narrow else (chart_width - left_edge - 4 - name_height) / (len(columns.labels) - 0.5)
    )
    names, top = _column_names(columns, left_edge, top, cell_width, is_level, narrow, name_height)
    cell_height = _cell_height(rows, narrow, left_edge)
    bottom = top + cell_height * len(rows.labels)
    cells = _cells(classes, (left_edge, top), (cell_width, cell_height), len(limits))
    values = _values(figure, classes, (left_edge, top), (cell_width, cell_height))
    elements = [
        *head,
        *names,
        *_row_names(rows, left_edge, top, cell_height),
        svg_group("marks", cells),
        svg_group("values", values),
    ]
    elements.append(hatch_pattern("nn" if narrow else "nw"))
    positions = {"x": [left_edge, chart_width], "y": [top, bottom], "cell": [cell_width, cell_height]}
    return RenderedChart(svg_document(figure, chart_width, bottom + 10, elements), positions)


def hatch_pattern(name: str, scale: float = 1.0) -> str:
    """The pattern of what noise may have made, for parts that are drawn ``scale`` times as large as the chart."""
    turned = "" if scale == 1 else f' patternTransform="scale({1 / scale:.2f})"'
    return (
        f'<defs><pattern id="{name}" width="5" height="5" patternUnits="userSpaceOnUse"{turned}>'
        '<path class="bed" d="M0 0h5v5H0z"/><path class="hatch" d="M-1 1L1 -1M0 5L5 0M4 6L6 4"/></pattern></defs>'
    )


def class_limits(figure: Figure) -> list[float]:
    """Limits of the classes: a few cells that are far larger than three quarters of the others share the last class."""
    peak = max(float(figure.values.max()), 1.0)
    clear = figure.values[figure.values > np.nan_to_num(figure.half)]
    usual = peak if clear.size == 0 else min(peak, 4 * max(float(np.quantile(clear, 0.75, method="lower")), 1.0))
    limits = rounded_class_limits(usual, CLASSES)
    return limits if usual == peak else [*limits[:-1], float(np.ceil(peak))]


def cell_classes(figure: Figure, limits: list[float]) -> Matrix:
    """Number of each cell's class; -1 where the interval holds zero."""
    classes = np.searchsorted(np.array(limits[:-1]), figure.values, side="right")
    low = figure.values - np.where(np.isnan(figure.half), 0.0, figure.half)
    return np.where(low <= 0, -1, classes)


def draw_class_legend(figure: Figure, limits: list[float], chart_width: int) -> tuple[list[str], float]:
    """What is counted and the colours of the classes, and where they end."""
    elements = [svg_text(0, 13, figure.measure, kind="soft", max_width=chart_width)]
    y = 13.0 + LINE_HEIGHT * len(wrap_text(figure.measure, chart_width)[0]) - 6
    step = min(64.0, (chart_width - 20) / len(limits))
    elements += [
        f'<rect x="{k * step:.1f}" y="{y:.1f}" width="{step - 1:.1f}" height="13" class="h{k}"/>' for k in range(len(limits))
    ]
    free = -1.0
    for k, limit in enumerate([0.0, *limits]):
        text = format_number(limit, 0 if limit >= 10 or float(limit).is_integer() else 1)
        half = text_width(text, 12) / 2
        x = min(max(k * step, half), chart_width - half)
        if x - half > free:
            elements.append(svg_text(x, y + 27, text, anchor="middle", kind="soft small"))
            free = x + half + 4
    y += 36
    if (cell_classes(figure, limits) < 0).any():
        text = say("interval holds 0: the noise alone may have made it")
        elements.append(f'<rect x="0" y="{y:.1f}" width="13" height="13" class="hn"/>')
        elements.append(svg_text(19, y + 11, text, kind="soft small", max_width=chart_width - 20))
        y += 4 + LINE_HEIGHT * len(wrap_text(text, chart_width - 20)[0])
    return elements, y + 6


def _column_names(
    columns: Axis, left_edge: float, top: float, cell_width: float, is_level: bool, narrow: bool, name_height: float
) -> tuple[list[str], float]:
    """Names above the columns: level where they fit, else turned, or on phones upright; and where the cells begin."""
    if is_level:
        return [
            *(
                svg_text(left_edge + (k + 0.5) * cell_width, top + 12, str(name), anchor="middle")
                for k, name in enumerate(columns.labels)
            ),
        ], top + 18
    elements: list[str] = []
    top += name_height
    name_width, angle, shift = (UPRIGHT_HEIGHT - 10, 90, 4.5) if narrow else ((TURNED_HEIGHT - 10) / 0.72, 45, 0.0)
    for k in range(0, len(columns.labels), max(1, int(np.ceil(14 / cell_width))) if narrow else 1):
        name = str(columns.labels[k])
        (text, *_), cut = wrap_text(name, name_width, 1)
        x, y = left_edge + (k + 0.5) * cell_width + shift, top - 4
        inner = svg_text(0, 0, text) if not cut else svg_text(0, 0, name, max_width=name_width, max_lines=1)
        elements.append(f'<g transform="translate({x:.1f} {y:.1f}) rotate(-{angle})">{inner}</g>')
    return elements, top


def _cell_height(rows: Axis, narrow: bool, left_edge: float) -> float:
    if rows.edges is not None:
        return float(np.clip(680 / len(rows.labels), 5, 24))
    max_lines = max(len(wrap_text(str(name), left_edge - 8)[0]) for name in rows.labels)
    return max(22.0, max_lines * LINE_HEIGHT + 2) if len(rows.labels) <= 60 else 14.0 if not narrow else 17.0


def _row_names(rows: Axis, left_edge: float, top: float, cell_height: float) -> list[str]:
    elements = []
    numbers = rows.edges if rows.unit_steps and not rows.named and rows.clock is None else None
    if numbers is not None and cell_height < LINE_HEIGHT:
        step = max(1, int(nice_step(LINE_HEIGHT / cell_height)))
        first_number = int(numbers[0])
        picked = [k for k in range(len(rows.labels)) if (first_number + k) % step == 0]
    else:
        label_interval = max(1, int(np.ceil(14 / cell_height)))
        picked = list(range(0, len(rows.labels), label_interval))
    for k in picked:
        name = str(rows.labels[k]) if numbers is None else number_text(float(numbers[k]))
        count = len(wrap_text(name, left_edge - 8)[0])
        elements.append(
            svg_text(
                left_edge - 6,
                top + (k + 0.5) * cell_height + 4.5 - (count - 1) * LINE_HEIGHT / 2,
                name,
                anchor="end",
                max_width=left_edge - 8,
            )
        )
    return elements


def _cells(classes: Matrix, start: tuple[float, float], cell: tuple[float, float], count: int) -> list[str]:
    """One path a class: a cell is a stroke as thick as it is tall, in half as many letters as a box."""
    cell_width, cell_height = cell
    gap = 1.0 if cell_height > 8 else 0.5
    middle, box = start[1] + (cell_height - gap) / 2, f"h{cell_width - gap:.1f}"
    paths = []
    for k in range(-1, count):
        rows, columns = np.nonzero(classes == k)
        if rows.size:
            path = "".join(
                f"M{start[0] + j * cell_width:.1f} {middle + i * cell_height:.1f}{box}"
                for i, j in zip(rows, columns, strict=True)
            )
            paths.append(f'<path class="k{"n" if k < 0 else k}" stroke-width="{cell_height - gap:.1f}" d="{path}"/>')
    return paths


def _values(figure: Figure, classes: Matrix, start: tuple[float, float], cell: tuple[float, float]) -> list[str]:
    """Numbers in cells that are large enough for them."""
    cell_width, cell_height = cell
    texts = [[format_number(float(value)) for value in row] for row in figure.values]
    if cell_height < 15 or max(text_width(text, 12) for row in texts for text in row) > cell_width - 3:
        return []
    return [
        f'<text x="{start[0] + (j + 0.5) * cell_width:.1f}" y="{start[1] + (i + 0.5) * cell_height + 4:.1f}" text-anchor="middle" '
        f'class="small t{"n" if classes[i, j] < 0 else classes[i, j]}">{text}</text>'
        for i, row in enumerate(texts)
        for j, text in enumerate(row)
    ]
