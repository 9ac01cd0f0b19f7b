"""Means and variances as the page lists them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dpdist.api.pages import Words
from dpdist.plugins.page.listed_statistics import listed_rows


@pytest.mark.parametrize(("error", "shown"), [(None, "not known"), (0.25, "0.25")])
def test_a_mean_s_standard_error_is_shown_where_it_is_known(error: float | None, shown: str) -> None:
    row = {"group": "g", "query": "q", "mean": 3.0, "low_95": 2.51, "high_95": 3.49, "standard_error": error}
    (texts,) = listed_rows(pa.Table.from_pylist([row]), Words("records", {}), ())
    assert texts["standard_error"] == shown
