"""The papers' random workloads, with seeds (NumPy ``RandomState``, so that published figures can be compared)."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np

from dpdist.domain import Domain
from dpdist.errors import InvalidInput
from dpdist.operators import Permuted
from dpdist.workloads.block import Block
from dpdist.workloads.explicit_rows import explicit
from dpdist.workloads.product_queries import listed_marginals
from dpdist.workloads.range_workloads import box_rows, listed_ranges
from dpdist.workloads.workload import Workload


def random_ranges(n: int, m: int, *, seed: int = 0) -> Workload:
    """The papers' workload WRange: m intervals whose two ends are uniform over the n cells.

    Args:
        n: number of cells.
        m: number of queries.
        seed: fixes the random draws; the same seed gives the same workload.
    Source: Yuan et al. 2016, section 5.
    """
    ends = np.sort(np.random.RandomState(seed).randint(0, n, (2, m)), axis=0)
    return listed_ranges(n, [(int(begin), int(end)) for begin, end in ends.T])


def discrete(n: int, m: int, *, seed: int = 0, probability: float = 0.02) -> Workload:
    """The papers' workload WDiscrete: every entry is +1 with the given probability, otherwise -1.

    Args:
        n: number of cells.
        m: number of queries.
        seed: fixes the random draws; the same seed gives the same workload.
        probability: of an entry +1, in [0, 1].
    Source: Yuan et al. 2016, section 5.
    """
    if not 0 <= probability <= 1:
        raise InvalidInput(f"a probability lies in [0, 1], found {probability}")
    return explicit(np.where(np.random.RandomState(seed).rand(m, n) < probability, 1, -1))


def related(n: int, m: int, rank: int, *, seed: int = 0) -> Workload:
    """The papers' workload WRelated: W = C A with Gaussian C (m x rank) and A (rank x n).

    Args:
        n: number of cells.
        m: number of queries.
        rank: of W.
        seed: fixes the random draws; the same seed gives the same workload.
    Source: Yuan et al. 2016, section 5.
    """
    if not 1 <= rank <= min(m, n):
        raise InvalidInput(f"the rank lies in 1..{min(m, n)}, found {rank}")
    state = np.random.RandomState(seed)
    coefficients = state.randn(m, rank)
    return explicit(coefficients @ state.randn(rank, n))


def two_step_ranges(shape: tuple[int, ...], m: int, *, seed: int = 0) -> Workload:
    """m boxes: first a length along each attribute, uniform over 1..n_i, then a place for it.

    Args:
        shape: number of values of each attribute.
        m: number of boxes.
        seed: fixes the random draws; the same seed gives the same workload.
    Source: two-step sampling of Hardt, Ligett, McSherry 2012, used by Li & Miklau 2012, section 5.
    """
    state = np.random.RandomState(seed)
    domain = Domain.of_shape(tuple(shape))
    sides = []
    for size in shape:
        length = state.randint(1, size + 1, m)
        begin = (state.rand(m) * (size - length + 1)).astype(np.int64)
        sides.append(np.stack([begin, begin + length - 1], axis=1))
    labels = (tuple(f"box {i}" for i in range(m)),)
    axes = tuple(range(len(shape)))
    return Workload(domain, (Block("random boxes", axes, (box_rows(tuple(shape), sides),), labels),))


def random_marginals(shape: tuple[int, ...], m: int, *, seed: int = 0) -> Workload:
    """m distinct marginals, uniform over all attribute sets but the empty one.

    Args:
        shape: number of values of each attribute.
        m: number of marginals.
        seed: fixes the random draws; the same seed gives the same workload.
    Source: Li & Miklau 2012, section 5.
    """
    subsets = [s for k in range(1, len(shape) + 1) for s in combinations(range(len(shape)), k)]
    if not 1 <= m <= len(subsets):
        raise InvalidInput(f"{len(shape)} attributes have {len(subsets)} marginals, {m} were asked for")
    picked = np.random.RandomState(seed).choice(len(subsets), m, replace=False)
    domain = Domain.of_shape(tuple(shape))
    return listed_marginals(domain, [tuple(domain.names[axis] for axis in subsets[i]) for i in sorted(picked)])


def marginal_queries(shape: tuple[int, ...], m: int, *, ways: int = 2, seed: int = 0) -> Workload:
    """The papers' workload WMarginal: m counts, uniform over all cells of all k-way marginals.

    Args:
        shape: number of values of each attribute.
        m: number of queries.
        ways: k, how many attributes are combined.
        seed: fixes the random draws; the same seed gives the same workload.
    Source: Yuan et al. 2016, section 5.
    """
    sets = list(combinations(range(len(shape)), ways))
    sizes = [math.prod(shape[axis] for axis in s) for s in sets]
    if not 1 <= m <= sum(sizes):
        raise InvalidInput(f"there are {sum(sizes)} counts in all {ways}-way marginals, {m} were asked for")
    picked = np.sort(np.random.RandomState(seed).choice(sum(sizes), m, replace=False))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    codes = np.unravel_index(np.arange(math.prod(shape)), shape)
    rows = np.zeros((m, math.prod(shape)), dtype=np.int64)
    for i, position in enumerate(picked):
        marginal = int(np.searchsorted(starts, position, side="right")) - 1
        values = np.unravel_index(int(position - starts[marginal]), [shape[axis] for axis in sets[marginal]])
        rows[i] = np.all([codes[axis] == value for axis, value in zip(sets[marginal], values, strict=True)], axis=0)
    return explicit(rows, Domain.of_shape(tuple(shape)))


def uniform_predicates(n: int, m: int, *, seed: int = 0) -> Workload:
    """m predicates: every cell is counted or left out with equal probability.

    Args:
        n: number of cells.
        m: number of queries.
        seed: fixes the random draws; the same seed gives the same workload.
    Source: Li & Miklau 2012, section 5.
    """
    return explicit((np.random.RandomState(seed).rand(m, n) < 0.5).astype(np.int64))


def permuted(workload: Workload, *, seed: int = 0) -> Workload:
    """The same queries over the cells in a random order.

    Args:
        workload: the queries, (m, n).
        seed: fixes the order of the cells.
    Source: Li & Miklau 2012, section 5 (permuted ranges).
    """
    order = np.random.RandomState(seed).permutation(workload.shape[1])
    axes = tuple(range(len(workload.domain.shape)))
    blocks = []
    for block in workload.blocks:
        labels = (tuple(", ".join(filter(None, label)) for label in block.row_labels(0, block.queries)),)
        inner = Permuted(block.operator(workload.domain.shape), order)
        scales = (block.weights / block.weight,) if block.scales else ()
        blocks.append(Block(f"{block.name}, permuted", axes, (inner,), labels, block.weight, scales))
    return Workload(workload.domain, tuple(blocks))
