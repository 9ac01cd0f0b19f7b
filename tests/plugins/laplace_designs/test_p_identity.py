"""p-Identity strategies for pure epsilon: HDMM's figures, exact L1 lengths, and never above the identity."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.errors import InvalidInput
from dpdist.strategies import effort, hierarchical, identity, laplace_bound, p_identity
from dpdist.strategies.p_identity_design import cost_and_gradient, fit_p_identity
from dpdist.strategies.strategy import Step
from dpdist.workloads import Gram, Workload, all_ranges, explicit, marginals, prefix, random_ranges
from tests.case_selection import slow_after_first


def test_cost_and_gradient() -> None:
    state = np.random.default_rng(0)
    rows = state.normal(size=(9, 6))
    gram, theta = rows.T @ rows, state.uniform(0, 1, (2, 6))
    value, gradient = cost_and_gradient(gram, theta)
    a = np.vstack([np.eye(6), theta]) / (1 + theta.sum(axis=0))
    assert value == pytest.approx(np.trace(gram @ np.linalg.inv(a.T @ a)))
    for place in np.ndindex(theta.shape):
        step = np.zeros_like(theta)
        step[place] = 1e-5
        slope = (cost_and_gradient(gram, theta + step)[0] - cost_and_gradient(gram, theta - step)[0]) / 2e-5
        assert slope == pytest.approx(gradient[place], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("workload", "published"), slow_after_first(1, [(all_ranges(256), 8.09), (prefix(256), 7.41)]))
def test_it_is_at_least_as_good_as_the_published_figures(workload: Workload, published: float) -> None:
    """HDMM's code, RMSE at epsilon 1; the best tree has 11.64 and 9.79."""
    found = p_identity(workload, restarts=1)
    assert found.workload_cost is not None
    assert (found.workload_cost / workload.shape[0]) ** 0.5 <= published
    tree = hierarchical((256,), workload, branching=None, norm="l1")
    assert found.workload_cost < 0.6 * tree.cost(workload)


@pytest.mark.parametrize(
    "workload",
    [
        random_ranges(24, 40, seed=2),
        explicit(np.eye(5)),
        marginals((3, 4), (1, 2)),
        explicit(np.array([[1.0, 1, 0], [0, 0, 0]])),
    ],
)
def test_it_is_never_above_the_identity_nor_below_the_bound(workload: Workload) -> None:
    found = p_identity(workload)
    n = workload.shape[1]
    of_cells = identity(n, workload, norm="l1").workload_cost
    assert found.workload_cost is not None
    assert of_cells is not None
    assert laplace_bound(workload) <= found.workload_cost <= of_cells * (1 + 1e-12)
    assert found.l1_sensitivity <= 1 + 1e-12
    assert found.cost(workload) == pytest.approx(found.workload_cost, rel=1e-9)


@pytest.mark.parametrize(("cells", "learnt"), [(15, 1), (31, 1), (32, 2)])
def test_it_goes_on_from_a_checkpoint_and_refuses_nonsense(cells: int, learnt: int) -> None:
    """One query is learnt for every sixteen cells, and one for fewer."""
    workload = prefix(cells)
    seen: list[Step] = []
    whole = p_identity(workload, on_step=seen.append)
    assert seen[-1].checkpoint is not None
    assert seen[-1].checkpoint.shape == (learnt, cells)
    again = p_identity(workload, start=seen[-1].checkpoint)
    assert again.workload_cost == pytest.approx(whole.workload_cost, rel=1e-5)
    with pytest.raises(InvalidInput, match="at least one learnt query"):
        p_identity(workload, queries=0)
    with pytest.raises(InvalidInput, match="start"):
        p_identity(workload, start=np.ones((learnt + 1, cells)))


def test_a_total_alone_has_no_cost_that_rounding_made() -> None:
    """Its learnt query grows without end; a negative cost was taken for the least one, and no strategy had it."""
    found = p_identity(Gram(np.ones((72, 72))))
    assert found.workload_cost is not None
    assert found.lower_bound is not None
    assert found.lower_bound * (1 - 1e-9) <= found.workload_cost <= 2 * 72
    assert found.cost(Gram(np.ones((72, 72)))) == pytest.approx(found.workload_cost, rel=1e-5)


def test_without_a_start_the_cells_themselves_are_measured() -> None:
    found = fit_p_identity(prefix(5).gram(), [])
    np.testing.assert_array_equal(found.matrix, np.eye(5))


def test_products_take_the_memory_of_attributes_and_not_of_cells() -> None:
    workload = marginals((40, 40, 40), 3)
    assert effort(workload, "p_identity_products").memory_bytes < effort(workload, "p_identity").memory_bytes / 1000
