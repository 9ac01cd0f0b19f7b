"""A chart as small as a word, for an overview: its marks alone, without numbers."""

from __future__ import annotations

import math

import numpy as np

from dpdist.operators import Matrix
from dpdist.page.charts.chart_data import Figure
from dpdist.page.charts.heat_map import cell_classes, class_limits
from dpdist.page.charts.svg_frame import SERIES

SPARKLINE_WIDTH, SPARKLINE_HEIGHT, MOST_MARKS, WIDEST_BARS = 340, 64, 90, 48
"""Pixels across and down, most marks, and pixels of the widest group of bars."""
GAP = 2.0


def draw_sparkline(figure: Figure, name: str = "") -> str:
    """The first values of each series as bars or as lines, or the cells of a map, whose longer side lies across, under a name."""
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


def _heights(figure: Figure) -> tuple[Matrix, Matrix]:
    """So many values as there is room for, and where they and zero lie."""
    heights = figure.heights[
        :: math.ceil(len(figure.heights) * len(figure.series) ** (figure.axis.edges is None) / MOST_MARKS)
    ]
    heights = np.nan_to_num(np.minimum(heights, figure.broken_at))
    low, high = min(0.0, float(heights.min())), max(float(heights.max()), 1e-9)
    return heights, SPARKLINE_HEIGHT - 2 - (np.vstack([np.zeros(heights.shape[1]), heights]) - low) / (high - low) * (
        SPARKLINE_HEIGHT - 4
    )


def _curve_marks(figure: Figure) -> str:
    heights, y = _heights(figure)
    step = SPARKLINE_WIDTH / max(1, len(heights) - 1)
    paths = (
        "".join(f"{'L' if k else 'M'}{k * step:.1f} {y_position:.1f}" for k, y_position in enumerate(column))
        for column in y[1:].T
    )
    return "".join(f'<path class="outline s{s % SERIES}" d="{path}"/>' for s, path in enumerate(paths))


def _bar_marks(figure: Figure) -> str:
    heights, y = _heights(figure)
    (zero, *_), step = y[0], min(WIDEST_BARS, SPARKLINE_WIDTH / len(heights))
    bar_width = (step - min(GAP, step / 4)) / heights.shape[1]
    paths = (
        "".join(
            f"M{k * step + s * bar_width:.1f} {zero:.1f}V{y_position:.1f}h{bar_width:.1f}V{zero:.1f}z"
            for k, y_position in enumerate(column)
        )
        for s, column in enumerate(y[1:].T)
    )
    bar_paths = "".join(f'<path class="f{s % SERIES}" d="{path}"/>' for s, path in enumerate(paths))
    giants = np.flatnonzero(heights.max(axis=1) >= figure.broken_at)
    broken = "".join(f"M{k * step:.1f} 18l{step:.1f} -6v4l-{step:.1f} 6z" for k in giants)
    return bar_paths + (f'<path class="break" d="{broken}"/>' if broken else "")
