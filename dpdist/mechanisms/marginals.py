"""Marginals in closed form, and with the least largest error."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dpdist.mechanisms.base import Mechanism, PlanWorkspace, Question, Request
from dpdist.mechanisms.kept import kept_terms, name_of
from dpdist.strategies.base import Strategy
from dpdist.strategies.marginals import marginal_minimax, marginal_optimum
from dpdist.strategies.needs import Effort, effort
from dpdist.strategies.representations import ResidualStrategy
from dpdist.workloads import Workload
from dpdist.workloads.kinds import is_marginals

ONLY = "the workload asks for more than marginals"


class Marginals(Mechanism):
    """The optimal strategy for marginals over domains of any size."""

    name = "marginals"
    summary = "the certified optimum for marginals, in closed form over domains of any size"
    answers = "marginals"
    worst = True

    def refuses(self, workload: Workload) -> str | None:
        return None if is_marginals(workload) else ONLY

    def certifies(self, question: Question) -> bool:
        return True

    def effort(self, workload: Workload) -> Effort:
        return effort(workload, "marginals")

    def instead(self, workload: Workload, memory_bytes: int) -> str:
        return "'marginals' (the same optimum in closed form)"

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        if not request.worst:
            return marginal_optimum(request.workload)
        work.tell("optimising marginals")
        found = kept_terms(work, name_of(request.workload, "marginals-worst"), request.workload, partial(marginal_minimax))
        whole = ResidualStrategy(
            found.name, found.operator, found.workload_cost, found.lower_bound, found.solve, terms=found.terms
        )
        assert whole.solve is not None
        sizes = request.workload.domain.shape
        largest = max((block.weight * whole.deviation(sizes, block)) ** 2 for block in request.workload.blocks)
        steps = tuple(replace(step, objective=largest) for step in whole.solve.history)
        return replace(whole, solve=replace(whole.solve, history=steps))
