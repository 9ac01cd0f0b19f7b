"""What charts draw: densities, open ends, steps, round ticks beyond every peak, times, classes of maps."""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdist.domain import Attribute, BinLabels, Domain, EvenEdges, even_edges
from dpdist.plugins.page import charts
from dpdist.plugins.page.chart_choice import (
    MOST_BARS,
    MOST_POINTS,
    extremes,
    figures_of,
    long_figure,
    thin_figure,
    without_amounts,
)
from dpdist.plugins.page.chart_embedding import embed_chart
from dpdist.plugins.page.chart_words import ChartWords
from dpdist.plugins.page.charts import NARROW, WIDE, Axis, Clock, Figure, RenderedChart
from dpdist.plugins.page.charts.axis_ticks import round_time_ticks, rounded_class_limits, value_scale_of
from dpdist.plugins.page.charts.budget_timeline import Spending, draw_timeline
from dpdist.plugins.page.charts.heat_map import cell_classes, class_limits
from dpdist.plugins.page.charts.line_chart import has_panels
from dpdist.plugins.page.charts.sparkline import SPARKLINE_HEIGHT, SPARKLINE_WIDTH, draw_sparkline
from dpdist.plugins.page.charts.text_layout import text_width, wrap_text
from dpdist.spec import load
from dpdist.workloads import Block, filtered
from dpdist.workloads.product_queries import marginals
from dpdist.workloads.range_workloads import cdf
from dpdist.workloads.time_filters import running_sum
from tests.support import small_release

UNEVEN = Domain((Attribute("income", edges=(0, 10, 20, 60, 100), outside="clip"),))
WORDS = ChartWords("people", {"income": {"title": "Income", "unit": "euros"}})


def only(domain: Domain, block: Block, values: list[float], half: float = 1.0) -> Figure:
    ((_, figure),) = figures_of(block, domain, WORDS, np.array(values), np.full(len(values), half))
    return figure


def texts(drawn: RenderedChart) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", drawn.svg)


def path(drawn: RenderedChart, kind: str) -> str:
    return re.search(rf'<path class="{kind}[^"]*" d="([^"]*)"', drawn.svg).group(1)


def test_unequal_bins_are_densities_of_true_widths() -> None:
    """Counts 100, 100, 400, 400 in bins of 10, 10, 40, 40 are level, and bins take the room that their widths ask."""
    figure = only(UNEVEN, marginals(UNEVEN, ways=1).blocks[0], [100.0, 100.0, 400.0, 400.0])
    np.testing.assert_array_equal(figure.heights[:, 0], [10.0] * 4)
    np.testing.assert_allclose(figure.spreads[:, 0], [0.1, 0.1, 0.025, 0.025])
    assert figure.measure == "People per euro"
    assert "height is the count divided by the width" in figure.note
    for screen in (WIDE, NARROW):
        drawn = charts.draw(figure, screen)
        ends = [float(x) for x in re.findall(r"H([\d.]+)", path(drawn, "outline"))]
        begin = float(re.match(r"M([\d.]+)", path(drawn, "outline")).group(1))
        widths = np.diff([begin, *ends])
        np.testing.assert_allclose(widths / widths.sum(), [0.1, 0.1, 0.4, 0.4], atol=2e-3)
        assert "Income (euros)" in texts(drawn)


def test_open_ends_are_marked_where_values_are_clipped() -> None:
    block = marginals(UNEVEN, ways=1).blocks[0]
    drawn = charts.draw(only(UNEVEN, block, [1.0, 2.0, 3.0, 4.0]), WIDE)
    assert drawn.svg.count('class="open"') == 2
    assert {"under 10", "60 or more"} <= set(texts(drawn))
    closed = Domain((Attribute("income", edges=(0, 10, 20, 60, 100)),))
    drawn = charts.draw(only(closed, marginals(closed, ways=1).blocks[0], [1.0, 2.0, 3.0, 4.0]), WIDE)
    assert 'class="open"' not in drawn.svg
    assert "100" in texts(drawn)


