"""Filters along one attribute, and formulas: around a circle, or from itself and earlier steps, so that a series can grow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from dpdist.arrays.array_workspace import Workspace
from dpdist.mechanisms.mechanism import (
    ALONE,
    DENSE_CELLS,
    REACH,
    AutoComparison,
    Mechanism,
    PlanWorkspace,
    Request,
    Setting,
    beaten,
    takes_long,
)
from dpdist.mechanisms.optimality import Optimality
from dpdist.mechanisms.strategy_cache import kept_dense, name_for, name_of
from dpdist.strategies.filter_strategies import (
    answers_growing,
    convolution,
    has_square_root,
    is_convolution,
    is_past,
    square_root,
    through_horizons,
)
from dpdist.strategies.representations import DenseStrategy, FilterStrategy
from dpdist.strategies.solver_resources import Effort, Limits, effort
from dpdist.strategies.strategy import Strategy
from dpdist.strategies.streams.banded_participation import persons_in_bands
from dpdist.strategies.streams.banded_toeplitz import Visitors, answers_in_bands, banded
from dpdist.strategies.streams.buffered_toeplitz import buffered, is_growing_sum
from dpdist.strategies.streams.participation_optimum import answers_visits, persons_by_step
from dpdist.strategies.streams.triangular_factor import continued, of_one_series, over_series, triangular
from dpdist.workloads import Workload
from dpdist.workloads.workload_kind import is_dyadic, is_long

SQUARES = 32
"""Arrays over pairs of steps that the optimum and its triangular factor take, or a factor in bands and the memory of its search."""
STREAM_REACH = Limits(2**28 + 2**20, 60.0, whose="beside a filter of equal shape 'auto' takes up to")
"""What ``auto`` spends on a triangular matrix where a filter answers, too: every release of a stream reads it anew, 8 MiB of 256."""


class Convolution(Mechanism):
    """The optimum where shifts, or negations of attributes, change nothing."""

    name = "convolution"
    summary = "the certified optimum around a circle, by one Fourier or Hadamard transform, for series of any length"
    answers = "filters of a series; formulas over binary attributes"
    long = True
    supports_sums = True

    def refuses(self, workload: Workload) -> str | None:
        return None if is_convolution(workload) else "the workload asks for more than filters along one attribute"

    def proves(self, question: AutoComparison) -> Optimality | None:
        return Optimality(question.workload) if is_dyadic(question.workload) else None

    def passed_over(self, question: AutoComparison) -> str | None:
        return None

    def planned(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload = request.workload
        long = is_long(workload)
        name = name_of(workload, "convolution-long" if long else "convolution")
        return convolution(workload, work.arrays(stored=long), name, work.telling("steps of the transforms"))


class OfThePast(Mechanism):
    """A mechanism that measures steps as they become known, over a horizon that can be extended."""

    streams = True
    extends = True

    def through(self, request: Request, arrays: Workspace, made: Callable[[Workload], FilterStrategy]) -> Strategy:
        """A filter over every horizon up to the present one, each after the former."""
        return through_horizons((*request.former, request.workload), made, arrays, name_of)


class SquareRoot(OfThePast):
    """One filter of the past as the product of two equal ones."""

    name = "square-root"
    summary = "a filter of the past as two equal filters: steps are measured as they become known"
    answers = "one filter of the past; streams"
    supports_sums = True
    long = True

    def refuses(self, workload: Workload) -> str | None:
        answered = has_square_root(workload) or (is_long(workload) and is_past(workload))
        return None if answered else "the workload is not one filter of the past"

    def passed_over(self, question: AutoComparison) -> str | None:
        return None if has_square_root(question.workload) else takes_long()

    def planned(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload = request.workload
        long = is_long(workload) and has_square_root(workload) and not request.setting.stream
        arrays, kind = work.arrays(stored=long), "square-root-long" if long else "square-root"

        def made(each: Workload) -> FilterStrategy:
            return square_root(each, arrays, name_of(each, kind), work.telling("steps of the transforms"))

        return self.through(request, arrays, made)


class Buffered(OfThePast):
    """Running sums in constant memory: coefficients that are a sum of a few falling exponentials."""

    name = "buffered"
    summary = "a sum of six falling exponentials as coefficients, fitted to the number of steps, which are measured as they become known"
    answers = "one running sum; streams"

    def refuses(self, workload: Workload) -> str | None:
        return None if is_growing_sum(workload) else "the workload is not one running sum that is held in memory"

    def planned(self, request: Request, work: PlanWorkspace) -> Strategy:
        arrays = work.arrays(stored=False)
        return self.through(request, arrays, lambda each: buffered(each, arrays, name_of(each, "buffered")))


class Banded(OfThePast):
    """One filter of the past for persons who have records in several steps."""

    name = "banded"
    summary = (
        "a filter that ends where a person's next step may come, or the one after it, fitted to the number of steps; steps are measured as "
        "they become known"
    )
    answers = "one filter of the past; streams whose persons are in several steps"

    def refuses(self, workload: Workload) -> str | None:
        return None if answers_in_bands(workload) else "the workload is not one filter of the past whose present counts"

    def passed_over(self, question: AutoComparison) -> str | None:
        if question.setting.moved.participations is None:
            return "is for persons in several steps of a series; ask for it by name"
        return beaten(self, question)

    def planned(self, request: Request, work: PlanWorkspace) -> Strategy:
        arrays, moved = work.arrays(stored=False), request.setting.moved
        return self.through(request, arrays, lambda each: banded(each, arrays, name_for(each, "banded", moved), moved=moved))


class Triangular(OfThePast):
    """The optimum for a series that grows: every step is measured from itself and earlier ones."""

    name = "triangular"
    summary = "the certified optimum of a filter of the past as a triangular matrix: steps are measured as they become known"
    answers = f"one filter of the past; streams, up to about {2 * DENSE_CELLS:,} steps"

    def refuses(self, workload: Workload) -> str | None:
        return None if answers_growing(workload) else "the workload is not one filter of the past whose present counts"

    def passed_over(self, question: AutoComparison) -> str | None:
        needs, alone = self.effort(question.workload, question.setting), has_square_root(question.workload)
        return beaten(self, question) or question.out_of_reach(needs, STREAM_REACH if alone else REACH)

    def effort(self, workload: Workload, setting: Setting = ALONE) -> Effort:
        line = of_one_series(workload)
        needs = effort(line, "coa")
        return replace(needs, memory_bytes=max(needs.memory_bytes, 8 * SQUARES * needs.cells**2))

    def planned(self, request: Request, work: PlanWorkspace) -> Strategy:
        first, *later = (*request.former, request.workload)
        found, steps = self._alone(first, request, work), ""
        for each in later:
            steps += f"-{found.operator.shape[0]}"
            found = self._after(each, found, steps, request, work)
        return over_series(request.workload, found, of_one_series(first).shape[1] if later else None)

    def _alone(self, workload: Workload, request: Request, work: PlanWorkspace) -> DenseStrategy:
        """The optimum of one horizon by itself: for persons in several steps theirs where it can be found, else a strategy in bands."""
        line, needed = of_one_series(workload), self.effort(workload).memory_bytes
        tolerance, moved = request.tolerance, request.setting.moved
        if answers_visits(workload, moved):
            for_persons = partial(persons_by_step, moved=moved, tolerance=tolerance)
            kept = name_for(line, f"triangular-{tolerance:g}", moved)
            return kept_dense(work, kept, self.name, lambda: work.largest(for_persons, line, needed_bytes=needed))
        if Visitors.of(workload, moved).most > 1:
            in_bands = partial(persons_in_bands, moved=moved)
            kept = name_for(workload, "triangular-bands", moved)
            return kept_dense(work, kept, self.name, lambda: work.largest(in_bands, workload, needed_bytes=needed))
        name = name_of(line, f"triangular-{tolerance:g}")
        solve = partial(triangular, tolerance=tolerance)
        found = kept_dense(work, name, self.name, lambda: work.resumed(name, solve, line, needed))
        work.forget(name)
        return found

    def _after(
        self, workload: Workload, former: DenseStrategy, steps: str, request: Request, work: PlanWorkspace
    ) -> DenseStrategy:
        """That of a horizon that was extended: it goes on after the former one."""
        line, own = of_one_series(workload), self._alone(workload, request, work)
        name = name_for(line, f"triangular-{request.tolerance:g}-after{steps}", request.setting.moved)
        alone = replace(own, persons=None)  # whose proof is of the horizon by itself
        return kept_dense(work, name, self.name, lambda: continued(line, former.operator.dense(), alone))
