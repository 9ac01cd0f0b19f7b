"""DAWA: cells with similar counts are measured together (Li, Hay, Miklau, Wang 2014). Pure epsilon, data dependent, biased.

A quarter of epsilon buys a partition of an ordered attribute into buckets: the noisy L1 deviation of every interval whose
length is a power of two, and the cheapest partition made of them. The rest measures the buckets' totals with the tree that
suits the workload best, GreedyH's weights among others. A bucket's total is spread evenly over its cells: that error is not in
the error bars.

Everything random is an integer, so what is measured is exact. Privacy of the partition: fix the noise of all intervals but
the one of the chosen partition that holds the changed record. Its cost and every rival's move by at most D; a noise lower
by 2 D keeps the choice, so Laplace noise of scale 2 D / epsilon on every interval suffices. In units of 1/L (L the longest
length) costs are whole and D < 2 L.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

import numpy as np
import scipy

from dpdist.api.mechanisms import (
    GRID_BITS,
    LAPLACE,
    MEMORY_COPIES,
    AnswerRequest,
    Answers,
    ArrayVector,
    Counts,
    DenseMeasurement,
    Domain,
    IntegerMeasurement,
    Layout,
    ListedRanges,
    Loss,
    Matrix,
    Neighbours,
    Noise,
    Product,
    ProgressCallback,
    Secret,
    Sparse,
    StageBytes,
    Tree,
    Vector,
    Workload,
    Workspace,
    answer_bytes,
    lapack,
    laplace_scale,
    to_array,
)

PARTITION_SHARE = Fraction(1, 4)
BRANCHINGS = (2, 4, 8, 16)
MOST_CELLS = 2**14
"""The deviations of all intervals take cells^2 operations."""
FRACTION_STEPS = 64
MOST_STEPS = 48
"""A node takes up to 3/4 of what its subtree may spend: a leaf of the deepest tree keeps 4^-14 of 2^30."""
BUCKET_PRICE = 2
"""What a bucket costs beyond its published price, in scales of the intervals' noise; it depends on no record.

Published: 0. The search then buys buckets for their negative noise, about 0.56 n of them whatever the data. With 2 the error
was 0.45 to 0.97 of the best fixed tree's on plateaus, Adult, nettrace and a bell curve of 1024 cells (published: 1.5).
"""
TOTALS_FROM = 2**40
"""Noise addresses of the buckets' totals; those of the intervals start at 0."""


WINDOW_VALUES = 2**22
"""Values of intervals whose costs are computed at once."""
WINDOW_COPIES, GRAM_COPIES = 4, 3
"""Of these values, and of the gram over buckets from which the tree is chosen."""


@dataclass(frozen=True)
class DawaMeasurement(IntegerMeasurement):
    """What DAWA measures, as far as it is known before the data are seen.

    Attributes:
        cells: n, of one ordered attribute.
        queries: the workload; its tree is chosen when the buckets are known.
        changes: records that differ between neighbours.
        sensitivity_squared: of the buckets' totals: weights on a path of the tree add up to at most 2^30.
    """

    cells: int
    queries: Workload = field(repr=False)
    changes: int
    sensitivity_squared: int
    norm: Literal["l1"] = "l1"
    spacing: float = 2.0**-GRID_BITS

    @property
    def rows(self) -> int:
        """The most values that are measured: intervals are not counted."""
        return 2 * self.cells

    @property
    def digest(self) -> str:
        """SHA-256 of everything that decides what is measured."""
        facts = ("dawa", self.cells, self.queries.fingerprint, self.changes, str(PARTITION_SHARE), BUCKET_PRICE)
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def noise(self, budget: Loss) -> Noise:
        """Laplace noise of the buckets' totals."""
        return Noise(LAPLACE, laplace_scale(self.changes << GRID_BITS, budget.pure * (1 - PARTITION_SHARE)))

    def partition_noise(self, budget: Loss) -> Noise:
        """Laplace noise of the intervals' costs."""
        return Noise(LAPLACE, laplace_scale(4 * longest_interval(self.cells) * self.changes, budget.pure * PARTITION_SHARE))

    def memory(self, workload: Workload, layout: Layout, worker_bytes: int) -> StageBytes:
        # of intervals, and of as many buckets as cells
        windows, gram = min(WINDOW_VALUES, layout.size**2), layout.size**2
        values = MEMORY_COPIES * (self.rows + layout.size) + WINDOW_COPIES * windows + GRAM_COPIES * gram
        return StageBytes(8 * values, answer_bytes(workload, 8 * gram))

    def exact_values(self, counts: Counts, work: Workspace, report_progress: ProgressCallback | None = None) -> Vector:
        """The counts themselves: what is measured of them depends on noise."""
        return ArrayVector(counts.cells())

    def add_noise(self, exact: Vector, key: Secret, noise: Noise, budget: Loss) -> Vector:
        return ArrayVector(measure_buckets(to_array(exact), self.queries, self, budget, key.reveal()))

    def answers(self, workload: Workload, z: Vector, noise: Noise, answer_request: AnswerRequest) -> Answers:
        """From the buckets' totals, each spread evenly over its cells: that error is not known, so half widths are left out."""
        workload, measurement, totals = parse_measurement(to_array(z), workload, self)
        return replace(measurement.estimate(workload, ArrayVector(totals), noise, answer_request.work), biased=True).answers(
            answer_request
        )


