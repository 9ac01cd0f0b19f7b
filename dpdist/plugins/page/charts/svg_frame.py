"""The frame of every chart: its size, its colours for light and dark screens, and where its marks are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from dpdist.api.pages import say
from dpdist.plugins.page.charts.chart_data import Figure
from dpdist.plugins.page.charts.text_layout import LINE_HEIGHT, text_width
from dpdist.plugins.page.theme import DEFAULT_THEME

WIDE, NARROW = 720, 350
"""Pixels for which a chart is laid out: for a column of text, and for a phone."""
SERIES = 6
"""Colours of series; later ones begin again."""

STYLE = (
    "text{font:13px var(--font);fill:var(--ink)}"
    ".soft{fill:var(--soft)}.name{font-weight:600}.grid{stroke:var(--line);fill:none}.axis{stroke:var(--axis);fill:none}"
    ".whisker{stroke:var(--ink);stroke-width:1.4;fill:none}.outline{fill:none;stroke-width:1.8;stroke-linejoin:round}"
    ".dots{fill:none;stroke-width:6;stroke-linecap:round}.band{fill-opacity:.42;stroke:none}.area{fill-opacity:.1;stroke:none}.open{fill:var(--soft)}"
    ".wide .hn{fill:url(#nw) var(--none)}.narrow .hn{fill:url(#nn) var(--none)}"
    ".wide .kn{stroke:url(#nw) var(--none)}.narrow .kn{stroke:url(#nn) var(--none)}"
    ".shape{stroke:var(--paper);stroke-width:.8;vector-effect:non-scaling-stroke;fill-rule:evenodd}"
    ".other{fill:none;--paper:var(--line)}.here use{--paper:var(--ink)}"
    ".hatch{fill:none;stroke:var(--none);stroke-width:2.2}.bed,.break{fill:var(--paper)}.tn{fill:var(--ink)}.small{font-size:12px}"
    ".faded{fill:var(--paper);fill-opacity:.72}.rim{fill:none;stroke:var(--ink);stroke-width:1.6}"
    + "".join(f".f{k}{{fill:var(--c{k})}}.s{k}{{stroke:var(--c{k})}}" for k in range(SERIES))
    + "".join(f".h{k}{{fill:var(--h{k})}}.k{k}{{stroke:var(--h{k})}}.t{k}{{fill:var(--t{k})}}" for k in range(7))
)
"""How the parts of a chart look, by the colours that the page sets for light and dark screens."""


@dataclass(frozen=True)
class RenderedChart:
    """An SVG.

    Attributes:
        positions: where the marks are, for a script that shows their values or draws them on another scale.
    """

    svg: str
    positions: dict[str, Any] = field(default_factory=dict)


def svg_document(figure: Figure, width: int, height: float, elements: Sequence[str]) -> str:
    """The SVG of these parts."""
    interval_note = say(", with 95 % intervals") if (figure.spreads > 0).any() else ""
    label = escape(f"{'. '.join(filter(None, (figure.heading, figure.measure)))}{interval_note}.")
    box = f'viewBox="0 0 {width} {height:.0f}" width="{width}" height="{height:.0f}"'
    kind = "wide" if width == WIDE else "narrow"
    return f'<svg class="{kind}" {box} role="img" aria-label="{label}" xmlns="http://www.w3.org/2000/svg">{"".join(elements)}</svg>'


def standalone_svg(svg: str) -> str:
    """The SVG with its style and its paper in it, for light and for dark screens: for places of its own."""
    begin = svg.index(">") + 1
    return f"{svg[:begin]}<style>{DEFAULT_THEME.style()}svg{{background:var(--paper)}}{STYLE}</style>{svg[begin:]}"


def draw_legend(names: Sequence[str], max_width: float, top: float) -> tuple[list[str], float]:
    """Swatches with names in rows of at most ``max_width`` pixels, and the height that they take."""
    elements, x, y = [], 0.0, top
    for k, name in enumerate(names):
        short = name if text_width(name) <= max_width - 20 else name[: max(4, int((max_width - 30) / 8))] + "…"
        entry_width = 18 + text_width(short) + 14
        if x and x + entry_width > max_width:
            x, y = 0.0, y + LINE_HEIGHT + 3
        tip = f"<title>{escape(name)}</title>" if short != name else ""
        elements.append(f'<rect x="{x:.1f}" y="{y + 2:.1f}" width="12" height="12" class="f{k % SERIES}"/>')
        elements.append(f'<text x="{x + 17:.1f}" y="{y + 12:.1f}">{tip}{escape(short)}</text>')
        x += entry_width
    return elements, y + LINE_HEIGHT + 8 - top


def svg_group(kind: str, elements: Sequence[str]) -> str:
    """Parts that belong together, by a class."""
    return f'<g class="{kind}">{"".join(elements)}</g>'
