"""Which mechanism answers a workload best, decided before any budget is spent."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from dpdist.strategies.base import Strategy
from dpdist.workloads import Workload, integer_basis

EIGENDECOMPOSITION_PRODUCTS = 5.0
TYPICAL_STEPS = 12
"""Iterations to a certified 1e-6 on most workloads (benchmarks/optimisers.py)."""


@dataclass(frozen=True)
class Candidate:
    """A mechanism with what it would cost.

    Attributes:
        cost: J of the mechanism, None while it is not known.
        gap: certified distance from the optimum, None when not certified.
    """

    mechanism: str
    cost: float | None
    gap: float | None

    def rmse(self, queries: int, noise_multiplier: float) -> float | None:
        """Root mean squared error of a (weighted) query: sigma sqrt(J / m)."""
        return None if self.cost is None else noise_multiplier * float(np.sqrt(self.cost / queries))


@dataclass(frozen=True)
class Effort:
    """What optimising a workload will take, stated before it runs."""

    cells: int
    rank: int
    memory_bytes: int
    products: float

    def seconds(self) -> float:
        """Estimated wall time, from a matrix product timed on this machine."""
        size = 512
        block = np.ones((size, size))
        block @ block
        started = time.perf_counter()
        for _ in range(4):
            block @ block
        rate = 4 * 2.0 * size**3 / (time.perf_counter() - started)
        return self.products * 2.0 * self.rank**2 * self.cells / rate


def effort(workload: Workload) -> Effort:
    """Bytes and matrix products of the certified optimum."""
    basis = integer_basis(workload)
    rank = basis.rank
    cells = int(basis.representatives.size)
    memory = 8 * (6 * rank**2 + 5 * rank * cells)
    products = TYPICAL_STEPS * (2.0 + EIGENDECOMPOSITION_PRODUCTS * rank / cells) + 3 * TYPICAL_STEPS * 2.0
    return Effort(cells, rank, memory, products)


def best(strategies: list[Strategy]) -> Strategy:
    """The strategy of least cost; ties go to the first."""
    return min(strategies, key=lambda s: np.inf if s.workload_cost is None else s.workload_cost)


def candidates(strategies: list[Strategy]) -> list[Candidate]:
    """The table of what was compared; every gap is against the best lower bound known."""
    lower = max((s.lower_bound for s in strategies if s.lower_bound is not None), default=None)
    out = []
    for strategy in strategies:
        cost = strategy.workload_cost
        gap = cost / lower - 1.0 if cost is not None and lower is not None and lower > 0 else None
        out.append(Candidate(strategy.name, cost, gap))
    return out
