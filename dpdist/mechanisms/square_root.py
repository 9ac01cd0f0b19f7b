"""One filter of the past as the product of two equal ones."""

from __future__ import annotations

from dpdist.mechanisms.base import AutoComparison, Mechanism, PlanWorkspace, Request, takes_long
from dpdist.mechanisms.kept import name_of
from dpdist.strategies.base import Strategy
from dpdist.strategies.extended import through_horizons
from dpdist.strategies.filters import has_square_root, is_past, square_root
from dpdist.strategies.representations import FilterStrategy
from dpdist.workloads import Workload
from dpdist.workloads.kinds import is_long


class SquareRoot(Mechanism):
    """Every step is measured from itself and earlier ones, so a series can grow."""

    name = "square-root"
    summary = "a filter of the past as two equal filters: steps are measured as they become known"
    answers = "one filter of the past; streams"
    streams = True
    supports_sums = True
    extends = True
    long = True

    def refuses(self, workload: Workload) -> str | None:
        answered = has_square_root(workload) or (is_long(workload) and is_past(workload))
        return None if answered else "the workload is not one filter of the past"

    def passed_over(self, question: AutoComparison) -> str | None:
        return None if has_square_root(question.workload) else takes_long()

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload = request.workload
        long = is_long(workload) and has_square_root(workload) and not request.setting.stream
        arrays, kind = work.arrays(stored=long), "square-root-long" if long else "square-root"

        def made(each: Workload) -> FilterStrategy:
            return square_root(each, arrays, name_of(each, kind), work.telling("steps of the transforms"))

        return through_horizons((*request.former, workload), made, arrays, name_of)
