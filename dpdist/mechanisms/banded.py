"""One filter of the past for persons who have records in several steps."""

from __future__ import annotations

from dpdist.mechanisms.base import AutoComparison, Mechanism, PlanWorkspace, Request, only_for_streams
from dpdist.mechanisms.kept import name_for, name_of
from dpdist.strategies.bands import answers_in_bands, banded
from dpdist.strategies.base import Strategy
from dpdist.strategies.extended import through_horizons
from dpdist.strategies.representations import FilterStrategy
from dpdist.workloads import Workload


class Banded(Mechanism):
    """Coefficients that end within a person's separation, or within two."""

    name = "banded"
    summary = (
        "a filter that ends where a person's next step may come, or the one after it, fitted to the number of steps; steps are measured as "
        "they become known"
    )
    answers = "one filter of the past; streams whose persons are in several steps"
    streams = True
    extends = True

    def refuses(self, workload: Workload) -> str | None:
        return None if answers_in_bands(workload) else "the workload is not one filter of the past whose present counts"

    def passed_over(self, question: AutoComparison) -> str | None:
        if question.setting.moved.participations is None:
            return "is for persons in several steps of a stream; ask for it by name"
        return only_for_streams(question)

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        arrays, moved = work.arrays(stored=False), request.setting.moved

        def made(workload: Workload) -> FilterStrategy:
            return banded(workload, arrays, name_for(workload, "banded", moved), moved=moved)

        return through_horizons((*request.former, request.workload), made, arrays, name_of)
