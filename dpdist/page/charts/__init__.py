"""Charts as SVG: no script, no network, the same bytes for the same numbers; each is laid out for wide and for narrow screens."""

from dpdist.page.charts.bars import bars
from dpdist.page.charts.curves import curves
from dpdist.page.charts.drawing import NARROW, STYLE, WIDE, Drawn, standalone
from dpdist.page.charts.figure import Axis, Clock, Figure
from dpdist.page.charts.heat import heat
from dpdist.page.charts.maps import maps

__all__ = ["NARROW", "STYLE", "WIDE", "Axis", "Clock", "Drawn", "Figure", "draw", "standalone"]


def draw(figure: Figure, width: int) -> Drawn:
    """The chart for a screen of so many CSS pixels, and where its marks are."""
    if figure.kind == "bars":
        return bars(figure, width)
    if figure.kind == "map":
        return maps(figure, width)
    return heat(figure, width) if figure.kind == "heat" else curves(figure, width)
