"""The errors that a plan predicts of each group of queries, in the unit of its answers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpdist.arrays.lazy_vector import Held, held
from dpdist.content.measurement_file import MOST_BYTES, Measurement
from dpdist.content.release_content import WholeSteps
from dpdist.errors import InvalidInput
from dpdist.mechanisms.comparison import is_able
from dpdist.operators import Matrix
from dpdist.planner.certificate import units_of
from dpdist.planner.derived_statistics import made_of_sums, made_rows
from dpdist.planner.measurement_plan import MOST_QUERIES, unread
from dpdist.planner.release_plan import Plan
from dpdist.planner.simulated_answers import NO_AMOUNTS, AmountMoments, Shape, spread_of, usual
from dpdist.query.linear_functions import Linear
from dpdist.reconstruction.answer_vectors import Answers
from dpdist.spec.bound_alternatives import Assumptions

if TYPE_CHECKING:
    from dpdist.page.statistic_tables import Row


@dataclass(frozen=True)
class Predicted:
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


def predicted(
    planned: Plan, records: float | None = None, amounts: Mapping[int, AmountMoments] = NO_AMOUNTS
) -> list[Predicted]:
    """The errors of every group of queries; of a stream those of its whole horizon.

    Args:
        records: how many are assumed, evenly spread over the values of every attribute. Of series the steps that are answered tell it.
        amounts: what is assumed of them, by the axes of their columns.
    Raises: InvalidInput where the errors depend on the data, or there are too many.
    """
    workload, half = planned.job.workload.queries, held(_unread(planned).half_width)
    words = units_of(planned.job)
    found = []
    answered = planned.job.workload.answered or (None,) * len(workload.blocks)
    for (first, block), steps in zip(workload.block_starts(), answered, strict=True):
        own = half[first : first + block.queries]
        own = own if steps is None else own[WholeSteps.of(block, steps).among(0, block.queries)]
        unit = words.unit_of(block.name) or words.counted
        answers = (
            math.nan if records is None or planned.job.beside.totals else usual(workload, block, records, amounts, steps)
        )
        share = float(own.max()) / answers if answers > 0 else None
        found.append(Predicted(block.name, unit, len(own), float(own.max()), float(np.median(own)), share))
    return found


def predicted_of_all(planned: Plan, given: Assumptions | None, records: float | None) -> list[Predicted]:
    """The errors of every group of queries, and of what is made of sums where a number of records is assumed.

    Args:
        given: what is assumed of the records.
        records: their number, where it is not as ``given`` has it.
    Raises: as ``predicted_statistics``.
    """
    number = given.records if given is not None and records is None else records
    amounts = NO_AMOUNTS if given is None else whole_amounts(given, planned)
    made = predicted_statistics(planned, number, amounts=amounts) if number else []
    return predicted(planned, number, amounts) + made


def whole_amounts(given: Assumptions, planned: Plan) -> dict[int, AmountMoments]:
    """What is assumed of amounts, by the axes of their columns: of all of them, those beyond their ranges, too."""
    columns = enumerate(planned.job.measured.domain.attributes)
    found = {axis: given.amounts[each.name] for axis, each in columns if each.name in given.amounts}
    return {axis: AmountMoments(each.mean, each.square) for axis, each in found.items()}


def predicted_statistics(
    planned: Plan, records: float, shape: Shape = "even", amounts: Mapping[int, AmountMoments] = NO_AMOUNTS
) -> list[Predicted]:
    """The errors of means, variances and what else is made of sums, which depend on the numbers of records and on their amounts.

    Args:
        records: how many are assumed.
        shape: how they are spread over the values of attributes.
        amounts: what is assumed of them, by the axes of their columns; of others that they lie evenly over their ranges.
    Raises: as ``predicted``; InvalidInput where the joint errors are not known.
    """
    groups = list(rows_of_assumed(planned, records, shape, amounts))
    if not groups:
        return []
    words, found = units_of(planned.job), list[Predicted]()
    for rows in groups:
        half, group = np.array([each.made.half_width for each in rows]), rows[0].group
        known = all(planned.job.measured.domain.axis(name) in amounts for name in rows[0].columns)
        share = float(half.max()) / abs(rows[0].made.value) if known and rows[0].made.value else None
        unit = words.unit_of(group) or ""
        found.append(Predicted(group, unit, len(rows), float(half.max()), float(np.median(half)), share))
    return found


def rows_of_assumed(
    planned: Plan, records: float, shape: Shape, amounts: Mapping[int, AmountMoments]
) -> Iterator[list[Row]]:
    """What a release of assumed records without noise would publish of what is made of sums, a group of queries after the other.

    Args: as for ``predicted_statistics``. Raises: as it.
    """
    asked, measured = planned.job.workload, planned.job.measured
    if not made_of_sums(asked):
        return
    _check_known(planned)
    space = planned.grid.space(Held(np.zeros(planned.grid.rows, dtype=np.int64)), measured.domain.shape, MOST_BYTES)
    spread = [spread_of(each, shape, amounts.get(axis)) for axis, each in enumerate(measured.domain.attributes)]

    def expected(asked: Sequence[Linear]) -> Matrix:
        return records * np.array([each.of_product(spread) for each in asked])

    for _, rows in made_rows(asked, Measurement(space, measured.domain, planned.noise), expected):
        yield rows


def drowned(planned: Plan) -> float:
    """The number of records up to which the noise in a table of two or more attributes adds up to more than its records, in the mean.

    A normal error is sqrt(2 / pi) of its deviation in the mean. There tables that are chosen in rounds had less total variation from the
    true ones, and more with five times as many records (docs/decisions/0018-adaptive-rounds.md); 0 where ``adaptive`` cannot answer.

    Raises: as ``predicted``.
    """
    job, workload = planned.job, planned.job.workload.queries
    if not is_able("adaptive", planned.grid.norm, workload, job.workload.limits, job.setting):
        return 0.0
    errors = standard_errors(planned)
    tables = [errors[first : first + each.queries] for first, each in workload.block_starts() if len(each.asked_axes) > 1]
    return float(np.mean([each.sum() for each in tables])) * math.sqrt(2 / math.pi)


def standard_errors(planned: Plan) -> Matrix:
    """The standard error of every query of the workload, before any post-processing. Raises: as ``predicted``."""
    return held(_unread(planned).error)


def _unread(planned: Plan) -> Answers:
    """What would be read of a measurement without a value, in records. Raises: as ``predicted``."""
    _check_known(planned)
    integer = planned.job.outputs.postprocess.integer
    return unread(planned.grid, planned.job.workload.queries, planned.noise_in_records, integer=integer)


def _check_known(planned: Plan) -> None:
    """Accept plans whose errors do not depend on the data, of not too many queries. Raises: InvalidInput."""
    workload, grid = planned.job.workload.queries, planned.grid
    if max(workload.shape[0], grid.rows) > MOST_QUERIES:
        raise InvalidInput(f"errors are predicted of up to {MOST_QUERIES:,} queries, found {workload.shape[0]:,}")
    if planned.strategy.biased:
        raise InvalidInput(f"the errors of mechanism {planned.strategy.name!r} depend on the data, so none are predicted")
