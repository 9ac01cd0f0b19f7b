"""A chart as small as a word, for an overview: its outline alone, without numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpdist.page.charts.figure import Figure

ACROSS, TALL, MOST, WIDEST = 340, 64, 90, 48
"""Pixels across and down, most marks, and pixels of the widest bar."""


def small(figure: Figure) -> str:
    """The first values of each series, as bars or as lines; a map as the rows' sums. It says nothing that its chart does not say."""
    if figure.kind == "bars" and len(figure.series) > 1:
        total = figure.values.sum(axis=1, keepdims=True)
        figure = replace(figure, series=("",), values=total, half=np.zeros_like(total), sides=None)
    heights = figure.heights.sum(axis=1, keepdims=True) if figure.kind == "heat" else figure.heights[:, :4]
    every = -(-len(heights) // MOST)
    heights = np.nan_to_num(np.minimum(heights[::every], figure.broken_at))
    low, high = min(0.0, float(heights.min())), max(float(heights.max()), 1e-9)
    step = ACROSS / len(heights) if figure.axis.edges is not None else min(WIDEST, ACROSS / len(heights))

    def y(value: float) -> float:
        return TALL - 2 - (value - low) / (high - low) * (TALL - 4)

    if figure.axis.edges is None:
        gap = min(2.0, step / 4)
        marks = "".join(
            f"M{k * step:.1f} {y(0):.1f}V{y(value):.1f}h{step - gap:.1f}V{y(0):.1f}z" for k, (value,) in enumerate(heights)
        )
        parts = f'<path class="f0" d="{marks}"/>'
        giants = np.flatnonzero(heights[:, 0] >= figure.broken_at)
        if giants.size:
            parts += (
                f'<path class="break" d="{"".join(f"M{k * step:.1f} 18l{step:.1f} -6v4l-{step:.1f} 6z" for k in giants)}"/>'
            )
    else:
        paths = (
            "".join(f"{'L' if k else 'M'}{(k + 0.5) * step:.1f} {y(value):.1f}" for k, value in enumerate(column))
            for column in heights.T
        )
        parts = "".join(f'<path class="outline s{k}" d="{path}"/>' for k, path in enumerate(paths))
    return f'<svg class="small-chart" viewBox="0 0 {ACROSS} {TALL}" width="{ACROSS}" height="{TALL}" aria-hidden="true">{parts}</svg>'
