"""LRM: the workload as a product of low rank."""

from __future__ import annotations

from functools import partial

import numpy as np

from dpdist.mechanisms.base import BOTH, AutoComparison, Mechanism, PlanWorkspace, Request, beaten, takes_long
from dpdist.mechanisms.kept import kept_dense, name_of
from dpdist.strategies.base import Strategy
from dpdist.strategies.factorisation import low_rank
from dpdist.strategies.needs import Effort, effort, worst_row_bytes
from dpdist.workloads import Workload

AUTO_CELLS = 256
"""Up to here ``auto`` also optimises LRM for pure epsilon, where the rank is low; else it must be asked for."""
BEATEN = (
    "takes long, and 'p-identity' is as good for workloads of a rank above half the cells; ask for it by name to compare"
)


class LowRank(Mechanism):
    """W = B L, every column of L in the unit ball."""

    name = "low-rank"
    summary = "the workload as a product of low rank, for Gaussian or Laplace noise"
    noises = BOTH
    supports_fractional_records = True

    def passed_over(self, question: AutoComparison) -> str | None:
        if question.norm == "l2" or question.cells > AUTO_CELLS:
            return beaten(self, question) or takes_long(AUTO_CELLS)
        return beaten(self, question) or (None if _of_low_rank(question.workload) else BEATEN)

    def effort(self, workload: Workload) -> Effort:
        return effort(workload, "low_rank")

    def planning_bytes(self, workload: Workload) -> int:
        return max(super().planning_bytes(workload), worst_row_bytes(workload))

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload, norm = request.workload, request.norm
        work.check_memory("optimising strategy 'low-rank'", self.effort(workload).memory_bytes, workload)

        def solve() -> Strategy:
            work.tell("optimising a low-rank strategy")
            return work.largest(partial(low_rank, norm=norm), work.gram(workload))

        return kept_dense(work, name_of(workload, f"low-rank-{norm}"), self.name, solve, norm=norm)


def _of_low_rank(workload: Workload) -> bool:
    """Whether W has at most half as many independent rows as there are cells: there LRM has down to half of p-Identity's error."""
    cells = workload.shape[1]
    return workload.shape[0] <= cells // 2 or 2 * int(np.linalg.matrix_rank(workload.gram(), hermitian=True)) <= cells
