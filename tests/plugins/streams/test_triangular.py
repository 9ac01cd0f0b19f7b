"""Streams at the optimum: a lower triangular factor of COA's precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist import engine
from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.planner.release_plan import plan
from dpdist.plugins.streams.triangular_factor import strategy_over_series, triangular
from dpdist.publish import release_folder
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from dpdist.strategies import square_root
from dpdist.workloads import Workload, filtered, union
from dpdist.workloads.time_filters import coefficients, exponential, running_sum, window
from tests.support import small_release

FILTERS = {
    "running sum": running_sum(48),
    "window": window(5),
    "decay": exponential(0.9, 48),
    "signs": coefficients([2.0, -1, 0, 0.5]),
}


def filter_workload(name: str) -> Workload:
    return filtered(48, "x0", [FILTERS[name]])


@pytest.mark.parametrize("name", FILTERS)
def test_every_step_is_measured_and_read_from_the_past_at_the_optimum(name: str) -> None:
    workload = filter_workload(name)
    found = triangular(workload)
    a, w = found.matrix(), workload.operator.dense()
    assert (np.triu(a, 1) == 0).all()
    spread = np.linalg.solve(a.T, w.T).T
    assert np.abs(np.triu(spread, 1)).max() < 1e-9 * np.abs(spread).max()
    assert (spread**2).sum() * (a**2).sum(axis=0).max() == pytest.approx(found.workload_cost)
    assert found.gap < 2e-6
    assert found.workload_cost == pytest.approx(found.cost(workload), rel=1e-6)


def test_running_sums_lose_nothing_and_square_roots_a_ninth() -> None:
    """mathematics.md, 256 steps: J/OPT is 1.0000002, the square root's 1.118."""
    workload = filtered(256, "x0", [running_sum(256)])
    found = triangular(workload)
    assert found.gap <= 1e-6
    assert found.lower_bound == pytest.approx(1631.40304, rel=1e-6)
    root = square_root(workload)
    assert root.workload_cost is not None
    assert found.lower_bound is not None
    assert root.workload_cost / found.lower_bound == pytest.approx(1.118, abs=1e-3)


def test_series_side_by_side_cost_as_much_each() -> None:
    workload = union(filtered(12, "x0", [running_sum(12)]), weights=(3.0,))
    alone = triangular(workload)
    assert alone.workload_cost == pytest.approx(9 * (triangular(filtered(12, "x0", [running_sum(12)])).workload_cost or 0))
    found = strategy_over_series(workload, alone)
    assert found.worst(workload) ** 2 == pytest.approx(
        (np.linalg.solve(found.factor.T, np.tril(np.ones((12, 12))).T) ** 2).sum(axis=0).max()
    )


def test_what_it_does_not_answer() -> None:
    for strange in (
        filtered(8, "x0", [coefficients([1.0, 1], first_lag=1)]),
        filtered(8, "x0", [coefficients([0.0, 1])]),
        filtered(8, "x0", [running_sum(8), window(2)]),
        filtered(8, "x0", [window(2)], circular=True),
    ):
        with pytest.raises(InvalidInput, match="one filter of the past"):
            triangular(strange)
    bad = small_release.spec(
        mechanism="coa",
        workload=[{"filters": {"of": "age", "apply": [{"running_sum": True}]}}],
        stream={"name": "s", "through": 3},
    )
    with pytest.raises(InvalidSpec, match="'square-root' or 'triangular'"):
        load(bad)


DAYS: dict[str, Any] = {
    "domain": {"age": {"from": 0, "to": 11}, "sex": {"categories": ["f", "m"]}},
    "workload": [{"filters": {"of": "age", "by": ["sex"], "apply": [{"running_sum": True}]}}],
    "mechanism": "triangular",
}


def test_a_stream_grows_part_by_part_under_one_charge(home: Path) -> None:
    """Earlier answers stay; the last part's errors are those predicted for the whole series; and it is charged once."""
    data = home.parent / "data"
    tables = {}
    for through in (4, 11):
        changes = {**DAYS, "release": f"part-{through}", "stream": {"name": "ages", "through": through}}
        done = small_release.run(small_release.write(data, **changes), home)
        tables[through] = release_folder.load_release(done.folder)[0]
        assert done.certificate["mechanism"]["name"] == "triangular"
        assert done.certificate["mechanism"]["certified_gap"] <= 1e-6
    first, last = (tables[t]["answer"].to_numpy().reshape(-1, 2) for t in (4, 11))
    np.testing.assert_array_equal(first, last[:5])
    assert done.budget.spent.rho == done.plan.loss.rho
    truth = np.zeros((12, 2))
    for age, sex in zip(*(small_release.records()[name].to_pylist() for name in ("age", "sex")), strict=True):
        truth[age:, "fm".index(sex)] += 1
    errors = tables[11]["standard_error"].to_numpy().reshape(-1, 2)
    assert (np.abs(last - truth) < 5 * errors).all()


def compared(folder: Path, **changes: Any) -> dict[str, float]:
    """The predicted error of every mechanism that 'auto' compares, the chosen one first."""
    spec = small_release.spec(**{**DAYS, "mechanism": "auto", "stream": {"name": "s", "through": 3}, **changes})
    made = plan(Context(folder, Store(folder / "store"), engine.inline(), ignore_progress), load(spec))
    errors = {row.mechanism: row.rmse(1, 1.0) or 0.0 for row in made.table}
    assert errors[made.strategy.name] == min(errors.values())
    return {made.strategy.name: errors.pop(made.strategy.name), **errors}


def test_auto_compares_all_that_stream(tmp_path: Path) -> None:
    """For one step, and for persons in several; what measures all steps at once is not compared."""
    one = compared(tmp_path)
    assert next(iter(one)) == "triangular"
    assert one.keys() == {"triangular", "square-root", "buffered"}
    person = {"path": "records.parquet", "person": {"column": "person", "participations": 3, "separation": 4}}
    several = compared(tmp_path, records=person)
    assert several.keys() == {*one, "banded"}
    assert several["banded"] < 0.95 * min(several["square-root"], several["buffered"])
    assert "triangular" not in compared(tmp_path, domain={"age": {"from": 0, "to": 1025}, "sex": {"categories": ["f", "m"]}})
