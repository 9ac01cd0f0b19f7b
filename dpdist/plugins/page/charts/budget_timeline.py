"""A budget as a timeline: one bar a period, a piece for each release in the order of its charge, what is left open at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from dpdist.api.pages import say
from dpdist.plugins.page.charts.svg_frame import NARROW, WIDE, RenderedChart
from dpdist.plugins.page.charts.text_layout import LINE_HEIGHT, svg_text, text_width

BAR_HEIGHT = 26
MOST_ROWS = 60


@dataclass(frozen=True)
class Spending:
    """The charges of a period.

    Attributes:
        charges: each release with the share of the budget that was left after it, in the order they were charged.
    """

    name: str
    charges: Sequence[tuple[str, float]]

    @property
    def remaining_share(self) -> float:
        """The share that is left."""
        return float(self.charges[-1][1]) if self.charges else 1.0


def draw_timeline(spendings: Sequence[Spending], chart_width: int) -> RenderedChart:
    """The bars, the newest ``MOST_ROWS`` periods; their names and what is left stand above them."""
    right_edge = float(chart_width - 2)
    elements, y = [], 0.0
    for spending in spendings[-MOST_ROWS:]:
        remaining_text = say("{left:.0f} % left", left=100 * spending.remaining_share)
        elements.append(
            svg_text(
                1,
                y + 13,
                _period(spending),
                kind="name",
                max_width=right_edge - text_width(remaining_text) - 16,
                max_lines=1,
            )
        )
        elements.append(svg_text(right_edge, y + 13, remaining_text, anchor="end", kind="soft"))
        y += 20
        elements.append(f'<rect x="1" y="{y:.1f}" width="{right_edge - 1:.1f}" height="{BAR_HEIGHT}" class="hn"/>')
        elements += _release_bars(spending, y, right_edge)
        elements.append(f'<path d="M{right_edge:.1f} {y - 3:.1f}v{BAR_HEIGHT + 6}" class="axis"/>')
        y += BAR_HEIGHT + 14
    for x, text, anchor in ((1.0, say("begin"), ""), (right_edge, say("all spent"), "end")):
        elements.append(svg_text(x, y + 2, text, anchor=anchor, kind="soft"))
    period_texts = [
        f"{_period(s)}: {say('{left:.0f} % left', left=100 * s.remaining_share)}" for s in spendings[-MOST_ROWS:]
    ]
    label = say("Budget: {told}", told="; ".join(period_texts))
    kind = "wide" if chart_width == WIDE else "narrow"
    frame = f'viewBox="0 0 {chart_width} {y + 10:.0f}" width="{chart_width}" height="{y + 10:.0f}"'
    return RenderedChart(
        f'<svg class="{kind}" {frame} role="img" aria-label="{escape(label)}" xmlns="http://www.w3.org/2000/svg">{"".join(elements)}</svg>'
    )


def _period(spending: Spending) -> str:
    return say("total") if spending.name == "total" else spending.name


def _release_bars(spending: Spending, y: float, right_edge: float) -> list[str]:
    elements, remaining_before = [], 1.0
    for number, (release, remaining) in enumerate(spending.charges):
        begin, end = 1 + (1 - remaining_before) * (right_edge - 1), 1 + (1 - remaining) * (right_edge - 1)
        percentages = {"spent": 100 * (remaining_before - remaining), "left": 100 * remaining}
        tip = escape(say("{release}: {spent:.1f} %, {left:.1f} % left", release=release, **percentages))
        shade = ("h3", "h2")[number % 2]
        size = f'width="{max(1.0, end - begin - 1):.1f}" height="{BAR_HEIGHT}"'
        elements.append(f'<rect x="{begin:.1f}" y="{y:.1f}" {size} class="{shade}"><title>{tip}</title></rect>')
        if text_width(release) <= end - begin - 10:
            elements.append(svg_text(begin + 5, y + BAR_HEIGHT / 2 + LINE_HEIGHT / 4 + 0.5, release, kind="t" + shade[1]))
        remaining_before = remaining
    return elements


def budget_timelines(spendings: list[Spending]) -> dict[str, str]:
    """The budget's timeline for wide and for narrow screens."""
    return {"wide": draw_timeline(spendings, WIDE).svg, "narrow": draw_timeline(spendings, NARROW).svg}
