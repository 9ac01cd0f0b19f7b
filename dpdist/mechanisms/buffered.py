"""Running sums in constant memory."""

from __future__ import annotations

from dpdist.mechanisms.base import Mechanism, PlanWorkspace, Question, Request
from dpdist.mechanisms.kept import name_of
from dpdist.strategies.base import Strategy
from dpdist.strategies.buffers import buffered, is_growing_sum
from dpdist.workloads import Workload


class Buffered(Mechanism):
    """Coefficients that are a sum of a few falling exponentials."""

    name = "buffered"
    summary = "a sum of six falling exponentials as coefficients, fitted to the number of steps, which are measured as they become known"
    answers = "one running sum; streams"
    streams = True

    def refuses(self, workload: Workload) -> str | None:
        return None if is_growing_sum(workload) else "the workload is not one running sum that is held in memory"

    def passed_over(self, question: Question) -> str | None:
        return "measures steps one after the other, which only a stream needs; ask for it by name"

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        return buffered(request.workload, work.arrays(stored=False), name_of(request.workload, "buffered"))
