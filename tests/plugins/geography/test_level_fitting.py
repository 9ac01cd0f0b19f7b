"""Fitted levels: the exact projection by a solver over all cells, never worse for any data, and alike in memory and through the store."""

from __future__ import annotations

import tracemalloc
from itertools import permutations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from dpdist.arrays.array_workspace import MEMORY
from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.arrays.transpose_passes import MEMORY_SHARE
from dpdist.domain import Attribute, Domain
from dpdist.engine import Engine
from dpdist.measurement import dense_measurement, integer_measurement
from dpdist.operators import Matrix
from dpdist.planner import release_plan
from dpdist.plugins.geography.level_fitting import NESTED_LEVELS, LevelFit
from dpdist.plugins.nonnegative_answers import table_fitting
from dpdist.plugins.nonnegative_answers.answer_fitting import NONNEGATIVE_ANSWERS
from dpdist.plugins.nonnegative_answers.table_fitting import fit_answers, special_fit
from dpdist.publish import release_folder
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers
from dpdist.runtime.stored_vectors import StoreWorkspace
from dpdist.size_limits import Sizes
from dpdist.storage.array_store import Store
from dpdist.workloads import Workload, union
from dpdist.workloads.product_queries import listed_marginals
from tests.plugins.geography.test_level_weights import SEX, by_levels, domain_with_levels
from tests.support import small_release

GROUPS = [0, 2, 1, 0, 3, 2, 2, 4]


def by_solver(workload: Workload, values: Matrix, known: float | None = None) -> Matrix:
    """The closest answers of non-negative cells, by an active-set solver; a public number of records counts heavily."""
    queries = workload.unweighted.dense()
    weights = np.concatenate([np.full(block.queries, block.weight) for block in workload.blocks])
    rows, goal = weights[:, None] * queries, weights * values
    if known is not None:
        rows, goal = np.vstack([rows, np.full(rows.shape[1], 1e4)]), np.append(goal, 1e4 * known)
    return np.asarray(queries @ scipy.optimize.nnls(rows, goal, maxiter=10_000)[0])


def fit_of(workload: Workload) -> LevelFit:
    found = LevelFit.of(workload, MEMORY)
    assert found is not None
    return found


def workloads() -> list[Workload]:
    """Levels in every place among other attributes, missing values, a finest level that is no value, and weights."""
    (block,) = domain_with_levels(GROUPS).attributes
    out = []
    for order in permutations(range(3)):
        domain = Domain(tuple([block, SEX, Attribute("age", edges=(0, 20, 60, 90))][place] for place in order))
        out.append(by_levels(domain, "state", "county", "block"))
    out += [
        by_levels(domain_with_levels(GROUPS, SEX, missing=each), "state", "county", "block") for each in ("unknown", "drop")
    ]
    out.append(by_levels(domain_with_levels(GROUPS, SEX), "state", "county"))
    parts = [by_levels(domain_with_levels(GROUPS, SEX), each) for each in ("state", "block", "county")]
    return [*out, union(*parts, weights=(5.0, 0.5, 2.0))]


WORKLOADS = workloads()


@settings(max_examples=40)
@given(st.sampled_from(WORKLOADS), st.floats(0.1, 30), st.integers(0, 10**6))
def test_fitted_levels_are_the_projection_and_never_worse(workload: Workload, scale: float, seed: int) -> None:
    """For answers that add up or not: any data, any noise."""
    state = np.random.default_rng(seed)
    truth = workload.unweighted.matvec(state.poisson(0.5, workload.shape[1]).astype(float) ** 3)
    values = truth + scale * state.standard_normal(truth.size)
    found = fit_of(workload).fit_in_memory(values, None)
    np.testing.assert_allclose(found, by_solver(workload, values), atol=1e-5 * (1 + scale))
    weights = np.concatenate([np.full(block.queries, block.weight**2) for block in workload.blocks])
    assert (found >= 0).all()
    assert weights @ (found - truth) ** 2 <= weights @ (values - truth) ** 2 * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("records", [3.0, 40.0, 0.0])
def test_a_public_number_of_records_is_held(records: float) -> None:
    workload = WORKLOADS[0]
    values = workload.unweighted.matvec(np.random.default_rng(1).normal(0.3, 4, workload.shape[1]))
    found = fit_of(workload).fit_in_memory(values, records)
    np.testing.assert_allclose(found, by_solver(workload, values, records), atol=1e-3)
    assert found[: workload.blocks[0].queries].sum() == pytest.approx(records, abs=1e-6)


