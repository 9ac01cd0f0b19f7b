"""Tables that share no attribute: cells with noise of each table's own size, in the time of the spec, near the optimum."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from dpdist.domain import Domain
from dpdist.mechanisms import marginal_mechanisms
from dpdist.planner.release_plan import plan
from dpdist.publish import release_folder
from dpdist.spec import load
from dpdist.strategies import singular_value_bound
from dpdist.strategies.solver_resources import Limits
from dpdist.strategies.tables.marginal_optimum import marginal_optimum
from dpdist.workloads import Workload, marginals, union
from tests.properties.compositions import context_of_all
from tests.support import small_release
from tests.support.verifier_findings import wrong_claims

SIZES = (5, 7, 3)


def disjoint(weights: tuple[float, float] = (2.0, 1.0)) -> Workload:
    """A table of the first and the last attribute, and one of that between them."""
    domain = Domain.of_shape(SIZES)
    return union(marginals(domain, 2, among=("x0", "x2")), marginals(domain, 1, among=("x1",)), weights=weights)


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the optimum are out of reach, as of attributes with thousands of values, and any gap is little."""
    monkeypatch.setattr(marginal_mechanisms, "AUTO_LIMITS", Limits(1, 0.0))
    monkeypatch.setattr(marginal_mechanisms, "LITTLE_GAP", 1.0)


def test_cost_bound_and_sensitivity_are_those_of_the_dense_rows() -> None:
    workload = disjoint()
    found = marginal_mechanisms._disjoint_tables(workload)
    rows = np.concatenate(
        [scale * block.operator(SIZES).dense() for block, scale in zip(workload.blocks, found.scales, strict=True)]
    )
    assert found.sensitivity == pytest.approx(np.sqrt((rows**2).sum(axis=0).max())) == pytest.approx(1.0)
    weights = np.repeat([2.0, 1.0], [15, 7])
    assert found.workload_cost == pytest.approx(float((weights**2 / (rows**2).max(axis=1)).sum()))
    assert found.cost(workload) == pytest.approx(found.workload_cost)
    assert found.lower_bound == pytest.approx(singular_value_bound(workload))
    assert found.lower_bound <= marginal_optimum(workload).workload_cost * (1 + 1e-9) <= found.workload_cost
    assert found.gap == pytest.approx(found.workload_cost / marginal_optimum(workload).workload_cost - 1, abs=1e-9)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_measurement_moves_no_further_than_it_is_charged(neighbours: str) -> None:
    workload = disjoint((3.0, 1.0))
    grid = marginal_mechanisms._disjoint_tables(workload).measurement(workload, neighbours=neighbours, most_records=2)
    rows = (grid.mixing[:, None] * grid.base.dense().astype(np.int64)).astype(object)
    squares = [int((column**2).sum()) for column in rows.T]
    if neighbours == "replace-one":
        squares += [int(((one - other) ** 2).sum()) for one in rows.T for other in rows.T]
    assert 4 * max(squares) <= grid.sensitivity_squared <= 4 * max(squares) * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(200, 4_000), (3, 100_000)])
def test_auto_plans_disjoint_tables_in_the_time_of_the_spec(sizes: tuple[int, int]) -> None:
    """'auto' took noise of equal size for both tables, with 1.27 to 1.84 times the squared error."""
    spec = small_release.spec(
        domain={name: {"from": 0, "to": size - 1} for name, size in zip("ab", sizes, strict=True)},
        workload=[{"marginals": {"of": [["a"], ["b"]]}}],
    )
    context, job = context_of_all(), load(spec)
    found = plan(context, job)
    gap = found.table[0].gap  # of the cells of the tables, or of the optimum where it is within reach
    assert gap is not None
    assert gap <= marginal_mechanisms.LITTLE_GAP
    assert found.variance <= plan(context, load({**spec, "mechanism": "gaussian"})).variance


@pytest.mark.usefixtures("_at_once")
def test_a_release_of_disjoint_tables_is_right_and_verified(home: Path) -> None:
    path = small_release.write(
        home.parent / "data",
        workload=[{"marginals": {"of": [["age"]]}, "weight": 3}, {"marginals": {"of": [["sex", "work"]]}}],
        mechanism="marginals",
        budget={"rho": 50},
        ledger={"dataset": "small", "cap": {"rho": 100}},
    )
    folder = Path(small_release.run(path, home).folder)
    table, certificate = release_folder.load_release(folder)
    records, rows = small_release.records(), table.to_pylist()
    assert not certificate["mechanism"]["consistent"]
    counts = np.bincount(records["age"].to_numpy(), minlength=12)
    for row, true in zip(rows, counts, strict=False):
        assert abs(row["answer"] - true) < 6 * row["standard_error"]
    errors = [rows[0]["standard_error"], rows[12]["standard_error"]]
    assert errors[1] / errors[0] == pytest.approx(math.sqrt(3 * math.sqrt(12) / math.sqrt(6)), rel=1e-4)
    assert wrong_claims(folder) == {}
