from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from benchmarks.papers.paper_bounds import hardt_talwar, lemma_4, low_rank_bounds
from dpdist.errors import InvalidInput
from dpdist.strategies import coa, low_rank, singular_value_bound
from dpdist.strategies.low_rank_factorisation import project_columns
from dpdist.workloads import Gram, all_ranges, prefix, related
from tests.oracles import AM_FIGURE_1

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
