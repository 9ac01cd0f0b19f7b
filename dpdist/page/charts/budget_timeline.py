"""A budget as a timeline: one bar a period, a piece for each release in the order of its charge, what is left open at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from dpdist.language import say
from dpdist.page.charts.svg_frame import NARROW, WIDE, Drawn
from dpdist.page.charts.text_layout import LINE, at, width

TALL = 26
MOST_ROWS = 60


@dataclass(frozen=True)
class Spending:
    """The charges of a period.

    Attributes:
        course: each release with the share of the budget that was left after it, in the order they were charged.
    """

    name: str
    course: Sequence[tuple[str, float]]

    @property
    def left(self) -> float:
        """The share that is left."""
        return float(self.course[-1][1]) if self.course else 1.0


def timeline(spendings: Sequence[Spending], across: int) -> Drawn:
    """The bars, the newest ``MOST_ROWS`` periods; their names and what is left stand above them."""
    right = float(across - 2)
    parts, y = [], 0.0
    for spending in spendings[-MOST_ROWS:]:
        left = say("{left:.0f} % left", left=100 * spending.left)
        parts.append(at(1, y + 13, _period(spending), kind="name", room=right - width(left) - 16, most=1))
        parts.append(at(right, y + 13, left, anchor="end", kind="soft"))
        y += 20
        parts.append(f'<rect x="1" y="{y:.1f}" width="{right - 1:.1f}" height="{TALL}" class="hn"/>')
        parts += _pieces(spending, y, right)
        parts.append(f'<path d="M{right:.1f} {y - 3:.1f}v{TALL + 6}" class="axis"/>')
        y += TALL + 14
    for x, text, anchor in ((1.0, say("begin"), ""), (right, say("all spent"), "end")):
        parts.append(at(x, y + 2, text, anchor=anchor, kind="soft"))
    told = [f"{_period(s)}: {say('{left:.0f} % left', left=100 * s.left)}" for s in spendings[-MOST_ROWS:]]
    label = say("Budget: {told}", told="; ".join(told))
    kind = "wide" if across == WIDE else "narrow"
    frame = f'viewBox="0 0 {across} {y + 10:.0f}" width="{across}" height="{y + 10:.0f}"'
    return Drawn(
        f'<svg class="{kind}" {frame} role="img" aria-label="{escape(label)}" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def _period(spending: Spending) -> str:
    return say("total") if spending.name == "total" else spending.name


def _pieces(spending: Spending, y: float, right: float) -> list[str]:
    parts, before = [], 1.0
    for number, (release, left) in enumerate(spending.course):
        begin, end = 1 + (1 - before) * (right - 1), 1 + (1 - left) * (right - 1)
        shares = {"spent": 100 * (before - left), "left": 100 * left}
        tip = escape(say("{release}: {spent:.1f} %, {left:.1f} % left", release=release, **shares))
        shade = ("h3", "h2")[number % 2]
        size = f'width="{max(1.0, end - begin - 1):.1f}" height="{TALL}"'
        parts.append(f'<rect x="{begin:.1f}" y="{y:.1f}" {size} class="{shade}"><title>{tip}</title></rect>')
        if width(release) <= end - begin - 10:
            parts.append(at(begin + 5, y + TALL / 2 + LINE / 4 + 0.5, release, kind="t" + shade[1]))
        before = left
    return parts


def drawn_budget(spendings: list[Spending]) -> dict[str, str]:
    """The budget's timeline for wide and for narrow screens."""
    return {"wide": timeline(spendings, WIDE).svg, "narrow": timeline(spendings, NARROW).svg}
