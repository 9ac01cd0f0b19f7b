"""Products: one certified optimum a factor."""

from __future__ import annotations

from functools import partial

from dpdist.mechanisms.base import DENSE_CELLS, AutoComparison, Mechanism, PlanWorkspace, Request, beaten, takes_long
from dpdist.mechanisms.kept import WORST_TOLERANCE, kept_terms, name_of
from dpdist.mechanisms.symmetric import takes_over
from dpdist.strategies.base import Strategy
from dpdist.strategies.needs import Effort, effort, kept_bytes, worst_factor_bytes
from dpdist.strategies.products import kronecker, kronecker_worst
from dpdist.workloads import Workload
from dpdist.workloads.kinds import filters_of, is_dyadic, is_filters, is_product


class KroneckerMechanism(Mechanism):
    """The product of the certified optima of a product's factors."""

    name = "kronecker"
    summary = "the certified optimum of a product of queries of single attributes, one optimum a factor"
    answers = "one product of queries of single attributes"
    worst = True
    supports_fractional_records = True

    def refuses(self, workload: Workload) -> str | None:
        return None if is_product(workload) else "the workload is not one product of queries of single attributes"

    def certifies(self, question: AutoComparison) -> bool:
        workload = question.workload
        if is_dyadic(workload) or len(workload.blocks[0].axes) < 2:
            return False
        if takes_over(workload, self.planning_bytes(workload)):
            return False
        return not is_filters(workload) or filters_of(workload)[0].n <= DENSE_CELLS

    def passed_over(self, question: AutoComparison) -> str | None:
        return beaten(self, question) or (None if self.certifies(question) else takes_long())

    def effort(self, workload: Workload) -> Effort:
        return effort(workload, "kronecker")

    def instead(self, workload: Workload, memory_bytes: int) -> str | None:
        needed = self.planning_bytes(workload)
        if len(workload.blocks[0].axes) < 2 or needed > memory_bytes:
            return None
        return f"'kronecker' (the same optimum in {needed / 2**30:.2f} GiB)"

    def planning_bytes(self, workload: Workload) -> int:
        return super().planning_bytes(workload) + kept_bytes(workload) + worst_factor_bytes(workload)

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload = request.workload
        work.check_memory("optimising strategy 'kronecker'", self.planning_bytes(workload), workload)
        work.tell("optimising kronecker")
        if request.worst:
            tolerance = max(request.tolerance, WORST_TOLERANCE)
            least = partial(kronecker_worst, tolerance=tolerance, on_step=work.watcher())
            return kept_terms(work, name_of(workload, f"kronecker-worst-{tolerance:g}"), workload, least, worst=True)
        solve = partial(kronecker, tolerance=request.tolerance, on_step=work.watcher())
        return kept_terms(work, name_of(workload, f"kronecker-{request.tolerance:g}"), workload, solve)
