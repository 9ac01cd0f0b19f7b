"""DAWA: cells with similar counts are measured together."""

from __future__ import annotations

from dpdist.errors import InvalidInput
from dpdist.mechanisms.base import LAPLACE, AutoComparison, Mechanism, PlanWorkspace, Request
from dpdist.strategies.base import Strategy
from dpdist.strategies.partition import dawa
from dpdist.workloads import Workload


class Dawa(Mechanism):
    """What is measured depends on the data."""

    name = "dawa"
    summary = "cells with similar counts are measured together: less noise, and a bias that is not in the error bars"
    answers = "queries over one ordered attribute of up to 16,384 values"
    noises = LAPLACE
    adaptive = True

    def refuses(self, workload: Workload) -> str | None:
        try:
            dawa(workload)
        except InvalidInput as error:
            return str(error)
        return None

    def check(self, workload: Workload) -> None:
        dawa(workload)  # its refusals say what to do

    def passed_over(self, question: AutoComparison) -> str:
        return "its error depends on the data and is not in the error bars; ask for it by name"

    def planned(self, request: Request, work: PlanWorkspace) -> Strategy:
        return dawa(request.workload)
