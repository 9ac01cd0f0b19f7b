"""Noise on every cell."""

from __future__ import annotations

from dpdist.operators import Identity
from dpdist.strategies.base import CLOSED_FORM, UNIT_VARIANCE, Norm, Strategy
from dpdist.workloads import Workload


def identity(n: int, workload: Workload | None = None, *, norm: Norm = "l2") -> Strategy:
    """A = I: cost ||W||_F^2 under Gaussian noise, twice that under Laplace noise."""
    cost = None if workload is None else workload.operator.frobenius_squared * UNIT_VARIANCE[norm]
    return Strategy("identity", Identity(n), cost, None, CLOSED_FORM, norm=norm)