def dawa_measurement(workload: Workload, neighbours: Neighbours, most_records: int) -> DawaMeasurement:
    """The measurement of a DAWA release: a person's k records are k changes, replaced ones count twice (group privacy)."""
    changes = most_records * (1 if neighbours == "add-remove" else 2)
    return DawaMeasurement(workload.domain.cells, workload, changes, (changes << GRID_BITS) ** 2)


def longest_interval(cells: int) -> int:
    """L, the longest length of an interval: the largest power of two up to n."""
    return 1 << (cells.bit_length() - 1)


def interval_costs(x: Matrix) -> list[Matrix]:
    """For every length w = 1, 2, 4, ...: L times the L1 deviation from its mean of every interval [i, i + w), int64."""
    top = longest_interval(x.size)
    costs_by_width = []
    width = 1
    while width <= top:
        windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64), width)
        costs = np.empty(windows.shape[0], dtype=np.int64)
        step = max(1, WINDOW_VALUES // width)
        for start in range(0, costs.size, step):
            window_block = windows[start : start + step]
            costs[start : start + step] = np.abs(width * window_block - window_block.sum(axis=1, keepdims=True)).sum(axis=1)
        costs_by_width.append(costs * (top // width))
        width *= 2
    return costs_by_width


def cheapest_partition(costs: list[Matrix]) -> Matrix:
    """Stops of the buckets of the cheapest partition into intervals with the given costs, ascending, int64."""
    cells = costs[0].size
    best = np.zeros(cells + 1, dtype=np.int64)
    taken = np.zeros(cells + 1, dtype=np.int64)
    for stop in range(1, cells + 1):
        widths = [2**level for level in range(len(costs)) if 2**level <= stop]
        totals = [best[stop - w] + costs[level][stop - w] for level, w in enumerate(widths)]
        pick = int(np.argmin(totals))
        best[stop], taken[stop] = totals[pick], widths[pick]
    stops = [cells]
    while stops[-1] > 0:
        stops.append(stops[-1] - int(taken[stops[-1]]))
    return np.array(stops[-2::-1], dtype=np.int64)


def _inner_nodes(start: int, stop: int) -> list[tuple[int, int]]:
    """Inner nodes [first, stop) of the binary tree over buckets, parents first."""
    if stop - start < 2:
        return []
    middle = (start + stop + 1) // 2
    return [(start, stop), *_inner_nodes(start, middle), *_inner_nodes(middle, stop)]


def greedy_steps(gram: Matrix) -> Matrix:
    """For every inner node the share of its subtree's sensitivity that it takes itself, in 1/64, int64.

    From the leaves up, each node takes the share that is best for the queries as if they asked for its buckets only.
    Source: GreedyH (Li, Hay, Miklau, Wang 2014, section 5).
    """
    buckets = gram.shape[0]
    inverse = np.eye(buckets)  # of the subtrees' precision at unit sensitivity, block by block
    order = _inner_nodes(0, buckets)
    steps = np.zeros(len(order), dtype=np.int64)
    fractions = np.arange(MOST_STEPS + 1) / FRACTION_STEPS
    odds = (fractions / (1 - fractions)) ** 2
    for position in range(len(order) - 1, -1, -1):
        node_buckets = slice(*order[position])
        child_inverse, queries = inverse[node_buckets, node_buckets], gram[node_buckets, node_buckets]
        ones = child_inverse.sum(axis=1)
        whole = float(np.einsum("ij,ij->", child_inverse, queries))
        weighted_sum = float(ones @ queries @ ones)
        total = float(ones.sum())
        errors = (whole - odds * weighted_sum / (1 + odds * total)) / (1 - fractions) ** 2
        pick = int(np.argmin(errors))
        steps[position] = pick
        inverse[node_buckets, node_buckets] = (
            child_inverse - np.outer(ones, ones) * (odds[pick] / (1 + odds[pick] * total))
        ) / (1 - fractions[pick]) ** 2
    return steps


def greedy_tree(gram: Matrix) -> tuple[Matrix, Matrix]:
    """GreedyH's intervals of buckets (p, 2) and their whole weights (p,): along a path they add up to at most 2^30."""
    buckets, steps = gram.shape[0], greedy_steps(gram)
    order = _inner_nodes(0, buckets)
    taken = dict(zip(order, steps.tolist(), strict=True))
    remaining = {(0, buckets): 1.0}
    ends: list[tuple[int, int]] = []
    weights: list[int] = []

    def take(node: tuple[int, int], amount: float) -> None:
        whole = int(amount * 2**GRID_BITS)
        if whole > 0:
            ends.append((node[0], node[1] - 1))
            weights.append(whole)

    for node in order:
        fraction = taken[node] / FRACTION_STEPS
        take(node, remaining[node] * fraction)
        middle = (node[0] + node[1] + 1) // 2
        for child in ((node[0], middle), (middle, node[1])):
            remaining[child] = remaining[node] * (1 - fraction)
    for bucket in range(buckets):
        take((bucket, bucket + 1), remaining[(bucket, bucket + 1)])
    return np.array(ends, dtype=np.int64), np.array(weights, dtype=np.int64)


def best_tree(gram: Matrix) -> tuple[Matrix, Matrix]:
    """Of noise on every bucket, trees of equal weights and GreedyH's: the intervals and weights of least error for a gram."""
    buckets = gram.shape[0]
    trees = [(np.repeat(np.arange(buckets), 2).reshape(-1, 2), np.full(buckets, 1 << GRID_BITS)), greedy_tree(gram)]
    for branching in BRANCHINGS:
        tree = Tree(buckets, branching)
        node_weight = (1 << GRID_BITS) // int(tree.l1_sensitivity)
        trees.append((tree.ends, np.full(tree.shape[0], node_weight)))
    costs = [_tree_cost(gram, *tree) for tree in trees]
    return trees[int(np.argmin(costs))]


def _tree_cost(gram: Matrix, ends: Matrix, weights: Matrix) -> float:
    precision = ListedRanges(gram.shape[0], ends).weighted_gram((weights / 2.0**GRID_BITS) ** 2)
    return float(np.trace(lapack.solve(precision, gram, assume_a="pos")))


def reduce_to_buckets(workload: Workload, stops: Matrix) -> Workload:
    """The queries over buckets whose counts are spread evenly over their cells."""
    starts = np.concatenate([[0], stops[:-1]])
    sizes = stops - starts
    column = np.repeat(np.arange(stops.size), sizes)
    spread_matrix = Sparse(scipy.sparse.csr_array((np.repeat(1.0 / sizes, sizes), (np.arange(column.size), column))))
    blocks = tuple(replace(block, factors=(Product(block.factors[0], spread_matrix),)) for block in workload.blocks)
    return Workload(Domain.of_shape((stops.size,)), blocks)


def measure_buckets(x: Matrix, workload: Workload, measurement: DawaMeasurement, budget: Loss, key: bytes) -> Matrix:
    """Everything that is measured as one int64 vector: the buckets' number k and stops, the number p of the tree's rows, their
    first and last buckets and weights, the noisy totals."""
    stops = noisy_partition(x, measurement, budget, key)
    ends, weights = best_tree(reduce_to_buckets(workload, stops).gram())
    totals = np.diff(np.concatenate([[0], np.cumsum(x.astype(np.int64))])[np.concatenate([[0], stops])])
    exact = weights * ListedRanges(stops.size, ends).matvec(totals)
    added = measurement.noise(budget).draw(key, start=TOTALS_FROM, count=exact.size)
    return np.concatenate([[stops.size], stops, [weights.size], *ends.T, weights, exact + added]).astype(np.int64)


def noisy_partition(x: Matrix, measurement: DawaMeasurement, budget: Loss, key: bytes) -> Matrix:
    """Ends of the buckets, (k,): the partition of least noisy cost."""
    costs = interval_costs(x)
    drawn = measurement.partition_noise(budget).draw(key, count=sum(c.size for c in costs))
    price = bucket_price(measurement, budget)
    noisy, start = [], 0
    for exact in costs:
        noisy.append(exact + drawn[start : start + exact.size] + price)
        start += exact.size
    return cheapest_partition(noisy)


def bucket_price(measurement: DawaMeasurement, budget: Loss) -> int:
    """What one bucket more costs, in the units of the intervals' costs: its total is off by 1 / epsilon, and ``BUCKET_PRICE``."""
    total_error = longest_interval(measurement.cells) * measurement.changes / (budget.pure * (1 - PARTITION_SHARE))
    return round(total_error) + BUCKET_PRICE * measurement.partition_noise(budget).scale


def parse_measurement(
    values: Matrix, workload: Workload, measurement: DawaMeasurement
) -> tuple[Workload, DenseMeasurement, Matrix]:
    """The queries over buckets, what measures these, and their noisy totals, from what was measured."""
    buckets = int(values[0])
    stops, rows = values[1 : buckets + 1], int(values[buckets + 1])
    first_buckets, last_buckets, weights, noisy = values[buckets + 2 :].reshape(4, rows)
    tree = ListedRanges(buckets, np.stack([first_buckets, last_buckets], axis=1))
    over_buckets = DenseMeasurement(weights, tree, measurement.spacing, measurement.sensitivity_squared, "l1")
    return reduce_to_buckets(workload, stops), over_buckets, noisy
