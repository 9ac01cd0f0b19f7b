"""Statistics of groups, each read from its own cells, against sums over all cells and their whole covariance."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpdist import engine
from dpdist.content.measurement_file import Measurement
from dpdist.errors import InvalidInput
from dpdist.operators import Matrix
from dpdist.page.statistic_tables import StatisticRow
from dpdist.planner import derived_statistics
from dpdist.planner.derived_statistics import statistic_rows
from dpdist.planner.error_prediction import assumed_statistic_rows, predict_statistic_errors
from dpdist.planner.release_plan import plan
from dpdist.reconstruction.product_space import ProductSpace
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.statistics.statistic_registry import STATISTICS, statistic_for, statistics_by_name
from dpdist.statistics.value_powers import bin_summands, range_of
from dpdist.storage.array_store import Store
from tests.pipeline.test_variances import exact
from tests.support import small_release

BRANCHES = ["a", "b", "c", "d"]
BOTH_BINS = {"missing": "unknown", "other": "others"}
GROUPS: list[dict[str, Any]] = [{"marginals": {"of": [[], ["branch"], ["branch", "age"]]}}]
PREDICATES: list[dict[str, Any]] = [{"predicates": ["branch == 'a' or age >= 2", "branch == 'd'"]}]
SIDES: list[dict[str, Any]] = [
    {"marginals": {"of": [["side"], ["branch"]]}},
    {"marginals": {"of": [["side", "age"]]}, "weight": 3},
]
PURE: dict[str, Any] = {"budget": {"epsilon": 1}, "ledger": {"dataset": "small", "cap": {"epsilon": 1}}}
CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]] = {
    "bins of missing and other values": ({}, GROUPS, {}),
    "values that are left out": ({"missing": "drop", "other": "drop"}, GROUPS, {}),
    "levels and weights": ({"levels": {"side": {"left": ["a", "c"], "right": ["b", "d"]}}}, SIDES, {}),
    "conditions that are no products": ({}, PREDICATES, {}),
    "ranges": ({}, [{"ranges": {"of": ["age"], "by": ["branch"]}}], {}),
    "Laplace noise": ({}, GROUPS, PURE),
    "a record replaced": ({}, GROUPS, {"neighbours": "replace-one"}),
    "persons with several records": (
        {},
        GROUPS,
        {"records": {"path": "records.parquet", "person": {"column": "person", "most_records": 3}}},
    ),
}


def records() -> pa.Table:
    """Amounts of which each group has others, some of no group, and some of a group that is not declared."""
    state = np.random.default_rng(11)
    branch = state.choice([*BRANCHES, "elsewhere", None], 900, p=[0.4, 0.2, 0.15, 0.1, 0.1, 0.05])
    amounts = state.integers(0, 3, 900) + (branch == "a")
    return pa.table(
        {
            "branch": pa.array(branch.tolist(), pa.string()),
            "age": state.integers(0, 4, 900),
            "amount": amounts,
            "tip": amounts // 2 + state.integers(0, 2, 900),
            "person": state.integers(0, 300, 900),
        }
    )


def over_all_cells(row: StatisticRow, names: tuple[str, ...], measurement: Measurement) -> Matrix:
    """A statistic of one group, its error and its interval, from a row over all cells for each of its sums."""
    domain, space = measurement.domain, measurement.space
    assert isinstance(space, ProductSpace)
    assert space.terms[0].shape == space.shape  # every cell is measured
    statistic = statistic_for(row.estimate.statistic)
    group = row.block.operator(space.shape).dense()[row.query_index].reshape(space.shape)
    axes = [domain.axis(column) for column in names]
    sums = []
    for powers in statistic.summands:
        factors = [np.ones(size) for size in space.shape]
        for axis, power in zip(axes, powers, strict=True):
            factors[axis] = bin_summands(domain.attributes[axis], power)
        sums.append((group * reduce(np.multiply.outer, factors)).ravel() * space.terms[0].unit / float(domain.scale))
    whole = np.array(sums)
    covariance = whole @ whole.T * measurement.noise.deviation**2
    ranges = [range_of(domain.attributes[axis]) for axis in axes]
    width = float(measurement.noise.half_width_95(1.0))
    estimate = statistic.compute(row.estimate.statistic, whole @ space.values, covariance, width, ranges)
    return numbers_of(estimate)


def numbers_of(estimate: Any) -> Matrix:
    """Value, error and interval; what is not known is not a number."""
    found = (estimate.value, estimate.standard_error, estimate.low, estimate.high)
    return np.array([np.nan if number is None else number for number in found], dtype=np.float64)


THREE_STATISTICS: list[dict[str, Any]] = [{"mean": "amount"}, {"variance": "tip"}, {"correlation": ["tip", "amount"]}]


def planned_case(case: str, home: Path, statistics: list[dict[str, Any]] = THREE_STATISTICS) -> tuple[Context, Any]:
    """A release of statistics of some groups, planned."""
    branch, asked, others = CASES[case]
    spec = {"budget": {"rho": 0.1}, "ledger": {"dataset": "small", "cap": {"rho": 0.25}}, **others}
    path = small_release.write(
        home.parent / "data",
        table=records(),
        domain={"branch": {"categories": BRANCHES, **BOTH_BINS, **branch}, "age": {"from": 0, "to": 2, "outside": "clip"}},
        sums={"amount": {"from": 0, "to": 2}, "tip": {"from": 0, "to": 1}},
        workload=[{**entry, **statistic} for entry in asked for statistic in statistics],
        mechanism="identity",
        **spec,
    )
    context = Context(home, Store(home / "store"), engine.inline(), ignore_progress)
    return context, plan(context, load(path))


@pytest.mark.parametrize("case", CASES)
def test_statistics_of_each_group_are_those_of_rows_over_all_cells(
    case: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, planned = planned_case(case, home)
    centre = exact(planned, context)
    values = centre.space.values
    noisy: Any = replace(centre.space, values=values + centre.noise.draw(b"7" * 32, count=values.size))
    measurement = replace(centre, space=noisy)
    monkeypatch.setattr(derived_statistics, "GROUPS_AT_ONCE", 3)
    compared = set()
    for table, rows in statistic_rows(planned.job.workload, measurement):
        names = tuple(rows[0].columns)
        assert [row.query_index for row in rows] == list(range(rows[0].block.queries))
        assert len({row.estimate.statistic for row in rows}) == 1
        for row in rows:
            compared.add((table, row.block.name, row.query_index))
            assert numbers_of(row.estimate) == pytest.approx(
                over_all_cells(row, names, measurement), rel=1e-8, abs=1e-8, nan_ok=True
            )
    assert len(compared) > 2


def test_assumed_statistics_of_each_group_are_those_of_all_cells(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later groups hold fewer of the assumed records: what a plan says of a group is not what it says of the first ones."""
    _, planned = planned_case("bins of missing and other values", home)
    monkeypatch.setattr(derived_statistics, "GROUPS_AT_ONCE", 3)

    def assumed() -> list[Matrix]:
        return [numbers_of(row.estimate) for rows in assumed_statistic_rows(planned, 1e4, "falling", {}) for row in rows]

    found = assumed()
    monkeypatch.setattr(ProductSpace, "over_values", lambda *_: None)
    np.testing.assert_allclose(found, assumed(), rtol=1e-9)
    assert len({tuple(numbers) for numbers in found}) > 10


