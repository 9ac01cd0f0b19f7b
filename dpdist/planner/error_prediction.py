"""The errors that a plan predicts of each group of queries, in the unit of its answers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.content.measurement_file import MOST_BYTES, Measurement
from dpdist.content.release_content import AnsweredSteps
from dpdist.errors import InvalidInput
from dpdist.mechanisms.comparison import can_answer
from dpdist.operators import Matrix
from dpdist.planner.certificate import unit_words
from dpdist.planner.derived_statistics import derived_statistic_names, statistic_rows
from dpdist.planner.measurement_plan import MOST_QUERIES, valueless_answers
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.simulated_answers import NO_AMOUNTS, AmountMoments, Shape, bin_shares, mean_answer
from dpdist.query.linear_functions import FunctionBatch
from dpdist.reconstruction.answer_vectors import Answers
from dpdist.spec.sections.record_assumptions import RecordAssumptions

if TYPE_CHECKING:
    from dpdist.page.statistic_tables import StatisticRow


@dataclass(frozen=True)
class PredictedError:
    """How far the answers of a group of queries lie from the true ones, 95 times of 100, before any post-processing.

    Attributes:
        group: its name, as published answers have it.
        unit: what its answers are measured in: what is counted, in the plural, or the unit of a sum.
        queries: how many are answered.
        half_width: of the widest interval of the group.
        typical: the median half width.
        share: the widest as a share of a usual answer, where a number of records is assumed; None for sums of amounts of which nothing is.
    """

    group: str
    unit: str
    queries: int
    half_width: float
    typical: float
    share: float | None = None


def predict_errors(
    planned: ReleasePlan, records: float | None = None, amounts: Mapping[int, AmountMoments] = NO_AMOUNTS
) -> list[PredictedError]:
    """The errors of every group of queries; of a stream those of its whole horizon.

    Args:
        records: how many are assumed, evenly spread over the values of every attribute. Of series the steps that are answered tell it.
        amounts: what is assumed of them, by the axes of their columns.
    Raises: InvalidInput where the errors depend on the data, or there are too many.
    """
    workload, half_widths = planned.job.workload.queries, to_array(_valueless_answers(planned).half_width)
    half_widths = half_widths + (0.0 if planned.planned_rounding is None else planned.planned_rounding.deviation)
    words = unit_words(planned.job)
    errors = []
    answered = planned.job.workload.answered_steps or (None,) * len(workload.blocks)
    for (first_query, block), steps in zip(workload.block_starts(), answered, strict=True):
        group_half_widths = half_widths[first_query : first_query + block.queries]
        group_half_widths = (
            group_half_widths
            if steps is None
            else group_half_widths[AnsweredSteps.of(block, steps).is_answered(0, block.queries)]
        )
        unit = words.unit_of(block.name) or words.counted
        answers = (
            math.nan
            if records is None or planned.job.release_context.totals
            else mean_answer(workload, block, records, amounts, steps)
        )
        relative_half_width = float(group_half_widths.max()) / answers if answers > 0 else None
        errors.append(
            PredictedError(
                block.name,
                unit,
                len(group_half_widths),
                float(group_half_widths.max()),
                float(np.median(group_half_widths)),
                relative_half_width,
            )
        )
    return errors


def predict_all_errors(
    planned: ReleasePlan, assumptions: RecordAssumptions | None, records: float | None
) -> list[PredictedError]:
    """The errors of every group of queries, and of what is made of sums where a number of records is assumed.

    Args:
        assumptions: what is assumed of the records.
        records: their number, where it is not as ``assumptions`` has it.
    Raises: as ``predict_statistic_errors``.
    """
    number = assumptions.records if assumptions is not None and records is None else records
    amounts = NO_AMOUNTS if assumptions is None else whole_amounts(assumptions, planned)
    statistic_errors = predict_statistic_errors(planned, number, amounts=amounts) if number else []
    return predict_errors(planned, number, amounts) + statistic_errors


def whole_amounts(assumptions: RecordAssumptions, planned: ReleasePlan) -> dict[int, AmountMoments]:
    """What is assumed of amounts, by the axes of their columns: of all of them, those beyond their ranges, too."""
    columns = enumerate(planned.job.measured.domain.attributes)
    amounts_by_axis = {
        axis: assumptions.amounts[column.name] for axis, column in columns if column.name in assumptions.amounts
    }
    return {axis: AmountMoments(column.mean, column.square) for axis, column in amounts_by_axis.items()}


def predict_statistic_errors(
    planned: ReleasePlan, records: float, shape: Shape = "even", amounts: Mapping[int, AmountMoments] = NO_AMOUNTS
) -> list[PredictedError]:
    """The errors of means, variances and what else is made of sums, which depend on the numbers of records and on their amounts.

    Args:
        records: how many are assumed.
        shape: how they are spread over the values of attributes.
        amounts: what is assumed of them, by the axes of their columns; of others that they lie evenly over their ranges.
    Raises: as ``predict_errors``; InvalidInput where the joint errors are not known.
    """
    groups = list(assumed_statistic_rows(planned, records, shape, amounts))
    if not groups:
        return []
    words, errors = unit_words(planned.job), list[PredictedError]()
    for rows in groups:
        half_widths, group = np.array([row.estimate.half_width for row in rows]), rows[0].group
        amounts_are_known = all(planned.job.measured.domain.axis(name) in amounts for name in rows[0].columns)
        relative_half_width = (
            float(half_widths.max()) / abs(rows[0].estimate.value) if amounts_are_known and rows[0].estimate.value else None
        )
        unit = words.unit_of(group) or ""
        errors.append(
            PredictedError(
                group, unit, len(rows), float(half_widths.max()), float(np.median(half_widths)), relative_half_width
            )
        )
    return errors


def assumed_statistic_rows(
    planned: ReleasePlan, records: float, shape: Shape, amounts: Mapping[int, AmountMoments]
) -> Iterator[list[StatisticRow]]:
    """What a release of assumed records without noise would publish of what is made of sums, a group of queries after the other.

    Args: as for ``predict_statistic_errors``. Raises: as it.
    """
    job_workload, measured = planned.job.workload, planned.job.measured
    if not derived_statistic_names(job_workload):
        return
    _check_predictable(planned)
    space = planned.measurement.measured_space(
        ArrayVector(np.zeros(planned.measurement.rows, dtype=np.int64)), measured.domain.shape, MOST_BYTES
    )
    attribute_shares = [
        bin_shares(attribute, shape, amounts.get(axis)) for axis, attribute in enumerate(measured.domain.attributes)
    ]

    def expected(batch: FunctionBatch) -> Matrix:
        shares = [
            axis_shares[batch.values[axis]] if axis in batch.values else axis_shares
            for axis, axis_shares in enumerate(attribute_shares)
        ]
        return records * np.array([function.value_on_product(shares) for function in batch.functions])

    for _, rows in statistic_rows(job_workload, Measurement(space, measured.domain, planned.noise), expected):
        yield rows


def noise_dominated_records(planned: ReleasePlan) -> float:
    """The number of records up to which the noise in a table of two or more attributes adds up to more than its records, in the mean.

    A normal error is sqrt(2 / pi) of its deviation in the mean. There tables that are chosen in rounds had less total variation from the
    true ones, and more with five times as many records (docs/decisions/0018-adaptive-rounds.md); 0 where no ``adaptive`` can answer.

    Raises: as ``predict_errors``.
    """
    job, workload = planned.job, planned.job.workload.queries
    if not can_answer("adaptive", planned.measurement.norm, workload, job.workload.limits, job.setting):
        return 0.0
    errors = standard_errors(planned)
    tables = [
        errors[first_query : first_query + table.queries]
        for first_query, table in workload.block_starts()
        if len(table.asked_axes) > 1
    ]
    return float(np.mean([table.sum() for table in tables])) * math.sqrt(2 / math.pi)


def standard_errors(planned: ReleasePlan) -> Matrix:
    """The standard error of every query of the workload, before any post-processing. Raises: as ``predict_errors``."""
    return to_array(_valueless_answers(planned).error)


def _valueless_answers(planned: ReleasePlan) -> Answers:
    """What would be read of a measurement without a value, in records. Raises: as ``predict_errors``."""
    _check_predictable(planned)
    return valueless_answers(planned.measurement, planned.job.workload.queries, planned.noise_in_records)


def _check_predictable(planned: ReleasePlan) -> None:
    """Accept plans whose errors do not depend on the data, of not too many queries. Raises: InvalidInput."""
    workload, measurement = planned.job.workload.queries, planned.measurement
    if max(workload.shape[0], measurement.rows) > MOST_QUERIES:
        raise InvalidInput(f"errors are predicted of up to {MOST_QUERIES:,} queries, found {workload.shape[0]:,}")
    if planned.strategy.biased:
        raise InvalidInput(f"the errors of mechanism {planned.strategy.name!r} depend on the data, so none are predicted")
