"""Published baselines: known costs, dense truths, and never below the certified optimum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpdist.errors import InvalidInput
from dpdist.measurement.integer_measurement import Norm
from dpdist.mechanisms.comparison import candidates, exclusion_reasons
from dpdist.operators import Haar, Tree
from dpdist.strategies import (
    Strategy,
    coa,
    gaussian,
    hierarchical,
    identity,
    laplace,
    laplace_bound,
    linear_algebra,
    wavelet,
)
from dpdist.strategies.tables.marginal_optimum import marginal_optimum
from dpdist.workloads import (
    Workload,
    all_ranges,
    filtered,
    marginals,
    permuted,
    prefix,
    random_marginals,
    ranges,
    two_step_ranges,
    union,
)
from dpdist.workloads.time_filters import running_sum
from tests.support.complete_tree import installed_strategies

TABLE_BASELINES = installed_strategies("fourier", "datacube").values()
WORKLOADS: dict[str, Workload] = {
    "ranges": all_ranges(16),
    "permuted ranges": permuted(all_ranges(16)),
    "boxes": two_step_ranges((4, 5), 30),
    "2-d ranges": ranges((4, 4)),
    "prefix": prefix(13),
    "marginals": marginals((3, 4, 2), (1, 2)),
    "random marginals": random_marginals((3, 2, 2, 3), 5),
}


@pytest.mark.parametrize("name", ["2-d ranges", "marginals", "random marginals", "weighted", "boxes"])
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_costs_of_products_are_found_attribute_by_attribute(name: str, norm: Norm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of dense algebra, from decompositions of single attributes; queries that are no products need all cells."""
    boxes = ranges((3, 4, 2))
    named = {**WORKLOADS, "weighted": union(boxes, marginals((3, 4, 2), (0, 1)), weights=(1.0, 3.0))}
    workload, decomposed = named[name], []
    for function in ("eigh", "cholesky"):
        decompose = getattr(linear_algebra, function)

        def noted(matrix: np.ndarray, decompose: Any = decompose) -> Any:
            decomposed.append(matrix.shape[0])
            return decompose(matrix)

        monkeypatch.setattr(linear_algebra, function, noted)
    for made in (wavelet, hierarchical):
        strategy = made(workload.domain.shape, workload, norm=norm)
        largest = workload.shape[1] if name == "boxes" else max(workload.domain.shape)
        assert max(decomposed) == largest
        rows = strategy.matrix()
        variance = np.trace(workload.gram() @ np.linalg.inv(rows.T @ rows))
        columns = np.abs(rows).sum(axis=0) if norm == "l1" else np.linalg.norm(rows, axis=0)
        assert strategy.workload_cost == pytest.approx((2 if norm == "l1" else 1) * columns.max() ** 2 * variance, rel=1e-12)


def baselines(workload: Workload) -> list[Strategy]:
    shape = workload.domain.shape
    out = [identity(workload.shape[1], workload), gaussian(workload), wavelet(shape, workload)]
    return [*out, hierarchical(shape, workload), hierarchical(shape, workload, branching=None)]


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_baseline_beats_the_certified_optimum(name: str) -> None:
    workload = WORKLOADS[name]
    found = baselines(workload)
    if "marginals" in name:
        found += [marginal_optimum(workload), *(build(workload) for build in TABLE_BASELINES)]
    best = coa(workload, tolerance=1e-8)
    for strategy in found:
        assert strategy.workload_cost >= best.lower_bound
        assert strategy.cost(workload) == pytest.approx(strategy.workload_cost, rel=1e-9)
    table = candidates([best, *found], workload)
    assert all(row.gap is not None and row.gap >= -1e-12 for row in table)


