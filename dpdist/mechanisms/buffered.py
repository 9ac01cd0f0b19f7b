"""Running sums in constant memory."""

from __future__ import annotations

from dpdist.mechanisms.base import AutoComparison, Mechanism, PlanWorkspace, Request, only_for_streams
from dpdist.mechanisms.kept import name_of
from dpdist.strategies.base import Strategy
from dpdist.strategies.buffers import buffered, is_growing_sum
from dpdist.strategies.extended import through_horizons
from dpdist.strategies.representations import FilterStrategy
from dpdist.workloads import Workload


class Buffered(Mechanism):
    """Coefficients that are a sum of a few falling exponentials."""

    name = "buffered"
    summary = "a sum of six falling exponentials as coefficients, fitted to the number of steps, which are measured as they become known"
    answers = "one running sum; streams"
    streams = True
    extends = True

    def refuses(self, workload: Workload) -> str | None:
        return None if is_growing_sum(workload) else "the workload is not one running sum that is held in memory"

    def passed_over(self, question: AutoComparison) -> str | None:
        return only_for_streams(question)

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        arrays = work.arrays(stored=False)

        def made(workload: Workload) -> FilterStrategy:
            return buffered(workload, arrays, name_of(workload, "buffered"))

        return through_horizons((*request.former, request.workload), made, arrays, name_of)
