"""Baselines that need no optimisation: noise on the cells, and noise on the answers."""

from __future__ import annotations

import numpy as np

from dpdist.operators import Identity
from dpdist.strategies.base import Solve, Strategy
from dpdist.workloads import Workload

_CLOSED = Solve("closed form", "closed form", ())


def identity(n: int, workload: Workload | None = None) -> Strategy:
    """Noise on every cell: A = I, cost ||W||_F^2."""
    cost = None if workload is None else float(workload.operator.column_norms_squared().sum())
    return Strategy("identity", Identity(n), cost, None, _CLOSED)


def gaussian(workload: Workload) -> Strategy:
    """The Gaussian mechanism: noise on every answer, cost m * (largest column norm of W)^2.

    Answers are the noisy measurements themselves: they are not consistent with each other.
    """
    queries = workload.shape[0]
    sensitivity = float(np.max(workload.operator.column_norms_squared()))
    return Strategy("gaussian", workload.operator, queries * sensitivity, None, _CLOSED, direct=True)