def test_cumulative_counts_are_steps_that_rise_at_upper_edges() -> None:
    figure = only(UNEVEN, cdf(UNEVEN, "income").blocks[0], [100.0, 200.0, 600.0, 1000.0])
    outline = path(charts.draw(figure, WIDE), "outline")
    assert set(re.findall("[A-Z]", outline)) == {"M", "H", "V"}
    np.testing.assert_array_equal(figure.axis.edges[:-1], [10, 20, 60, 100])
    assert list(figure.axis.labels) == ["below 10", "below 20", "below 60", "below 100"]
    assert figure.measure == "People below each value of Income"
    ages = Domain((Attribute("age", edges=(0, 1, 2, 3)),))
    whole = only(ages, cdf(ages, "age").blocks[0], [1.0, 2.0, 3.0])
    assert whole.measure == "People at or below each value of age"
    np.testing.assert_array_equal(whole.axis.edges, [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 4856.3), (-3.0, 97.0), (-250.0, 90.0), (0.0, 0.07), (5.0, 5.0), (0.0, 1.2e9)]
)
def test_no_peak_lies_beyond_the_last_tick(low: float, high: float) -> None:
    found = value_scale_of(low, high)
    assert found.low <= low
    assert found.high == found.ticks[-1] >= high
    assert 0.0 in found.ticks
    steps = np.diff(found.ticks)
    np.testing.assert_allclose(steps, steps[0])
    labels = [found.text(tick) for tick in found.ticks]
    assert len(set(labels)) == len(labels)
    assert all(len(label) <= 9 for label in labels)


def test_times_are_times() -> None:
    """An axis of hours shows months, of a day hours, of years years; texts of points are as fine as the step."""
    hours = Clock(0.0, datetime.datetime(2011, 1, 1), "hour")
    assert [text for _, text in round_time_ticks(hours, 0, 8759, 7)] == ["Jan 2011", "Mar", "May", "Jul", "Sep", "Nov"]
    assert [place for place, _ in round_time_ticks(hours, 0, 8759, 7)][1] == pytest.approx(59 * 24, abs=1)
    assert [text for _, text in round_time_ticks(hours, 0, 24, 5)] == ["1 Jan", "06:00", "12:00", "18:00", "2 Jan"]
    assert hours.text(25.0) == "2 Jan 2011, 01:00"
    years = Clock(1990.0, datetime.datetime(1990, 1, 1), "year")
    assert [text for _, text in round_time_ticks(years, 1990, 2030, 5)] == ["1990", "2000", "2010", "2020", "2030"]
    months = Clock(0.0, datetime.datetime(2011, 1, 31), "month")
    assert months.text(13.0) == "Feb 2012"
    assert Clock(0.0, datetime.datetime(9999, 1, 1), "year").text(5.0) == "9999"


def test_a_long_series_keeps_its_peaks() -> None:
    """Of 20,000 steps about a thousand points are drawn, among them the one high and the one low step."""
    values = np.zeros((20_000, 1))
    values[777], values[15_001] = 50.0, -50.0
    picked = extremes(values, 40)
    assert {0, 777, 15_001, 19_999} <= set(picked.tolist())
    assert picked.size <= 2 * 500 + 2
    domain = Domain((Attribute("hour", edges=tuple(range(20_001))),))
    words = ChartWords("rentals", {"hour": {"time": {"start": "2011-01-01T00:00:00", "step": "hour"}}})
    block = filtered(domain, "hour", [running_sum(20_000)]).blocks[0]
    ((_, figure),) = figures_of(block, domain, words, values[:, 0], np.ones(20_000))
    assert figure.values.size <= MOST_POINTS + 2
    assert (figure.values.max(), figure.values.min()) == (50.0, -50.0)
    assert figure.axis.clock.text(float(figure.axis.edges[int(figure.values.argmax())])) == "2 Feb 2011, 09:00"


@pytest.mark.parametrize("more", [0, 1])
def test_too_many_points_become_a_curve(more: int) -> None:
    """Bars of every few values would stand for values that are not drawn."""
    count = MOST_POINTS + more
    axis, ones = Axis("x", [str(number) for number in range(count)]), np.ones((count, 1))
    bars = Figure("bars", "x", axis, ("",), ones, ones, "People")
    assert thin_figure(bars).kind == ("curve" if more else "bars")


