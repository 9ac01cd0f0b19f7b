"""What DAWA measures moves by no more than its noise was made for, of any pair of neighbours."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.operators import ListedRanges
from dpdist.plugins.adaptive.dawa import (
    best_tree,
    dawa_measurement,
    greedy_tree,
    interval_costs,
    longest_interval,
    reduce_to_buckets,
)
from dpdist.privacy.accounting import Loss
from dpdist.workloads import all_ranges, prefix
from tests.contracts.pipeline import person_histograms
from tests.strategies.test_sensitivity import BOTH, EVERY
from tests.support.oracles import brute_force_sensitivity


def test_dawa_totals() -> None:
    """Every tree that DAWA may choose: its rows move by no more than the grid says, for any buckets of the records."""
    workload = all_ranges(4)
    for neighbours, most in EVERY:
        grid = dawa_measurement(workload, neighbours, most)
        for ends, weights in (greedy_tree(workload.gram()), best_tree(workload.gram())):
            rows = weights[:, None] * ListedRanges(4, ends).dense().astype(np.int64)
            assert brute_force_sensitivity(rows, neighbours, most, power=1) ** 2 <= grid.sensitivity_squared


def all_partitions(first: int, cells: int) -> list[list[int]]:
    """Stops of every partition of the cells into intervals."""
    if first == cells:
        return [[]]
    return [[stop, *rest] for stop in range(first + 1, cells + 1) for rest in all_partitions(stop, cells)]


@pytest.mark.parametrize("neighbours", BOTH)
@pytest.mark.parametrize("most", [1, 2])
def test_both_parts_of_dawa_keep_their_share(neighbours: Any, most: int) -> None:
    """Whatever partition is chosen, the totals move by no more than their noise hides; so do the costs that choose it."""
    cells, workload, epsilon = 4, prefix(4), Fraction(1)
    grid, budget = dawa_measurement(workload, neighbours, most), Loss.laplace(epsilon)
    assert grid.loss(budget, grid.noise(budget)) == budget
    worst_total = 0
    for stops in all_partitions(0, cells):
        bounds = [0, *stops]
        member = np.zeros((len(stops), cells), dtype=np.int64)
        for bucket, (start, stop) in enumerate(pairwise(bounds)):
            member[bucket, start:stop] = 1
        ends, weights = best_tree(reduce_to_buckets(workload, np.array(stops)).gram())
        rows = weights[:, None] * ListedRanges(len(stops), ends).dense().astype(np.int64) @ member
        worst_total = max(worst_total, brute_force_sensitivity(rows, neighbours, most, power=1))
    histograms = [np.array(h) for h in ((0, 0, 0, 0), (3, 0, 0, 0), (1, 4, 1, 2), (2, 0, 0, 9))]
    worst_cost, held = 0, list(person_histograms(cells, most))
    for x in histograms:
        costs = [np.concatenate(interval_costs(x + one)) for one in held]
        for one in costs if neighbours == "replace-one" else costs[:1]:
            worst_cost = max(worst_cost, *(int(np.abs(one - other).max()) for other in costs))
    totals, partition = Fraction(grid.noise(budget).scale), Fraction(grid.partition_noise(budget).scale)
    assert worst_total**2 <= grid.sensitivity_squared
    assert worst_total / totals + 2 * worst_cost / partition <= epsilon


def test_costs_of_a_partition_move_as_declared(tmp_path: Path) -> None:
    """DAWA's first half: one record less, or in another place, moves every interval's cost by less than its noise was made for."""
    state = np.random.default_rng(1)
    for neighbours, changes in (("add-remove", 1), ("replace-one", 2)):
        for _ in range(50):
            x = state.integers(0, 5, 6) + 1
            other = x - np.eye(6, dtype=int)[state.integers(6)]
            if neighbours == "replace-one":
                other = other + np.eye(6, dtype=int)[state.integers(6)]
            pairs = zip(interval_costs(x), interval_costs(other), strict=True)
            assert max(int(np.abs(a - b).max()) for a, b in pairs) <= 2 * longest_interval(6) * changes
