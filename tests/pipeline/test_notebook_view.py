"""Answers in the tables of other packages, and in notebooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpdist as dp
from dpdist.errors import StoreError
from tests.support import small_release


def test_answers_in_every_form(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow, pandas, Polars and xarray say the same; a notebook shows the first rows and the guarantee."""
    small_release.write(home.parent / "data")
    content: dict[str, Any] = {**small_release.spec(), "records": {"path": str(home.parent / "data" / "records.parquet")}}
    done = dp.run(content, engine="inline")
    arrow = done.answers.arrow
    values = arrow["answer"].to_numpy()
    np.testing.assert_array_equal(done.answers.pandas()["answer"].to_numpy(), values)
    np.testing.assert_array_equal(done.answers.polars()["answer"].to_numpy(), values)
    boxes = done.answers.xarray()
    both = boxes["sex x work"]
    assert both["answer"].dims == ("sex", "work")
    row = next(r for r in arrow.to_pylist() if r["group"] == "sex x work" and (r["sex"], r["work"]) == ("m", "b"))
    assert float(both["answer"].sel(sex="m", work="b")) == row["answer"]
    assert float(both["high_95"].sel(sex="m", work="b")) == row["high_95"]
    shown = done._repr_html_()
    assert "<b>small-1</b>" in shown
    assert shown.count("<tr>") == 11
    assert "more rows" in shown
    assert len(shown) < 100_000
    assert "certified within" in dp.plan(content, engine="inline")._repr_html_()
    assert done.certificate["release"] == "small-1"
    (Path(done.folder) / "answers.csv").write_text("altered")
    with pytest.raises(StoreError, match="does not hold a complete copy of this release"):
        dp.run(content, engine="inline")
