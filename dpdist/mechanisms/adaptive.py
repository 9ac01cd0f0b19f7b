"""Tables measured in rounds: each round chooses the one that everything measured so far explains worst."""

from __future__ import annotations

import math

from dpdist.grids.fitted_tables import kind_of
from dpdist.grids.rounds import MOST_CANDIDATES, MOST_CELLS, importances
from dpdist.mechanisms.base import AutoComparison, Mechanism, PlanWorkspace, Request
from dpdist.operators import Kronecker, Total
from dpdist.strategies.base import Strategy
from dpdist.strategies.representations import RoundsStrategy
from dpdist.workloads import Workload


class Adaptive(Mechanism):
    """What is measured depends on the data."""

    name = "adaptive"
    summary = (
        "tables are chosen in rounds by what was measured before, and the others come from a model of them, without intervals: for many "
        "tables at little budget"
    )
    answers = "tables of whole attributes, of at most 33,554,432 cells together"
    adaptive = True

    def refuses(self, workload: Workload) -> str | None:
        shape = workload.domain.shape
        if workload.domain.dependent:
            return "it counts persons in several groups, and tables of fewer attributes do not follow from such tables"
        if any(kind_of(block, shape) != "table" for block in workload.blocks):
            return "the workload asks for more than tables of whole attributes"
        if max(len(block.asked_axes) for block in workload.blocks) < 2:
            return "it chooses among tables of two or more attributes, and none is asked for"
        asked = {block.asked_axes for block in workload.blocks}
        if sum(2 ** len(axes) for axes in asked) > 16 * MOST_CANDIDATES or len(importances(workload)) > MOST_CANDIDATES:
            return f"it chooses among up to {MOST_CANDIDATES:,} tables within those that are asked for; ask for fewer or smaller ones"
        cells = sum(math.prod(shape[axis] for axis in axes) for axes in importances(workload))
        return (
            None if cells <= MOST_CELLS else f"its tables have {cells:,} cells together, and it takes up to {MOST_CELLS:,}"
        )

    def passed_over(self, question: AutoComparison) -> str:
        return "its error depends on the data, and only answers of measured tables have error bars; ask for it by name"

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        shape = request.workload.domain.shape
        return RoundsStrategy(self.name, Kronecker([Total(size) for size in shape]))
