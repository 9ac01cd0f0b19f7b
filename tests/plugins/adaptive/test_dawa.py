"""DAWA against brute force, and the privacy of its partition against exact probabilities."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpdist.errors import InvalidInput
from dpdist.measurement.sensitivity.column_norms import l1_sensitivity
from dpdist.operators import ListedRanges
from dpdist.plugins.adaptive.data_partition import dawa
from dpdist.plugins.adaptive.dawa import (
    _inner_nodes,
    best_tree,
    bucket_price,
    cheapest_partition,
    dawa_measurement,
    greedy_steps,
    greedy_tree,
    interval_costs,
    longest_interval,
    measure_buckets,
    noisy_partition,
    parse_measurement,
    reduce_to_buckets,
)
from dpdist.privacy.accounting import Loss
from dpdist.strategies import hierarchical, identity
from dpdist.workloads import all_ranges, prefix, random_ranges, ranges, relative
from tests.support.measurement_readers import reader_of

STATE = np.random.default_rng(5)


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


@pytest.mark.parametrize("n", [1, 2, 5, 16, 21])
def test_interval_costs_are_scaled_deviations(n: int) -> None:
    x = STATE.integers(0, 50, n)
    costs = interval_costs(x)
    assert longest_interval(n) == 2 ** (len(costs) - 1) <= n < 2 ** len(costs)
    for level, found in enumerate(costs):
        width = 2**level
        expected = [
            longest_interval(n) * np.abs(x[i : i + width] - x[i : i + width].mean()).sum() for i in range(n - width + 1)
        ]
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_one_record_moves_a_cost_by_less_than_twice_the_longest_length() -> None:
    largest = 0
    for most in (1, 2, 4, 50):
        x = STATE.integers(0, most, 16)
        before = interval_costs(x)
        for cell in range(16):
            after = interval_costs(x + np.eye(16, dtype=np.int64)[cell])
            largest = max(largest, *(int(np.abs(a - b).max()) for a, b in zip(after, before, strict=True)))
    assert largest == 2 * longest_interval(16) - 2  # 2 L (1 - 1/L), where all cells are empty


def all_partitions(first: int, n: int) -> list[list[int]]:
    if first == n:
        return [[]]
    widths = [2**level for level in range(n.bit_length()) if first + 2**level <= n]
    return [[first + w, *rest] for w in widths for rest in all_partitions(first + w, n)]


@pytest.mark.parametrize("n", [1, 3, 8, 11])
def test_the_partition_is_the_cheapest(n: int) -> None:
    costs = [STATE.integers(-20, 30, n - 2**level + 1) for level in range(n.bit_length())]

    def price(stops: list[int]) -> int:
        starts = [0, *stops[:-1]]
        return sum(int(costs[(b - a).bit_length() - 1][a]) for a, b in zip(starts, stops, strict=True))

    found = cheapest_partition(costs).tolist()
    assert found in all_partitions(0, n)
    assert price(found) == min(price(stops) for stops in all_partitions(0, n))


def test_the_partition_keeps_its_share_of_epsilon() -> None:
    """Two cells: the exact probability of one bucket, for all neighbours, and as often as the code makes one."""
    workload = prefix(2)
    grid, budget = dawa_measurement(workload, "add-remove", 1), Loss.laplace(Fraction(4))
    scale = grid.partition_noise(budget).scale
    assert scale == 4 * 2  # twice the most that a cost can move, over a quarter of epsilon
    each = bucket_price(grid, budget)
    reach = 60 * scale
    support = np.arange(-reach, reach + 1)
    single = np.exp(-np.abs(support) / scale)
    single /= single.sum()
    three = np.convolve(np.convolve(single, single), single)  # of Z01 - Z0 - Z1, symmetric
    values = np.arange(-3 * reach, 3 * reach + 1)

    def merged(x: tuple[int, int]) -> float:
        """P(cost + Z01 + each < Z0 + Z1 + 2 each): of two that tie, the shorter intervals win."""
        return float(three[values < each - int(interval_costs(np.array(x))[1][0])].sum())

    chances = {(a, b): merged((a, b)) for a in range(12) for b in range(12)}
    share, tightest = 1.0, 0.0
    for (a, b), chance in chances.items():
        for other in (chances.get((a + 1, b)), chances.get((a, b + 1))):
            if other is not None:
                ratio = max(math.log(chance / other), math.log(other / chance), math.log((1 - chance) / (1 - other)))
                tightest = max(tightest, ratio)
    assert 0.1 * share < tightest <= share
    for x in ((0, 0), (5, 1), (11, 0)):
        made = [noisy_partition(np.array(x), grid, budget, key(i)).size == 1 for i in range(1500)]
        chance = chances[x]
        assert abs(np.mean(made) - chance) < 5 * math.sqrt(chance * (1 - chance) / 1500) + 1e-3  # fails once in 1e6


@pytest.mark.parametrize("buckets", [1, 2, 7, 200, 512])
def test_the_tree_spends_its_sensitivity_and_helps(buckets: int) -> None:
    gram = all_ranges(buckets).gram()
    costs = []
    for ends, weights in (greedy_tree(gram), best_tree(gram)):
        rows = ListedRanges(buckets, ends)
        spent = l1_sensitivity(weights, rows, "add-remove")
        assert 2**30 * (1 - 1e-6) < spent <= 2**30
        tree = (weights[:, None] * rows.dense()) / 2.0**30
        costs.append(float(np.trace(gram @ np.linalg.inv(tree.T @ tree))))
    assert costs[0] <= np.trace(gram) * (1 + 1e-6)  # noise on every bucket
    assert costs[1] <= costs[0] * (1 + 1e-9)
    plain = hierarchical((buckets,), all_ranges(buckets), branching=None, norm="l1")
    assert 2 * costs[1] <= plain.workload_cost * (1 + 1e-6)
    if buckets == 200:
        assert costs[0] < 0.88 * np.trace(gram)
    if buckets == 512:
        assert costs[1] < 0.7 * costs[0]  # a tree of more than two children


def test_the_best_share_of_a_node() -> None:
    gram = np.array([[2.0, 1.5], [1.5, 3.0]])

    def cost(step: int) -> float:
        tree = np.array([[step / 64, step / 64], [1 - step / 64, 0], [0, 1 - step / 64]])
        return float(np.trace(gram @ np.linalg.inv(tree.T @ tree)))

    assert greedy_steps(gram).tolist() == [min(range(49), key=cost)]
    assert _inner_nodes(0, 3) == [(0, 3), (0, 2)]


def test_queries_over_buckets() -> None:
    workload = relative(random_ranges(12, 6))
    stops = np.array([4, 5, 12])
    spread = np.zeros((12, 3))
    for bucket, (a, b) in enumerate(((0, 4), (4, 5), (5, 12))):
        spread[a:b, bucket] = 1 / (b - a)
    over = reduce_to_buckets(workload, stops)
    np.testing.assert_allclose(over.unweighted.dense(), workload.unweighted.dense() @ spread)
    np.testing.assert_allclose(over.gram(), (workload.operator.dense() @ spread).T @ workload.operator.dense() @ spread)


def error(x: np.ndarray, epsilon: Fraction, draws: int) -> float:
    """Mean squared error of DAWA's answers to all ranges."""
    workload = all_ranges(x.size)
    grid, budget = dawa_measurement(workload, "add-remove", 1), Loss.laplace(epsilon)
    truth, total = workload.matvec(x), 0.0
    for number in range(draws):
        over, inner, noisy = parse_measurement(measure_buckets(x, workload, grid, budget, key(number)), workload, grid)
        reader = reader_of(over, inner, direct=False)
        answers, errors, _ = reader.answers(0, truth.size, reader.estimate(noisy), grid.noise(budget))
        assert (errors > 0).all()
        total += float(np.mean((answers - truth) ** 2))
    return total / draws


