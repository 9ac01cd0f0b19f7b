"""Mechanisms that find what they measure in the data: tables in rounds, each the one that is explained worst so far, and DAWA."""

from __future__ import annotations

from typing import ClassVar

from dpdist.api import InvalidInput
from dpdist.api.mechanisms import AutoComparison, Mechanism, Norm, PlanWorkspace, Request, Strategy, Workload
from dpdist.plugins.adaptive.adaptive_rounds import adaptive, reason_no_rounds
from dpdist.plugins.adaptive.data_partition import dawa


class Adaptive(Mechanism):
    """What is measured depends on the data."""

    name = "adaptive"
    summary = (
        "tables are chosen in rounds by what was measured before, and the others come from a model of them, without proven intervals: "
        "for many tables at little budget"
    )
    answers = "tables of whole attributes, of at most 33,554,432 cells together"
    is_data_dependent = True

    def reason_refused(self, workload: Workload) -> str | None:
        return reason_no_rounds(workload)

    def reason_not_compared(self, question: AutoComparison) -> str:
        return (
            "its error depends on the data, and only answers of measured tables have proven error bars; ask for it by name"
        )

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        return adaptive(request.workload)


class Dawa(Mechanism):
    """What is measured depends on the data."""

    name = "dawa"
    summary = "cells with similar counts are measured together: less noise, and a bias that is not in the error bars"
    answers = "queries over one ordered attribute of up to 16,384 values"
    noises: ClassVar[frozenset[Norm]] = frozenset({"l1"})
    is_data_dependent = True

    def reason_refused(self, workload: Workload) -> str | None:
        try:
            dawa(workload)
        except InvalidInput as error:
            return str(error)
        return None

    def check(self, workload: Workload) -> None:
        dawa(workload)  # its refusals say what to do

    def reason_not_compared(self, question: AutoComparison) -> str:
        return "its error depends on the data and is not in the error bars; ask for it by name"

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        return dawa(request.workload)


DAWA, ADAPTIVE = Dawa(), Adaptive()
