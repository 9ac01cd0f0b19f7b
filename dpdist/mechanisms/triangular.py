"""The optimum for a series that grows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dpdist.mechanisms.base import DENSE_CELLS, Mechanism, PlanWorkspace, Question, Request
from dpdist.mechanisms.kept import kept_dense, name_of
from dpdist.strategies.base import Strategy
from dpdist.strategies.lower_factors import answers_growing, of_one_series, over_series, triangular
from dpdist.strategies.needs import Effort, effort
from dpdist.workloads import Workload

SQUARES = 9
"""Arrays over pairs of steps that the optimum and its triangular factor take."""


class Triangular(Mechanism):
    """The lower triangular factor of the certified optimum's precision."""

    name = "triangular"
    summary = "the certified optimum of a filter of the past as a triangular matrix: steps are measured as they become known"
    answers = f"one filter of the past; streams, up to about {2 * DENSE_CELLS:,} steps"
    streams = True

    def refuses(self, workload: Workload) -> str | None:
        return None if answers_growing(workload) else "the workload is not one filter of the past whose present counts"

    def passed_over(self, question: Question) -> str | None:
        return "measures steps one after the other, which only a stream needs; ask for it by name"

    def effort(self, workload: Workload) -> Effort:
        line = of_one_series(workload)
        needs = effort(line, "coa")
        return replace(needs, memory_bytes=max(needs.memory_bytes, 8 * SQUARES * needs.cells**2))

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        line = of_one_series(request.workload)
        needed = self.effort(request.workload).memory_bytes
        work.check_memory("optimising strategy 'triangular'", needed)
        name = name_of(line, f"triangular-{request.tolerance:g}")

        def solve() -> Strategy:
            resuming = work.resuming(f"{name}-checkpoint.json", partial(triangular, tolerance=request.tolerance))
            return work.largest(resuming, line, needed_bytes=needed)

        found = kept_dense(work, name, self.name, solve)
        work.forget(f"{name}-checkpoint.json")
        return over_series(request.workload, found)
