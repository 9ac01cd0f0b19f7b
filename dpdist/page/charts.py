"""Small SVG charts with error bars, drawn as text: no script, no network, the same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from dpdist.operators import Matrix

COLOURS = ("#1f5fa8", "#c2410c", "#15803d", "#7c3aed", "#a16207", "#0e7490")
WIDTH = 760


def bars(labels: Sequence[str], series: Mapping[str, tuple[Matrix, Matrix]], axis: str) -> str:
    """Horizontal bars with 95 % intervals, one for each label and series."""
    left, right = 260, 150
    thick = 15 if len(series) == 1 else 13
    row = thick * len(series) + 7
    top = max(float(np.max(values + half)) for values, half in series.values())
    scale = (WIDTH - left - right) / max(top, 1e-9)
    legend = 20 if len(series) > 1 else 0
    parts = [_open(row * len(labels) + legend + 16, f"{axis}: counts with 95 % intervals")]
    for number, name in enumerate(series):
        if legend:
            x, colour = left + 110 * number, COLOURS[number % len(COLOURS)]
            parts.append(f'<rect x="{x}" y="4" width="10" height="10" fill="{colour}"/>')
            parts.append(f'<text x="{x + 14}" y="13">{escape(_short(name, 16))}</text>')
    for i, label in enumerate(labels):
        y = legend + 8 + i * row
        parts.append(f'<text x="{left - 8}" y="{y + row / 2 + 1:.1f}" text-anchor="end">{escape(_short(label, 38))}</text>')
        for number, (name, (values, half)) in enumerate(series.items()):
            level = y + number * thick
            length = max(0.0, float(values[i])) * scale
            low, high = (left + max(0.0, float(values[i] + sign * half[i])) * scale for sign in (-1, 1))
            tip = escape(f"{label}{', ' + name if legend else ''}: {values[i]:,.1f}{_spread(half[i], 1)}")
            size = f'width="{length:.1f}" height="{thick - 1}"'
            fill = COLOURS[number % len(COLOURS)]
            parts.append(f'<rect x="{left}" y="{level}" {size} fill="{fill}"><title>{tip}</title></rect>')
            middle, tick = level + thick / 2 - 0.5, thick / 2 - 1
            marks = (
                f"M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - tick / 2}v{tick}M{high:.1f} {middle - tick / 2}v{tick}"
            )
            if half[i] > 0:
                parts.append(f'<path d="{marks}" class="error"/>')
            parts.append(
                f'<text x="{max(high, left + length) + 6:.1f}" y="{middle + 4}">{values[i]:,.0f}{_spread(half[i], 0)}</text>'
            )
    return "".join([*parts, "</svg>"])


def lines(labels: Sequence[str], series: Mapping[str, tuple[Matrix, Matrix]], axis: str) -> str:
    """One line a series over an ordered attribute, each with its 95 % band."""
    left, right, top, bottom, height = 70, 150, 12, 40, 300
    peak = max(float((v + h).max()) for v, h in series.values())
    trough = min(0.0, *(float((v - h).min()) for v, h in series.values()))
    steps = max(1, len(labels) - 1)

    def x(i: int) -> float:
        return left + (WIDTH - left - right) * i / steps

    def y(value: float) -> float:
        return top + (height - top - bottom) * (peak - value) / max(peak - trough, 1e-9)

    parts = [_open(height, f"{axis}: counts with 95 % bands")]
    for tick in _ticks(trough, peak):
        parts.append(f'<path d="M{left} {y(tick):.1f}H{WIDTH - right}" class="grid"/>')
        parts.append(f'<text x="{left - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{round(tick):,d}</text>')
    for i in sorted({round(k * steps / min(steps, 9)) for k in range(min(steps, 9) + 1)}):
        label = escape(_short(labels[i], 14))
        parts.append(f'<text x="{x(i):.1f}" y="{height - 22}" text-anchor="middle">{label}</text>')
    parts.append(f'<text x="{(left + WIDTH - right) / 2}" y="{height - 4}" text-anchor="middle">{escape(axis)}</text>')
    ends = sorted(((y(float(v[-1])), name) for name, (v, _) in series.items()))
    placed: dict[str, float] = {}
    floor = -1e9
    for level, name in ends:
        placed[name] = floor = max(level, floor + 14)
    for number, (name, (values, half)) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        upper = [f"{x(i):.1f} {y(float(v)):.1f}" for i, v in enumerate(values + half)]
        lower = [f"{x(i):.1f} {y(float(v)):.1f}" for i, v in enumerate(values - half)]
        middle = [f"{x(i):.1f} {y(float(v)):.1f}" for i, v in enumerate(values)]
        parts.append(f'<path d="M{"L".join(upper)}L{"L".join(reversed(lower))}Z" fill="{colour}" fill-opacity=".25"/>')
        parts.append(f'<path d="M{"L".join(middle)}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        if len(series) > 1:
            parts.append(
                f'<text x="{WIDTH - right + 8}" y="{placed[name] + 4:.1f}" fill="{colour}">{escape(_short(name, 20))}</text>'
            )
    return "".join([*parts, "</svg>"])


def heat(rows: Sequence[str], columns: Sequence[str], values: Matrix, half: Matrix, axes: tuple[str, str]) -> str:
    """A map of counts, darker for larger ones (square-root scale); the interval stands in each cell's title."""
    if len(rows) < len(columns):
        rows, columns, values, half, axes = columns, rows, values.T, half.T, (axes[1], axes[0])
    left, top, right = 130, 150, 100
    wide = (WIDTH - left - right) / len(columns)
    tall = max(5.0, min(20.0, 640 / len(rows)))
    height = int(top + tall * len(rows) + 24)
    peak = max(float(values.max()), 1e-9)
    parts = [_open(height, f"{axes[0]} by {axes[1]}: counts")]
    every = max(1, round(12 / tall))
    for j, label in enumerate(columns):
        x = left + (j + 0.6) * wide
        parts.append(f'<text transform="translate({x:.1f} {top - 6}) rotate(-45)">{escape(_short(label, 24))}</text>')
    for i, label in enumerate(rows):
        if i % every == 0:
            parts.append(
                f'<text x="{left - 6}" y="{top + (i + 0.8) * tall:.1f}" text-anchor="end">{escape(_short(label, 18))}</text>'
            )
        for j, column in enumerate(columns):
            shade = (max(0.0, float(values[i, j])) / peak) ** 0.5
            tip = escape(f"{label}, {column}: {values[i, j]:,.1f} ± {half[i, j]:,.1f}")
            parts.append(
                f'<rect x="{left + j * wide:.1f}" y="{top + i * tall:.1f}" width="{wide - 0.6:.1f}" '
                f'height="{tall - 0.4:.1f}" fill="{_shade(shade)}"><title>{tip}</title></rect>'
            )
    parts.append(f'<text x="{left - 6}" y="{top - 8}" text-anchor="end">{escape(axes[0])}</text>')
    return "".join([*parts, "</svg>"])


def _open(height: int, label: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}" xmlns="http://www.w3.org/2000/svg">'


def _shade(amount: float) -> str:
    """From near white to dark blue."""
    start, stop = (240, 245, 250), (16, 60, 120)
    return "#" + "".join(f"{round(a + (b - a) * amount):02x}" for a, b in zip(start, stop, strict=True))


def _ticks(low: float, high: float) -> list[float]:
    raw = (high - low) / 5 or 1.0
    magnitude = 10.0 ** np.floor(np.log10(raw))
    step = float(magnitude * min((s for s in (1, 2, 5, 10) if s * magnitude >= raw), default=10))
    return [float(t) + 0.0 for t in np.arange(np.ceil(low / step) * step, high, step)]


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _spread(half: float, digits: int) -> str:
    """The interval beside a number; nothing beside exact ones."""
    return f" ± {half:,.{digits}f}" if half > 0 else ""
