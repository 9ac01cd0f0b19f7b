"""Neighbouring files of two numbers through the whole pipeline: what relations measure moves by no more than is charged for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dpdist.counting import histogram_counting
from dpdist.domain import Layout
from dpdist.engine import inline
from dpdist.planner.release_plan import plan
from dpdist.privacy import keys
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.support import small_release
from tests.support.measurement_readers import measured

Record = tuple[int | None, int | None]
VALUES: tuple[Record, ...] = ((0, 0), (0, 2), (1, 1), (2, 0), (None, 1), (9, 1))
"""Two of one number, the ends, one that is missing and one beyond the declared values."""
BASE: tuple[Record, ...] = ((0, 0), (2, 0), (2, 0), (None, 1))
DOMAIN = {name: {"from": 0, "to": 2, "missing": "drop", "other": "drop"} for name in ("a", "d")}
QUERIES: dict[str, list[dict[str, Any]]] = {
    "every number": [{"relation": {"of": {"a": 1, "d": -1}}}],
    "bounds beside a table": [
        {"relation": {"of": {"a": 2, "d": 1}, "at_most": [1, 4]}},
        {"relation": {"of": {"a": 1, "d": -1}, "within": [0, 1]}},
        {"marginals": {"of": [["a"]]}},
    ],
}
GRIDS: dict[str, dict[str, Any]] = {
    "coa": {"mechanism": "coa"},
    "identity": {"mechanism": "identity"},
    "laplace": {"mechanism": "laplace", "budget": {"epsilon": 1}, "ledger": {"dataset": "small", "cap": {"epsilon": 1}}},
}


def neighbours(relation: str, most: int) -> Iterator[tuple[Record, ...]]:
    """Files with up to so many records more or less, or with as many others."""
    for size in range(1, most + 1):
        for come in combinations_with_replacement(VALUES, size):
            if relation == "add-remove":
                yield BASE + come
            else:
                yield BASE[size:] + come
        if relation == "add-remove":
            yield BASE[size:]


def reached(folder: Path, queries: str, grid: str, relation: str, most: int) -> float:
    """The largest squared distance of what is measured, over the one that the noise is made for."""
    path = small_release.write(
        folder,
        domain=DOMAIN,
        workload=QUERIES[queries],
        neighbours=relation,
        records={"path": "records.parquet", "person": {"most_records": most}},
        **GRIDS[grid],
    )
    store, engine = Store(folder / "store"), inline()
    made = plan(Context(folder, store, engine, ignore_progress), load(path))
    power = 1 if made.measurement.norm == "l1" else 2

    def integers(number: int, data: tuple[Record, ...]) -> list[int]:
        table = pa.table({name: pa.array([record[k] for record in data], pa.int64()) for k, name in enumerate("ad")})
        pyarrow.parquet.write_table(table, path.parent / "records.parquet")
        source = load(path).source.files
        domain, tables = made.job.measured.domain, made.layout.tables
        counts, _ = histogram_counting.count(source, domain, store, engine, root=keys.Secret(bytes(32)), tables=tables)
        return [int(value) for value in measured(store, engine, made.measurement, counts, made.layout)]

    base = integers(0, BASE)
    moved = [integers(n, data) for n, data in enumerate(neighbours(relation, most), start=1)]
    farthest = max(sum(abs(u - v) ** power for u, v in zip(one, base, strict=True)) for one in moved)
    return float(farthest ** (2 // power) / made.measurement.sensitivity_squared)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize(
    ("queries", "grid", "most"),
    [
        ("every number", "coa", 1),
        pytest.param("bounds beside a table", "coa", 2, marks=pytest.mark.slow),
        ("bounds beside a table", "identity", 1),
        pytest.param("every number", "laplace", 2, marks=pytest.mark.slow),
    ],
)
def test_neighbouring_files_move_relations_by_what_is_charged(
    queries: str, grid: str, most: int, relation: str, tmp_path: Path
) -> None:
    assert 0.3 < reached(tmp_path, queries, grid, relation, most) <= 1


def test_a_record_that_counts_in_two_numbers_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true = Layout.positions

    def twice(layout: Layout, cells: np.ndarray) -> np.ndarray:
        found = true(layout, cells)
        return np.concatenate([found, np.where(found > 0, found - 1, found + 1)])

    monkeypatch.setattr(Layout, "positions", twice)
    assert reached(tmp_path, "every number", "coa", "add-remove", 1) > 1.2