@pytest.mark.parametrize("workload", WORKLOADS[:6:5])
def test_levels_are_fitted_alike_in_memory_and_through_the_store(workload: Workload, tmp_path: Path) -> None:
    """Each column by itself, whatever the slabs: the same bits."""
    values = np.random.default_rng(2).normal(0.3, 4, workload.shape[0])
    here = fit_of(workload).fit_in_memory(values, None)
    fit_bytes = NESTED_LEVELS.line_bytes(workload)
    engine = Engine(workers=2, memory_bytes=3 * fit_bytes, threads=1, connect=None, local=True)
    work = StoreWorkspace(Store(tmp_path, Sizes(slab_bytes=fit_bytes, shard_bytes=64, tile_bytes=8)), engine)
    there = LevelFit.of(workload, work)
    assert there is not None
    np.testing.assert_array_equal(to_array(there.fit_stored(work.write(ArrayVector(values)), work)), here)


def test_levels_are_fitted_through_the_store_where_answers_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = WORKLOADS[0]
    values = np.random.default_rng(2).normal(0.3, 4, workload.shape[0])
    errors = np.full(values.size, 4.0)
    made = []
    for most in (table_fitting.MAX_IN_MEMORY, 1):
        monkeypatch.setattr(table_fitting, "MAX_IN_MEMORY", most)
        unbiased = Answers(ArrayVector(values), ArrayVector(errors), ArrayVector(1.96 * errors))
        made.append(to_array(fit_answers(workload, unbiased, None, None, AnswerRequest("x"), 0).answer))
    np.testing.assert_array_equal(*made)
    assert made[0].min() == 0
    assert NONNEGATIVE_ANSWERS.task_bytes(workload) == MEMORY_SHARE * NESTED_LEVELS.line_bytes(workload) > 0


def test_a_tree_of_many_leaves_is_fitted_in_the_memory_that_is_planned() -> None:
    workload = by_levels(
        domain_with_levels([i // 4 for i in range(20_000)], SEX, halves=[int(i >= 9000) for i in range(20_000)]),
        "state",
        "county",
        "block",
    )
    fit, lines = fit_of(workload), np.random.default_rng(0).normal(0, 3, (workload.shape[0], 1))
    fit._fit_columns(lines, 0.0)
    tracemalloc.start()
    fit._fit_columns(lines, 0.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert NESTED_LEVELS.line_bytes(workload) / 3 < peak < NESTED_LEVELS.line_bytes(workload)


def test_only_levels_are_levels() -> None:
    """Whole tables are fitted to each other, with their number of records; tables that differ from level to level are not nested."""
    domain = domain_with_levels(GROUPS, SEX)
    assert special_fit(WORKLOADS[0]) is NESTED_LEVELS
    assert special_fit(listed_marginals(domain, [("sex",), ("block", "sex")])) is None
    assert special_fit(listed_marginals(domain, [("county",), ("block", "sex")])) is None


LEVELS = {
    "region": {"r0": ["b0", "b1"], "r1": ["b2"], "r2": ["b3", "b4", "b5"]},
    "half": {"west": ["b0", "b1", "b2"], "east": ["b3", "b4", "b5"]},
}


@pytest.mark.parametrize("most", [10**6, 1])
def test_a_release_of_levels_adds_up_and_is_not_negative(most: int, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_plan, "has_few_cells", lambda _: False)
    for module in (dense_measurement, integer_measurement):
        monkeypatch.setattr(module, "JOINT_CELLS", 1)
    monkeypatch.setattr(table_fitting, "MAX_IN_MEMORY", most)
    state = np.random.default_rng(4)
    table = pa.table({"block": [f"b{i}" for i in state.geometric(0.6, 60).clip(1, 6) - 1], "cell": state.integers(0, 5, 60)})
    domain = {"block": {"categories": [f"b{i}" for i in range(6)], "levels": LEVELS}, "cell": {"from": 0, "to": 4}}
    asked = [{"marginals": {"of": [["cell"], ["half", "cell"], ["region", "cell"], ["block", "cell"]]}}]
    given_ = {"table": table, "domain": domain, "workload": asked, "mechanism": "nested", "budget": {"rho": 0.02}}
    path = small_release.write(home.parent / "data", **given_, postprocess={"non_negative": True})
    done = small_release.run(path, home)
    rows, certificate = release_folder.load_release(done.folder)
    names, answers = rows["group"].to_pylist(), rows["answer"].to_numpy()
    whole, half, region, block = (answers[[each == name for each in names]].reshape(-1, 5) for name in dict.fromkeys(names))
    assert min(answers) == 0
    np.testing.assert_allclose(half.sum(axis=0), whole[0], atol=0.01)
    np.testing.assert_allclose(region, [block[:2].sum(axis=0), block[2], block[3:].sum(axis=0)], atol=0.01)
    np.testing.assert_allclose(half, [block[:3].sum(axis=0), block[3:].sum(axis=0)], atol=0.01)
    assert "never raises the answers' total squared error" in certificate["post_processing"][0]
    low, high = rows["low_95"].to_numpy(), rows["high_95"].to_numpy()
    assert (low <= answers).all()
    assert (answers <= high).all()
    assert ("total" in certificate["non_negative"]) == (most > 1)
