"""The certified optimum of every workload."""

from __future__ import annotations

from functools import partial

from dpdist.mechanisms.base import (
    DENSE_CELLS,
    AutoComparison,
    Mechanism,
    PlanWorkspace,
    Request,
    Setting,
    beaten,
    takes_long,
)
from dpdist.mechanisms.kept import WORST_TOLERANCE, kept_dense, kept_for_persons, kept_worst, name_for, name_of
from dpdist.operators import Matrix
from dpdist.strategies.base import Strategy
from dpdist.strategies.groups import answers_persons, persons_by_cell
from dpdist.strategies.needs import Effort, effort, worst_row_bytes
from dpdist.strategies.optimum import coa
from dpdist.strategies.worst import least_worst
from dpdist.workloads import Workload, integer_basis
from dpdist.workloads.kinds import is_dyadic, is_filters, is_long

PERSONS_SQUARES = 12
"""Arrays over pairs of cells that the optimum for persons takes."""


class Coa(Mechanism):
    """The least-error strategy, with a proof of how close it is."""

    name = "coa"
    summary = "the certified optimum: no matrix mechanism with Gaussian noise has less error"
    worst = True
    supports_fractional_records = True

    def certifies(self, question: AutoComparison) -> bool:
        workload = question.workload
        if is_dyadic(workload) or (is_filters(workload) and question.cells > DENSE_CELLS):
            return False
        return question.out_of_reach(self.effort(workload)) is None

    def passed_over(self, question: AutoComparison) -> str | None:
        reason = beaten(self, question)
        if reason is not None or self.certifies(question):
            return reason
        beyond = None if question.special else question.out_of_reach(self.effort(question.workload))
        return beyond or takes_long()

    def effort(self, workload: Workload) -> Effort:
        return effort(workload, "coa")

    def planning_bytes(self, workload: Workload) -> int:
        return max(super().planning_bytes(workload), worst_row_bytes(workload))

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        if request.worst:
            return self._least_worst(request, work)
        workload = request.workload
        if self.knows_persons(workload, request.setting):
            return self._for_persons(request, work)
        needed = self.effort(workload).memory_bytes
        work.check_memory("optimising strategy 'coa'", needed, workload)
        name, basis = name_of(workload, f"coa-{request.tolerance:g}"), integer_basis(workload)

        def solve() -> Strategy:
            # the solve takes the bulk of a release's time: a killed one resumes from its last dual weights
            checkpoint = f"{name}-checkpoint.json"
            given: Workload | Matrix = workload if basis.operator is not None else work.gram(workload)
            resuming = work.resuming(checkpoint, partial(coa, tolerance=request.tolerance))
            return work.largest(resuming, given, needed_bytes=needed)

        found = kept_dense(work, name, self.name, solve, over=basis.operator)
        work.forget(f"{name}-checkpoint.json")
        return found

    def knows_persons(self, workload: Workload, setting: Setting) -> bool:
        """Whether the optimum is that for persons in several cells, whose records are counted."""
        several = setting.moved.groups > 1 and not setting.moved.signed and workload.domain.whole_records
        return several and not is_long(workload) and answers_persons(workload)

    def _for_persons(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload, moved = request.workload, request.setting.moved
        work.check_memory("optimising strategy 'coa' for persons", PERSONS_SQUARES * 8 * workload.shape[1] ** 2, workload)
        name = name_for(workload, f"coa-{request.tolerance:g}", moved)
        solve = partial(persons_by_cell, moved=moved, tolerance=request.tolerance)
        return kept_for_persons(work, name, self.name, lambda: work.largest(solve, work.gram(workload)))

    def _least_worst(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload = request.workload
        needed = effort(workload, "worst").memory_bytes
        work.check_memory("optimising the worst query of strategy 'coa'", needed)
        tolerance = max(request.tolerance, WORST_TOLERANCE)
        name = name_of(workload, f"coa-worst-{tolerance:g}")

        def solve() -> Strategy:
            resuming = work.resuming(f"{name}-checkpoint.json", partial(least_worst, tolerance=tolerance))
            return work.largest(resuming, workload, needed_bytes=needed)

        found = kept_worst(work, name, self.name, solve, over=integer_basis(workload).operator)
        work.forget(f"{name}-checkpoint.json")
        return found
