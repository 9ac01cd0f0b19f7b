"""Laplace noise on every answer."""

from __future__ import annotations

from dpdist.mechanisms.base import LAPLACE, Mechanism, PlanWorkspace, Question, Request
from dpdist.strategies.base import Strategy
from dpdist.strategies.direct import laplace


class Laplace(Mechanism):
    """The queries themselves."""

    name = "laplace"
    summary = "Laplace noise on every answer; answers are not consistent with each other"
    noises = LAPLACE

    def passed_over(self, question: Question) -> str | None:
        return None

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        return laplace(request.workload)
