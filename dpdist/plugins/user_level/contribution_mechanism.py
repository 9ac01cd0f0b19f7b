"""COA for persons in several cells: takes the place of the core's, which is for one record."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dpdist.api.mechanisms import (
    SINGLE_RECORD,
    SOON,
    AutoComparison,
    Coa,
    Distance,
    Effort,
    Gram,
    Optimality,
    PersonsBound,
    PlanSetting,
    PlanWorkspace,
    Request,
    Strategy,
    Workload,
    array_effort,
    effort,
    get_dense_strategy,
    name_person_strategy,
)
from dpdist.plugins.user_level.group_optimum import UNLIKE_CELLS, cells_bound, persons_by_cell

PERSONS_SQUARES, PERSONS_PRODUCTS, PERSONS_ROWS, CUT_ROWS = 12, 50.0, 5e8, 1.4e9
"""Arrays over pairs of cells that a strategy for persons takes; products of two dozen blends, each bounded by its gram in whole numbers;
and those of its search, and of cutting planes over few cells, times the square of the number of cells."""


class UserLevelCoa(Coa):
    """The least-error strategy for persons in several cells, whose records are counted; elsewhere that for one record."""

    def proves(self, question: AutoComparison) -> Optimality | None:
        """For persons in several cells a gap is not known beforehand, unless all cells are alike."""
        proven, moved = super().proves(question), question.setting.moved
        if proven is None or not _optimises_for_persons(question.workload, question.setting):
            return proven
        return Optimality(question.workload, moved) if question.workload.kind.is_cells else None

    def find_persons_bound(
        self, workload: Workload, setting: PlanSetting
    ) -> Callable[[Workload, Distance], PersonsBound] | None:
        return cells_bound if _counts_persons(workload, setting) and workload.kind.is_cells else None

    def effort(self, workload: Workload, setting: PlanSetting = SINGLE_RECORD) -> Effort:
        return effort(workload, "persons" if _optimises_for_persons(workload, setting) else "coa")

    def needed_bytes(self, request: Request) -> int:
        if request.worst or not _optimises_for_persons(request.workload, request.setting):
            return super().needed_bytes(request)
        return persons_effort(request.workload).memory_bytes

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload, moved = request.workload, request.setting.moved
        if request.worst or not _optimises_for_persons(workload, request.setting):
            return super().build_strategy(request, work)
        solve = partial(persons_by_cell, moved=moved, tolerance=request.tolerance)
        name = name_person_strategy(workload, f"coa-{request.tolerance:g}", moved)
        return get_dense_strategy(
            work, name, self.name, lambda: work.run_on_largest_worker(solve, Gram(work.gram(workload)))
        )


def _counts_persons(workload: Workload, setting: PlanSetting) -> bool:
    """Whether one person may be in several cells, with whole records."""
    return setting.moved.groups > 1 and not setting.moved.signed and workload.domain.whole_records


def _optimises_for_persons(workload: Workload, setting: PlanSetting) -> bool:
    """Whether the optimum is that for persons in several cells."""
    within_reach = _counts_persons(workload, setting) and not workload.kind.is_long
    return within_reach and SOON.exceeded_by(persons_effort(workload)) is None


def persons_effort(workload: Workload | Gram) -> Effort:
    """Arrays over pairs of cells; blends of strategies, and the search for long persons, which takes longer than they do for few cells."""
    cells = array_effort(0, 0.0, workload).cells
    rows = CUT_ROWS if cells <= UNLIKE_CELLS else PERSONS_ROWS
    return array_effort(PERSONS_SQUARES, PERSONS_PRODUCTS + rows / cells**2, workload)


COA = UserLevelCoa()
