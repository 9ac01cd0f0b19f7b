"""Tables of attributes with very many values: the certified optimum without a row over all of them, or one clear refusal."""

from __future__ import annotations

import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist import engine
from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.domain import Domain
from dpdist.errors import OutOfMemory
from dpdist.measurement import orbit_measurement as over_orbits
from dpdist.measurement.dense_measurement import DenseMeasurement
from dpdist.measurement.sensitivity import column_norms
from dpdist.mechanisms import marginal_mechanisms as mechanism
from dpdist.mechanisms.comparison import compared_mechanisms, exclusion_reasons
from dpdist.mechanisms.mechanism import Request
from dpdist.mechanisms.mechanism_registry import mechanism_of
from dpdist.operators import Identity
from dpdist.planner.release_plan import plan
from dpdist.planner.strategy_search import Planning
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN
from dpdist.reconstruction.answer_vectors import AnswerRequest
from dpdist.runtime.context import Context, ignore_progress
from dpdist.size_limits import Sizes
from dpdist.spec import load
from dpdist.stability import Neighbours
from dpdist.storage import home_folder
from dpdist.strategies import effort, symmetric
from dpdist.strategies.baselines import gaussian, laplace
from dpdist.strategies.representations import DirectStrategy
from dpdist.strategies.solver_resources import NO_LIMITS, Limits, product_bytes, worst_orbit_bytes
from dpdist.strategies.tables.marginal_optimum import marginal_weights
from dpdist.workloads import Workload, marginals, products, union
from tests.case_selection import slow_after_first
from tests.support import small_release
from tests.support.complete_tree import installed_mechanisms

NAMES = Domain.of_shape((2**17, 10))
BESIDE = {
    "tables": marginals(NAMES, (1,)),
    "all tables": marginals(NAMES, (0, 1, 2)),
    "a product": products(NAMES, {"x0": "identity", "x1": "prefix"}),
    "products": union(products(NAMES, {"x0": "identity"}), products(NAMES, {"x1": "prefix"})),
}


def planning(home: Path) -> Planning:
    here = engine.Engine(workers=1, memory_bytes=2**40, threads=1, connect=None, local=True)
    return Planning(Context(home, home_folder.store_of(home), here, ignore_progress))


