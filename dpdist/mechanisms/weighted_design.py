"""AM for pure epsilon: the best lengths for the queries of a known design."""

from __future__ import annotations

from functools import partial

from dpdist.mechanisms.base import LAPLACE, AutoComparison, Mechanism, PlanWorkspace, Request
from dpdist.mechanisms.kept import kept_dense, name_of
from dpdist.strategies.base import Strategy
from dpdist.strategies.fixed import nodes
from dpdist.strategies.needs import Effort, effort, worst_row_bytes
from dpdist.strategies.weighted_designs import weighted_design
from dpdist.workloads import Workload


class WeightedDesign(Mechanism):
    """The adaptive mechanism's section 3.5: 'eigen' for Laplace noise, with other designs beside the eigen-queries."""

    name = "weighted-design"
    summary = (
        "the best lengths for the queries of a tree, of wavelets, of Fourier's basis, or for the workload's eigenvectors"
    )
    noises = LAPLACE
    supports_fractional_records = True

    def passed_over(self, question: AutoComparison) -> str:
        del question
        return "has more error than 'p-identity' on ranges, but may have less on marginals; ask for it by name to compare"

    def effort(self, workload: Workload) -> Effort:
        return effort(workload, "weighted_design")

    def planning_bytes(self, workload: Workload) -> int:
        return max(super().planning_bytes(workload), worst_row_bytes(workload, nodes(workload) + workload.shape[1]))

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload = request.workload
        work.check_memory("optimising strategy 'weighted-design'", self.effort(workload).memory_bytes, workload)

        def solve() -> Strategy:
            work.tell("weighting the queries of known designs")
            return work.largest(partial(weighted_design, tolerance=request.tolerance), workload)

        return kept_dense(work, name_of(workload, f"weighted-design-{request.tolerance:g}"), self.name, solve, norm="l1")
