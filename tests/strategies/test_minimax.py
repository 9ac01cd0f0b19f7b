"""The strategy whose worst query has the least error: known answers, proven bounds, and releases that have the errors predicted."""

from __future__ import annotations

import decimal
import json
import tracemalloc
from fractions import Fraction
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist import engine
from dpdist.domain import Domain
from dpdist.errors import InvalidInput
from dpdist.mechanisms import marginal_mechanisms
from dpdist.mechanisms.mechanism import Request
from dpdist.mechanisms.mechanism_registry import REGISTRY
from dpdist.planner.certificate import target_facts
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.release_plan import plan
from dpdist.planner.strategy_search import Planning
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from dpdist.strategies import Strategy, coa, marginal_minimax
from dpdist.strategies.dense import minimax
from dpdist.strategies.dense.minimax import least_worst
from dpdist.strategies.dual_certificates import LargestBound
from dpdist.strategies.lower_bounds import dual_bound
from dpdist.strategies.solver_resources import Limits, effort
from dpdist.strategies.strategy import Step
from dpdist.strategies.tables.product_optimum import kronecker_worst
from dpdist.workloads import (
    Gram,
    Workload,
    all_ranges,
    explicit,
    marginals,
    prefix,
    products,
    random_ranges,
    ranges,
    related,
    union,
)
from tests.support import small_release
from tests.support.measurement_readers import errors_of

FILTERED = [{"filters": {"of": "age", "by": ["sex"], "apply": [{"exponential": 0.7}]}}]


def largest(strategy: Strategy, workload: Workload) -> float:
    """The largest weighted variance at sensitivity 1, from the matrices themselves."""
    a, w = strategy.matrix(), workload.operator.dense()
    spread = w @ np.linalg.pinv(a)
    assert np.abs(spread @ a - w).max() < 1e-8 * np.abs(w).max()
    return float(((spread**2).sum(axis=1)).max() * (a**2).sum(axis=0).max())


def bounds(strategy: Strategy) -> tuple[float, float]:
    assert strategy.solve is not None
    last = strategy.solve.history[-1]
    return last.objective / (1 + last.gap), last.objective


@pytest.mark.parametrize(
    ("workload", "known"),
    [
        (explicit(np.eye(3)), 1.0),
        (explicit(np.ones((1, 4))), 1.0),
        (explicit(np.array([[1, 0], [1, 1]])), 4 / 3),  # gamma_2 of two running sums is 2 / sqrt 3
        (explicit(np.array([[1, 1], [1, -1]])), 2.0),  # a Hadamard matrix of order n: sqrt n
        (union(explicit(np.eye(2)), weights=(3.0,)), 9.0),
    ],
)
def test_worked_out_by_hand(workload: Workload, known: float) -> None:
    lower, upper = bounds(least_worst(workload, tolerance=1e-6))
    assert lower <= known <= upper * (1 + 1e-12)
    assert upper <= lower * (1 + 1e-6)


def test_prefix_sums_have_the_known_optimum() -> None:
    """mathematics.md: prefix 256 lies in [6.41465, 6.41516]."""
    workload = prefix(256)
    found = least_worst(workload)
    lower, upper = bounds(found)
    assert 6.41464 <= lower <= upper <= 6.41520
    assert upper <= lower * (1 + 1e-4)
    assert found.worst(workload) == pytest.approx(upper**0.5)
    assert upper < largest(coa(workload), workload) * 0.9


