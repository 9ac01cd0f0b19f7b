"""The optimum over orbits is the optimum over cells: components, costs, bounds, sensitivities; census tables of any size."""

from __future__ import annotations

import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.domain import Domain
from dpdist.errors import InvalidInput
from dpdist.measurement import orbit_measurement as grids
from dpdist.mechanisms.comparison import compared_mechanisms
from dpdist.mechanisms.mechanism_registry import mechanism_of
from dpdist.operators.orbit_sums import SUMMED, OrbitSums
from dpdist.spec import load
from dpdist.stability import Neighbours
from dpdist.strategies import coa, effort, symmetric, symmetric_optimum
from dpdist.strategies.solver_resources import Limits
from dpdist.strategies.symmetric_optimum import weights_by_symmetry
from dpdist.workloads import Workload, marginals, predicates, prefix, products, relative, union
from dpdist.workloads.symmetry import symmetry_of
from tests.support.complete_tree import installed_mechanisms

EXAMPLES = Path(__file__).parents[2] / "examples/sf1"
SMALL = Domain.of_shape((4, 5, 3))


def union_of_products(domain: Domain, *entries: dict[str, Any], weights: tuple[float, ...] | None = None) -> Workload:
    return union(*(products(domain, entry) for entry in entries), weights=weights)


