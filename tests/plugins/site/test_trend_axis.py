"""The trends of a site: the axis names each period where they are few, and half widths are those before the cut."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from dpdist.plugins.page import charts
from dpdist.plugins.page.charts import NARROW, WIDE, Figure
from dpdist.plugins.site import editions, trends
from dpdist.plugins.site.trends import period_axis
from dpdist.publish import release_folder
from tests.support import small_release


@pytest.mark.parametrize("across", [NARROW, WIDE])
def test_a_series_of_few_periods_names_each(across: int) -> None:
    axis = period_axis(["2011-06-06", "2011-06-13"])
    figure = Figure("curve", "x", axis, ("",), np.array([[3000.0], [4000.0]]), np.full((2, 1), 60.0), "Rentals")
    svg = charts.draw(figure, across).svg
    assert re.findall(r">(\d+ \w+(?: \d{4})?)</text>", svg) == ["6 Jun 2011", "13 Jun"]
    assert max(float(x) for x in re.findall(r'<text x="([\d.]+)"', svg)) <= across


def test_trends_have_the_half_widths_before_the_cut(home: Path) -> None:
    asked = {"budget": {"rho": 0.002}, "postprocess": {"known": [{"count": 40}]}}
    done = small_release.run(
        small_release.write(home.parent / "data", table=small_release.records(rows=40), mechanism="coa", **asked), home
    )
    table, certificate = release_folder.load_release(done.folder)
    compared = trends.read_answers(editions.Edition(done.folder, certificate), trends.ReaderNames({}, {}))
    halves = [half for group in compared.values() for _, half in group.values()]
    assert (np.array(halves) >= 1.959 * table["standard_error"].to_numpy()).all()