WORKLOADS = {
    "all ranges": all_ranges(24),
    "random ranges, equal cells": random_ranges(60, 20, seed=1),
    "low rank": related(20, 30, 6, seed=1),
    "marginals": marginals((3, 4, 2), (1, 2)),
    "weights over tables": union(marginals((4, 3), 1), ranges((4, 3)), weights=(3.0, 1.0)),
    "a cell that nobody asks for": explicit(np.array([[1.0, 0, 1], [0, 0, 2]])),
    "an equation between queries": explicit(np.array([[1.0, 0, 0], [0, 1, 0], [1, 1, 0]])),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_both_bounds_are_true(name: str) -> None:
    workload = WORKLOADS[name]
    found = least_worst(workload)
    lower, upper = bounds(found)
    assert found.solve is not None
    assert found.solve.stop == "converged"
    assert upper <= lower * (1 + 1e-4)
    assert largest(found, workload) == pytest.approx(upper, rel=1e-7)
    assert found.workload_cost == pytest.approx(found.cost(workload), rel=1e-6)
    assert found.l2_sensitivity <= 1 + 1e-12
    # nothing else is below the lower bound: not the optimum of any other weights of the queries
    state = np.random.default_rng(3)
    weights = workload.operator.dense()
    for _ in range(5):
        other = coa(explicit(np.exp(state.normal(size=weights.shape[0]))[:, None] * weights), tolerance=1e-3)
        assert largest(other, workload) >= lower


def test_marginals_have_the_closed_form() -> None:
    workload = union(marginals((3, 4, 2), 1), marginals((3, 4, 2), 2), weights=(2.0, 1.0))
    closed, found = bounds(marginal_minimax(workload)), bounds(least_worst(workload))
    assert closed[0] <= found[1]
    assert found[0] <= closed[1]


def test_products_multiply() -> None:
    workload = ranges((6, 5))
    product, whole = kronecker_worst(workload), least_worst(workload)
    lower, upper = bounds(product)
    assert upper <= lower * (1 + 1e-4)
    assert lower <= bounds(whole)[1]
    assert bounds(whole)[0] <= upper
    assert largest(product, workload) == pytest.approx(upper, rel=1e-6)
    assert product.workload_cost == pytest.approx(product.cost(workload), rel=1e-6)
    with pytest.raises(InvalidInput, match="one product"):
        kronecker_worst(union(ranges((6, 5)), marginals((6, 5), 1)))


def test_a_solve_goes_on_where_it_stopped() -> None:
    workload = all_ranges(20)
    steps: list[Step] = []
    whole = least_worst(workload, on_step=steps.append)
    again = least_worst(workload, start=steps[-3].checkpoint)
    assert whole.solve is not None
    assert again.solve is not None
    assert len(again.solve.history) < len(whole.solve.history) / 2
    assert bounds(again)[1] == pytest.approx(bounds(whole)[1], rel=1e-4)
    short = least_worst(workload, max_iterations=2)
    assert short.solve is not None
    assert short.solve.stop == "iteration limit"


def test_refusals() -> None:
    with pytest.raises(InvalidInput, match="relative gap"):
        least_worst(prefix(3), tolerance=0)
    with pytest.raises(InvalidInput, match="nothing to answer"):
        least_worst(explicit(np.zeros((1, 3))))
    with pytest.raises(InvalidInput, match="start"):
        least_worst(prefix(3), start=np.ones(3))


@pytest.mark.parametrize("workload", [prefix(160), all_ranges(60), random_ranges(100, 200)])
def test_it_needs_no_more_memory_than_it_states(workload: Workload) -> None:
    workload.gram()
    tracemalloc.start()
    least_worst(workload, max_iterations=8)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= effort(workload, "worst").memory_bytes


def planned(folder: Path, **changes: Any) -> ReleasePlan:
    given = small_release.spec(**{"objective": "worst", **changes})
    return plan(Context(folder, Store(folder / "store"), engine.inline(), ignore_progress), load(given))


def test_of_very_many_answers_the_largest_error_is_that_before_rounding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = planned(tmp_path / "exact").certificate()["mechanism"]["certified_gap_of_the_worst"]
    monkeypatch.setattr("dpdist.planner.measurement_plan.MOST_QUERIES", 0)
    rough = planned(tmp_path / "rough").certificate()["mechanism"]["certified_gap_of_the_worst"]
    assert rough != exact == pytest.approx(rough, abs=1e-6)


def test_targets_are_reached_by_the_budget_that_the_plan_names(tmp_path: Path) -> None:
    groups = [{"cdf": {"of": "age"}, "target": 4}, {"marginals": {"of": [["sex", "work"]]}, "target": 1.5}]
    first = planned(tmp_path, workload=groups).certificate()["targets"]
    assert not first["reached"]
    assert first["least_rho"] == float(f"{first['least_rho']:.5e}")  # six digits: it is to be typed into a spec
    budget = {"budget": {"rho": str(first["least_rho"])}, "ledger": {"dataset": "t", "cap": {"rho": 9}}}
    enough = planned(tmp_path, workload=groups, **budget)
    told = enough.certificate()["targets"]
    assert told["reached"]
    assert 1 - 1e-5 < told["worst_error_over_target"] <= 1
    errors = np.sqrt((errors_of(enough, 400) ** 2).mean(axis=0))
    assert errors[:12].max() < 4 * 1.15
    assert errors[12:].max() < 1.5 * 1.15
    assert max(errors[:12].max() / 4, errors[12:].max() / 1.5) > 0.9
    less = {**budget, "budget": {"rho": str(first["least_rho"] * 0.999)}}
    assert not planned(tmp_path, workload=groups, **less).certificate()["targets"]["reached"]


def test_the_least_budget_includes_what_is_found_beside_the_measurement(tmp_path: Path) -> None:
    """A share of the budget for medians is missing from the measurement, whose noise the targets are about."""
    given = {"workload": [{"cdf": {"of": "age"}, "target": 4}], "quantiles": {"of": {"age": {"from": 0, "to": 120}}}}
    told = planned(tmp_path, **given).certificate()["targets"]
    budget = {"budget": {"rho": str(told["least_rho"])}, "ledger": {"dataset": "t", "cap": {"rho": 99}}}
    enough = planned(tmp_path, **given, **budget).certificate()["targets"]
    assert enough["worst_error_over_target"] == pytest.approx(1, abs=1e-5)
    assert enough["reached"]


def test_the_least_budget_has_six_digits_of_any_size(tmp_path: Path) -> None:
    strategy = planned(tmp_path, workload=[{"cdf": {"of": "age"}, "target": 4}]).strategy
    for multiplier in np.logspace(-3, 3, 13):
        told = target_facts(strategy, float(multiplier), Fraction(1, 10))
        needed = told["worst_error_over_target"] ** 2 / 10
        assert needed < told["least_rho"] <= needed * (1 + 1.1e-5)
        assert told["least_rho"] == float(f"{told['least_rho']:.5e}")


def test_a_kept_strategy_is_read_back_with_its_largest_error(tmp_path: Path) -> None:
    groups = [{"cdf": {"of": "age", "by": ["sex"]}, "target": 4}]
    for workload in (groups, [{"cdf": {"of": "age"}, "target": 4}], [{"marginals": {"ways": [1]}, "target": 2}]):
        certificates = [planned(tmp_path, workload=workload).certificate() for _ in range(2)]
        assert json.dumps(certificates[0]) == json.dumps(certificates[1])
        found = planned(tmp_path, workload=workload)
        worst = next(row.worst for row in found.table if row.mechanism == found.strategy.name)
        factor = found.noise_multiplier * (worst or 0) / (workload[0]["target"] or 1)
        assert certificates[0]["targets"]["worst_error_over_target"] == pytest.approx(factor, rel=1e-6)


@pytest.mark.parametrize("rare", [1.0, 1e-6, 1e-12])
@pytest.mark.parametrize(("heavy", "cell"), [(1.0, 1.0), (1e4, 1e-14)])
def test_no_lower_bound_is_above_the_dual_that_proves_it(heavy: float, cell: float, rare: float) -> None:
    """Also where the gram of the queries under their weights is singular to all digits, so that a ridge has to make it definite.

    The dual is computed here in exact fractions and 60 digits: one cell alone, and two that two queries tell apart by next to nothing.
    """
    rows = np.array([[heavy, 0.0, 0.0], [0.0, 1.0, 1.0], [0.0, 1e-3, 0.0]])
    asked = minimax._factor_queries(explicit(rows))
    assert asked.columns is None
    weights = np.array([1.0, 1.0, rare, cell, 1.0, 1.0])
    weights = minimax._normalise(weights, 3)
    exact = [Fraction(float(each)) for each in weights]
    gram = [
        [sum(exact[q] * Fraction(float(rows[q, i])) * Fraction(float(rows[q, j])) for q in range(3)) for j in range(3)]
        for i in range(3)
    ]
    alone = exact[3] * gram[0][0]
    trace = exact[4] * gram[1][1] + exact[5] * gram[2][2]
    determinant = exact[4] * exact[5] * (gram[1][1] * gram[2][2] - gram[1][2] ** 2)
    with decimal.localcontext() as digits:
        digits.prec = 60
        roots = [decimal.Decimal(f.numerator) / decimal.Decimal(f.denominator) for f in (alone, trace, determinant)]
        dual = (roots[0].sqrt() + (roots[1] + 2 * roots[2].sqrt()).sqrt()) ** 2
        assert decimal.Decimal(minimax._evaluate(asked, weights).lower) <= dual


TABLE = marginals((3, 2), (2,))
PROVEN: dict[str, Workload] = {
    "one table": union(TABLE, weights=(2.0,)),
    "one table twice": union(TABLE, TABLE, weights=(3.0, 1.0)),
    "a table of some attributes": marginals(Domain.of_shape((4, 3)), 1, among=("x0",)),
    "tables": union(marginals((4, 3), (0, 1)), marginals((4, 3), (2,)), weights=(2.0, 1.0)),
    "prefix": prefix(5),
    "a product": products(Domain.of_shape((4, 3)), {"x0": "prefix", "x1": "identity"}),
    "products that differ in one attribute": union(
        products(Domain.of_shape((4, 3)), {"x1": "identity"}),
        products(Domain.of_shape((4, 3)), {"x0": "prefix", "x1": "identity"}),
        weights=(2.0, 1.0),
    ),
}  # fmt: skip


def answer_weights(proof: LargestBound, workload: Workload) -> np.ndarray:
    """The weights of all answers that a proof holds, (queries,)."""
    weights = []
    for block, (scale, arrays) in zip(workload.blocks, proof.answers, strict=True):
        if len(arrays) < len(block.factors):
            arrays = arrays or (np.ones(block.queries),)  # of all rows
        else:
            arrays = tuple(
                np.ones(factor.shape[0]) if array is None else array
                for factor, array in zip(block.factors, arrays, strict=True)
            )
        weights.append(scale * reduce(np.kron, arrays, np.ones(1)))
    return np.concatenate(weights)


@pytest.mark.parametrize("at_once", [marginal_mechanisms.AT_ONCE, Limits(1, 0.0)], ids=["rows", "closed form"])
@pytest.mark.parametrize("name", PROVEN)
def test_the_proof_of_every_mechanism_proves_the_bound_of_its_largest_error(
    name: str, at_once: Limits, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no strategy is below, computed here of the weights of answers and cells that the proof holds, against what is claimed."""
    monkeypatch.setattr(marginal_mechanisms, "AT_ONCE", at_once)
    workload = PROVEN[name]
    context = Context(home, Store(home / "store"), engine.inline(), ignore_progress)
    able = [each for each in REGISTRY.values() if each.worst and each.reason_refused(workload) is None]
    assert able
    for mechanism in able:
        strategy = mechanism.plan(Request(workload, worst=True), Planning(context))
        assert strategy.solve is not None
        assert strategy.solve.largest is not None, mechanism.name
        step, proof = strategy.solve.history[-1], strategy.solve.largest
        weights = answer_weights(proof, workload)
        np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-9)
        rows = np.sqrt(weights)[:, None] * workload.operator.dense()
        proven = dual_bound(Gram(rows.T @ rows), proof.cells.over_cells(workload.domain.shape))
        assert step.objective == pytest.approx(largest(strategy, workload), rel=1e-6)
        assert step.objective / (1.0 + step.gap) * (1 - 1e-7) <= proven <= step.objective * (1 + 1e-7)
        assert step.gap < 1e-3
