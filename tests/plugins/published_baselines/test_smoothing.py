from __future__ import annotations

import numpy as np
import pytest

from dpdist.errors import InvalidInput
from dpdist.plugins.published_baselines.exponential_smoothing import objective_and_gradient
from dpdist.strategies import coa, smoothing
from dpdist.strategies.strategy import Step
from dpdist.workloads import Gram, all_ranges, prefix, related


def test_gradient_against_differences() -> None:
    state = np.random.default_rng(0)
    factor = state.standard_normal((7, 5))
    gram, point = factor.T @ factor, np.eye(5) + 0.1
    direction = state.standard_normal((5, 5))
    direction += direction.T
    _, gradient = objective_and_gradient(gram, point, 0.05)
    up, _ = objective_and_gradient(gram, point + 1e-6 * direction, 0.05)
    down, _ = objective_and_gradient(gram, point - 1e-6 * direction, 0.05)
    assert (up - down) / 2e-6 == pytest.approx(np.vdot(gradient, direction), rel=1e-6)


def test_smooth_maximum_is_above_the_true_one_by_at_most_the_accuracy() -> None:
    point = np.diag([1.0, 1.0, 0.5])
    value, _ = objective_and_gradient(np.eye(3), point, 0.01 / np.log(3))
    true = np.trace(np.linalg.inv(point))
    assert true <= value <= 1.01 * true


@pytest.mark.parametrize("workload", [all_ranges(32), prefix(32), related(32, 40, 8)], ids=["ranges", "prefix", "related"])
def test_between_the_optimum_and_identity(workload: object) -> None:
    seen: list[Step] = []
    found = smoothing(workload, on_step=seen.append)
    gram = workload.gram()
    assert coa(Gram(gram)).lower_bound <= found.workload_cost < np.trace(gram)
    assert found.cost(Gram(gram)) == pytest.approx(found.workload_cost, rel=1e-6)
    assert found.workload_cost < 1.15 * coa(Gram(gram)).workload_cost
    assert seen[-1].objective <= seen[0].objective


def test_refusals() -> None:
    with pytest.raises(InvalidInput):
        smoothing(np.eye(2), accuracy=0)
    with pytest.raises(InvalidInput):
        smoothing(Gram(np.zeros((2, 2))))
