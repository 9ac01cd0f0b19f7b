"""Fourier and DataCube over marginals against dense algebra, and what ``auto`` says of the baselines that it leaves out."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from dpdist.mechanisms.comparison import exclusion_reasons
from dpdist.plugins.published_baselines.marginal_baselines import bmax, datacube, fourier
from dpdist.strategies import gaussian, identity
from dpdist.workloads import all_ranges, marginals, prefix, random_marginals, related
from dpdist.workloads.product_queries import listed_marginals


def test_fourier_is_the_hadamard_transform_on_binary_attributes() -> None:
    """Barak et al.: every coefficient of at most k attributes, all with the same noise."""
    workload = marginals((2,) * 4, 2)
    hadamard = np.array([[1, 1], [1, -1]]) / np.sqrt(2)
    rows = hadamard
    for _ in range(3):
        rows = np.kron(rows, hadamard)
    kept = [i for i in range(16) if bin(i).count("1") <= 2]
    basis = rows[kept]
    w = workload.operator.dense()
    truth = (basis**2).sum(axis=0).max() * ((w @ basis.T) ** 2).sum()
    assert fourier(workload).workload_cost == pytest.approx(truth)


def test_datacube_measures_what_is_asked_or_something_coarse_enough() -> None:
    alone = listed_marginals(marginals((5, 7), 1).domain, [("x0", "x1")])
    cube = datacube(alone)
    assert cube.workload_cost == pytest.approx(gaussian(alone).workload_cost)  # one table, measured itself
    many = marginals((2, 2, 2), (1, 2, 3))
    assert datacube(many).workload_cost <= identity(8, many).workload_cost * (1 + 1e-12)
    assert math.isfinite(datacube(random_marginals((2,) * 12, 20)).workload_cost)


@pytest.mark.parametrize("shape", [(3, 4, 2), (2, 2, 2), (20, 2, 3)])
@pytest.mark.parametrize("ways", [(1,), (2,), (1, 2), (0, 1, 2, 3)])
def test_datacube_against_every_set_of_measured_tables(shape: tuple[int, ...], ways: tuple[int, ...]) -> None:
    workload = marginals(shape, ways)
    asked = [tuple(axis for axis in block.axes if block.name != "total") for block in workload.blocks]
    every = [s for k in range(4) for s in combinations(range(3), k)]

    def measure(tables: tuple[tuple[int, ...], ...]) -> float:
        sums = [
            min((math.prod(shape[a] for a in set(t) - set(q)) for t in tables if set(q) <= set(t)), default=math.inf)
            for q in asked
        ]
        return len(tables) * max(sums)

    least = min(measure(tables) for k in range(1, 9) for tables in combinations(every, k))
    chosen = bmax(workload)
    assert least <= measure(chosen) <= 1.5 * least  # a greedy cover
    names = workload.domain.names
    rows = listed_marginals(workload.domain, [tuple(names[axis] for axis in table) for table in chosen]).operator.dense()
    spread = workload.operator.dense() @ np.linalg.pinv(rows)
    assert datacube(workload).workload_cost == pytest.approx(len(chosen) * (spread**2).sum())


@pytest.mark.parametrize("shape", [(2, 2, 2, 2), (5, 2, 2, 3)])
@pytest.mark.parametrize("ways", [(1,), (2,), (1, 2, 3)])
def test_marginals_are_measured_together_only_where_that_costs_less(shape: tuple[int, ...], ways: tuple[int, ...]) -> None:
    """Of a cell, the tables times the cells that it sums: no more than by the asked marginals alone, or by all cells."""
    workload = marginals(shape, ways)
    asked = [block.asked_axes for block in workload.blocks]
    chosen = bmax(workload)
    summed = [
        min(math.prod(shape[a] for a in table if a not in of) for table in chosen if set(of) <= set(table)) for of in asked
    ]
    everything = max(math.prod(n for axis, n in enumerate(shape) if axis not in of) for of in asked)
    assert len(chosen) * max(summed) <= min(len(asked), everything)


def test_reasons_are_given_for_the_baselines_that_are_left_out() -> None:
    assert "more than marginals" in exclusion_reasons("l2", prefix(4))["datacube"]
    assert "256 cells" in exclusion_reasons("l1", prefix(300))["low-rank"]
    assert "'p-identity' is as good" in exclusion_reasons("l1", all_ranges(64))["low-rank"]
    assert "low-rank" not in exclusion_reasons("l1", related(80, 64, 4, seed=1))