@pytest.mark.slow
def test_plateaus_are_found_and_cost_less_than_any_fixed_strategy() -> None:
    x = np.repeat([400, 0, 900, 30], 16)
    epsilon = Fraction(1, 20)
    found = error(x, epsilon, 5)
    workload = all_ranges(x.size)
    trees = hierarchical((64,), workload, branching=None, norm="l1")
    fixed = [s.workload_cost for s in (identity(64, workload, norm="l1"), trees)]
    others = min(fixed) / workload.shape[0] / float(epsilon) ** 2
    assert found < 0.6 * others
    rough = np.tile([0, 2000], 32)
    assert error(rough, epsilon, 2) > 0.5 * others  # where no two neighbours are alike, it does not help


def test_much_budget_gives_the_truth() -> None:
    assert error(STATE.integers(0, 1000, 33), Fraction(2**20), 1) < 1e-3


@pytest.mark.statistical
@pytest.mark.slow
def test_the_error_bars_are_those_of_the_noise() -> None:
    """Given the partition, answers scatter as their standard errors say: 400 keys, a 10 % wrong scale fails both ways."""
    x = np.repeat([50000, 0], 4)
    workload = prefix(8)
    grid, budget = dawa_measurement(workload, "add-remove", 2), Loss.laplace(Fraction(1))
    squares = []
    for number in range(400):
        over, inner, noisy = parse_measurement(measure_buckets(x, workload, grid, budget, key(number)), workload, grid)
        reader = reader_of(over, inner, direct=False)
        answers, errors, _ = reader.answers(0, 8, reader.estimate(noisy), grid.noise(budget))
        squares.append(np.mean(((answers - workload.matvec(x)) / errors) ** 2))
    assert 0.83 < np.mean(squares) < 1.19  # a scale 10 % off gives 0.81 or 1.21


def test_refusals() -> None:
    with pytest.raises(InvalidInput, match="one ordered attribute"):
        dawa(ranges((4, 4)))
    with pytest.raises(InvalidInput, match="use wider bins"):
        dawa(prefix(2**15))
    assert math.isnan(dawa(prefix(8)).gap)
