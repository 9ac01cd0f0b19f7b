"""DataCube over marginals."""

from __future__ import annotations

from dpdist.grids.terms import subsets
from dpdist.mechanisms.base import AutoComparison, Mechanism, PlanWorkspace, Request, takes_much
from dpdist.mechanisms.marginals import ONLY
from dpdist.strategies.base import Strategy
from dpdist.strategies.cuboids import bmax, datacube
from dpdist.strategies.needs import residual_bytes
from dpdist.workloads import Workload
from dpdist.workloads.kinds import is_marginals


class DataCube(Mechanism):
    """A published baseline for marginals."""

    name = "datacube"
    summary = "a few marginals with equal noise, from which the asked ones are derived"
    answers = "marginals"

    def refuses(self, workload: Workload) -> str | None:
        return None if is_marginals(workload) else ONLY

    def passed_over(self, question: AutoComparison) -> str | None:
        return takes_much(self.planning_bytes(question.workload))

    def planning_bytes(self, workload: Workload) -> int:
        return residual_bytes(workload, {space for measured in bmax(workload) for space in subsets(measured)})

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        work.check_memory("writing down the rows of 'datacube'", self.planning_bytes(request.workload), request.workload)
        return datacube(request.workload)
