from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from benchmarks.papers.paper_bounds import hardt_talwar, lemma_4, low_rank_bounds
from dpdist.errors import InvalidInput
from dpdist.mechanisms.mechanism_registry import REGISTRY
from dpdist.plugins.published_baselines import low_rank_factorisation
from dpdist.plugins.published_baselines.low_rank_factorisation import project_columns
from dpdist.strategies import coa, identity, low_rank, singular_value_bound
from dpdist.workloads import Gram, Workload, all_ranges, prefix, random_ranges, related
from tests.case_selection import slow_after_first
from tests.support.oracles import AM_FIGURE_1

GRAM = AM_FIGURE_1.T @ AM_FIGURE_1


@pytest.mark.parametrize(
    "workload", [GRAM, prefix(32).gram(), related(48, 60, 10).gram()], ids=["figure 1", "prefix", "related"]
)
def test_gaussian_form_comes_near_the_optimum_and_never_below(workload: np.ndarray) -> None:
    best, found = coa(Gram(workload)), low_rank(Gram(workload))
    assert best.lower_bound <= found.workload_cost <= best.workload_cost * 1.01
    assert found.cost(Gram(workload)) == pytest.approx(found.workload_cost, rel=1e-8)


def test_laplace_form() -> None:
    found = low_rank(Gram(GRAM), norm="l1")
    assert found.norm == "l1"
    assert found.cost(Gram(GRAM)) == pytest.approx(found.workload_cost, rel=1e-8)
    assert found.workload_cost <= 2 * np.trace(GRAM) * 1.01  # identity under Laplace noise: variance 2 a cell
    a = found.matrix() / found.l1_sensitivity
    spread = AM_FIGURE_1 @ np.linalg.pinv(a)
    assert found.workload_cost == pytest.approx(2 * (spread**2).sum(), rel=1e-8)
    ranges = all_ranges(32).gram()
    assert low_rank(Gram(ranges), norm="l1").workload_cost <= 2 * np.trace(ranges) * (1 + 1e-9)


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_projection_against_a_general_solver(norm: str) -> None:
    state = np.random.default_rng(0)
    columns = np.column_stack([state.standard_normal(4) * size for size in (0.1, 1.0, 5.0)])
    found = project_columns(columns, norm)
    for column, projected in zip(columns.T, found.T, strict=True):
        length = (lambda z: np.abs(z).sum()) if norm == "l1" else (lambda z: np.sqrt((z**2).sum()))
        assert length(projected) <= 1 + 1e-12
        if length(column) <= 1:
            np.testing.assert_array_equal(projected, column)
        split = minimize(
            lambda z, c=column: ((z[:4] - z[4:] - c) ** 2).sum(),
            np.full(8, 0.1),
            bounds=[(0, None)] * 8,
            constraints={
                "type": "ineq",
                "fun": (lambda z: 1 - z.sum()) if norm == "l1" else (lambda z: 1 - ((z[:4] - z[4:]) ** 2).sum()),
            },
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 1000},
        ).x
        np.testing.assert_allclose(projected, split[:4] - split[4:], atol=1e-5)


def test_bounds_by_hand() -> None:
    gram = np.diag([4.0, 1.0])  # singular values 2 and 1
    upper, lower, ratio = low_rank_bounds(Gram(gram))
    assert upper == pytest.approx(2 * 5)
    assert lower == pytest.approx((2**2 / 2 * 2) ** (2 / 2) * 2**3) == pytest.approx(hardt_talwar(Gram(gram)))
    assert ratio == pytest.approx(upper / lower)
    low, high = lemma_4(Gram(gram))
    assert (low, high) == (pytest.approx(max(2 * 3 - 2, 9 / 2)), pytest.approx(5.0))
    optimum = coa(Gram(GRAM))
    low, high = lemma_4(Gram(GRAM))
    assert low * (1 - 1e-9) <= optimum.workload_cost <= high
    assert low >= singular_value_bound(Gram(GRAM)) * (1 - 1e-9)


@pytest.mark.parametrize("options", [{"norm": "l3"}, {"inner": 2}])
def test_refusals(options: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        low_rank(Gram(GRAM), **options)
    with pytest.raises(InvalidInput):
        low_rank(Gram(np.zeros((2, 2))))


def test_low_rank_does_not_end_above_the_identity() -> None:
    """It said 'converged' at three times the identity's error on random ranges."""
    workload = random_ranges(32, 40, seed=0)
    found = low_rank(workload, norm="l1", max_iterations=12)
    of_cells = identity(32, workload, norm="l1").workload_cost
    assert found.workload_cost is not None
    assert of_cells is not None
    assert found.workload_cost <= of_cells * (1 + 1e-12)
    assert found.cost(workload) == pytest.approx(found.workload_cost, rel=1e-6)
    assert found.solve is not None
    assert found.solve.stop == "stalled"
    assert "not converged (stalled)" in repr(found)


@pytest.mark.parametrize(
    ("workload", "share"),
    slow_after_first(1, [(all_ranges(64), 0.71), (prefix(64), 0.44), (related(80, 48, 4, seed=1), 0.28)]),
)
def test_low_rank_is_better_than_the_identity(workload: Workload, share: float) -> None:
    """It was exactly the identity on all ranges: a p-Identity strategy is a start, too. Of rank 4 of 48 it is its own optimum."""
    found = low_rank(workload, norm="l1")
    of_cells = identity(workload.shape[1], workload, norm="l1").workload_cost
    assert found.workload_cost is not None
    assert of_cells is not None
    assert found.workload_cost <= share * of_cells
    assert found.cost(workload) == pytest.approx(found.workload_cost, rel=1e-6)


def test_a_strategy_has_the_name_of_its_mechanism() -> None:
    assert low_rank(prefix(4), max_iterations=20).name == REGISTRY["low-rank"].name
    assert low_rank_factorisation.low_rank is low_rank
