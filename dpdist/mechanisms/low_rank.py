"""LRM: the workload as a product of low rank."""

from __future__ import annotations

from functools import partial

from dpdist.mechanisms.base import BOTH, Mechanism, PlanWorkspace, Question, Request, beaten, takes_long
from dpdist.mechanisms.kept import kept_dense, name_of
from dpdist.strategies.base import Strategy
from dpdist.strategies.factorisation import low_rank
from dpdist.strategies.needs import Effort, effort, worst_row_bytes
from dpdist.workloads import Workload

AUTO_CELLS = 256
"""Up to here ``auto`` also optimises LRM for pure epsilon, which takes seconds; beyond, it must be asked for."""


class LowRank(Mechanism):
    """W = B L, every column of L in the unit ball."""

    name = "low-rank"
    summary = "the workload as a product of low rank, for Gaussian or Laplace noise"
    noises = BOTH

    def passed_over(self, question: Question) -> str | None:
        small = question.cells <= AUTO_CELLS and question.norm != "l2"
        return beaten(self, question) or (None if small else takes_long(AUTO_CELLS))

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
