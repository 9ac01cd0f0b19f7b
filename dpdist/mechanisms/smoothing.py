"""ESM: the strategy that minimises a smoothed sensitivity times the error."""

from __future__ import annotations

from dpdist.mechanisms.base import AutoComparison, Mechanism, PlanWorkspace, Request, beaten
from dpdist.mechanisms.kept import kept_dense, name_of
from dpdist.strategies.base import Strategy
from dpdist.strategies.exponential import smoothing
from dpdist.strategies.needs import Effort, effort, worst_row_bytes
from dpdist.workloads import Workload


class Smoothing(Mechanism):
    """The low-rank paper's appendix B, for comparison: 'coa' solves the same program to its certified optimum."""

    name = "smoothing"
    summary = "exponential smoothing (ESM) of the optimum's program, for comparison with the papers"

    def passed_over(self, question: AutoComparison) -> str | None:
        return beaten(self, question) or "approximates the program that 'coa' solves; ask for it by name to compare"

    def effort(self, workload: Workload) -> Effort:
        return effort(workload, "smoothing")

    def planning_bytes(self, workload: Workload) -> int:
        return max(super().planning_bytes(workload), worst_row_bytes(workload))

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload = request.workload
        work.check_memory("optimising strategy 'smoothing'", self.effort(workload).memory_bytes, workload)

        def solve() -> Strategy:
            work.tell("smoothing the optimum's program")
            return work.largest(smoothing, work.gram(workload))

        return kept_dense(work, name_of(workload, "smoothing"), self.name, solve)
