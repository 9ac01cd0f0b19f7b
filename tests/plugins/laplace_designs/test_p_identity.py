"""p-Identity strategies for pure epsilon: HDMM's figures, exact L1 lengths, and never above the identity."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dpdist import engine
from dpdist.errors import InvalidInput
from dpdist.planner.release_plan import plan
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from dpdist.strategies import effort, hierarchical, identity, laplace_bound, p_identity
from dpdist.strategies.p_identity_design import cost_and_gradient, fit_p_identity
from dpdist.strategies.strategy import Step
from dpdist.workloads import Gram, Workload, all_ranges, explicit, marginals, prefix, random_ranges
from tests.case_selection import slow_after_first
from tests.properties.spec_parts import PURE
from tests.support import small_release
from tests.support.measurement_readers import errors_of
from tests.support.standardised_errors import RATE


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


def test_it_goes_on_from_a_checkpoint_and_refuses_nonsense() -> None:
    workload = prefix(32)
    seen: list[Step] = []
    whole = p_identity(workload, on_step=seen.append)
    assert seen[-1].checkpoint is not None
    again = p_identity(workload, start=seen[-1].checkpoint)
    assert again.workload_cost == pytest.approx(whole.workload_cost, rel=1e-5)
    with pytest.raises(InvalidInput, match="at least one learnt query"):
        p_identity(workload, queries=0)
    with pytest.raises(InvalidInput, match="start"):
        p_identity(workload, start=np.ones((1, 32)))


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", ["p-identity-products", "weighted-marginals"])
def test_releases_over_several_attributes_have_the_predicted_error(mechanism: str, tmp_path: Path) -> None:
    """Real draws of the noise, read as answers are: their mean square is the prediction, at a rate of false alarms of 1e-4.

    A scale twice or half as large fails.
    """
    context = Context(tmp_path, Store(tmp_path / "store"), engine.inline(), ignore_progress)
    found = plan(context, load(small_release.spec(**PURE, mechanism=mechanism)))
    weights = found.workload.weights
    totals = np.average(errors_of(found, 60) ** 2, axis=1, weights=weights**2)
    predicted = found.certificate()["mechanism"]["rmse"] ** 2

    def fits(scale: float) -> bool:
        spread = scale * totals.std(ddof=1) / totals.size**0.5
        return abs(scale * totals.mean() - predicted) <= stats.norm.isf(RATE / 2) * spread

    assert fits(1.0)
    assert not fits(4.0)
    assert not fits(0.25)


@pytest.mark.statistical
@pytest.mark.slow
def test_releases_have_the_predicted_error_and_auto_takes_it(tmp_path: Path) -> None:
    """Over 300 releases at epsilon 1: the mean square of all answers over the prediction."""
    context = Context(tmp_path, Store(tmp_path / "store"), engine.inline(), ignore_progress)
    changes = {
        "domain": {"age": {"from": 0, "to": 31}},
        "workload": [{"ranges": {"of": ["age"]}}],
        "budget": {"epsilon": 1},
        "ledger": {"dataset": "p", "cap": {"epsilon": 1}},
    }
    found = plan(context, load(small_release.spec(**changes, mechanism="p-identity")))
    squares = errors_of(found, 300) ** 2
    mean, rmse = squares.mean(axis=1), found.certificate()["mechanism"]["rmse"]
    assert mean.mean() / rmse**2 == pytest.approx(1, abs=4 * mean.std() / mean.mean() / 300**0.5)
    column = np.abs(found.measurement.mixing).sum(axis=0).max()
    assert found.measurement.sensitivity_squared == int(column) ** 2


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
