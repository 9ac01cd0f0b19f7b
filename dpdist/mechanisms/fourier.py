"""Fourier over marginals."""

from __future__ import annotations

from dpdist.mechanisms.base import AutoComparison, Mechanism, PlanWorkspace, Request, takes_much
from dpdist.mechanisms.marginals import ONLY
from dpdist.strategies.base import Strategy
from dpdist.strategies.marginal_optima import fourier, marginal_weights
from dpdist.strategies.needs import residual_bytes
from dpdist.workloads import Workload
from dpdist.workloads.kinds import is_marginals


class FourierMechanism(Mechanism):
    """A published baseline for marginals."""

    name = "fourier"
    summary = "equal noise on every needed coefficient of an orthonormal product basis"
    answers = "marginals"

    def refuses(self, workload: Workload) -> str | None:
        return None if is_marginals(workload) else ONLY

    def passed_over(self, question: AutoComparison) -> str | None:
        return takes_much(self.planning_bytes(question.workload))

    def planning_bytes(self, workload: Workload) -> int:
        return residual_bytes(workload, marginal_weights(workload))

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        work.check_memory("writing down the rows of 'fourier'", self.planning_bytes(request.workload), request.workload)
        return fourier(request.workload)
