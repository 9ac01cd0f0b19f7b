"""A bound for unions of products at any size: never above the optimum, exact where it is known, and near it on prefix marginals."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from dpdist import engine
from dpdist.domain import Domain
from dpdist.errors import InvalidInput, OutOfMemory
from dpdist.operators import AllRanges, Dense, Identity, Operator, Prefix
from dpdist.planner import strategy_search
from dpdist.planner.release_plan import plan
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from dpdist.strategies import coa, dual_bound, identity
from dpdist.strategies.solver_resources import product_bytes
from dpdist.strategies.tables.marginal_optimum import marginal_optimum
from dpdist.strategies.tables.product_bound import BlockGrams, bound_bytes, bound_steps, product_bound, product_weights
from dpdist.strategies.tables.residual_bases import residual
from dpdist.workloads import Block, Workload, marginals, predicates, prefix, union
from tests.support import small_release


def marginal_workload(sizes: list[int], ordered: int, ways: list[int]) -> Workload:
    """All marginals of so many attributes, prefixes of ordered ones."""
    blocks = []
    for way in ways:
        for axes in combinations(range(len(sizes)), way):
            factors = tuple(Prefix(sizes[i]) if i < ordered else Identity(sizes[i]) for i in axes)
            blocks.append(Block("b", axes, factors, tuple(tuple(str(j) for j in range(sizes[i])) for i in axes)))
    return Workload(Domain.of_shape(tuple(sizes)), tuple(blocks))


def some_union(seed: int) -> Workload:
    """Random factors, weights and attribute sets."""
    state = np.random.default_rng(seed)
    sizes = tuple(int(n) for n in state.integers(2, 6, 3))
    blocks = []
    for axes in [(0,), (0, 1), (1, 2), (0, 1, 2)][: int(state.integers(1, 5))]:
        factors: list[Operator] = []
        for axis in axes:
            n = sizes[axis]
            dense = Dense(state.normal(size=(n + 1, n)))
            factors.append([Prefix(n), Identity(n), dense][int(state.integers(3))])
        labels = tuple(tuple(map(str, range(f.shape[0]))) for f in factors)
        weight, scales = float(state.uniform(0.2, 3)), tuple(np.full(f.shape[0], 0.5) if seed % 2 else None for f in factors)
        blocks.append(Block("b", axes, tuple(factors), labels, weight, scales))
    return Workload(Domain.of_shape(sizes), tuple(blocks))


@pytest.mark.parametrize("seed", range(8))
def test_it_is_below_the_optimum_and_below_the_dual_at_the_same_weights(seed: int) -> None:
    workload = some_union(seed)
    optimum = coa(workload, tolerance=1e-7)
    assert optimum.workload_cost is not None
    best = product_bound(workload)
    assert 0.5 * optimum.workload_cost < best <= optimum.workload_cost * (1 + 1e-9)
    asked = BlockGrams.of(workload)
    state = np.random.default_rng(seed + 100)
    logs = {axis: state.normal(size=asked.sizes[axis]) for axis in asked.alike}
    dual = np.ones(1)
    for axis, size in enumerate(asked.sizes):
        raised = np.exp(logs.get(axis, np.zeros(size)))
        dual = np.multiply.outer(dual, raised / raised.sum()).ravel()
    plain, most = asked.bound(logs)[0], dual_bound(workload, dual) * (1 + 1e-9)
    weights = {axis: np.exp(log) / np.exp(log).sum() for axis, log in logs.items()}
    assert all(plain * (1 - 1e-9) <= asked.bound_along(axis, weights) <= most for axis in asked.alike)


def test_attributes_that_take_turns_are_followed_in_several_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefixes by value and values by prefix: two spaces of the other attribute leave 3.8 % of the optimum, four 1.6 %."""
    asked = (
        Block("b", (0, 1), (Prefix(13), Identity(18)), (), 1.0),
        Block("b", (0, 1), (Identity(13), Prefix(18)), (), 1.0),
    )
    workload = Workload(Domain.of_shape((13, 18)), asked)
    optimum = coa(workload, tolerance=1e-5).workload_cost
    assert optimum is not None
    assert 0.98 * optimum < product_bound(workload) < optimum
    monkeypatch.setattr("dpdist.strategies.tables.product_bound.SUBSPACES", 2)
    assert product_bound(workload) < 0.965 * optimum