@pytest.mark.parametrize("name", ["ranges", "boxes", "prefix", "marginals"])
def test_no_pure_baseline_beats_the_laplace_bound(name: str) -> None:
    workload = WORKLOADS[name]
    shape = workload.domain.shape
    found = [
        identity(workload.shape[1], workload, norm="l1"),
        laplace(workload),
        wavelet(shape, workload, norm="l1"),
        hierarchical(shape, workload, branching=None, norm="l1"),
        *(build(workload, norm="l1") for build in installed_strategies("low_rank").values()),
    ]
    for strategy in found:
        dense = strategy.matrix()
        rows = workload.operator.dense()
        l1 = np.abs(dense).sum(axis=0).max()
        spread = np.eye(rows.shape[0]) if (not strategy.consistent) else rows @ np.linalg.pinv(dense)
        assert strategy.workload_cost == pytest.approx(2 * l1**2 * (spread**2).sum(), rel=1e-6)
        assert strategy.workload_cost >= laplace_bound(workload)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_worst_query_is_predicted(name: str) -> None:
    workload = WORKLOADS[name]
    found = [*baselines(workload), coa(workload)]
    if "marginals" in name:
        found += [marginal_optimum(workload), *(build(workload) for build in TABLE_BASELINES)]
    rows = workload.unweighted.dense()
    for strategy in found:
        spread = np.eye(rows.shape[0]) if (not strategy.consistent) else rows @ np.linalg.pinv(strategy.matrix())
        truth = strategy.l2_sensitivity * np.sqrt((spread**2).sum(axis=1).max())
        assert strategy.worst(workload) == pytest.approx(truth, rel=1e-7)


def test_wavelet_and_tree_over_several_attributes() -> None:
    shape = (4, 3)
    mixed = wavelet(shape, ordered=(True, False))
    np.testing.assert_array_equal(mixed.matrix(), np.kron(Haar(4).dense(), np.eye(3)))
    both = hierarchical(shape, branching=3)
    np.testing.assert_array_equal(both.matrix(), np.kron(Tree(4, 3).dense(), Tree(3, 3).dense()))
    np.testing.assert_array_equal(hierarchical(9).matrix(), Tree(9, 2).dense())
    assert wavelet((8,)).l2_sensitivity == pytest.approx(2.0)
    assert wavelet((8,), norm="l1").l1_sensitivity == 4.0
    for build in (
        lambda: wavelet((4,), prefix(5)),
        lambda: wavelet((4,), ordered=(True, False)),
        lambda: hierarchical((4,), branching=None),
    ):
        with pytest.raises(InvalidInput):
            build()


def test_each_branching_of_a_tree_is_taken_where_it_has_the_least_error() -> None:
    best, branchings = set(), (2, 4, 8, 16)
    for workload, norm in ((all_ranges(64), "l2"), (all_ranges(16), "l2"), (all_ranges(64), "l1"), (all_ranges(256), "l1")):
        cells = workload.shape[1]
        costs = [hierarchical(cells, workload, branching=b, norm=norm).workload_cost for b in branchings]
        best.add(branchings[costs.index(min(costs))])
        assert hierarchical(cells, workload, branching=None, norm=norm).workload_cost == min(costs)
    assert best == {*branchings}


def test_marginal_baselines_refuse_other_workloads() -> None:
    mixed = union(marginals((3, 4), 1), ranges((3, 4)))
    for build in (marginal_optimum, *TABLE_BASELINES):
        with pytest.raises(InvalidInput, match="marginals only"):
            build(mixed)


def test_reasons_are_given_for_everything_that_is_left_out() -> None:
    for workload in WORKLOADS.values():
        for norm in ("l1", "l2"):
            reasons = exclusion_reasons(norm, workload)
            assert all(reasons.values())
            assert "identity" not in reasons
    assert "pure" in exclusion_reasons("l1", prefix(4))["coa"]
    assert "more than marginals" in exclusion_reasons("l2", prefix(4))["marginals"]
    assert "p-identity" not in exclusion_reasons("l1", filtered(64, "x0", [running_sum(64)]))
    assert "certified" in exclusion_reasons("l2", marginals((3, 4), 1))["coa"]
