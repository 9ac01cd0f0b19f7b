"""Noise on every cell."""

from __future__ import annotations

import math

from dpdist.mechanisms.base import BOTH, Mechanism, PlanWorkspace, Question, Request
from dpdist.strategies.base import Strategy
from dpdist.strategies.fixed import identity
from dpdist.workloads import Workload


class IdentityMechanism(Mechanism):
    """The cells themselves."""

    name = "identity"
    summary = "noise on every cell"
    noises = BOTH
    supports_fractional_records = True

    def passed_over(self, question: Question) -> str | None:
        return None

    def instead(self, workload: Workload, memory_bytes: int) -> str:
        error = math.sqrt(workload.operator.frobenius_squared / workload.shape[0])
        return f"'identity' (RMSE {error:.4g} at noise multiplier 1)"

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        return identity(request.workload.shape[1], request.workload, norm=request.norm)
