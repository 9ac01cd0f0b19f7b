"""Series that grow, measured step by step: the certified triangular optimum, few exponentials, and bands for persons in several steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from dpdist.api.mechanisms import (
    AUTO_LIMITS,
    DENSE_CELLS,
    SINGLE_RECORD,
    AutoComparison,
    DenseStrategy,
    Distance,
    Effort,
    Limits,
    PersonsBound,
    PlanSetting,
    PlanWorkspace,
    Request,
    Strategy,
    StreamMechanism,
    Workload,
    answers_growing,
    effort,
    get_dense_strategy,
    has_square_root,
    name_person_strategy,
    name_strategy,
    reason_beaten,
)
from dpdist.plugins.streams.banded_participation import banded_person_strategy
from dpdist.plugins.streams.banded_toeplitz import StreamParticipation, answers_in_bands, banded
from dpdist.plugins.streams.buffered_toeplitz import buffered, is_growing_sum
from dpdist.plugins.streams.participation_optimum import (
    answers_participation,
    has_steps_bound,
    optimise_participation,
    steps_bound,
)
from dpdist.plugins.streams.triangular_factor import extend_factor, single_series_workload, strategy_over_series, triangular

PARTICIPATION_ROWS, BAND_CUBES, BAND_PRODUCTS = 5e7, 1.2e11, 150.0
"""Products of an optimum for persons in several steps, times the number of steps; those of a strategy in bands for them, whose search is as
long for few steps as for many, times its cube, and beside them."""
TRIANGULAR_ARRAYS = 32
"""Arrays over pairs of steps that the optimum and its triangular factor take, or a factor in bands and the memory of its search."""
STREAM_REACH = Limits(2**28 + 2**20, 60.0, whose="beside a filter of equal shape 'auto' takes up to")
"""What ``auto`` spends on a triangular matrix where a filter answers, too: every release of a stream reads it anew, 8 MiB of 256."""


class Buffered(StreamMechanism):
    """Running sums in constant memory: coefficients that are a sum of a few falling exponentials."""

    name = "buffered"
    follows = "triangular"
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
    follows = "buffered"
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
    follows = "square-root"
    summary = "the certified optimum of a filter of the past as a triangular matrix: steps are measured as they become known"
    answers = f"one filter of the past; streams, up to about {2 * DENSE_CELLS:,} steps"

    def find_persons_bound(self, workload: Workload) -> Callable[[Workload, Distance], PersonsBound] | None:
        return steps_bound if has_steps_bound(workload) else None

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


TRIANGULAR, BUFFERED, BANDED = Triangular(), Buffered(), Banded()
