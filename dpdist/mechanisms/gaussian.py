"""Gaussian noise on every answer."""

from __future__ import annotations

from dpdist.mechanisms.base import AutoComparison, Mechanism, PlanWorkspace, Request, takes_much
from dpdist.strategies.base import Strategy
from dpdist.strategies.direct import gaussian
from dpdist.workloads import Workload


class Gaussian(Mechanism):
    """The queries themselves."""

    name = "gaussian"
    summary = "Gaussian noise on every answer; answers are not consistent with each other"

    def passed_over(self, question: AutoComparison) -> str | None:
        return takes_much(self.planning_bytes(question.workload))

    def instead(self, workload: Workload, memory_bytes: int) -> str:
        return f"'gaussian' (RMSE {workload.operator.l2_sensitivity:.4g} at noise multiplier 1)"

    def planning_bytes(self, workload: Workload) -> int:
        return workload.operator.sensitivity_bytes

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        work.check_memory("the sensitivity of 'gaussian'", self.planning_bytes(request.workload))
        return gaussian(request.workload)
