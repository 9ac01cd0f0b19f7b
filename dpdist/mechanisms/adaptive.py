"""Tables measured in rounds: each round chooses the one that everything measured so far explains worst."""

from __future__ import annotations

from dpdist.mechanisms.base import AutoComparison, Mechanism, PlanWorkspace, Request
from dpdist.strategies.base import Strategy
from dpdist.strategies.table_rounds import adaptive, why_no_rounds
from dpdist.workloads import Workload


class Adaptive(Mechanism):
    """What is measured depends on the data."""

    name = "adaptive"
    summary = (
        "tables are chosen in rounds by what was measured before, and the others come from a model of them, without proven intervals: "
        "for many tables at little budget"
    )
    answers = "tables of whole attributes, of at most 33,554,432 cells together"
    adaptive = True

    def refuses(self, workload: Workload) -> str | None:
        return why_no_rounds(workload)

    def passed_over(self, question: AutoComparison) -> str:
        return (
            "its error depends on the data, and only answers of measured tables have proven error bars; ask for it by name"
        )

    def planned(self, request: Request, work: PlanWorkspace) -> Strategy:
        return adaptive(request.workload)