def test_what_is_said_of_a_figure_stays_where_less_of_it_is_drawn() -> None:
    """And it is said that less is drawn: of points of a curve, and of bars, of which one breaks."""
    count = 2 * MOST_POINTS
    axis, ones = Axis("x", list(map(str, range(count)))), np.ones((count, 1))
    thinned = thin_figure(Figure("steps", "x", axis, ("",), ones, ones, "People", note="Bins differ in width."))
    many = Domain((Attribute("work", categories=tuple(f"work {number}" for number in range(MOST_BARS + 1))),))
    bars = only(many, marginals(many, ways=1).blocks[0], [90_000.0, *[100.0] * MOST_BARS])
    for figure, said in ((thinned, "Bins differ in width."), (bars, "Broken bars are longer than they are drawn.")):
        assert figure.note.startswith(f"{said} Drawn are the ")
        assert figure.note.endswith("the table has all.")
    assert np.isfinite(bars.broken_at)


def test_a_group_of_sums_is_drawn_as_the_table_of_counts_over_the_same_attributes(tmp_path: Path) -> None:
    of = [["sex"], ["sex", "work"], ["sex", "work", "day"]]
    changes: dict[str, Any] = {
        "records": {"path": "records.parquet"},
        "domain": {"sex": {"categories": ["f", "m"]}, "work": {"categories": ["a", "b", "c"]}, "day": {"from": 0, "to": 4}},
        "sums": {"age": {"from": 0, "to": 11, "unit": "years"}},
        "workload": [{"marginals": {"of": of}}, {"marginals": {"of": of}, "sum": "age"}],
    }
    queries = load(small_release.write(tmp_path, **changes)).workload.queries
    assert len(queries.blocks) == 2 * len(of)
    for counts, sums in zip(queries.blocks[: len(of)], queries.blocks[len(of) :], strict=True):
        values = np.arange(counts.queries, dtype=np.float64)
        drawn, expected = (
            figures_of(
                *without_amounts(block, queries.domain, WORDS)[:1], queries.domain, WORDS, values, np.ones(values.size)
            )
            for block in (sums, counts)
        )
        assert len(drawn) == len(expected) > 0
        for (subtitle, figure), (own_subtitle, own) in zip(drawn, expected, strict=True):
            assert (subtitle, figure.kind, figure.series) == (own_subtitle, own.kind, own.series)
            assert list(figure.axis.labels) == list(own.axis.labels)
            np.testing.assert_array_equal(figure.values, own.values)


def test_of_a_long_table_in_memory_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2^22 steps the names of all took 50 CPU seconds of the page's 51."""
    named, between = [], BinLabels.labels_between
    monkeypatch.setattr(BinLabels, "label_of", lambda self, place: named.append(1) or f"bin {place}")
    monkeypatch.setattr(
        BinLabels, "labels_between", lambda self, start, stop: named.append(stop - start) or between(self, start, stop)
    )
    domain = Domain((Attribute("hour", edges=even_edges(0, 1, 2**21), other="another"),))
    values = np.zeros(2**21)
    values[1234] = 50.0
    (series,) = filtered(domain, "hour", [running_sum(2**21)]).blocks
    (table,) = marginals(domain, (1,)).blocks
    for block, more in ((series, 0), (table, 1)):
        ((_, figure),) = figures_of(
            block, domain, ChartWords("rentals", {}), np.pad(values, (0, more)), np.ones(2**21 + more)
        )
        assert figure.axis.labels[int(figure.values.argmax())] == "bin 1234"
        assert ("Not drawn: another" in figure.note) == bool(more)
    assert 0 < sum(named) < 10 * MOST_POINTS


@pytest.mark.parametrize(("width", "open_ends", "extra"), [(1, False, ()), (3, True, ("other",)), (1, True, ("a", "b"))])
def test_names_of_many_bins_are_those_of_each(width: int, open_ends: bool, extra: tuple[str, ...]) -> None:
    labels = BinLabels(EvenEdges(-4, width, 6), open_ends=open_ends, extra=extra)
    each = [labels[place] for place in range(len(labels))]
    assert len(set(each)) == 6 + len(extra)
    for start, stop, step in product(range(-9, 10), range(-9, 10), (1, 2, -1)):
        assert labels[start:stop:step] == each[start:stop:step]


