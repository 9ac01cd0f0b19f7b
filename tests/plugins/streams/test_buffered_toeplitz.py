"""Running sums from a few buffers: closed forms against dense truth, beside the square root, on real measurements."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.errors import InvalidInput
from dpdist.mechanisms.mechanism_registry import mechanism_of
from dpdist.plugins.streams.buffered_toeplitz import buffered, fit_buffers
from dpdist.strategies import square_root
from dpdist.workloads import filtered, prefix
from dpdist.workloads.time_filters import exponential, running_sum


@pytest.mark.parametrize("count", [1, 2, 6])
def test_the_closed_forms_are_those_of_the_matrices(count: int) -> None:
    steps = 40
    found = fit_buffers(steps, count)
    listed = np.append(1.0, found.amplitudes @ np.exp(-found.rates[:, None] * np.arange(1, steps)))
    lags = np.subtract.outer(np.arange(steps), np.arange(steps))
    strategy = np.where(lags >= 0, listed[np.maximum(lags, 0)], 0.0)
    reading = np.tril(np.ones((steps, steps))) @ np.linalg.inv(strategy)
    cost = (strategy**2).sum(axis=0).max() * (reading**2).sum()
    assert found.cost == pytest.approx(cost, rel=1e-9)
    of_exponentials = found.reading_amplitudes @ np.exp(-found.reading_rates[:, None] * np.arange(steps))
    np.testing.assert_allclose(of_exponentials, reading[:, 0], atol=1e-9)
    assert (np.diff(np.sort(np.append(found.rates, found.reading_rates[1:]))) > 0).all()


def test_it_has_less_error_than_the_square_root() -> None:
    for steps, most in ((64, 0.96), (2**12, 0.985)):
        workload = filtered(steps, "x0", [running_sum(steps)])
        found, root = buffered(workload), square_root(workload)
        assert found.workload_cost is not None
        assert root.workload_cost is not None
        assert found.lower_bound is not None
        assert found.lower_bound < found.workload_cost < most * root.workload_cost
        assert found.cost(prefix(steps)) == pytest.approx(found.workload_cost, rel=1e-6) if steps < 100 else True
    assert fit_buffers(2**20, 6).cost == pytest.approx(1.0602 / 1.0809 * square_root_of(2**20), rel=2e-4)


def square_root_of(steps: int) -> float:
    k = np.arange(1, steps)
    squares = np.concatenate([[1.0], np.cumprod(1 - 1 / (2 * k))]) ** 2
    return float(squares.sum() * (squares @ (steps - np.arange(steps))))


def test_only_running_sums_are_answered() -> None:
    other = filtered(16, "x0", [exponential(0.9, 16)])
    with pytest.raises(InvalidInput, match="one running sum"):
        buffered(other)
    assert mechanism_of("buffered").reason_refused(other) is not None
    assert mechanism_of("buffered").reason_refused(filtered(16, "x0", [running_sum(16)])) is None