WORKLOADS = {
    "prefixes by values": union_of_products(SMALL, {"x0": "prefix"}, {"x1": "identity"}, {"x0": "prefix", "x1": "identity"}),
    "listed": union_of_products(
        SMALL,
        {"x1": ["x1 < 2", "x1 >= 3"], "x2": "identity"},
        {"x0": "ranges"},
        {},
        {"x1": "identity"},
        weights=(1, 2, 3, 0.5),
    ),
    "tables": marginals((3, 4, 2), (1, 2)),
    "relative": relative(union_of_products(SMALL, {"x0": "prefix", "x2": "identity"}, {"x1": ["x1 < 2", "x1 < 3"]})),
    "one attribute": union_of_products(Domain.of_shape((9,)), {"x0": ["x0 < 3", "x0 >= 5", "x0 < 7"]}),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_optimum_over_orbits_is_that_over_cells(name: str) -> None:
    workload = WORKLOADS[name]
    found, best = symmetric(workload, tolerance=1e-8), coa(workload, tolerance=1e-8)
    assert 0 <= found.gap <= 1e-8
    assert found.workload_cost == pytest.approx(best.workload_cost, rel=2e-8)
    assert found.cost(workload) == pytest.approx(found.workload_cost, rel=1e-9)
    assert found.l2_sensitivity == pytest.approx(found.operator.l2_sensitivity)
    precision = found.operator.gram()
    inverse = np.linalg.pinv(precision, rcond=1e-10, hermitian=True)
    rows = workload.unweighted.dense()
    exact = found.l2_sensitivity * math.sqrt(float(np.einsum("ij,jk,ik->i", rows, inverse, rows).max()))
    assert found.worst(workload) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_sensitivity_is_that_of_every_pair_of_cells(name: str, neighbours: Neighbours) -> None:
    grid = symmetric(WORKLOADS[name], tolerance=1e-3).measurement(WORKLOADS[name], neighbours=neighbours, most_records=1)
    columns = grid.measure(np.eye(WORKLOADS[name].shape[1], dtype=np.int64)).T.astype(object)
    squares = [sum(int(v) ** 2 for v in column) for column in columns]
    if neighbours == "add-remove":
        assert grid.sensitivity_squared == max(squares)
        return
    apart = max(sum((int(v) - int(w)) ** 2 for v, w in zip(a, b, strict=True)) for a in columns for b in columns)
    exact = max(apart, *squares)
    assert exact <= grid.sensitivity_squared <= exact * (1 + 1e-12)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_sensitivity_of_many_orbits_is_never_less(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether pairs are compared some at a time, or are too many to compare: at most the triangle inequality's four times."""
    strategy, asked = symmetric(WORKLOADS[name], tolerance=1e-3), WORKLOADS[name]

    def squared(neighbours: Neighbours) -> int:
        return strategy.measurement(asked, neighbours=neighbours, most_records=1).sensitivity_squared

    whole = squared("replace-one")
    monkeypatch.setattr(grids, "PAIRS_AT_ONCE", 1)
    assert squared("replace-one") == pytest.approx(whole, rel=1e-12)
    monkeypatch.setattr(grids, "PAIRED_ORBITS", 0)
    assert whole * (1 - 1e-12) <= squared("replace-one") <= 4 * squared("add-remove")


def test_the_components_are_the_gram() -> None:
    """Eigenvalues of the parts, each as often as it has copies, are those of W'W; every row of orbits has its adjoint."""
    workload = WORKLOADS["listed"]
    codes = workload.orbits
    assert codes is not None
    symmetry = symmetry_of(workload, codes)
    values = []
    for part in symmetry.components:
        rows = part.quotient.operator.dense() * np.sqrt(symmetry.sizes[part.orbit_cells])
        values += [v for v in np.linalg.eigvalsh(rows.T @ rows) for _ in range(part.copies)]
    exact = np.linalg.eigvalsh(workload.gram())
    np.testing.assert_allclose(np.sort(values)[::-1], exact[::-1][: len(values)], atol=1e-9 * exact.max())
    np.testing.assert_allclose(exact[::-1][len(values) :], 0.0, atol=1e-9 * exact.max())
    assert sum(part.copies * part.orbit_cells.size for part in symmetry.components) <= workload.shape[1]


def test_orbits_sum_and_tell_apart() -> None:
    codes = (np.array([0, 1, 0]), np.array([0, 1]))
    summed = OrbitSums(codes, (SUMMED, SUMMED))
    np.testing.assert_array_equal(summed.matvec(np.arange(6)), [0 + 4, 1 + 5, 2, 3])
    apart = OrbitSums(codes, (0, SUMMED))
    np.testing.assert_array_equal(apart.matvec(np.arange(6)), [-4, 4, -4, 4])  # second values of the attribute, then first
    for each in (summed, apart):
        x, y = np.random.default_rng(0).standard_normal(6), np.random.default_rng(1).standard_normal(each.shape[0])
        assert y @ each.matvec(x) == pytest.approx(x @ each.rmatvec(y))
        np.testing.assert_allclose(each.dense() @ x, each.matvec(x))


def test_values_that_one_query_treats_differently_are_not_exchanged() -> None:
    domain = Domain.of_shape((3, 6))
    alike = products(domain, {"x1": "identity"})
    codes = union(alike, products(domain, {"x1": ["x1 < 2"]})).orbits
    assert codes is not None
    np.testing.assert_array_equal(codes[0], [0, 0, 0])
    np.testing.assert_array_equal(codes[1], [0, 0, 1, 1, 1, 1])
    both = union(alike, products(domain, {"x1": ["x1 < 2", "x1 == 0"]}), weights=(1, 1e-3))
    codes = both.orbits
    assert codes is not None
    np.testing.assert_array_equal(codes[1], [0, 1, 2, 2, 2, 2])
    assert predicates(domain, ["x0 < 1 or x1 < 2"]).orbits is None
    with pytest.raises(InvalidInput, match="no product over attributes"):
        symmetric(predicates(domain, ["x0 < 1 or x1 < 2"]))


@pytest.fixture(scope="module")
def census() -> Workload:
    """SF1 as HDMM has it."""
    return load(EXAMPLES / "release.yaml").workload.queries


@pytest.mark.slow
def test_the_census_tables_are_solved_over_orbits(census: Workload) -> None:
    """500,480 cells, 4,106 distinct queries, 400 weights; within the memory that is promised."""
    workload = census
    assert workload.shape == (4106, 500480)
    tracemalloc.start()
    found = symmetric(workload)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.workload_cost == pytest.approx(15050.8455, rel=1e-6)
    assert 0 <= found.gap <= 1e-6
    assert found.solve is not None
    assert found.solve.dual is not None
    assert found.solve.dual.size == 2 * 8 * 25
    promised = effort(workload, "symmetric")
    assert peak <= promised.memory_bytes <= 20 * peak
    assert compared_mechanisms("auto", "l2", workload) == ("symmetric", "identity", "gaussian")
    assert mechanism_of("symmetric").reason_refused(workload) is None
    x = np.random.default_rng(0).integers(0, 5, workload.shape[1])
    grid = found.measurement(workload, neighbours="add-remove", most_records=1)
    assert abs(grid.sensitivity_squared * grid.spacing**2 - 1) < 1e-6
    assert grid.measure(x).size == grid.rows


@pytest.mark.slow
def test_a_smaller_census_has_the_optimum_over_its_cells() -> None:
    workload = load(EXAMPLES / "mini.yaml").workload.queries
    assert workload.shape == (487, 1472)
    found = symmetric(workload)
    assert found.workload_cost == pytest.approx(2026.08569, rel=1e-6)
    assert compared_mechanisms("auto", "l2", workload)[0] == "coa"  # within reach: what auto chose before
    # dual weights of cells, from those of orbits: the bound over all cells says the same
    symmetry = found.symmetry
    assert found.solve is not None
    assert found.solve.dual is not None
    weight = (found.solve.dual / symmetry.sizes).reshape(symmetry.orbits)[np.ix_(*symmetry.codes)].ravel()
    root = np.sqrt(weight)
    values = np.linalg.eigvalsh(root[:, None] * workload.gram() * root)
    assert np.sqrt(np.maximum(values, 0)).sum() ** 2 / weight.sum() == pytest.approx(found.lower_bound, rel=1e-6)


def one_way_marginals(sizes: tuple[int, ...], ordered: int) -> Workload:
    domain = Domain.of_shape(sizes)
    return union_of_products(
        domain, *({f"x{axis}": "prefix" if axis < ordered else "identity"} for axis in range(len(sizes)))
    )


def test_the_optimum_over_cells_starts_from_that_over_orbits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its certificate is its own: one step shows the gap, where it took several."""
    workload = one_way_marginals((6, 5, 4), 1)
    alone = coa(workload)
    assert weights_by_symmetry(workload, tolerance=1e-6) is None
    monkeypatch.setattr(symmetric_optimum, "MANY_CELLS", 120)
    weights = weights_by_symmetry(workload, tolerance=1e-6)
    assert weights is not None
    assert weights.reshape(6, 20).std(axis=1) == pytest.approx(np.zeros(6), abs=1e-15)
    found = coa(workload)
    assert alone.solve is not None
    assert found.solve is not None
    assert len(found.solve.history) == 1 < len(alone.solve.history)
    assert 0 <= found.gap <= 1e-6
    assert found.workload_cost == pytest.approx(alone.workload_cost, rel=1.1e-6)
    assert found.cost(workload) == pytest.approx(found.workload_cost, rel=1e-9)
    others = (
        predicates(workload.domain, ["x0 < 1 or x1 < 2"]),
        one_way_marginals((120,), 1),
    )  # no products; nothing is exchanged
    assert [weights_by_symmetry(other, tolerance=1e-6) for other in others] == [None, None]
    monkeypatch.setattr("dpdist.strategies.symmetric_optimum.FEWER_ORBITS", 21)
    assert weights_by_symmetry(workload, tolerance=1e-6) is None


@pytest.mark.slow
def test_cps_prefixes_and_tables() -> None:
    """280,000 cells, rank 159, 5,000 weights: 3.0553 (docs/mathematics.md, section 6)."""
    workload = one_way_marginals((50, 100, 7, 4, 2), 2)
    found = symmetric(workload)
    assert 0 <= found.gap <= 1e-6
    assert found.workload_cost is not None
    assert math.sqrt(found.workload_cost / workload.shape[0]) == pytest.approx(3.0553, abs=1e-4)
    assert compared_mechanisms("auto", "l2", workload, Limits(memory_bytes=2**30))[0] == "symmetric"


def test_prefixes_and_tables_of_few_weights() -> None:
    workload = one_way_marginals((5, 6, 4, 3), 2)
    found, best = symmetric(workload), coa(workload)
    assert found.workload_cost == pytest.approx(best.workload_cost, rel=2e-6)
    assert found.solve is not None
    assert found.solve.dual is not None
    assert found.solve.dual.size == 30


def test_what_is_out_of_reach_is_said(census: Workload) -> None:
    mechanism = mechanism_of("symmetric")
    assert mechanism.reason_refused(prefix(8)) == "no two values of an attribute are exchangeable"
    many = marginals((3,) * 13, 1)
    assert mechanism.reason_refused(many) == "its symmetry gives 8,192 parts, more than 4,096"
    compared = compared_mechanisms("auto", "l2", census, Limits(memory_bytes=2**33))
    # releases that were charged for these find them
    assert {"symmetric", "residual", *installed_mechanisms("oblique")} <= set(compared)
    assert "symmetric" not in compared_mechanisms("auto", "l2", census, Limits(memory_bytes=2**20))


def test_what_it_would_take_is_said_in_gibibytes() -> None:
    workload = WORKLOADS["tables"]
    needed = effort(workload, "symmetric").memory_bytes
    said = mechanism_of("symmetric").recommendation(workload, needed)
    assert float(said.split()[-2]) == pytest.approx(needed / 2**30, abs=0.005)
    assert mechanism_of("symmetric").recommendation(workload, needed - 1) is None
