"""Nested levels: the weights of least error against closed forms and dense truth, and the certificate."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from dpdist.domain import Attribute, Domain, Level
from dpdist.errors import InvalidInput
from dpdist.measurement.coefficient_vectors import Form
from dpdist.mechanisms.comparison import compared_mechanisms, exclusion_reasons
from dpdist.operators import Matrix
from dpdist.plugins.geography.hierarchy_measurement import LINE_COPIES
from dpdist.plugins.geography.level_weights import _WeightSearch, nested, node_weights, root_of_dual, square_root_poles
from dpdist.plugins.geography.nested_groups import Hierarchy, nested_of
from dpdist.plugins.geography.node_variances import MergedHierarchy
from dpdist.size_limits import Sizes
from dpdist.strategies.optimal import coa
from dpdist.strategies.solver_resources import Limits
from dpdist.strategies.strategy import ignore_step
from dpdist.workloads import Gram, Workload, prefix
from dpdist.workloads.product_queries import listed_marginals
from tests.contracts.cases import CASES
from tests.contracts.pipeline import Pipeline


def hierarchy(seed: int, *most: int, unlike: bool = False) -> Hierarchy:
    """Families of 1 up to so many at each level."""
    rng, parents, nodes = np.random.default_rng(seed), [], 1
    for each in most:
        parents.append(np.repeat(np.arange(nodes), rng.integers(1, each + 1, nodes)))
        nodes = parents[-1].size
    sizes = [1, *(each.size for each in parents)]
    return Hierarchy(tuple(parents), tuple(rng.uniform(0.2, 3, n) if unlike else np.ones(n) for n in sizes))


def rows_of(tree: Hierarchy) -> list[Matrix]:
    """Which leaves every node holds, level by level."""
    node, rows = np.arange(tree.sizes[-1]), [np.eye(tree.sizes[-1])]
    for parents in reversed(tree.parents):
        node = parents[node]
        rows.insert(0, (node == np.arange(node.max() + 1)[:, None]).astype(float))
    return rows


def gram_of(tree: Hierarchy) -> Matrix:
    return np.asarray(sum(rows.T @ (w[:, None] * rows) for w, rows in zip(tree.weights, rows_of(tree), strict=True)))


def test_balanced_levels_have_their_closed_form() -> None:
    """Leaves are exchangeable: the singular value bound is reached (mathematics, nested levels)."""
    parents = tuple(np.repeat(np.arange(n), k) for n, k in ((1, 3), (3, 2), (6, 4)))
    tree = Hierarchy(parents, (np.ones(1), np.ones(3), np.full(6, 4.0), np.ones(24)))
    optimum = np.sqrt(np.linalg.eigvalsh(gram_of(tree))).sum() ** 2 / 24
    found = node_weights(tree, tolerance=1e-12)
    assert found.cost == pytest.approx(optimum, rel=1e-6)
    assert found.lower_bound == pytest.approx(optimum, rel=1e-6)
    assert found.lower_bound < optimum < found.cost * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_costs_gradients_and_roots_are_those_of_dense_matrices(seed: int) -> None:
    tree = hierarchy(seed, 3, 4, 3, unlike=True)
    passes, leaf = MergedHierarchy.of(tree)
    search = _WeightSearch(passes)
    given = np.random.default_rng(seed).normal(size=search.cuts[-1])
    cost, slopes = search.cost(given)
    found = search.variances(given)
    weights = [*found.precisions[:-1], found.precisions[-1][leaf]]
    scales = 1 / found.scale[leaf]
    x = sum(r.T @ (a[:, None] * r) for a, r in zip(weights, rows_of(tree), strict=True)) * np.outer(scales, scales)
    np.testing.assert_allclose(np.diag(x), 1)
    assert cost == pytest.approx(float(np.trace(gram_of(tree) @ np.linalg.inv(x))), rel=1e-9)
    steps = np.eye(given.size) * 1e-5
    numeric = [(search.cost(given + step)[0] - search.cost(given - step)[0]) / 2e-5 for step in steps]
    np.testing.assert_allclose(slopes, numeric, rtol=1e-4, atol=1e-6 * cost)
    dual = np.random.default_rng(seed).uniform(0.5, 2, passes.multiplicity.size)
    root = np.sqrt(dual[leaf])
    values = np.linalg.eigvalsh(gram_of(tree) * np.outer(root, root))
    trace, _ = root_of_dual(passes, dual)
    exact = float(np.sqrt(np.maximum(values, 0)).sum())
    assert exact * (1 - 1e-7) < trace < exact


@pytest.mark.parametrize("unlike", [False, True])
def test_the_bound_is_below_the_optimum_and_the_cost_close_above(unlike: bool) -> None:
    """On unequal families, where one weight a node alone is 0.9 to 4.4 % off."""
    tree = hierarchy(4, 6, 14, 6, unlike=unlike)
    optimum, found = coa(Gram(gram_of(tree)), tolerance=1e-8), node_weights(tree)
    assert optimum.workload_cost is not None
    assert optimum.lower_bound is not None
    assert found.lower_bound < optimum.workload_cost
    assert found.lower_bound > optimum.lower_bound * (1 - 1e-4)
    assert optimum.lower_bound < found.cost < optimum.lower_bound * (1.01 if unlike else 1.001)


def test_the_rational_root_is_nowhere_above_the_root() -> None:
    for low, high in ((1.0, 1.0), (1e-3, 1e6), (2.0, 3.0)):
        shifts, factors = square_root_poles(low, high)
        x = np.geomspace(low * 1e-8, high * 1e8, 20_000)
        ratio = (factors * np.sqrt(x)[:, None] / (x[:, None] + shifts)).sum(axis=1)
        assert ratio.max() < 1
        assert ratio[(x >= low) & (x <= high)].min(initial=1) > 1 - 1e-4


def domain_with_levels(
    groups: list[int], *more: Attribute, missing: str | None = None, halves: list[int] | None = None
) -> Domain:
    """Values of a place in groups, which lie in two halves."""
    half = [int(group >= 2) for group in groups] if halves is None else halves
    levels = (
        Level("county", tuple(f"c{i}" for i in range(max(groups) + 1)), tuple(groups)),
        Level("state", ("west", "east"), tuple(half)),
    )
    block = Attribute("block", categories=tuple(f"b{i}" for i in range(len(groups))), levels=levels, missing=missing)
    return Domain((*more, block))


SEX = Attribute("sex", categories=("f", "m"))


def by_levels(domain: Domain, *levels: str) -> Workload:
    return listed_marginals(domain, [("sex",), *((level, "sex") for level in levels)])


@pytest.mark.parametrize("missing", [None, "unknown", "drop"])
def test_the_cost_is_that_of_the_rows_that_are_measured(missing: str | None) -> None:
    """Groups out of order, single children, and records of no place, which the country's table counts alone if they are dropped."""
    workload = by_levels(domain_with_levels([0, 2, 1, 0, 3, 2, 2, 4], SEX, missing=missing), "state", "county", "block")
    found = nested(workload)
    assert found.workload_cost == pytest.approx(found.cost(workload), rel=1e-9)
    assert found.gap < 1e-3
    queries = workload.unweighted.dense()
    variances = np.einsum("ij,jk,ik->i", queries, np.linalg.pinv(found.operator.gram()), queries)
    worst = found.worst(workload)
    assert worst == pytest.approx(float(np.sqrt(variances.max())) * found.operator.l2_sensitivity, rel=1e-9)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_attributes_are_found_in_every_order(order: tuple[int, ...]) -> None:
    """The one with levels, one that is asked for, and one that is summed over."""
    (block,) = domain_with_levels([0, 2, 1, 0, 3]).attributes
    domain = Domain(tuple([block, SEX, Attribute("age", edges=(0, 20, 60, 90))][place] for place in order))
    workload = by_levels(domain, "state", "block")
    found = nested_of(workload)
    assert (domain.names[found.axis], [domain.names[each] for each in found.other_axes]) == ("block", ["sex"])
    strategy = nested(workload)
    assert strategy.workload_cost == pytest.approx(strategy.cost(workload), rel=1e-9)


