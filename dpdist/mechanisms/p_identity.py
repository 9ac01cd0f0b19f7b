"""p-Identity: the cells and a few learnt queries, for pure epsilon."""

from __future__ import annotations

from dpdist.mechanisms.base import LAPLACE, AutoComparison, Mechanism, PlanWorkspace, Request, takes_long
from dpdist.mechanisms.kept import kept_dense, name_of
from dpdist.strategies.base import Strategy
from dpdist.strategies.learnt_queries import p_identity
from dpdist.strategies.needs import Effort, effort, worst_row_bytes
from dpdist.workloads import Workload

AUTO_CELLS = 1024
"""Up to here ``auto`` optimises it, which takes seconds; beyond, it must be asked for."""


class PIdentity(Mechanism):
    """The cells and a few learnt queries."""

    name = "p-identity"
    summary = "Laplace noise on every cell and on a few learnt queries beside: the best of several local optima"
    noises = LAPLACE
    supports_fractional_records = True

    def passed_over(self, question: AutoComparison) -> str | None:
        return None if question.cells <= AUTO_CELLS else takes_long(AUTO_CELLS)

    def effort(self, workload: Workload) -> Effort:
        return effort(workload, "p_identity")

    def planning_bytes(self, workload: Workload) -> int:
        return max(super().planning_bytes(workload), worst_row_bytes(workload, 2 * workload.shape[1]))

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload = request.workload
        work.check_memory("optimising strategy 'p-identity'", self.effort(workload).memory_bytes, workload)

        def solve() -> Strategy:
            work.tell("optimising a p-Identity strategy")
            return work.largest(p_identity, work.gram(workload))

        return kept_dense(work, name_of(workload, "p-identity"), self.name, solve, norm="l1")
