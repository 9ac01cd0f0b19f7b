"""Noise on every answer: the Gaussian and the Laplace mechanism.

Answers are the noisy measurements themselves: they are not consistent with each other.
"""

from __future__ import annotations

from dpdist.privacy.distributions import GAUSSIAN, LAPLACE, Kind
from dpdist.strategies.base import CLOSED_FORM, UNIT_VARIANCE, queries_of
from dpdist.strategies.representations import DirectStrategy
from dpdist.workloads import Workload


def gaussian(workload: Workload) -> DirectStrategy:
    """The Gaussian mechanism: cost m * (largest L2 column norm of W)^2.

    Args:
        workload: the queries, (m, n).
    Source: Dwork, Kenthapadi, McSherry, Mironov, Naor 2006.
    """
    return _direct(GAUSSIAN, workload)


def laplace(workload: Workload) -> DirectStrategy:
    """The Laplace mechanism: cost 2 m * (largest L1 column norm of W)^2.

    Args:
        workload: the queries, (m, n).
    Source: Dwork, McSherry, Nissim, Smith 2006.
    """
    return _direct(LAPLACE, workload)


def _direct(kind: Kind, workload: Workload) -> DirectStrategy:
    operator = queries_of(workload).operator
    sensitivity = operator.l1_sensitivity if kind is LAPLACE else operator.l2_sensitivity
    cost = workload.shape[0] * sensitivity**2 * UNIT_VARIANCE[kind.norm]
    return DirectStrategy(kind.value, operator, cost, None, CLOSED_FORM, kind.norm)
