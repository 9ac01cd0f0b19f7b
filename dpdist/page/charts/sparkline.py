"""A chart as small as a word, for an overview: its marks alone, without numbers."""

from __future__ import annotations

import math

import numpy as np

from dpdist.operators import Matrix
from dpdist.page.charts.chart_data import Figure
from dpdist.page.charts.heat_map import classes_of, limits_of
from dpdist.page.charts.svg_frame import SERIES

ACROSS, TALL, MOST, WIDEST = 340, 64, 90, 48
"""Pixels across and down, most marks, and pixels of the widest group of bars."""
GAP = 2.0


def small(figure: Figure, name: str = "") -> str:
    """The first values of each series as bars or as lines, or the cells of a map, whose longer side lies across, under a name."""
    draw = _cells if figure.kind == "heat" else _lines if figure.axis.edges is not None else _bars
    box = f'viewBox="0 0 {ACROSS} {TALL}" width="{ACROSS}" height="{TALL}"'
    named = f' id="{name}"' if name else ""
    return f'<svg class="small-chart" {box} aria-hidden="true"><g{named}>{draw(figure)}</g></svg>'


def _cells(figure: Figure) -> str:
    """A path a class; cells side by side of one class are one mark."""
    classes = classes_of(figure, limits_of(figure)).T
    classes = classes if classes.shape[1] >= classes.shape[0] else classes.T
    tall, wide = (TALL - 2) / classes.shape[0], ACROSS / classes.shape[1]
    paths: dict[int, str] = {}
    for i, row in enumerate(classes):
        starts = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist()]
        for start, stop in zip(starts, [*starts[1:], len(row)], strict=True):
            box = f"M{start * wide:.1f} {i * tall:.1f}h{(stop - start) * wide:.1f}v{tall:.1f}h-{(stop - start) * wide:.1f}z"
            paths[int(row[start])] = paths.get(int(row[start]), "") + box
    return "".join(f'<path class="h{"s" if k < 0 else k}" d="{path}"/>' for k, path in sorted(paths.items()))


def _heights(figure: Figure) -> tuple[Matrix, Matrix]:
    """So many values as there is room for, and where they and zero lie."""
    heights = figure.heights[:: math.ceil(len(figure.heights) * len(figure.series) ** (figure.axis.edges is None) / MOST)]
    heights = np.nan_to_num(np.minimum(heights, figure.broken_at))
    low, high = min(0.0, float(heights.min())), max(float(heights.max()), 1e-9)
    return heights, TALL - 2 - (np.vstack([np.zeros(heights.shape[1]), heights]) - low) / (high - low) * (TALL - 4)


def _lines(figure: Figure) -> str:
    heights, y = _heights(figure)
    step = ACROSS / max(1, len(heights) - 1)
    paths = ("".join(f"{'L' if k else 'M'}{k * step:.1f} {at:.1f}" for k, at in enumerate(column)) for column in y[1:].T)
    return "".join(f'<path class="outline s{s % SERIES}" d="{path}"/>' for s, path in enumerate(paths))


def _bars(figure: Figure) -> str:
    heights, y = _heights(figure)
    (zero, *_), step = y[0], min(WIDEST, ACROSS / len(heights))
    wide = (step - min(GAP, step / 4)) / heights.shape[1]
    paths = (
        "".join(f"M{k * step + s * wide:.1f} {zero:.1f}V{at:.1f}h{wide:.1f}V{zero:.1f}z" for k, at in enumerate(column))
        for s, column in enumerate(y[1:].T)
    )
    parts = "".join(f'<path class="f{s % SERIES}" d="{path}"/>' for s, path in enumerate(paths))
    giants = np.flatnonzero(heights.max(axis=1) >= figure.broken_at)
    broken = "".join(f"M{k * step:.1f} 18l{step:.1f} -6v4l-{step:.1f} 6z" for k in giants)
    return parts + (f'<path class="break" d="{broken}"/>' if broken else "")
