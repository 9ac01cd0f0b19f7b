"""Limits of optimisers: beyond each another way is taken to the same optimum, and on both sides the certificate holds."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import numpy as np
import pytest

import dpdist as dp
from dpdist.stability import Distance
from dpdist.strategies.group_optimum import persons_by_cell
from dpdist.strategies.lower_bounds import dual_weights
from dpdist.strategies.strategy import Strategy
from dpdist.workloads import Workload


def sums(steps: int) -> Workload:
    return dp.workloads.prefix(steps)


def tables() -> Workload:
    """Of rank 39 over 400 cells: beyond four times the rank."""
    return dp.workloads.marginals((20, 20), ways=[1])


def optimum(workload: Workload) -> Strategy:
    return dp.strategies.coa(workload)


def of_persons(workload: Workload) -> Strategy:
    return persons_by_cell(workload, Distance(1, replaced=False, groups=2))


SWITCHES: dict[str, tuple[int, Callable[[Workload], Strategy], Workload]] = {
    "dpdist.strategies.dense.coa_fixed_point.SINGLE_CELLS": (1, optimum, sums(48)),
    "dpdist.strategies.dense.coa_barrier.HESSIAN_CELLS": (0, optimum, tables()),
    "dpdist.strategies.symmetric_optimum.MANY_CELLS": (1, optimum, tables()),
    "dpdist.strategies.group_optimum.ALWAYS_LISTED": (0, of_persons, sums(5)),
    "dpdist.strategies.lower_bounds.MOST_CELLS": (1, optimum, sums(48)),
}
"""The limit, a value that the case lies beyond, and what is solved."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if "ALWAYS" in name else name for name in SWITCHES]
)
def test_both_sides_of_a_limit_reach_one_certified_optimum(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    least, solve, workload = SWITCHES[name]
    module, _, limit = name.rpartition(".")
    known = solve(workload)
    monkeypatch.setattr(importlib.import_module(module), limit, least)
    found = solve(workload)
    assert found.workload_cost == pytest.approx(known.workload_cost, rel=3e-6)
    if found.persons is not None:
        assert found.persons.lower_bound == pytest.approx(known.persons.lower_bound, rel=3e-6)
    else:
        assert 0 <= found.gap <= 1e-6
        weights = dual_weights(workload, [found], found.lower_bound, workload.gram, lambda: (0.0, {}))
        proven = np.sqrt(weights.over_cells(workload.domain.shape))
        roots = np.sqrt(np.maximum(np.linalg.eigvalsh(proven[:, None] * workload.gram() * proven), 0.0))
        assert roots.sum() ** 2 / (proven @ proven) >= found.lower_bound * (1 - 3e-6)


@pytest.mark.parametrize(
    "limit", ["dpdist.strategies.representations.WORST_WORK", "dpdist.strategies.representations.WORST_ANSWERS"]
)
def test_a_largest_error_that_takes_long_is_not_told(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = dp.workloads.union(dp.workloads.marginals((3, 4), ways=[1, 2]), dp.workloads.ranges((3, 4)))
    found = dp.strategies.residual(workload)
    known = found.worst(workload)
    rows = workload.unweighted.dense() @ np.linalg.pinv(found.matrix())
    assert known == pytest.approx(found.unit_error * np.linalg.norm(rows, axis=1).max(), rel=1e-9)
    monkeypatch.setattr(limit, 0)
    assert found.worst(workload) is None
