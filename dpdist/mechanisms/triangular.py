"""The optimum for a series that grows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dpdist.mechanisms.base import (
    DENSE_CELLS,
    AutoComparison,
    Mechanism,
    PlanWorkspace,
    Request,
    only_for_streams,
    takes_long,
)
from dpdist.mechanisms.kept import kept_dense, kept_for_persons, name_for, name_of
from dpdist.strategies.bands import Visitors
from dpdist.strategies.base import Strategy
from dpdist.strategies.filters import answers_growing, has_square_root
from dpdist.strategies.lower_factors import continued, of_one_series, over_series, triangular
from dpdist.strategies.needs import Effort, effort
from dpdist.strategies.person_bands import persons_in_bands
from dpdist.strategies.representations import DenseStrategy
from dpdist.strategies.visits import answers_visits, persons_by_step
from dpdist.workloads import Workload

STREAM_STEPS = 1024
"""Up to here ``auto`` compares it for streams: every release of one takes a matrix over pairs of steps, 8 MiB each."""
SQUARES = 32
"""Arrays over pairs of steps that the optimum and its triangular factor take, or a factor in bands and the memory of its search."""


class Triangular(Mechanism):
    """The lower triangular factor of the certified optimum's precision."""

    name = "triangular"
    summary = "the certified optimum of a filter of the past as a triangular matrix: steps are measured as they become known"
    answers = f"one filter of the past; streams, up to about {2 * DENSE_CELLS:,} steps"
    streams = True
    extends = True

    def refuses(self, workload: Workload) -> str | None:
        return None if answers_growing(workload) else "the workload is not one filter of the past whose present counts"

    def passed_over(self, question: AutoComparison) -> str | None:
        if question.setting.stream and question.cells > STREAM_STEPS and has_square_root(question.workload):
            return takes_long(STREAM_STEPS)
        return only_for_streams(question) or question.limits.exceeded_by(self.effort(question.workload))

    def effort(self, workload: Workload) -> Effort:
        line = of_one_series(workload)
        needs = effort(line, "coa")
        return replace(needs, memory_bytes=max(needs.memory_bytes, 8 * SQUARES * needs.cells**2))

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        first, *later = (*request.former, request.workload)
        found, steps = self._alone(first, request, work), ""
        for each in later:
            steps += f"-{found.operator.shape[0]}"
            found = self._after(each, found, steps, request, work)
        return over_series(request.workload, found, of_one_series(first).shape[1] if later else None)

    def _alone(self, workload: Workload, request: Request, work: PlanWorkspace) -> DenseStrategy:
        """The optimum of one horizon by itself: for persons in several steps theirs where it can be found, else a strategy in bands."""
        line, needed = of_one_series(workload), self.effort(workload).memory_bytes
        work.check_memory("optimising strategy 'triangular'", needed)
        tolerance, moved = request.tolerance, request.setting.moved
        if answers_visits(workload, moved):
            for_persons = partial(persons_by_step, moved=moved, tolerance=tolerance)
            kept = name_for(line, f"triangular-{tolerance:g}", moved)
            return kept_for_persons(work, kept, self.name, lambda: work.largest(for_persons, line, needed_bytes=needed))
        if Visitors.of(workload, moved).most > 1:
            in_bands = partial(persons_in_bands, moved=moved)
            kept = name_for(workload, "triangular-bands", moved)
            return kept_dense(work, kept, self.name, lambda: work.largest(in_bands, workload, needed_bytes=needed))
        name = name_of(line, f"triangular-{tolerance:g}")

        def solve() -> Strategy:
            resuming = work.resuming(f"{name}-checkpoint.json", partial(triangular, tolerance=tolerance))
            return work.largest(resuming, line, needed_bytes=needed)

        found = kept_dense(work, name, self.name, solve)
        work.forget(f"{name}-checkpoint.json")
        return found

    def _after(
        self, workload: Workload, former: DenseStrategy, steps: str, request: Request, work: PlanWorkspace
    ) -> DenseStrategy:
        """That of a horizon that was extended: it goes on after the former one."""
        line, own = of_one_series(workload), self._alone(workload, request, work)
        name = name_for(line, f"triangular-{request.tolerance:g}-after{steps}", request.setting.moved)
        return kept_dense(work, name, self.name, lambda: continued(line, former.operator.dense(), own))
