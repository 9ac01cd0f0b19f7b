"""AM: the best weights for the eigenvectors of the workload."""

from __future__ import annotations

from functools import partial

from dpdist.mechanisms.base import DENSE_CELLS, AutoComparison, Mechanism, PlanWorkspace, Request, beaten, takes_long
from dpdist.mechanisms.kept import kept_dense, name_of
from dpdist.strategies.base import Strategy
from dpdist.strategies.eigen_queries import eigen_design
from dpdist.strategies.needs import Effort, effort, worst_row_bytes
from dpdist.workloads import Workload


class Eigen(Mechanism):
    """The adaptive eigen-design, by groups of eigen-queries for many cells."""

    name = "eigen"
    summary = "the best weights for the workload's eigenvectors, by groups of them for many cells"
    supports_fractional_records = True

    def passed_over(self, question: AutoComparison) -> str | None:
        reason = beaten(self, question) or (takes_long() if question.special else None)
        return reason or question.out_of_reach(self.effort(question.workload))

    def effort(self, workload: Workload) -> Effort:
        return effort(workload, "eigen")

    def instead(self, workload: Workload, memory_bytes: int) -> str | None:
        needed = self.effort(workload).memory_bytes
        if needed > memory_bytes:
            return None
        cost = f"a tenth of the time, {needed / 2**30:.2f} GiB, 0 to 12 % more squared error"
        return f"'eigen' with eigen.group_size ({cost})"

    def planning_bytes(self, workload: Workload) -> int:
        return max(super().planning_bytes(workload) + 2 * 8 * workload.shape[1] ** 2, worst_row_bytes(workload))

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        """The design is solved once for each workload and way of separation; groups are solved by the workers."""
        workload = request.workload
        work.check_memory("optimising strategy 'eigen'", self.effort(workload).memory_bytes, workload)
        group = request.group_size or (None if request.principal else default_group(workload))
        name = name_of(workload, f"eigen-{group}-{request.principal}-{request.tolerance:g}")

        def solve() -> Strategy:
            gram = work.gram(workload)
            if group is not None:
                return work.separated(gram, f"scratch/{name}", group_size=group, tolerance=request.tolerance)
            work.tell("weighting eigen-queries")
            return work.largest(partial(eigen_design, principal=request.principal, tolerance=request.tolerance), gram)

        return kept_dense(work, name, self.name, solve)


def default_group(workload: Workload) -> int | None:
    """Eigen-queries a group when the spec does not say: none up to ``DENSE_CELLS`` cells."""
    cells = workload.shape[1]
    return None if cells <= DENSE_CELLS else round(cells ** (1 / 3))
