"""Products of p-Identity strategies and trees, for pure epsilon over domains of any size."""

from __future__ import annotations

from dpdist.mechanisms.base import DENSE_CELLS, LAPLACE, AutoComparison, Mechanism, PlanWorkspace, Request, takes_long
from dpdist.mechanisms.kept import kept_terms, name_of
from dpdist.strategies.base import Strategy
from dpdist.strategies.learnt_products import p_identity_products
from dpdist.strategies.needs import Effort, effort, factor_bytes
from dpdist.workloads import Workload
from dpdist.workloads.kinds import is_separable


class PIdentityProducts(Mechanism):
    """One product for all queries, or one for each set of attributes."""

    name = "p-identity-products"
    summary = (
        "products of p-Identity strategies and trees of single attributes, under Laplace noise, for domains of any size"
    )
    answers = "unions of products of queries of single attributes"
    noises = LAPLACE
    supports_fractional_records = True

    def refuses(self, workload: Workload) -> str | None:
        return None if is_separable(workload) else "the workload holds queries that are no product over attributes"

    def passed_over(self, question: AutoComparison) -> str | None:
        shape = question.workload.domain.shape
        if len(shape) == 1 and shape[0] <= DENSE_CELLS:
            return "of one attribute it is 'p-identity'; ask for it by name to compare"
        return takes_long() if question.special or max(shape) > DENSE_CELLS else None

    def effort(self, workload: Workload) -> Effort:
        return effort(workload, "p_identity_products")

    def planning_bytes(self, workload: Workload) -> int:
        return max(super().planning_bytes(workload), factor_bytes(workload))

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload = request.workload
        work.check_memory("optimising strategy 'p-identity-products'", self.planning_bytes(workload), workload)
        work.tell("optimising products of p-Identity strategies")
        return kept_terms(work, name_of(workload, self.name), workload, p_identity_products)
