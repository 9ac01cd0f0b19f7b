"""Unions of products, one small optimum for every set of attributes."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from dpdist.mechanisms.base import REACH, REACH_BYTES, AutoComparison, Mechanism, PlanWorkspace, Request, beaten, takes_long
from dpdist.mechanisms.kept import kept_terms, name_of
from dpdist.strategies.base import Strategy
from dpdist.strategies.needs import FULL_RANK_PRODUCTS, NOMINAL_RATE, product_bytes
from dpdist.strategies.residual_bases import residual
from dpdist.workloads import Workload
from dpdist.workloads.kinds import is_separable

TAKES_LONG = "an attribute has so many values that their optimum takes long; ask for it by name"


class Residual(Mechanism):
    """One product of small optima for every attribute set, over the residual spaces."""

    name = "residual"
    summary = "products of small optima over the residual spaces of marginals, for domains of any size"
    answers = "unions of products of queries of single attributes"
    supports_fractional_records = True
    solves: ClassVar[int] = 8
    """Optima of the largest attribute that planning takes."""

    def refuses(self, workload: Workload) -> str | None:
        return None if is_separable(workload) else "the workload holds queries that are no product over attributes"

    def passed_over(self, question: AutoComparison) -> str | None:
        alone = len(question.workload.domain.shape) == 1
        told = beaten(self, question) or (takes_long() if alone or question.special else None)
        return told or (None if self.fits(question.workload, REACH_BYTES) else TAKES_LONG)

    def takes(self, workload: Workload) -> str:
        return "seconds"

    def fits(self, workload: Workload, memory_bytes: int) -> bool:
        """Whether there are several attributes, whose optima by themselves take no longer than ``auto`` spends."""
        seconds = self.solves * FULL_RANK_PRODUCTS * 2.0 * max(workload.domain.shape) ** 3 / NOMINAL_RATE
        soon = len(workload.domain.shape) > 1 and seconds <= (REACH.seconds or 0.0)
        return soon and super().fits(workload, memory_bytes)

    def instead(self, workload: Workload, memory_bytes: int) -> str | None:
        return "'residual' (seconds; certified by 'dpdist plan')"

    def planning_bytes(self, workload: Workload) -> int:
        return product_bytes(workload)

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        work.check_memory("optimising strategy 'residual'", self.planning_bytes(request.workload), request.workload)
        work.tell("optimising residual")
        name = name_of(request.workload, f"residual-{request.tolerance:g}")
        return kept_terms(work, name, request.workload, partial(residual, tolerance=request.tolerance))
