"""Laplace noise on every answer."""

from __future__ import annotations

from dpdist.mechanisms.base import LAPLACE, AutoComparison, Mechanism, PlanWorkspace, Request
from dpdist.strategies.base import Strategy
from dpdist.strategies.direct import laplace
from dpdist.workloads import Workload


class Laplace(Mechanism):
    """The queries themselves."""

    name = "laplace"
    summary = "Laplace noise on every answer; answers are not consistent with each other"
    noises = LAPLACE

    def passed_over(self, question: AutoComparison) -> str | None:
        return None

    def planning_bytes(self, workload: Workload) -> int:
        return workload.operator.sensitivity_bytes

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        work.check_memory("the sensitivity of 'laplace'", self.planning_bytes(request.workload))
        return laplace(request.workload)