@pytest.mark.parametrize("shape", [(20_000,), (150, 150)])
def test_a_whole_table_is_measured_cell_by_cell(shape: tuple[int, ...], home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise on the cells has the least total and the least largest error, with the same cost as residual rows."""
    monkeypatch.setattr(mechanism, "AT_ONCE", Limits(2**20, 1800.0))
    workload = union(marginals(Domain.of_shape(shape), (len(shape),)), weights=(2.0,))
    found = mechanism_of("marginals").plan(Request(workload), planning(home))
    assert isinstance(found.operator, Identity)
    assert (found.name, found.workload_cost) == ("marginals", 4.0 * math.prod(shape))
    assert 0 <= found.gap <= 2e-12
    grid = found.measurement(workload, neighbours="add-remove", most_records=1)
    assert grid.sensitivity_squared == grid.mixing[0] ** 2
    least = mechanism_of("marginals").plan(Request(workload, worst=True), planning(home))
    assert least.solve is not None
    assert (least.solve.history[-1].objective, least.worst(workload)) == (4.0, 1.0)
    assert isinstance(least.operator, Identity)


def test_one_table_of_some_attributes_is_measured_by_its_cells(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queries themselves, whose error is the least: that of residual rows, where these are few."""
    workload = marginals(Domain.of_shape((30, 4)), 1, among=("x0",))
    rows = mechanism_of("marginals").plan(Request(workload), planning(home))
    monkeypatch.setattr(mechanism, "AT_ONCE", Limits(1, 0.0))
    found = mechanism_of("marginals").plan(Request(workload), planning(home))
    assert isinstance(found, DirectStrategy)
    assert not isinstance(rows, DirectStrategy)
    assert found.workload_cost == pytest.approx(rows.workload_cost)
    assert 0 <= found.gap <= 2e-12


@pytest.mark.parametrize(
    "person", [None, {"column": "id", "most_records": 1, "most_groups": 10}], ids=["records", "persons"]
)
def test_one_table_of_many_millions_of_cells_is_planned_in_the_time_of_its_spec(
    person: dict[str, Any] | None, home: Path
) -> None:
    """200 x 6,000 cells took minutes for records, and 3 GB and no end for persons: the suite's limit for a test would end it."""
    context = planning(home).context
    for size in (6_000, 20_000):
        job = load(
            small_release.spec(
                domain={"x": {"from": 0, "to": 199}, "y": {"from": 0, "to": size - 1}},
                workload=[{"marginals": {"of": [["x", "y"]]}}],
                records={"path": "records.parquet", **({"person": person} if person else {})},
            )
        )
        found = plan(context, job)
        assert found.table[0].gap is not None or person is not None


def test_smaller_tables_keep_their_residual_rows(home: Path) -> None:
    found = mechanism_of("marginals").plan(Request(marginals((30, 4), (2,))), planning(home))
    assert not isinstance(found.operator, Identity)
    assert found.workload_cost == pytest.approx(120.0)


def test_a_kept_optimum_over_orbits_has_the_gap_of_the_solved_one(home: Path) -> None:
    """The one that is kept for later plans, too: the last step's, not an earlier one's."""
    workload = products(Domain.of_shape((9,)), {"x0": ["x0 < 3", "x0 >= 5", "x0 < 7"]})
    solved = symmetric(workload)
    for _ in range(2):
        found = mechanism_of("symmetric").plan(Request(workload), planning(home))
        assert found.solve is not None
        assert found.gap == pytest.approx(solved.gap)
        assert found.solve.history[-1].gap == pytest.approx(found.gap)


@pytest.mark.parametrize("name", BESIDE)
def test_beside_other_attributes_they_are_exchanged(name: str) -> None:
    """``auto`` takes the certified optimum over orbits, and nothing that would write down rows over all values."""
    workload = BESIDE[name]
    compared = compared_mechanisms("auto", "l2", workload)
    assert compared[0] == "symmetric"
    assert set(compared) == {"symmetric", "identity", "gaussian"}
    assert effort(workload, "symmetric").memory_bytes < 2**29
    reasons = exclusion_reasons("l2", workload)
    for each in installed_mechanisms("fourier", "datacube") if "tables" in name else ():
        assert reasons[each].endswith("GiB to write down its rows; ask for it by name")


@pytest.mark.slow
def test_their_optimum_is_that_of_the_closed_form_within_its_memory() -> None:
    workload = BESIDE["all tables"]
    promised = effort(workload, "symmetric").memory_bytes
    tracemalloc.start()
    found = symmetric(workload)
    worst = found.worst(workload)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    shape = workload.domain.shape
    ranks = {subset: math.prod(shape[axis] - 1 for axis in subset) for subset in marginal_weights(workload)}
    sums = sum(ranks[subset] * math.sqrt(weight) for subset, weight in marginal_weights(workload).items())
    assert found.workload_cost == pytest.approx(sums**2 / workload.domain.cells, rel=1e-6)
    assert 0 <= found.gap <= 1e-6
    assert worst is not None
    assert promised / 12 <= taken <= promised


LISTED = Domain.of_shape((1500, 4))
MIXED = union(products(LISTED, {"x0": "identity"}), products(LISTED, {"x1": "prefix"}), products(LISTED, {}))


@pytest.mark.parametrize("workload", [marginals((6, 5, 3), (0, 1, 2)), MIXED], ids=["tables", "products"])
def test_answers_and_errors_do_not_need_the_rows(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written down or not, the rows that tell values apart give the same answers, which are the truth where there is no noise."""
    noise = Noise(GAUSSIAN, 4)
    found = []
    for through in (0, 10**6):
        monkeypatch.setattr(over_orbits, "LOOKED_THROUGH", through)
        strategy = symmetric(workload)
        grid: Any = strategy.measurement(workload, neighbours="add-remove", most_records=1)
        counts = np.random.default_rng(0).integers(0, 50, workload.domain.cells)
        told = grid.answers(workload, ArrayVector(grid.measure(counts)), noise, AnswerRequest("answers"))
        np.testing.assert_allclose(to_array(told.answer), workload.unweighted.matvec(counts), rtol=1e-9, atol=1e-6)
        found.append((to_array(told.answer), to_array(told.error), strategy.worst(workload)))
    (answer, error, worst), (rows_answer, rows_error, rows_worst) = found
    np.testing.assert_allclose(answer, rows_answer, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(error, rows_error, rtol=1e-9)
    assert worst == pytest.approx(rows_worst, rel=1e-9)


@pytest.mark.parametrize(
    "name",
    slow_after_first(
        1,
        ["marginals", "kronecker"]
        + [
            pytest.param(each, marks=pytest.mark.slow)
            for each in installed_mechanisms("fourier", "datacube", "residual", "oblique")
        ],
    ),
)
def test_rows_that_cannot_be_held_are_refused_in_one_line(name: str, home: Path) -> None:
    workload = BESIDE[{"kronecker": "a product", "marginals": "all tables"}.get(name, "tables")]
    with pytest.raises(OutOfMemory, match=f"'{name}' needs .* GiB, .* allowed: .*set 'mechanism' to 'symmetric'") as refused:
        mechanism_of(name).plan(Request(workload), planning(home))
    told = str(refused.value)
    assert "\n" not in told
    assert not any(
        f"'{each}'" in told.split("set 'mechanism'")[1] for each in ("marginals", "residual", "oblique", "kronecker")
    )


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("ways", [(1,), (0, 2), (1, 3)])
def test_the_sensitivity_of_whole_tables_is_added_up_table_by_table(
    neighbours: Neighbours, ways: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The integers that a look at every column gives, where no pairs are compared."""
    workload = marginals((4, 5, 3), ways)
    weighted = union(workload, marginals((4, 5, 3), (1,)), weights=(1.0, 0.3))
    few = Sizes(pair_cells=1, pair_work=1)
    for each in (workload, weighted):
        grids = [
            (gaussian(each).measurement(each, neighbours=neighbours, most_records=1), column_norms.sensitivity_squared),
            (laplace(each).measurement(each, neighbours=neighbours, most_records=1), column_norms.l1_sensitivity),
        ]
        for grid, sensitivity in grids:
            assert isinstance(grid, DenseMeasurement)
            quick = sensitivity(grid.mixing, grid.base, neighbours, few)
            with monkeypatch.context() as patch:
                patch.setattr(column_norms, "_table_entries", lambda *_: None)
                assert sensitivity(grid.mixing, grid.base, neighbours, few) == quick
            with monkeypatch.context() as patch:
                patch.setattr(column_norms, "row_blocks", None)  # rows over all cells are not looked at
                assert sensitivity(grid.mixing, grid.base, neighbours, few) == quick


def test_tables_whose_rows_weigh_differently_are_looked_at_column_by_column() -> None:
    workload = marginals((4, 5), (1,))
    mixing = np.arange(1, 10, dtype=np.int64)
    found = mixing[:, None] * workload.unweighted.dense().astype(np.int64)
    exact = int((found**2).sum(axis=0).max())
    assert column_norms.sensitivity_squared(mixing, workload.unweighted, "add-remove") == exact
    assert column_norms.l1_sensitivity(mixing, workload.unweighted, "add-remove") == int(found.sum(axis=0).max())


@pytest.mark.slow
def test_limits_that_rule_the_optimum_out_leave_the_cells() -> None:
    compared = compared_mechanisms("auto", "l2", BESIDE["tables"], Limits(memory_bytes=2**20))
    assert "identity" in compared
    assert "marginals" not in compared
    assert compared_mechanisms("auto", "l2", marginals((2**20,), (1,)), NO_LIMITS)[0] == "marginals"


def test_where_cells_cannot_be_held_tables_are_named(home: Path) -> None:
    """``symmetric`` holds all cells, however few parts its symmetry has: for 10^13 of them what measures tables is named."""
    domain = Domain.of_shape((100,) * 6 + (10,))
    workload = union(marginals(domain, (2,)), products(domain, {"x6": ["x6 < 3"]}))
    taken = compared_mechanisms("auto", "l2", workload)
    assert "residual" in taken
    assert not {"symmetric", "coa"} & set(taken)
    with pytest.raises(OutOfMemory, match="set 'mechanism' to .*'residual'") as refused:
        mechanism_of("coa").plan(Request(workload), planning(home))
    assert "'symmetric'" not in str(refused.value)


def test_the_worst_error_over_orbits_takes_as_much_as_its_answers() -> None:
    for workload in BESIDE.values():
        assert worst_orbit_bytes(workload) >= 8 * workload.shape[0]


def test_products_take_the_squares_of_their_values() -> None:
    """No more, or what fits would be refused: four times as much for twice the values."""
    before, after = (product_bytes(products(Domain.of_shape((size, size)), {"x0": "prefix"})) for size in (512, 1024))
    assert 3.5 * before <= after <= 4.0 * before