@pytest.mark.parametrize("clock", [True, False])
def test_of_a_long_series_only_what_is_drawn_gets_names(clock: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 2^26 steps the names of all took minutes and 4 GiB, and their edges half a GiB."""
    steps, named, read = 2**40, [], []
    made, item = BinLabels.label_of, EvenEdges.__getitem__
    monkeypatch.setattr(BinLabels, "label_of", lambda self, place: named.append(place) or made(self, place))
    monkeypatch.setattr(EvenEdges, "__getitem__", lambda self, place: read.append(place) or item(self, place))
    domain = Domain((Attribute("hour", edges=even_edges(0, 2, steps)),))
    words = ChartWords("rentals", {"hour": {"time": {"start": "2011-01-01T00:00:00", "step": "second"}}} if clock else {})
    (block,) = filtered(domain, "hour", [running_sum(steps)]).blocks
    values = np.zeros(3000)
    values[1234] = 50.0
    figure = long_figure(block, domain, words, lambda: iter([(0, values, values), (3000, -values, values)]))
    assert figure is not None
    assert figure.axis.edges[int(figure.values.argmax())] == 2468.0
    told = "1 Jan 2011, 02:21:08" if clock else "8468 to <8470"
    assert figure.axis.labels[int(figure.values.argmin())] == told
    assert (figure.axis.clock is not None) == clock
    assert len(named) == figure.values.size < 20
    assert len(read) < 50


def test_maps_have_a_legend_values_and_grey_cells_where_noise_may_be_all() -> None:
    values = np.array([[5.0, 900.0, 40.0], [300.0, 120.0, 2.0], [60.0, 10.0, 700.0]])
    axes = [Axis(name, [f"{name}{i}" for i in range(3)]) for name in "ab"]
    figure = Figure("heat", "a x b", axes[0], ("b0", "b1", "b2"), values, np.full((3, 3), 6.0), "People", axes[1])
    drawn = charts.draw(figure, WIDE)
    assert {"900", "300", "5", "2"} <= set(texts(drawn))
    assert "0" in texts(drawn)
    assert "interval holds 0: the noise alone may have made it" in texts(drawn)
    cells = re.search(r'<g class="marks">(.*?)</g>', drawn.svg).group(1)
    assert re.search(r'class="kn"[^>]* d="([^"]*)"', cells).group(1).count("M") == 2
    assert {"a0", "a1", "a2"} <= set(texts(drawn))
    limits = rounded_class_limits(900.0, 7)
    assert limits == sorted(limits)
    assert limits[-1] == 900.0
    found = re.findall(r'<text x="([\d.]+)"[^>]*>(\d+)</text>', drawn.svg.partition("interval holds 0")[0])
    labels = {text: float(x) for x, text in found}
    ends = [float(x) for x in re.findall(r'<rect x="([\d.]+)"[^>]* class="h\d"/>', drawn.svg)]
    named = [f"{limit:.0f}" for limit in limits[:-1]]
    assert [labels[text] for text in named] == pytest.approx(ends[1:])  # where a class ends
    assert labels["0"] == pytest.approx(text_width("0", 12) / 2, abs=0.1)


def test_bars_tell_value_and_interval_and_show_the_interval() -> None:
    axis = Axis("", ["a", "b"])
    figure = Figure("bars", "x", axis, ("",), np.array([[4829.2], [-3.0]]), np.array([[27.0], [9.0]]), "People")
    for screen in (WIDE, NARROW):
        drawn = charts.draw(figure, screen)
        assert {"4,829 ± 27", "−3.0 ± 9.0"} <= set(texts(drawn))
        whisker = [float(x) for x in re.findall(r"[MH]([\d.]+)", path(drawn, "whisker"))]
        assert whisker[1] - whisker[0] > 1
        assert min(whisker) >= 0


def test_bars_of_categories_stand_by_size_and_a_giant_is_broken() -> None:
    """Values without an order are sorted, what was not declared stays last; days, months and numbered groups keep their order."""
    names = ("small", "giant", "large", "middle")
    domain = Domain((Attribute("work", categories=names, missing="none"),))
    (block,) = marginals(domain, ways=(1,)).blocks
    values = np.array([20.0, 9000.0, 200.0, 90.0, 70.0])
    ((_, figure),) = figures_of(block, domain, ChartWords("people", {}), values, np.full(5, 4.0))
    assert figure.axis.labels == ["giant", "large", "middle", "small", "none"]
    assert figure.values[:, 0].tolist() == [9000.0, 200.0, 90.0, 20.0, 70.0]
    assert figure.note == "Broken bars are longer than they are drawn."
    drawn = charts.draw(figure, WIDE)
    assert "9,000.0 ± 4.0" in texts(drawn)
    assert drawn.positions["scale"][1] < 300
    ends = [float(x) for x in re.findall(r"H([\d.]+)v", path(drawn, "f0"))]
    assert ends[0] <= drawn.positions["x"][1] + 0.1
    assert path(drawn, "break").count("M") == 2
    for kept in (("Mon", "Tue", "Sun"), ("Jan", "Feb", "Mar"), ("under 18", "18-64", "65 or more")):
        days = Domain((Attribute("day", categories=kept),))
        (block,) = marginals(days, ways=(1,)).blocks
        ((_, figure),) = figures_of(block, days, ChartWords("people", {}), np.array([1.0, 3.0, 2.0]), np.full(3, 1.0))
        assert tuple(figure.axis.labels) == kept


def test_one_large_column_leaves_the_map_its_classes() -> None:
    values = np.random.default_rng(0).uniform(50, 100, (12, 8))
    values[:, 0] = 50_000.0
    axes = [Axis(name, [f"{name}{i}" for i in range(n)]) for name, n in (("a", 12), ("b", 8))]
    figure = Figure("heat", "a x b", axes[0], tuple(axes[1].labels), values, np.full((12, 8), 6.0), "People", axes[1])
    drawn = charts.draw(figure, WIDE)
    cells = re.search(r'<g class="marks">(.*?)</g>', drawn.svg).group(1)
    assert len(set(re.findall(r'class="k(\d)"', cells))) >= 3  # 2 where the classes end at the peak
    assert "50,000" in texts(drawn)
    assert re.findall(r'<pattern id="(\w+)"', drawn.svg) == ["nw"]


def test_one_large_value_of_few_leaves_the_others_their_classes() -> None:
    figure = Figure(
        "heat",
        "a",
        Axis("a", ["x", "y", "z"]),
        ("",),
        np.array([[283976.0], [5622.0], [900.0]]),
        np.full((3, 1), 9.0),
        "People",
    )
    assert len(set(cell_classes(figure, class_limits(figure)).ravel())) == 3


def test_a_giant_is_broken_in_the_overview_too() -> None:
    values = np.array([[9000.0], [20.0], [18.0], [16.0], [14.0]])
    figure = Figure("bars", "a", Axis("", list("abcde")), ("",), values, np.ones((5, 1)), "People")
    tall = [float(top) for top in re.findall(r"V([\d.]+)h", draw_sparkline(figure, "one"))]
    halves = replace(figure, series=("m", "f"), values=np.hstack([values, values]) / 2, half=np.ones((5, 2)))
    for each in (figure, halves):
        assert draw_sparkline(each, "one").count('class="break"') == 1
    assert max(tall) < 0.45 * SPARKLINE_HEIGHT  # the second one is seen
    assert 'class="break"' not in draw_sparkline(
        replace(figure, values=values[1:], half=figure.half[1:], axis=Axis("", list("bcde"))), "one"
    )


def test_a_map_in_the_overview_has_each_cell_once() -> None:
    """Cells side by side of one class are one mark; the longer side lies across."""
    values = np.random.default_rng(5).integers(0, 900, (30, 9)).astype(float)
    axes = Axis("Age", [str(k) for k in range(30)]), Axis("Town", list("abcdefghi"))
    figure = Figure("heat", "a", axes[0], tuple("abcdefghi"), values, np.full((30, 9), 40.0), "People", axes[1])
    drawn = re.findall(r'class="h(.)" d="([^"]+)"', draw_sparkline(figure, "one"))
    classes = cell_classes(figure, class_limits(figure))
    cell = SPARKLINE_WIDTH / 30
    for name, path in drawn:
        across = sum(float(wide) for wide in re.findall(r"h([\d.]+)v", path)) / cell
        assert across == pytest.approx((classes == (-1 if name == "s" else int(name))).sum(), abs=0.1)
    assert len(drawn) == np.unique(classes).size


@pytest.mark.parametrize(("largest", "kind"), [(7.0, "steps"), (9.0, "heat")])
def test_a_few_series_stand_beside_each_other_unless_one_dwarfs_them(largest: float, kind: str) -> None:
    domain = Domain((Attribute("age", edges=tuple(range(9))), Attribute("town", categories=tuple("abcde"))))
    values = np.ones((8, 5))
    values[3, 0] = largest
    figure = only(domain, marginals(domain, ways=2).blocks[0], values.ravel().tolist())
    assert (figure.kind, figure.series) == (kind, tuple("abcde"))
    if kind == "steps":
        for screen, columns in ((WIDE, 3), (NARROW, 2)):
            drawn = charts.draw(figure, screen)
            assert len({x for x, _ in drawn.positions["offsets"]}) == columns
            assert drawn.svg.count('class="outline s0"') == 5
            assert [text for text in texts(drawn) if text in "abcde"] == list("abcde")


def test_means_are_dots_with_the_two_ends_of_their_intervals() -> None:
    sides = np.array([[17.0], [0.5]]), np.array([[24.0], [62.0]])
    half = (sides[1] - sides[0]) / 2
    figure = Figure("bars", "m", Axis("", ["a", "b"]), ("",), np.array([[18.0], [8.0]]), half, "EUR", dots=True, sides=sides)
    drawn = charts.draw(figure, WIDE)
    assert {"18.0 (17.0 to 24.0)", "8 (0 to 62)"} <= set(texts(drawn))
    assert "H" not in path(drawn, "f0")  # no bar from 0
    (left, right), held = drawn.positions["x"], drawn.positions["scale"]
    whisker = [float(x) for x in re.findall(r"[MH]([\d.]+)", path(drawn, "whisker"))]
    assert whisker[0] == pytest.approx(left + (17 - held[0]) / (held[1] - held[0]) * (right - left), abs=0.1)


def test_a_band_is_seen_less_in_a_small_chart() -> None:
    axis = Axis("age", ("1", "2"), np.array([1.0, 2.0, 3.0]))
    for count, said in ((4, "Shaded: 95 % intervals."), (5, "± 1.0 at most")):
        values = np.tile(70.0 - 3 * np.arange(count), (2, 1))
        figure = Figure("steps", "age", axis, tuple("abcde")[:count], values, np.full((2, count), 1.0), "People")
        assert said in embed_chart(figure, "", "r", "t", "people")["caption"]


def test_numbers_below_bars_stand_at_even_steps_from_zero() -> None:
    """Also where not all of them find room."""
    for least, most in ((0.0, 8000.0), (-2000.0, 8000.0), (0.0, 88_000.0), (-100_000.0, 8e5)):
        values = np.array([[most], [least / 2 + most / 2], [least]])
        figure = Figure("bars", "a", Axis("", ["Americas", "Asia", "x"]), ("",), values, np.full((3, 1), 3.0), "People")
        below = re.findall(r'text-anchor="middle" class="soft">([^<]*)', charts.draw(figure, NARROW).svg)
        numbers = [float(text.replace("−", "-").replace(",", "")) for text in below]
        assert 0.0 in numbers
        assert len({round(step) for step in np.diff(numbers)}) == 1


def test_curves_whose_bands_cover_each_other_stand_apart() -> None:
    axis = Axis("age", ("1", "2"), np.array([1.0, 2.0, 3.0]))
    for count, half, alone in ((3, 2.0, True), (3, 1.0, False), (2, 2.0, False), (5, 1.0, True)):
        values = np.tile(70.0 - 3 * np.arange(count), (2, 1))
        figure = Figure("steps", "age", axis, tuple("abcde")[:count], values, np.full((2, count), half), "People")
        assert has_panels(figure) is alone


def test_texts_are_broken_before_they_are_cut() -> None:
    assert wrap_text("Machine operators assemblers and inspectors", 160, 3)[1] is False
    parts, cut = wrap_text("word " * 40, 100, 2)
    assert (len(parts), cut) == (2, True)
    assert all(text_width(part) <= 100 for part in parts)
    assert wrap_text("x" * 50, 100, 20) == ([*wrap_text("x" * 50, 100, 20)[0]], False)
    assert "".join(wrap_text("x" * 50, 100, 20)[0]) == "x" * 50


def test_a_budget_is_a_timeline() -> None:
    drawn = draw_timeline([Spending("2026-W46", [("w1", 0.75)]), Spending("2026-W47", [("w2", 0.75), ("w2b", 0.5)])], WIDE)
    assert {"2026-W46", "75 % left", "2026-W47", "50 % left", "w2", "w2b"} <= set(texts(drawn))
    boxes = [
        (float(x), float(wide))
        for x, wide in re.findall(r'<rect x="([\d.]+)"[^>]*width="([\d.]+)"[^>]*class="h[23]"', drawn.svg)
    ]
    assert [round(x + wide - 1) for x, wide in boxes] == [178, 178, 357]
    assert all(a[0] <= b[0] for a, b in pairwise(boxes[1:]))
    assert "w2b: 25.0 %, 50.0 % left" in drawn.svg
    json.dumps(drawn.positions)


@pytest.mark.parametrize(("across", "most"), [(WIDE, 10), (NARROW, 20)])
def test_numbers_below_a_curve_stand_as_near_as_they_fit(across: int, most: int) -> None:
    ages = Domain((Attribute("age", edges=tuple(range(0, 100, 5))),))
    drawn = charts.draw(only(ages, marginals(ages, ways=1).blocks[0], [30.0] * 19), across)
    below = [float(text) for text in re.findall(r'text-anchor="middle" class="soft">(\d+)</text>', drawn.svg)]
    assert np.diff(below).tolist() == [most] * (len(below) - 1)
    assert len(below) >= 90 // most


def test_short_names_stand_beside_their_bars_on_phones_too() -> None:
    names = ["Köln", "Zürich", "Besançon"]
    beside, above = (
        charts.draw(Figure("bars", "town", Axis("", axis), ("",), np.ones((3, 1)), np.ones((3, 1)), "Purchases"), NARROW)
        for axis in (names, [f"{name} and around" for name in names])
    )
    assert beside.positions["x"][0] > max(map(text_width, names))
    assert above.positions["x"][0] == 2
    assert above.positions["y"][1] > beside.positions["y"][1] + 40


def test_the_mark_of_an_open_end_does_not_cover_the_scale() -> None:
    axis = Axis("age", ("under 10", "10 or more"), np.array([0.0, 10.0, 20.0]), open_low=True, open_high=True)
    figure = Figure("steps", "age", axis, ("",), np.array([[3.0], [4.0]]), np.full((2, 1), 1.0), "People")
    drawn = charts.draw(figure, NARROW)
    (left,) = (float(x) for x in re.findall(r'class="open" d="M([\d.]+) [\d.]+l7', drawn.svg))
    numbers = [float(x) for x in re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="end"', drawn.svg)]
    assert left > min(numbers)


@given(st.text("iwM—中 é", min_size=1, max_size=40), st.floats(15, 80))
def test_no_line_is_longer_than_its_room_and_no_letter_is_lost(text: str, room: float) -> None:
    """A word that is too long for a line is cut where the room ends."""
    broken, cut = wrap_text(text, room, max_lines=100)
    assert not cut
    assert "".join(broken).replace(" ", "") == "".join(text.split())
    assert all(text_width(line) <= room for line in broken if len(line) > 1)


@pytest.mark.parametrize("screen", [WIDE, NARROW])
def test_a_map_s_legend_lies_within_its_chart_and_rows_have_round_numbers(screen: int) -> None:
    rows = 200
    values = np.random.default_rng(0).uniform(0, 900, (rows, 2))
    first = np.arange(3.0, 3 + rows + 1)
    axes = Axis("a", [f"{n:.0f}" for n in first[:-1]], first), Axis("b", ["b0", "b1"])
    figure = Figure("heat", "a x b", axes[0], ("b0", "b1"), values, np.full((rows, 2), 6.0), "People", axes[1])
    drawn = charts.draw(figure, screen)
    found = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="13" class="h\d+"/>', drawn.svg)
    assert found
    assert max(float(x) + float(width) for x, width in found) <= drawn.positions["x"][1]
    shown = [int(n) for n in re.findall(r'text-anchor="end"[^>]*>(\d+)<', drawn.svg)]
    assert len(shown) > 5
    assert all(n % (shown[1] - shown[0]) == 0 for n in shown)


def test_small_charts_show_intervals_or_nothing() -> None:
    """They have no axis: noise alone would look like a signal."""
    names, values = [f"v{i}" for i in range(4)], np.array([[3.0], [-9.0], [14.0], [6.0]])
    clear = Figure("bars", "x", Axis("x", names), ("",), values * 100, np.full((4, 1), 20.0), "Records")
    drawn = draw_sparkline(clear, "one")
    assert drawn.count('class="whisker"') == 1
    assert re.search(r'class="whisker" d="([^"]+)"', drawn)[1].count("M") == 4
    assert draw_sparkline(replace(clear, values=values), "one") == ""
    edges = np.arange(5.0)
    curve = replace(clear, kind="steps", axis=Axis("x", names, edges))
    assert draw_sparkline(curve, "one").count('class="band f0"') == 1
    assert draw_sparkline(replace(curve, values=values), "one") == ""