def test_the_finest_level_may_be_no_value() -> None:
    workload = by_levels(domain_with_levels([0, 2, 1, 0, 3, 2, 2, 4], SEX), "state", "county")
    found = nested(workload)
    assert found.node_rows.leaves.size == 5
    assert found.workload_cost == pytest.approx(found.cost(workload), rel=1e-9)


def test_what_is_no_nested_level_is_refused() -> None:
    crossing = domain_with_levels([0, 0, 1, 1], SEX, halves=[0, 1, 0, 1])
    with pytest.raises(InvalidInput, match="do not lie within"):
        nested_of(by_levels(crossing, "state", "county"))
    two = domain_with_levels([0, 0, 1, 1], SEX)
    with pytest.raises(InvalidInput, match="differ in 2 attributes"):
        nested_of(listed_marginals(two, [("sex",), ("state",)]))
    with pytest.raises(InvalidInput, match="differ in 0 attributes"):
        nested_of(listed_marginals(two, [("state",)]))
    with pytest.raises(InvalidInput, match="are empty"):
        nested_of(by_levels(domain_with_levels([0, 0, 2, 2], SEX), "county"))


def test_auto_takes_the_optimum_within_reach_and_nested_levels_beyond() -> None:
    few = by_levels(domain_with_levels([0, 2, 1, 0, 3, 2, 2, 4], SEX), "state", "county", "block")
    assert compared_mechanisms("auto", "l2", few)[0] == "coa"
    wide = by_levels(domain_with_levels([i % 100 for i in range(20_000)], SEX), "state", "county", "block")
    assert compared_mechanisms("auto", "l2", wide)[0] == "nested"
    told = exclusion_reasons("l2", wide)
    assert "certified" in told["coa"]


def test_auto_takes_no_optimum_that_is_out_of_reach_unless_the_spec_allows_it() -> None:
    """Without limits everything fitted: plans ended in a worker's memory, or not at all."""
    steps = prefix(20_000)
    assert "coa" not in compared_mechanisms("auto", "l2", steps)
    assert "GiB, without 'limits' 'auto' takes up to 8.00" in exclusion_reasons("l2", steps)["coa"]
    assert compared_mechanisms("auto", "l2", steps, Limits(2**40, 1e9))[0] == "coa"


def test_a_table_that_is_too_large_to_be_held_goes_through_the_store(tmp_path: Path) -> None:
    grid = Pipeline(CASES["nested"], tmp_path, 4).plan("add-remove").measurement
    cells = grid.before * grid.after * grid.node_rows.nodes.size
    most = LINE_COPIES * cells
    forms = [replace(grid, sizes=Sizes(streamed_cells=each)).form for each in (most, most - 1)]
    assert forms == [Form.IN_MEMORY, Form.STORED]


def test_a_search_that_takes_all_its_steps_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    search = _WeightSearch(MergedHierarchy.of(hierarchy(0, 3, 4, 3, unlike=True))[0])
    assert search.minimise(1e-9, ignore_step)[2] == "converged"
    monkeypatch.setattr("dpdist.plugins.geography.level_weights.MOST_STEPS", 2)
    assert search.minimise(1e-9, ignore_step)[2] == "iteration limit"
