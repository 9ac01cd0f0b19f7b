"""Suppressed answers, and intervals without a lower end, on the page."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np

from dpdist.plugins.page import release_page
from dpdist.plugins.page.answer_list import ListedGroup, first_table_rows
from dpdist.plugins.page.assets import embed_json
from dpdist.plugins.page.charts import Axis, Figure
from dpdist.workloads import marginals


def test_of_an_interval_without_a_lower_end_the_upper_one_is_shown() -> None:
    """As where cells may hold less than nothing: nothing cuts what Laplace noise alone may have made."""
    block = replace(marginals((3,), 1).blocks[0], names=("age",))
    numbers = (*(np.full(3, value) for value in (30.0, 12.0, np.nan, -np.inf, 40.0)),)
    listed = ListedGroup(0, block, numbers, (-math.inf, math.inf))
    data = json.loads(embed_json(listed.data()))
    assert (data["low"], data["high"]) == ([None] * 3, [40.0] * 3)
    assert [row[2] for row in first_table_rows([listed])] == ["at most 40.0"] * 3


def test_bars_of_which_some_are_suppressed_show_the_others() -> None:
    """Other charts would have holes that look like zeros, and are left out."""
    values, half = np.array([[1.0], [np.nan], [3.0]]), np.full((3, 1), 0.5)
    bars = Figure("bars", "x", Axis("x", ["a", "b", "c"]), ("",), values, half, "People")
    ((title, shown),) = release_page._drop_suppressed([("t", bars), ("u", replace(bars, kind="steps"))])
    assert title == "t"
    assert list(shown.axis.labels) == ["a", "c"]
    np.testing.assert_array_equal(shown.values, [[1.0], [3.0]])
