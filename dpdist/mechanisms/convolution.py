"""Filters and formulas around a circle."""

from __future__ import annotations

from dpdist.mechanisms.base import AutoComparison, Mechanism, PlanWorkspace, Request
from dpdist.mechanisms.kept import name_of
from dpdist.strategies.base import Strategy
from dpdist.strategies.filters import convolution, is_convolution
from dpdist.workloads import Workload
from dpdist.workloads.kinds import is_dyadic, is_long


class Convolution(Mechanism):
    """A strategy that is a filter itself, or weights of characters."""

    name = "convolution"
    summary = "the certified optimum around a circle, by one Fourier or Hadamard transform, for series of any length"
    answers = "filters of a series; formulas over binary attributes"
    long = True
    supports_sums = True

    def refuses(self, workload: Workload) -> str | None:
        return None if is_convolution(workload) else "the workload asks for more than filters along one attribute"

    def certifies(self, question: AutoComparison) -> bool:
        return is_dyadic(question.workload)

    def passed_over(self, question: AutoComparison) -> str | None:
        return None

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload = request.workload
        long = is_long(workload)
        name = name_of(workload, "convolution-long" if long else "convolution")
        return convolution(workload, work.arrays(stored=long), name, work.telling("steps of the transforms"))
