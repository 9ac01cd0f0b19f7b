"""Oblique contrasts: unions of products measured along optimised directions, exact in whole numbers, near the certified optimum."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist import engine
from dpdist.domain import Domain
from dpdist.errors import InvalidInput
from dpdist.measurement.integer_terms import orthogonal_to
from dpdist.operators import AllRanges, Identity, Operator, Prefix
from dpdist.planner.release_plan import plan
from dpdist.plugins.oblique_products import oblique_design as module
from dpdist.plugins.oblique_products.oblique_design import _direction_from_free, _DirectionCost, oblique
from dpdist.reconstruction.kronecker_terms import oblique_inverse
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from dpdist.strategies import coa
from dpdist.strategies.tables.marginal_optimum import marginal_optimum
from dpdist.strategies.tables.residual_bases import residual
from dpdist.workloads import Block, Workload, marginals
from tests.case_selection import slow_after_first
from tests.strategies.test_product_bound import marginal_workload, some_union
from tests.support import small_release


@pytest.mark.parametrize(
    ("sizes", "ordered", "ways", "loss"),
    slow_after_first(
        1,
        [
            ([16, 12, 3], 2, [1, 2], 0.007),
            ([24, 24], 2, [1, 2], 0.0025),
            ([10, 10, 10], 3, [1, 2], 0.0166),
            pytest.param([8, 8, 8, 4], 3, [1, 2, 3], 0.0151, marks=pytest.mark.slow),
        ],
    ),
)
def test_the_loss_to_the_certified_optimum(sizes: list[int], ordered: int, ways: list[int], loss: float) -> None:
    """Section 9's four unions: at most what two parameters an attribute leave; a free direction leaves less than half."""
    workload = marginal_workload(sizes, ordered, ways)
    optimum = coa(workload, tolerance=1e-4)
    found = oblique(workload, tolerance=1e-4)
    assert optimum.lower_bound is not None
    assert found.workload_cost is not None
    assert found.workload_cost / optimum.lower_bound - 1 < loss / 2 + 2e-4
    assert residual(workload, tolerance=1e-4).workload_cost > 1.1 * found.workload_cost
    assert found.cost(workload) == pytest.approx(found.workload_cost, rel=1e-6)
    assert found.lower_bound <= optimum.workload_cost


@pytest.mark.parametrize("seed", slow_after_first(3, range(6)))
def test_any_union_is_spanned_exactly_and_never_worse_than_residual(seed: int) -> None:
    workload = some_union(seed)
    found, plain = oblique(workload), residual(workload)
    assert found.workload_cost is not None
    assert plain.workload_cost is not None
    assert found.workload_cost <= plain.workload_cost * (1 + 1e-9)
    assert found.cost(workload) == pytest.approx(found.workload_cost, rel=1e-5)
    a, w = found.matrix(), workload.operator.dense()
    assert np.abs(w @ np.linalg.pinv(a) @ a - w).max() < 1e-7 * np.abs(w).max()
    assert found.l2_sensitivity == pytest.approx(np.sqrt((a**2).sum(axis=0).max()), rel=1e-6)
    spread = np.concatenate([b.operator(workload.domain.shape).dense() for b in workload.blocks]) @ np.linalg.pinv(a)
    assert found.worst(workload) == pytest.approx(found.l2_sensitivity * np.sqrt((spread**2).sum(axis=1).max()), rel=1e-4)


KINDS: dict[str, Callable[[int], Operator]] = {"v": Identity, "p": Prefix, "r": AllRanges}


def mixed(sizes: tuple[int, ...], tables: list[str]) -> Workload:
    """A union of tables: of each the attributes, from 1 on, and how they are asked (by value, prefixes, ranges), alike in weight."""
    blocks = []
    for table in tables:
        axes = tuple(int(each[1]) - 1 for each in table.split())
        factors: tuple[Operator, ...] = tuple(
            KINDS[each[0]](sizes[axis]) for each, axis in zip(table.split(), axes, strict=True)
        )
        labels = tuple(tuple(map(str, range(f.shape[0]))) for f in factors)
        blocks.append(Block(table, axes, factors, labels, math.prod(f.shape[0] for f in factors) ** -0.5))
    return Workload(Domain.of_shape(sizes), tuple(blocks))


