"""Noise on every cell."""

from __future__ import annotations

import math

from dpdist.mechanisms.base import BOTH, REACH, AutoComparison, Mechanism, PlanWorkspace, Request
from dpdist.strategies.base import Strategy
from dpdist.strategies.fixed import identity
from dpdist.strategies.needs import NOMINAL_RATE
from dpdist.workloads import Workload
from dpdist.workloads.kinds import is_cells


class IdentityMechanism(Mechanism):
    """The cells themselves."""

    name = "identity"
    summary = "noise on every cell"
    noises = BOTH
    supports_fractional_records = True

    def passed_over(self, question: AutoComparison) -> str | None:
        return None

    def fits(self, workload: Workload, memory_bytes: int) -> bool:
        """Whether answers, each a sum over cells, take no longer than ``auto`` spends."""
        queries, cells = workload.shape
        seconds = 0.0 if is_cells(workload) else 2.0 * queries * cells / NOMINAL_RATE
        return seconds <= (REACH.seconds or 0.0) and super().fits(workload, memory_bytes)

    def instead(self, workload: Workload, memory_bytes: int) -> str:
        error = math.sqrt(workload.operator.frobenius_squared / workload.shape[0])
        return f"'identity' (RMSE {error:.4g} at noise multiplier 1)"

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        return identity(request.workload.shape[1], request.workload, norm=request.norm)
