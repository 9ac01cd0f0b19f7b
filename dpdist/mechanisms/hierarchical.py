"""Noise on the counts of every node of a tree along each ordered attribute."""

from __future__ import annotations

from functools import partial

from dpdist.mechanisms.base import BOTH, DENSE_CELLS, AutoComparison, Mechanism, PlanWorkspace, Request, beaten, takes_long
from dpdist.strategies.base import Strategy
from dpdist.strategies.fixed import hierarchical, nodes
from dpdist.strategies.needs import worst_row_bytes
from dpdist.workloads import Workload


class Hierarchical(Mechanism):
    """The same strategy for every workload; its cost takes dense algebra."""

    name = "hierarchical"
    summary = "noise on the counts of every node of a tree along each ordered attribute"
    noises = BOTH

    def passed_over(self, question: AutoComparison) -> str | None:
        small = question.cells <= DENSE_CELLS and not question.special
        return beaten(self, question) or (None if small else takes_long())

    def planning_bytes(self, workload: Workload) -> int:
        return max(8 * 8 * workload.shape[1] * nodes(workload), worst_row_bytes(workload, nodes(workload)))

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload = request.workload
        work.check_memory("the cost of 'hierarchical'", self.planning_bytes(workload))
        build = partial(hierarchical, workload.domain.shape, branching=None, norm=request.norm)
        return work.largest(build, workload)
