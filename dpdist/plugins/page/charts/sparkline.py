"""A chart as small as a word, for an overview: its marks and their 95 % intervals, without numbers; nothing where noise does not tell."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpdist.api.pages import Matrix, simultaneous_half_widths
from dpdist.plugins.page.charts.chart_data import Figure
from dpdist.plugins.page.charts.heat_map import cell_classes, class_limits
from dpdist.plugins.page.charts.svg_frame import SERIES

SPARKLINE_WIDTH, SPARKLINE_HEIGHT, MOST_MARKS, WIDEST_BARS = 340, 64, 90, 48
"""Pixels across and down, most marks, and pixels of the widest group of bars."""
GAP = 2.0


def draw_sparkline(figure: Figure, name: str = "") -> str:
    """The first values of each series as bars or as lines, or the cells of a map, whose longer side lies across, under a name.

    Empty where no value lies clear of zero with all intervals taken together: without an axis, noise would look like a signal.
    """
    if not (np.abs(figure.values) > np.nan_to_num(simultaneous_half_widths(figure.half))).any():
        return ""
    draw = _cell_marks if figure.kind == "heat" else _curve_marks if figure.axis.edges is not None else _bar_marks
    box = f'viewBox="0 0 {SPARKLINE_WIDTH} {SPARKLINE_HEIGHT}" width="{SPARKLINE_WIDTH}" height="{SPARKLINE_HEIGHT}"'
    named = f' id="{name}"' if name else ""
    return f'<svg class="small-chart" {box} aria-hidden="true"><g{named}>{draw(figure)}</g></svg>'


def _cell_marks(figure: Figure) -> str:
    """A path a class; cells side by side of one class are one mark."""
    classes = cell_classes(figure, class_limits(figure)).T
    classes = classes if classes.shape[1] >= classes.shape[0] else classes.T
    cell_height, cell_width = (SPARKLINE_HEIGHT - 2) / classes.shape[0], SPARKLINE_WIDTH / classes.shape[1]
    paths: dict[int, str] = {}
    for i, row in enumerate(classes):
        starts = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist()]
        for start, stop in zip(starts, [*starts[1:], len(row)], strict=True):
            width = (stop - start) * cell_width
            box = f"M{start * cell_width:.1f} {i * cell_height:.1f}h{width:.1f}v{cell_height:.1f}h-{width:.1f}z"
            paths[int(row[start])] = paths.get(int(row[start]), "") + box
    return "".join(f'<path class="h{"s" if k < 0 else k}" d="{path}"/>' for k, path in sorted(paths.items()))


@dataclass(frozen=True)
class ChartValues:
    """Where so many values as there is room for lie, with the ends of their intervals: pixels from above, (values, series)."""

    heights: Matrix
    zero: float
    value: Matrix
    low: Matrix
    high: Matrix


def _chart_values(figure: Figure) -> ChartValues:
    every = math.ceil(len(figure.heights) * len(figure.series) ** (figure.axis.edges is None) / MOST_MARKS)
    heights = np.nan_to_num(np.minimum(figure.heights[::every], figure.broken_at))
    half = np.nan_to_num(figure.spreads[::every])
    low_end, high_end = heights - half, np.minimum(heights + half, figure.broken_at)
    low, high = min(0.0, float(low_end.min())), max(float(high_end.max()), 1e-9)

    def pixels(values: Matrix) -> Matrix:
        return SPARKLINE_HEIGHT - 2 - (values - low) / (high - low) * (SPARKLINE_HEIGHT - 4)

    return ChartValues(heights, float(pixels(np.zeros(1))[0]), pixels(heights), pixels(low_end), pixels(high_end))


def _polyline(places: list[float], heights: Matrix) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(places, heights, strict=True))


def _curve_marks(figure: Figure) -> str:
    marks = _chart_values(figure)
    step = SPARKLINE_WIDTH / max(1, len(marks.heights) - 1)
    places = [k * step for k in range(len(marks.heights))]
    bands = "".join(
        f'<path class="band f{s % SERIES}" d="M{_polyline(places, high)}L{_polyline(places[::-1], low[::-1])}z"/>'
        for s, (low, high) in enumerate(zip(marks.low.T, marks.high.T, strict=True))
    )
    lines = (f'<path class="outline s{s % SERIES}" d="M{_polyline(places, y)}"/>' for s, y in enumerate(marks.value.T))
    return bands + "".join(lines)


def _bar_marks(figure: Figure) -> str:
    marks = _chart_values(figure)
    heights, zero, step = marks.heights, marks.zero, min(WIDEST_BARS, SPARKLINE_WIDTH / len(marks.heights))
    bar_width = (step - min(GAP, step / 4)) / heights.shape[1]
    paths = (
        "".join(
            f"M{k * step + s * bar_width:.1f} {zero:.1f}V{y_position:.1f}h{bar_width:.1f}V{zero:.1f}z"
            for k, y_position in enumerate(column)
        )
        for s, column in enumerate(marks.value.T)
    )
    bar_paths = "".join(f'<path class="f{s % SERIES}" d="{path}"/>' for s, path in enumerate(paths))
    intervals = "".join(
        f"M{k * step + (s + 0.5) * bar_width:.1f} {low:.1f}V{high:.1f}"
        for s, ends in enumerate(zip(marks.low.T, marks.high.T, strict=True))
        for k, (low, high) in enumerate(zip(*ends, strict=True))
    )
    bar_paths += f'<path class="whisker" d="{intervals}"/>'
    giants = np.flatnonzero(heights.max(axis=1) >= figure.broken_at)
    broken = "".join(f"M{k * step:.1f} 18l{step:.1f} -6v4l-{step:.1f} 6z" for k in giants)
    return bar_paths + (f'<path class="break" d="{broken}"/>' if broken else "")
