"""A public number of records over tables: held without an estimate of all cells, as least squares over the cells holds it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpdist.planner import measurement_plan
from dpdist.publish import release_folder
from tests.support import small_release

SIZES = {"a": 6, "b": 5, "c": 7}
ROWS = 300
ASKED: dict[str, Any] = {
    "domain": {name: {"from": 0, "to": size - 1} for name, size in SIZES.items()},
    "workload": [{"marginals": {"of": [["a", "b"], ["b", "c"]]}}],
    "budget": {"rho": 0.02},
    "postprocess": {"known": [{"count": ROWS}]},
}


def records() -> pa.Table:
    """Most cells are empty."""
    state = np.random.default_rng(3)
    return pa.table({name: (state.geometric(0.6, ROWS) - 1).clip(0, size - 1) for name, size in SIZES.items()})


@pytest.mark.parametrize("mechanism", ["marginals", pytest.param("residual", marks=pytest.mark.slow)])
def test_a_public_number_of_records_is_taken_as_by_all_cells(
    mechanism: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given the number alone, tables and errors are those of least squares over all cells."""
    path, columns, estimates = (
        small_release.write(home.parent / "data", table=records(), mechanism=mechanism, **ASKED),
        [],
        [],
    )
    for few_cells in (True, False):
        monkeypatch.setattr(measurement_plan, "has_few_cells", lambda _, few=few_cells: few)
        done = small_release.run(path, home)
        plan = done.plan
        estimates.append(
            not measurement_plan.skips_cell_estimate(plan.measurement, plan.workload, plan.job.outputs.postprocess)
        )
        rows = release_folder.load_release(done.folder)[0]
        columns.append([rows[name].to_numpy() for name in ("answer", "standard_error")])
        shutil.rmtree(done.folder)
        shutil.rmtree(home / "store" / "answers")
    assert estimates == [True, False]
    (by_cells, cell_errors), (by_tables, table_errors) = columns
    np.testing.assert_allclose(cell_errors, table_errors, rtol=1e-4)
    np.testing.assert_allclose(by_cells, by_tables, atol=0.02)
    tables = np.split(by_tables, [SIZES["a"] * SIZES["b"]])
    assert [table.sum() for table in tables] == [pytest.approx(ROWS, abs=0.5)] * 2
