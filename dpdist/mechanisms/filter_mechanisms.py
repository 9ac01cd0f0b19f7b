"""Filters along one attribute, and formulas: around a circle, or from itself and earlier steps, so that a series can grow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from dpdist.arrays.array_workspace import Workspace
from dpdist.mechanisms.mechanism import (
    AUTO_LIMITS,
    DENSE_CELLS,
    SINGLE_RECORD,
    AutoComparison,
    Mechanism,
    PlanSetting,
    PlanWorkspace,
    Request,
    reason_beaten,
    reason_slow,
)
from dpdist.mechanisms.optimality import Optimality
from dpdist.mechanisms.strategy_cache import get_dense_strategy, name_person_strategy, name_strategy
from dpdist.strategies.filter_strategies import (
    answers_growing,
    convolution,
    has_square_root,
    is_causal_filter,
    is_convolution,
    square_root,
    through_horizons,
)
from dpdist.strategies.representations import DenseStrategy, FilterStrategy
from dpdist.strategies.solver_resources import BAND_CUBES, BAND_PRODUCTS, PARTICIPATION_ROWS, Effort, Limits, effort
from dpdist.strategies.strategy import Strategy
from dpdist.strategies.streams.banded_participation import banded_person_strategy
from dpdist.strategies.streams.banded_toeplitz import StreamParticipation, answers_in_bands, banded
from dpdist.strategies.streams.buffered_toeplitz import buffered, is_growing_sum
from dpdist.strategies.streams.participation_optimum import answers_participation, optimise_participation
from dpdist.strategies.streams.triangular_factor import (
    extend_factor,
    single_series_workload,
    strategy_over_series,
    triangular,
)
from dpdist.workloads import Workload

TRIANGULAR_ARRAYS = 32
"""Arrays over pairs of steps that the optimum and its triangular factor take, or a factor in bands and the memory of its search."""
STREAM_REACH = Limits(2**28 + 2**20, 60.0, whose="beside a filter of equal shape 'auto' takes up to")
"""What ``auto`` spends on a triangular matrix where a filter answers, too: every release of a stream reads it anew, 8 MiB of 256."""


class Convolution(Mechanism):
    """The optimum where shifts, or negations of attributes, change nothing."""

    name = "convolution"
    summary = "the certified optimum around a circle, by one Fourier or Hadamard transform, for series of any length"
    answers = "filters of a series; formulas over binary attributes"
    supports_out_of_core = True
    supports_sums = True

    def reason_refused(self, workload: Workload) -> str | None:
        return None if is_convolution(workload) else "the workload asks for more than filters along one attribute"

    def proves(self, question: AutoComparison) -> Optimality | None:
        return Optimality(question.workload) if question.workload.kind.is_dyadic else None

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        return None

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload = request.workload
        long = workload.kind.is_long
        name = name_strategy(workload, "convolution-long" if long else "convolution")
        return convolution(workload, work.arrays(stored=long), name, work.progress_callback("steps of the transforms"))


class StreamMechanism(Mechanism):
    """A mechanism that measures steps as they become known, over a horizon that can be extended."""

    supports_streams = True
    supports_extension = True

    def plan_horizons(
        self, request: Request, arrays: Workspace, build_filter: Callable[[Workload], FilterStrategy]
    ) -> Strategy:
        """A filter over every horizon up to the present one, each after the former."""
        return through_horizons((*request.former_workloads, request.workload), build_filter, arrays, name_strategy)


class SquareRoot(StreamMechanism):
    """One filter of the past as the product of two equal ones."""

    name = "square-root"
    summary = "a filter of the past as two equal filters: steps are measured as they become known"
    answers = "one filter of the past; streams"
    supports_sums = True
    supports_out_of_core = True

    def reason_refused(self, workload: Workload) -> str | None:
        answered = has_square_root(workload) or (workload.kind.is_long and is_causal_filter(workload))
        return None if answered else "the workload is not one filter of the past"

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        return None if has_square_root(question.workload) else reason_slow()

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload = request.workload
        long = workload.kind.is_long and has_square_root(workload) and not request.setting.stream
        arrays, kind = work.arrays(stored=long), "square-root-long" if long else "square-root"

        def build_filter(horizon_workload: Workload) -> FilterStrategy:
            return square_root(
                horizon_workload,
                arrays,
                name_strategy(horizon_workload, kind),
                work.progress_callback("steps of the transforms"),
            )

        return self.plan_horizons(request, arrays, build_filter)


class Buffered(StreamMechanism):
    """Running sums in constant memory: coefficients that are a sum of a few falling exponentials."""

    name = "buffered"
    summary = "a sum of six falling exponentials as coefficients, fitted to the number of steps, which are measured as they become known"
    answers = "one running sum; streams"

    def reason_refused(self, workload: Workload) -> str | None:
        return None if is_growing_sum(workload) else "the workload is not one running sum that is held in memory"

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        arrays = work.arrays(stored=False)
        return self.plan_horizons(
            request,
            arrays,
            lambda horizon_workload: buffered(horizon_workload, arrays, name_strategy(horizon_workload, "buffered")),
        )


class Banded(StreamMechanism):
    """One filter of the past for persons who have records in several steps."""

    name = "banded"
    summary = (
        "a filter that ends where a person's next step may come, or the one after it, fitted to the number of steps; steps are measured as "
        "they become known"
    )
    answers = "one filter of the past; streams whose persons are in several steps"

    def reason_refused(self, workload: Workload) -> str | None:
        return None if answers_in_bands(workload) else "the workload is not one filter of the past whose present counts"

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        if question.setting.moved.participations is None:
            return "is for persons in several steps of a series; ask for it by name"
        return reason_beaten(self, question)

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        arrays, moved = work.arrays(stored=False), request.setting.moved
        return self.plan_horizons(
            request,
            arrays,
            lambda horizon_workload: banded(
                horizon_workload, arrays, name_person_strategy(horizon_workload, "banded", moved), moved=moved
            ),
        )


class Triangular(StreamMechanism):
    """The optimum for a series that grows: every step is measured from itself and earlier ones."""

    name = "triangular"
    summary = "the certified optimum of a filter of the past as a triangular matrix: steps are measured as they become known"
    answers = f"one filter of the past; streams, up to about {2 * DENSE_CELLS:,} steps"

    def reason_refused(self, workload: Workload) -> str | None:
        return None if answers_growing(workload) else "the workload is not one filter of the past whose present counts"

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        needs, alone = self.effort(question.workload, question.setting), has_square_root(question.workload)
        return reason_beaten(self, question) or question.reason_out_of_reach(needs, STREAM_REACH if alone else AUTO_LIMITS)

    def effort(self, workload: Workload, setting: PlanSetting = SINGLE_RECORD) -> Effort:
        series_workload = single_series_workload(workload)
        optimum_effort = effort(series_workload, "coa")
        steps, moved = optimum_effort.cells, setting.moved
        products = optimum_effort.products
        if answers_participation(workload, moved):
            products = PARTICIPATION_ROWS / steps
        elif StreamParticipation.of(workload, moved).max_participations > 1:
            products = BAND_CUBES / steps**3 + BAND_PRODUCTS
        memory_bytes = max(optimum_effort.memory_bytes, 8 * TRIANGULAR_ARRAYS * steps**2)
        return Effort(steps, steps, memory_bytes, products)

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        first_workload, *later_workloads = (*request.former_workloads, request.workload)
        strategy, steps = self._plan_single_horizon(first_workload, request, work), ""
        for horizon_workload in later_workloads:
            steps += f"-{strategy.operator.shape[0]}"
            strategy = self._plan_extension(horizon_workload, strategy, steps, request, work)
        return strategy_over_series(
            request.workload, strategy, single_series_workload(first_workload).shape[1] if later_workloads else None
        )

    def _plan_single_horizon(self, workload: Workload, request: Request, work: PlanWorkspace) -> DenseStrategy:
        """The optimum of one horizon by itself: for persons in several steps theirs where it can be found, else a strategy in bands."""
        series_workload, needed_bytes = single_series_workload(workload), self.effort(workload).memory_bytes
        tolerance, moved = request.tolerance, request.setting.moved
        if answers_participation(workload, moved):
            for_persons = partial(optimise_participation, moved=moved, tolerance=tolerance)
            strategy_key = name_person_strategy(series_workload, f"triangular-{tolerance:g}", moved)
            return get_dense_strategy(
                work,
                strategy_key,
                self.name,
                lambda: work.run_on_largest_worker(for_persons, series_workload, needed_bytes=needed_bytes),
            )
        if StreamParticipation.of(workload, moved).max_participations > 1:
            in_bands = partial(banded_person_strategy, moved=moved)
            strategy_key = name_person_strategy(workload, "triangular-bands", moved)
            return get_dense_strategy(
                work,
                strategy_key,
                self.name,
                lambda: work.run_on_largest_worker(in_bands, workload, needed_bytes=needed_bytes),
            )
        name = name_strategy(series_workload, f"triangular-{tolerance:g}")
        solve = partial(triangular, tolerance=tolerance)
        strategy = get_dense_strategy(
            work, name, self.name, lambda: work.resume_solve(name, solve, series_workload, needed_bytes)
        )
        work.forget(name)
        return strategy

    def _plan_extension(
        self, workload: Workload, former_strategy: DenseStrategy, steps: str, request: Request, work: PlanWorkspace
    ) -> DenseStrategy:
        """That of a horizon that was extended: it goes on after the former one."""
        series_workload, own_strategy = single_series_workload(workload), self._plan_single_horizon(workload, request, work)
        name = name_person_strategy(series_workload, f"triangular-{request.tolerance:g}-after{steps}", request.setting.moved)
        proofless_strategy = replace(own_strategy, persons=None)  # whose proof is of the horizon by itself
        return get_dense_strategy(
            work,
            name,
            self.name,
            lambda: extend_factor(series_workload, former_strategy.operator.dense(), proofless_strategy),
        )
