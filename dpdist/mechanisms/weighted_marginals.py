"""Whole marginals with optimised weights, for pure epsilon over domains of any size."""

from __future__ import annotations

from dpdist.mechanisms.base import LAPLACE, AutoComparison, Mechanism, PlanWorkspace, Request, takes_long
from dpdist.mechanisms.kept import kept_terms, name_of
from dpdist.strategies.base import Strategy
from dpdist.strategies.needs import factor_bytes
from dpdist.strategies.pure_marginals import unmeasurable, weighted_marginals
from dpdist.workloads import Workload
from dpdist.workloads.kinds import is_separable


class WeightedMarginals(Mechanism):
    """Which marginals to measure, and how well."""

    name = "weighted-marginals"
    summary = (
        "Laplace noise on the cells of marginals whose weights are optimised; answers are least squares over all of them"
    )
    answers = "unions of products of queries of single attributes"
    noises = LAPLACE

    def refuses(self, workload: Workload) -> str | None:
        if not is_separable(workload):
            return "the workload holds queries that are no product over attributes"
        return unmeasurable(workload)

    def passed_over(self, question: AutoComparison) -> str | None:
        alone = len(question.workload.domain.shape) == 1
        return takes_long() if question.special else ("of one attribute it is 'identity'" if alone else None)

    def takes(self, workload: Workload) -> str:
        return "seconds"

    def planning_bytes(self, workload: Workload) -> int:
        return factor_bytes(workload)

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload = request.workload
        work.check_memory("optimising strategy 'weighted-marginals'", self.planning_bytes(workload), workload)
        work.tell("optimising weighted marginals")
        return kept_terms(work, name_of(workload, self.name), workload, weighted_marginals)
