"""The papers' random workloads, with seeds (NumPy ``RandomState``, so that published figures can be compared)."""

from __future__ import annotations

import numpy as np

from dpdist.errors import InvalidInput
from dpdist.workloads.base import Workload
from dpdist.workloads.explicit import explicit
from dpdist.workloads.ranges import listed_ranges


def random_ranges(n: int, m: int, *, seed: int = 0) -> Workload:
    """WRange: m intervals whose two ends are uniform over the n cells. Source: Yuan et al. 2016, section 5."""
    ends = np.sort(np.random.RandomState(seed).randint(0, n, (2, m)), axis=0)
    return listed_ranges(n, [(int(a), int(b)) for a, b in ends.T])


def discrete(n: int, m: int, *, seed: int = 0, probability: float = 0.02) -> Workload:
    """WDiscrete: every entry +1 with the given probability, otherwise -1. Source: Yuan et al. 2016, section 5."""
    if not 0 <= probability <= 1:
        raise InvalidInput(f"a probability lies in [0, 1], found {probability}")
    return explicit(np.where(np.random.RandomState(seed).rand(m, n) < probability, 1, -1))


def related(n: int, m: int, rank: int, *, seed: int = 0) -> Workload:
    """WRelated: W = C A with Gaussian C (m x rank) and A (rank x n). Source: Yuan et al. 2016, section 5."""
    if not 1 <= rank <= min(m, n):
        raise InvalidInput(f"the rank lies in 1..{min(m, n)}, found {rank}")
    state = np.random.RandomState(seed)
    left = state.randn(m, rank)
    return explicit(left @ state.randn(rank, n))
