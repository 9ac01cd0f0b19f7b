"""Persons bounded over groups under the optimum for them: neighbouring files and every person, and what their noise is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.case_selection import always
from tests.stability.files import changed
from tests.stability.test_groups import FILE, cells, farthest, planned

COUNTED: dict[str, dict[str, Any]] = {
    "every cell": {},
    "sums of cells": {"workload": [{"cdf": {"of": "a", "by": ["b"]}}]},
}


@pytest.mark.parametrize("neighbours", always(["replace-one"], ["add-remove", "replace-one"]))
@pytest.mark.parametrize("counted", ["every cell", pytest.param("sums of cells", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("groups", "most"), [(6, 1), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((2, 1), (3, 2), (4, 1)))]
)
def test_the_optimum_for_persons_is_hidden(tmp_path: Path, neighbours: str, counted: str, groups: int, most: int) -> None:
    """Files of neighbours through counting, and every person there can be: none moves farther, and without replacing one just as far."""
    made = planned(tmp_path, neighbours, groups, most, mechanism="coa", **COUNTED[counted])
    rows = np.concatenate(list(made.grid.row_blocks() or ())).astype(object)
    base = cells(FILE, tmp_path / "base", made)
    for number, data in enumerate(changed(FILE, made.job.guarantee.protection)):
        moved = rows @ (cells(data, tmp_path / str(number), made) - base)
        assert int(moved @ moved) <= made.grid.sensitivity_squared
    found = farthest(made, groups, most)
    assert found <= made.grid.sensitivity_squared
    if neighbours == "add-remove":
        assert made.grid.sensitivity_squared - found <= found // 2**24
        assert made.table[0].gap is not None
        assert -1e-9 < made.table[0].gap < 1e-5


def test_persons_by_group_get_the_optimum(tmp_path: Path) -> None:
    """Seven days, all allowed, (1, 1e-6): 7.70, where every day by itself has 11.18."""
    asked: dict[str, Any] = {
        "domain": {"a": {"from": 0, "to": 6, "outside": "drop"}},
        "workload": [{"marginals": {"of": [["a"]]}}],
        "budget": {"epsilon": 1, "delta": 1e-6},
        "ledger": {"dataset": "s", "cap": {"epsilon": 2, "delta": 1e-5}},
        "records": {"path": "records.parquet", "count": "persons", "person": {"column": "who", "most_groups": 7}},
    }
    made = planned(tmp_path, "add-remove", 7, 1, **asked)
    found = made.certificate()["mechanism"]
    assert made.strategy.name == "coa"
    assert 7.69 < found["rmse"] < 7.70
    assert {row["mechanism"]: round(row["rmse"], 2) for row in found["compared"]}["identity"] == 11.18
    assert found["certified_gap"] == pytest.approx(0, abs=1e-6)


def test_auto_takes_the_optimum_for_persons_in_six_groups(tmp_path: Path) -> None:
    assert planned(tmp_path, "add-remove", 6, 1, workload=[{"cdf": {"of": "a"}}]).strategy.name == "coa"
