"""A strategy with its measurement in whole numbers, its noise and its cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.measurement.integer_measurement import IntegerMeasurement
from dpdist.mechanisms.comparison import Candidate
from dpdist.mechanisms.strategy_cache import name_strategy
from dpdist.planner.strategy_search import Planning
from dpdist.privacy.accounting import Loss
from dpdist.privacy.noise import Noise, NoiseOfShares
from dpdist.privacy.noise_distributions import Kind
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers
from dpdist.reconstruction.joint_estimate import JOINT_CELLS
from dpdist.runtime.context import Context
from dpdist.spec.sections.output import PostprocessSpec
from dpdist.strategies import Strategy
from dpdist.strategies.dual_certificates import PersonsBound
from dpdist.strategies.solver_resources import Effort
from dpdist.strategies.strategy import UNIT_VARIANCE
from dpdist.workloads import Workload

MOST_QUERIES = 2**20
"""Queries, or measured values, up to which the largest error of a plan is worked out from that of each."""
LARGE = 2**20
"""A scale at which noise on whole numbers has the deviation that its scale says."""
ROUNDED_UP = 1e-9
"""Part of itself by which a cost is raised, so that floating point does not state less than it is."""


def column_norm(strategy: Strategy, measurement: IntegerMeasurement) -> float:
    """How far one record moves what is measured, in whole numbers."""
    column_squared = measurement.column_squared
    return strategy.sensitivity / measurement.spacing if column_squared is None else math.sqrt(column_squared)


def _integer_cost(context: Context, queries: Workload, strategy: Strategy, measurement: IntegerMeasurement) -> float:
    """J of the whole numbers, worked out once."""
    assert strategy.workload_cost is not None
    work, name = Planning(context), name_strategy(queries, measurement.digest[:32], "costs")
    cached_cost = work.cached_result(name)
    total = (
        measurement.total_variance(queries, work.arrays(stored=True))
        if cached_cost is None
        else cached_cost[1]["total_variance"]
    )
    if total is None:
        return strategy.workload_cost
    if cached_cost is None:
        total = work.get_or_compute(name, lambda: (np.zeros(1), {"total_variance": total}))[1]["total_variance"]
    return float(total) * column_norm(strategy, measurement) ** 2 * UNIT_VARIANCE[measurement.norm]


def _integer_largest_variance(queries: Workload, strategy: Strategy, measurement: IntegerMeasurement) -> float | None:
    """The largest (weighted) variance of an answer of the whole numbers, like a cost; None where there are too many answers for that."""
    if max(queries.shape[0], measurement.rows) > MOST_QUERIES:
        return None
    noise = Noise(Kind.hiding(measurement.norm), LARGE)
    error = to_array(valueless_answers(measurement, queries, noise).error) / noise.deviation
    starts = queries.block_starts()
    largest = max(
        float((block.weights * error[first_query : first_query + block.queries]).max()) for first_query, block in starts
    )
    return (largest * column_norm(strategy, measurement)) ** 2 * UNIT_VARIANCE[measurement.norm]


def valueless_answers(measurement: IntegerMeasurement, queries: Workload, noise: Noise) -> Answers:
    """What would be read of a measurement without a value: its errors are those of every measurement."""
    nothing = ArrayVector(np.zeros(measurement.rows, dtype=np.int64))
    return measurement.answers(queries, nothing, noise, AnswerRequest("planned"))


def adjust_table_to_persons(
    table: Sequence[Candidate],
    chosen_strategy: Strategy,
    reaches: Mapping[str, float],
    persons: PersonsBound | None,
    records: int,
) -> list[Candidate]:
    """The table where a change reaches further than one record: errors are those of the noise that each mechanism would need.

    They are counted in the noise of the chosen one, as everywhere. The gap is that to the optimum for persons, where a bound of it is
    known; what is certified for changes of one cell does not count.
    """
    bound = None if persons is None else persons.lower_bound

    def adjust_row(row: Candidate) -> Candidate:
        own_reach, reach_ratio = reaches[row.mechanism], reaches[row.mechanism] / reaches[chosen_strategy.name]
        gap = None if row.cost is None or bound is None else row.cost * (own_reach / records) ** 2 / bound - 1.0
        cost = None if row.cost is None else row.cost * reach_ratio**2
        worst = None if row.worst is None else row.worst * reach_ratio
        return replace(row, cost=cost, worst=worst, gap=gap)

    return [adjust_row(row) for row in table]


@dataclass(frozen=True)
class IntegerPlan:
    """One kind of noise, with the mechanism that makes the most of it.

    Attributes:
        strategy: the one of least predicted error.
        table: the mechanisms compared.
        noise: what is added to the integers that are measured.
        loss: what the release will be charged.
        compared: the strategies of all mechanisms compared, as they were before they were rounded.
        scale: what measured values are divided by to become answers (``Domain.scale``).
        persons: what no strategy can beat for persons in several cells or steps, with its proof; None where it is not known.
    """

    strategy: Strategy
    table: list[Candidate]
    effort: Effort
    measurement: IntegerMeasurement
    noise: Noise
    loss: Loss
    compared: tuple[Strategy, ...]
    scale: float
    persons: PersonsBound | None = None

    @property
    def noise_multiplier(self) -> float:
        """Scale of the noise over the sensitivity of what is measured to one record: what predicted errors are multiples of.

        A person's several records, and neighbours that replace one, ask for more noise: they raise it.
        """
        return self.noise.scale / column_norm(self.strategy, self.measurement) / self.scale

    @property
    def noise_in_records(self) -> Noise:
        """The noise in what was measured, as if whole records had been, or amounts: divided by the shares that are one of them."""
        return self.noise if self.scale == 1 else NoiseOfShares(self.noise.kind, self.noise.scale, self.scale)

    @property
    def gap(self) -> float | None:
        """Certified distance of the strategy from the optimum, None where nothing is certified."""
        return self._row.gap

    @property
    def variance(self) -> float:
        """Predicted total squared error of all (weighted) answers, infinite where it depends on the data."""
        cost = self.strategy.workload_cost
        return math.inf if cost is None else cost * self.noise_multiplier**2

    @property
    def worst(self) -> float | None:
        """Predicted standard error of the worst query, None where it was not computed."""
        worst = self._row.worst
        return None if worst is None else worst * self.noise_multiplier

    @property
    def _row(self) -> Candidate:
        """What the table says of the strategy."""
        return next(row for row in self.table if row.mechanism == self.strategy.name)

    def with_integer_costs(self, context: Context, queries: Workload) -> Self:
        """The same with the cost and the errors of the whole numbers that are measured.

        The table is counted in the noise of this strategy, whichever one it was made for.
        """
        strategy, row = self.strategy, self._row
        if strategy.workload_cost is None or row.cost is None:
            return self
        cost = _integer_cost(context, queries, strategy, self.measurement) * (1 + ROUNDED_UP)
        rounding_ratio = column_norm(strategy, self.measurement) * self.measurement.spacing / strategy.sensitivity
        cost_ratio = strategy.workload_cost / row.cost
        unrounded_cost = row.cost * cost_ratio

        def adjust_row(candidate: Candidate) -> Candidate:
            worst = (
                None
                if candidate.worst is None
                else candidate.worst * math.sqrt(cost_ratio) * (rounding_ratio if candidate is row else 1.0)
            )
            if candidate is not row:
                return replace(candidate, cost=None if candidate.cost is None else candidate.cost * cost_ratio, worst=worst)
            return replace(
                candidate,
                cost=cost,
                gap=None if candidate.gap is None else (1 + candidate.gap) * cost / unrounded_cost - 1,
                worst=worst,
            )

        solve = strategy.solve
        if solve is not None and solve.largest is not None:
            last_step = solve.history[-1]
            largest = (
                _integer_largest_variance(queries, strategy, self.measurement) or last_step.objective * rounding_ratio**2
            )
            gap = largest * (1 + ROUNDED_UP) * (1 + last_step.gap) / last_step.objective - 1
            solve = replace(solve, history=(replace(last_step, objective=largest, gap=gap),))
        strategy = replace(strategy, workload_cost=cost, solve=solve)
        return replace(self, strategy=strategy, table=[adjust_row(candidate) for candidate in self.table])


FEW_CELLS = 2**14
"""Cells up to which queries that are no tables are fitted over all cells, which is better and takes the cube of their number."""


def has_few_cells(workload: Workload) -> bool:
    """Whether one estimate of all cells is fitted, where the mechanism has one: not for tables over many cells."""
    return workload.shape[1] <= (JOINT_CELLS if workload.has_only_tables else FEW_CELLS)


def skips_cell_estimate(measurement: IntegerMeasurement, queries: Workload, options: PostprocessSpec) -> bool:
    """Whether answers are post-processed one by one or table by table, without an estimate of all cells."""
    if options.consistent_with or not (options.known or options.non_negative):
        return False
    needs_no_estimate = all(known_count.where is None for known_count in options.known) and (
        measurement.measures_total or not options.known
    )
    return needs_no_estimate and not (
        measurement.allows_estimate(queries.shape[1], jointly=False) and has_few_cells(queries)
    )
