"""Charts as SVG: no script, no network, the same bytes for the same numbers; each is laid out for wide and for narrow screens."""

from dpdist.plugins.page.charts.area_map import draw_maps
from dpdist.plugins.page.charts.bar_chart import draw_bars
from dpdist.plugins.page.charts.chart_data import Axis, Clock, Figure
from dpdist.plugins.page.charts.heat_map import draw_heat_map
from dpdist.plugins.page.charts.line_chart import draw_curves
from dpdist.plugins.page.charts.svg_frame import NARROW, STYLE, WIDE, RenderedChart, standalone_svg

__all__ = ["NARROW", "STYLE", "WIDE", "Axis", "Clock", "Figure", "RenderedChart", "draw", "standalone_svg"]


def draw(figure: Figure, width: int) -> RenderedChart:
    """The chart for a screen of so many CSS pixels, and where its marks are."""
    if figure.kind == "bars":
        return draw_bars(figure, width)
    if figure.kind == "map":
        return draw_maps(figure, width)
    return draw_heat_map(figure, width) if figure.kind == "heat" else draw_curves(figure, width)