def test_a_plan_promises_half_the_longest_interval_of_every_statistic(home: Path) -> None:
    """Of each group, from the ends of the intervals that a release of such records would publish."""
    columns: dict[int, Any] = {1: "tip", 2: ["tip", "amount"]}
    statistics = [{name: columns[each.columns]} for name, each in STATISTICS.items() if each.statistic_names]
    _, planned = planned_case("bins of missing and other values", home, statistics)
    groups = list(assumed_statistic_rows(planned, 1e4, "even", {}))
    lengths = [[row.estimate.high - row.estimate.low for row in rows] for rows in groups]
    assert {rows[0].estimate.statistic for rows in groups} == set(statistics_by_name())
    promised = predict_statistic_errors(planned, 1e4)
    assert [error.half_width for error in promised] == pytest.approx([max(each) / 2 for each in lengths])
    assert [error.typical for error in promised] == pytest.approx([float(np.median(each)) / 2 for each in lengths])


def test_means_whose_joint_errors_nobody_can_read_are_refused_by_the_plan(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after the charge, when they would be computed from a measurement that is too large to be published."""
    monkeypatch.setattr(derived_statistics, "MOST_BYTES", 8)
    with pytest.raises(InvalidInput, match="the errors of means are not known here .* ask for 'sum' in place of 'mean'"):
        planned_case("ranges", home, [{"mean": "amount"}, {"sum": "tip"}])
