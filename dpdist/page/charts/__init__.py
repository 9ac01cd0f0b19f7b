"""Charts as SVG: no script, no network, the same bytes for the same numbers; each is laid out for wide and for narrow screens."""

from dpdist.page.charts.area_map import maps
from dpdist.page.charts.bar_chart import bars
from dpdist.page.charts.chart_data import Axis, Clock, Figure
from dpdist.page.charts.heat_map import heat
from dpdist.page.charts.line_chart import curves
from dpdist.page.charts.svg_frame import NARROW, STYLE, WIDE, Drawn, standalone

__all__ = ["NARROW", "STYLE", "WIDE", "Axis", "Clock", "Drawn", "Figure", "draw", "standalone"]


def draw(figure: Figure, width: int) -> Drawn:
    """The chart for a screen of so many CSS pixels, and where its marks are."""
    if figure.kind == "bars":
        return bars(figure, width)
    if figure.kind == "map":
        return maps(figure, width)
    return heat(figure, width) if figure.kind == "heat" else curves(figure, width)