@pytest.mark.parametrize(
    "workload",
    [marginal_workload([6, 5, 3], 2, [1, 2]), mixed((6, 5, 3), ["p1 v2", "v1 p2 r3", "r1 v3", "p2"])],
    ids=["alike", "mixed"],
)
def test_the_gradient_is_that_of_finite_differences(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOLERANCE", 1e-9)
    monkeypatch.setattr(module, "SETTLED", 1e-11)
    asked = _DirectionCost.for_workload(workload)
    state = np.random.default_rng(0)
    shares = {axis: _direction_from_free(0.5 * state.normal(size=asked.block_grams.sizes[axis])) for axis in asked.free}
    _, gradient = asked.cost(shares)
    for axis, share in shares.items():
        for value in range(share.size - 1):
            costs = []
            for step in (1e-4, -1e-4):
                moved = share.copy()
                moved[value] += step
                moved[-1] -= step
                costs.append(asked.cost({**shares, axis: moved})[0])
            expected = gradient[axis][value] - gradient[axis][-1]
            assert (costs[0] - costs[1]) / 2e-4 == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_marginals_keep_their_closed_form() -> None:
    workload = marginals((3, 4, 2), (1, 2))
    found = oblique(workload)
    assert not found.directions
    assert found.workload_cost == pytest.approx(marginal_optimum(workload).workload_cost, rel=1e-6)
    assert found.gap < 1e-6


def test_rows_are_made_orthogonal_exactly() -> None:
    state = np.random.default_rng(1)
    direction = np.array([40, 55, 64, 65, 90, 190])
    rows = state.normal(size=(5, 6)) * 2**20
    rows -= np.outer(rows @ direction, direction) / (direction @ direction)
    found = orthogonal_to(direction, rows)
    assert (found @ direction == 0).all()
    assert np.abs(found - rows).max() < 64
    inverse = oblique_inverse(found, direction)
    np.testing.assert_allclose(found @ inverse, np.eye(5), atol=1e-9)
    np.testing.assert_allclose(inverse.sum(axis=0), 0, atol=1e-15)
    with pytest.raises(InvalidInput, match="common divisor"):
        orthogonal_to(np.array([10, 25, 40]), np.array([[1.0, 1.0, -1.0]]))


def pipeline(folder: Path, **changes: Any) -> Any:
    context = Context(folder, Store(folder / "store"), engine.inline(), ignore_progress)
    return plan(context, load(small_release.spec(**changes)))


QUERIES = [
    {"cdf": {"of": "age", "by": ["sex"]}, "weight": 2},
    {"cdf": {"of": "age", "by": ["work"]}},
    {"marginals": {"of": [["sex", "work"]]}},
]


def test_the_integers_of_the_grid_have_the_direction(tmp_path: Path) -> None:
    found = pipeline(tmp_path, workload=QUERIES, mechanism="oblique")
    assert set(found.measurement.directions) == {0}
    for term in found.measurement.terms:
        for axis, factor in zip(term.axes, term.factors, strict=True):
            whole = found.measurement.directions.get(axis, np.ones(factor.shape[1], dtype=np.int64))
            assert (factor @ whole == 0).all()
    again = pipeline(tmp_path, workload=QUERIES, mechanism="oblique")  # read back from the store
    assert again.measurement.digest == found.measurement.digest
    assert again.strategy.worst(found.workload) == pytest.approx(found.strategy.worst(found.workload))


@pytest.mark.parametrize(
    "shares",
    [
        (0.3, 0.3, 0.4),
        (0.1, 0.45, 0.45),
        (0.9, 0.05, 0.05),
        (1 / 3, 1 / 3, 1 / 3),
        (0.1, 0.2, 0.7),
        (-0.2, 0.5, 0.7),
        (0.3, 0.7),
        (-0.1, 1.1),
        (0.5, 0.5),
        (0.0, 1.0),
    ],
)
def test_any_direction_of_few_values_can_be_made_orthogonal_to(shares: tuple[float, ...]) -> None:
    """Rounded to whole numbers that keep near it; rows are made orthogonal to them exactly."""
    direction = module._round_direction(np.array(shares))
    np.testing.assert_allclose(direction / direction.sum(), shares, atol=0.02)
    rows = 1000 * np.random.default_rng(2).standard_normal((4, len(shares)))
    rows -= np.outer(rows @ direction, direction) / (direction @ direction)
    found = orthogonal_to(direction, rows)
    assert (found @ direction == 0).all()
    assert np.abs(found - rows).max() <= np.abs(direction).max() / 2 + 3
    assert np.linalg.matrix_rank(found) == len(shares) - 1


def test_auto_takes_it_where_the_optimum_is_out_of_reach(tmp_path: Path) -> None:
    found = pipeline(tmp_path, workload=QUERIES, limits={"memory_gib": 1e-6})
    table = {row.mechanism: row for row in found.table}
    assert found.strategy.name == "oblique"
    assert (table["oblique"].cost or 0) < (table["residual"].cost or 0)
    exact = pipeline(tmp_path, workload=QUERIES, mechanism="coa")
    assert found.strategy.workload_cost < 1.02 * exact.strategy.workload_cost


@pytest.mark.parametrize(
    ("sizes", "tables"),
    slow_after_first(
        2,
        [
            ((20, 4), ["p1 p2", "v1 v2", "p2", "r2"]),
            ((8, 4), ["p1 v2", "v1", "r1 p2"]),
            ((3, 3, 5, 6), ["p1 p2 p3 r4", "r1 p3", "v1 r2 p3 v4", "v2"]),
            ((6, 2, 2), ["p1 p2", "v1 v3", "v1 p2 p3"]),
            pytest.param((8, 9, 9), ["p1 r2", "r1 p2 r3", "v1 p2 r3", "v1 p2 v3"], marks=pytest.mark.slow),
        ],
    ),
)
def test_attributes_that_are_asked_in_several_ways(sizes: tuple[int, ...], tables: list[str]) -> None:
    """Value by value, as prefixes and as ranges: within 5 % of the certified optimum, and the shown gap within 10 %."""
    workload = mixed(sizes, tables)
    optimum, found, plain = (
        coa(workload, tolerance=1e-4),
        oblique(workload, tolerance=1e-4),
        residual(workload, tolerance=1e-4),
    )
    assert found.workload_cost is not None
    assert optimum.lower_bound is not None
    assert plain.workload_cost is not None
    excess = found.workload_cost / optimum.lower_bound - 1
    assert excess < min(0.05, 0.6 * (plain.workload_cost / optimum.lower_bound - 1))
    assert found.cost(workload) == pytest.approx(found.workload_cost, rel=1e-5)
    assert found.gap < 0.1
    assert found.lower_bound <= optimum.workload_cost