def test_the_best_contraction_along_an_attribute_of_two_tables_is_the_dual() -> None:
    """With one other attribute that is asked value by value, and weights that are alike there, nothing is lost."""
    workload = Workload(
        Domain.of_shape((7, 3)), (*marginal_workload([7, 3], 1, [1, 2]).blocks, *marginals((7, 3), 1).blocks)
    )
    weights = {0: np.arange(1.0, 8.0) / 28}
    dual = dual_bound(workload, np.repeat(weights[0] / 3, 3))
    asked = BlockGrams.of(workload)
    assert asked.bound_along(0, weights) == pytest.approx(dual, rel=1e-9)
    assert asked.bound({0: np.log(weights[0])})[0] < 0.99 * dual


@pytest.mark.parametrize("by_value", [False, True], ids=["in prefixes", "by value, too"])
def test_the_gradient_is_that_of_finite_differences(by_value: bool) -> None:
    workload = marginal_workload([5, 4, 3], 2, [1, 2])
    asked = BlockGrams.of(union(workload, marginals((5, 4, 3), (1, 2))) if by_value else workload)
    state = np.random.default_rng(0)
    logs = {0: state.normal(size=5), 1: state.normal(size=4)}
    _, gradient = asked.bound(logs)
    for axis, log in logs.items():
        for value in range(log.size):
            values = []
            for step in (1e-5, -1e-5):
                moved = {place: each.copy() for place, each in logs.items()}
                moved[axis][value] += step
                values.append(math.log(asked.bound(moved)[0]))
            assert (values[0] - values[1]) / 2e-5 == pytest.approx(gradient[axis][value], abs=1e-7)


def test_it_is_exact_where_the_optimum_is_known() -> None:
    tables = marginals((3, 4, 5, 2), (1, 3))
    assert product_bound(tables) == pytest.approx(marginal_optimum(tables).workload_cost, rel=1e-9)
    line = prefix(64)
    assert product_bound(line) == pytest.approx(coa(line).workload_cost, rel=1e-4)
    square = marginal_workload([12, 9], 2, [2])
    assert product_bound(square) == pytest.approx(coa(square).workload_cost, rel=1e-4)
    assert product_bound(square) <= coa(square, tolerance=1e-8).workload_cost


@pytest.mark.parametrize(
    ("sizes", "ordered", "ways", "near", "before"),
    [
        ([16, 12, 3], 2, [1, 2], 0.97, 0.91),
        ([24, 24], 2, [1, 2], 0.98, 0.95),
        pytest.param([8, 8, 8, 4], 3, [1, 2, 3], 0.93, 0.6, marks=pytest.mark.slow),
    ],
)
def test_prefix_marginals_of_section_9(sizes: list[int], ordered: int, ways: list[int], near: float, before: float) -> None:
    """The dense checks: 0.87 to 0.95 of the optimum with one parameter, better with free weights."""
    workload = marginal_workload(sizes, ordered, ways)
    optimum = coa(workload, tolerance=1e-3)
    assert optimum.lower_bound is not None
    assert product_bound(workload) > near * (optimum.workload_cost or math.inf)
    assert product_bound(workload, steps=1) < product_bound(workload)
    blocks = sum(float(coa(Workload(workload.domain, (b,)), tolerance=1e-3).lower_bound or 0) for b in workload.blocks)
    assert blocks < before * optimum.lower_bound
    assert residual(workload, tolerance=1e-3).lower_bound >= product_bound(workload)


def test_what_it_does_not_bound() -> None:
    domain = Domain.of_shape((3, 4))
    with pytest.raises(InvalidInput, match="no product"):
        product_bound(predicates(domain, ["x0 == 0 or x1 == 1"]))
    assert bound_steps(marginal_workload([4096] * 5, 5, [1])) == 0
    assert product_bound(marginal_workload([4096] * 5, 5, [1])) == 0.0


