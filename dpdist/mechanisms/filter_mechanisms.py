"""Filters along one attribute, and formulas: around a circle, or from itself and earlier steps, so that a series can grow."""

from __future__ import annotations

from collections.abc import Callable

from dpdist.arrays.array_workspace import Workspace
from dpdist.mechanisms.mechanism import (
    AutoComparison,
    Mechanism,
    PlanWorkspace,
    Request,
    reason_slow,
)
from dpdist.mechanisms.optimality import Optimality
from dpdist.mechanisms.strategy_cache import name_strategy
from dpdist.strategies.filter_strategies import (
    convolution,
    has_square_root,
    is_causal_filter,
    is_convolution,
    square_root,
    through_horizons,
)
from dpdist.strategies.representations import FilterStrategy
from dpdist.strategies.strategy import Strategy
from dpdist.workloads import Workload


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
