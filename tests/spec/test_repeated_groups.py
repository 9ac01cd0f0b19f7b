"""A table that several entries of a workload ask for, such as a mean and the sum under it, is one group of queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dpdist as dp
from dpdist.spec import load
from tests.support import small_release

DOMAIN = {"sex": {"categories": ["f", "m"]}, "work": {"categories": ["a", "b", "c"]}}
SUMS = {"age": {"from": 0, "to": 11, "step": 1}}
LEDGER = {"dataset": "small", "cap": {"rho": 20}}
OF_SEX: dict[str, Any] = {"marginals": {"of": [["sex"]]}}
MERGED: dict[str, tuple[list[dict[str, Any]], list[str] | None]] = {
    "mean and sum": ([{**OF_SEX, "mean": "age"}, {**OF_SEX, "sum": "age"}], ["count of age by sex", "sum of age by sex"]),
    "sum and mean": ([{**OF_SEX, "sum": "age"}, {**OF_SEX, "mean": "age"}], ["sum of age by sex", "count of age by sex"]),
    "among others": (
        [{"marginals": {"ways": [1]}, "mean": "age"}, {**OF_SEX, "sum": "age"}],
        ["count of age by sex", "sum of age by sex", "count of age by work", "sum of age by work"],
    ),
    "a table twice": ([{"marginals": {"ways": [1]}}, OF_SEX], ["sex", "work"]),
    "two tables": ([{**OF_SEX, "mean": "age"}, {"marginals": {"of": [["work"]]}, "sum": "age"}], None),
}


@pytest.mark.parametrize("name", MERGED)
def test_a_group_is_asked_for_once(name: str, tmp_path: Path) -> None:
    workload, groups = MERGED[name]
    sums = {"sums": SUMS} if any(len(entry) > 1 for entry in workload) else {}
    job = load(small_release.write(tmp_path, domain=DOMAIN, workload=workload, **sums))
    names = [block.name for block in job.workload.queries.blocks]
    assert sorted(names) == sorted(groups or ["count of age by sex", "sum of age by sex", "sum of age by work"])
    assert len(job.workload.block_counts_records) == len(names)


def test_the_weights_of_a_repeated_group_add_up_in_squares(tmp_path: Path) -> None:
    """So that the total squared error is the one that was asked for."""
    repeated = load(small_release.write(tmp_path, workload=[{**OF_SEX, "weight": 3}, {**OF_SEX, "weight": 4}]))
    assert [block.weight for block in repeated.workload.queries.blocks] == [5.0]


def test_files_of_rows_that_differ_stay_apart(tmp_path: Path) -> None:
    """They share a name and not their queries."""
    import numpy as np

    for number in (1, 2):
        np.save(tmp_path / f"rows{number}.npy", np.eye(72)[: number + 1])
    workload = [{"rows": {"file": f"rows{number}.npy"}} for number in (1, 2)]
    assert len(load(small_release.write(tmp_path, workload=workload)).workload.queries.blocks) == 2


def test_covariances_beside_correlations_are_published_once(home: Path) -> None:
    columns = ["age", "person"]
    sums = {"age": {"from": 0, "to": 11, "step": 1}, "person": {"from": 0, "to": 1500, "step": 100}}
    workload = [{**OF_SEX, kind: columns} for kind in ("covariance", "correlation")]
    domain = {"sex": {"categories": ["f", "m"]}}
    path = small_release.write(
        home.parent / "data", domain=domain, sums=sums, workload=workload, budget={"rho": 10}, ledger=LEDGER
    )
    release = small_release.run(path, home)
    statistics = release.variances.arrow.select(["group", "query"]).to_pylist()
    assert len(statistics) == len({tuple(row.values()) for row in statistics}) == 4
    assert dp.published(release.folder).ask("count where sex=f")