@pytest.mark.parametrize(
    "asked",
    [
        ((Prefix(300), Identity(280)), (Identity(300), Prefix(280))),
        tuple((a, b) for a in (Prefix(300), AllRanges(300)) for b in (Prefix(280), AllRanges(280), Identity(280))),
        ((Prefix(500), Identity(3)),),
    ],
)
def test_it_holds_what_a_plan_says(asked: tuple[tuple[Operator, ...], ...]) -> None:
    blocks = tuple(Block("b", (0, 1), factors, (), 1.0) for factors in asked)
    workload = Workload(Domain.of_shape(tuple(factor.shape[1] for factor in asked[0])), blocks)
    product_bound(marginal_workload([3, 4], 1, [1, 2]), steps=2)  # what libraries take at their first call
    tracemalloc.start()
    product_bound(workload, steps=2)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.5 * bound_bytes(workload) <= held <= bound_bytes(workload) <= product_bytes(workload)
    assert strategy_search.lower_bound_bytes(workload, "l2", [identity(3)]) == bound_bytes(workload)
    assert strategy_search.lower_bound_bytes(workload, "l2", [replace(identity(3), workload_cost=1.0, lower_bound=1.0)]) == 0


def test_a_plan_that_cannot_hold_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(tmp_path, Store(tmp_path / "store"), engine.inline(), ignore_progress)
    monkeypatch.setattr("dpdist.strategies.tables.product_bound.COPIES", 2**40)
    with pytest.raises(OutOfMemory, match="the bound that no strategy can beat"):
        plan(context, load(small_release.spec(mechanism="identity")))


def test_every_union_of_products_shows_how_far_it_is(tmp_path: Path) -> None:
    """Whatever mechanism was asked for; the bound is computed once and kept."""
    context = Context(tmp_path, Store(tmp_path / "store"), engine.inline(), ignore_progress)
    found = {
        name: plan(context, load(small_release.spec(mechanism=name))).certificate()["mechanism"]
        for name in ("identity", "residual", "gaussian", "coa")
    }
    assert found["identity"]["lower_bound"] == pytest.approx(found["gaussian"]["lower_bound"])
    assert found["identity"]["lower_bound"] <= found["coa"]["cost"]
    assert found["identity"]["lower_bound"] > 0.8 * found["coa"]["cost"]
    assert found["residual"]["certified_gap"] < 0.2
    pure = {"budget": {"epsilon": 1}, "ledger": {"dataset": "p", "cap": {"epsilon": 1}}, "mechanism": "identity"}
    laplace = plan(context, load(small_release.spec(**pure))).certificate()["mechanism"]
    assert laplace["lower_bound"] >= 2 * found["identity"]["lower_bound"] * (1 - 1e-12)


def test_weights_that_a_release_keeps_are_of_the_attributes_that_they_were_found_for(tmp_path: Path) -> None:
    """Also where the first queries ask of a later attribute than the next ones, so that its weights stand first."""
    first, then = marginal_workload([4, 5], 2, [1]).blocks
    asked = Workload(Domain.of_shape((4, 5)), (then, first))
    bound, weights = product_weights(asked)
    assert [*weights] == [1, 0]
    context = Context(tmp_path, Store(tmp_path / "store"), engine.inline(), ignore_progress)
    for _ in range(2):
        kept, found = strategy_search._product_weights(context, asked)
        assert kept == bound
        assert {axis: each.tolist() for axis, each in found.items()} == {
            axis: each.tolist() for axis, each in weights.items()
        }


def test_many_groups_of_the_same_statistics_are_bounded_without_a_gram_over_the_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An attribute that is asked value by value takes its numbers alone: 100,000 groups as seven, a bound that grows as their square."""

    def statistics_of(groups: int) -> Workload:
        amounts = [Dense(np.array([row])) for row in ([1.0, 0.0, 0.0], [0.0, 2.0, 0.3], [0.5, 0.0, 4.0])]
        blocks = tuple(Block("b", (0, 1), (Identity(groups), rows), (), 1.0) for rows in amounts)
        return Workload(Domain.of_shape((groups, 3)), blocks)

    few = product_bound(statistics_of(7), steps=20)
    assert 0.75 < few / (coa(statistics_of(7)).workload_cost or math.inf) <= 1
    monkeypatch.setattr(Identity, "gram", lambda *_: pytest.fail("a gram over the groups"))
    assert product_bound(statistics_of(100_000), steps=20) == pytest.approx(few * 100_000 / 7, rel=1e-6)
    assert bound_steps(statistics_of(100_000)) == bound_steps(statistics_of(7)) > 0
    assert 0 < bound_bytes(statistics_of(100_000)) < 10**5
