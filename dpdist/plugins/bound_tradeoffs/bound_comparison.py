"""How noise and lost records trade for several values of each bound, on assumed records: no real one is read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dpdist.api import InvalidInput
from dpdist.api.pages import NORMAL_95, Block, Domain, Matrix, Workload
from dpdist.api.planning import (
    DEVIATION,
    SQUARE,
    STANDARD_DEVIATION,
    AmountMoments,
    Context,
    ReleasePlan,
    assumed_statistic_rows,
    mean_answer,
    plan,
    predict_errors,
    whole_amounts,
)
from dpdist.plugins.bound_tradeoffs.bound_alternatives import Assumptions, BoundAlternatives
from dpdist.plugins.bound_tradeoffs.distributions import Distribution


@dataclass(frozen=True)
class GroupPrediction:
    """What is predicted of a group of queries under a bound.

    Attributes:
        group, unit, half_width: as in ``PredictedError``.
        answer: the usual answer over all records, those beyond the bounds, too.
        lost: how much smaller it is where the bounds hold.
    """

    group: str
    unit: str
    half_width: float
    answer: float
    lost: float

    @property
    def relative_error(self) -> float:
        """The root of the mean squared error, of noise and loss, as a share of the usual answer."""
        return math.hypot(self.half_width / NORMAL_95, self.lost) / self.answer


@dataclass(frozen=True)
class BoundPrediction:
    """What is predicted under one value of a bound.

    Attributes:
        lost: the share of the records that do not count, or of the sum that is cut off.
    """

    value: float
    lost: float
    groups: tuple[GroupPrediction, ...]

    @property
    def error(self) -> float:
        """The root of the mean, over the groups of queries, of their squared shares."""
        return math.sqrt(float(np.mean([group.relative_error**2 for group in self.groups])))


@dataclass(frozen=True)
class BoundComparison:
    """Several values of a bound, the other bounds as they are.

    Attributes:
        key: of the bound in the spec.
        current_value: its value there.
    """

    key: str
    current_value: float
    predictions: tuple[BoundPrediction, ...]

    @property
    def best(self) -> BoundPrediction:
        """The one of least predicted error."""
        return min(self.predictions, key=lambda prediction: prediction.error)

    @property
    def facts(self) -> dict[str, Any]:
        """As JSON has them."""
        tried = [{**asdict(prediction), "error": prediction.error} for prediction in self.predictions]
        return {"bound": self.key, "own": self.current_value, "least": self.best.value, "tried": tried}


def compare_bounds(context: Context, assumptions: Assumptions) -> tuple[BoundComparison, ...]:
    """What is predicted under several values of each bound that something is assumed about; nothing is charged.

    Raises: InvalidSpec for what cannot be assumed; as ``plan`` and ``predicted``.
    """
    return tuple(
        BoundComparison(bound.key, bound.current_value, tuple(_predict_values(context, assumptions, bound)))
        for bound in assumptions.bounds()
    )


def _predict_values(context: Context, assumptions: Assumptions, bound: BoundAlternatives) -> Iterator[BoundPrediction]:
    for value in bound.values:
        planned = plan(context, bound.job_with_value(value))
        columns = planned.job.measured.domain.attributes
        counted_share, whole = _counted_share(assumptions, planned), whole_amounts(assumptions, planned)
        cut = {axis: _clipped_moments(assumptions, planned, axis) for axis in whole}
        bounded_axes = [axis for axis in whole if bound.key == f"sums.{columns[axis].name}.to"]
        lost = 1 - counted_share * math.prod(cut[axis].mean / whole[axis].mean for axis in bounded_axes)
        groups = tuple(_predict_groups(planned, assumptions, counted_share, whole, cut))
        if not groups:
            raise InvalidInput(
                "assume: no group of queries counts records or adds up amounts that are assumed, so nothing is predicted"
            )
        yield BoundPrediction(value, lost, groups)


def _counted_share(assumptions: Assumptions, planned: ReleasePlan) -> float:
    """The share of the records that count."""
    person = planned.job.source.records.person
    return math.prod(
        distribution.clipped_mean(0, getattr(person, key)) / distribution.mean
        for key, distribution in assumptions.per_person.items()
    )


def _clipped_moments(assumptions: Assumptions, planned: ReleasePlan, axis: int) -> AmountMoments:
    """The amounts of the records that count, as they are added up."""
    column, person = planned.job.measured.domain.attributes[axis], planned.job.source.records.person
    assert column.amounts is not None
    inside = assumptions.amounts[column.name].clip(*column.amounts.range)
    if column.amounts.bound is None:
        return AmountMoments(inside.mean, inside.square)
    records, groups = (assumptions.per_person.get(key) for key in ("most_records", "most_groups"))
    assert records is not None
    kept_chances = kept_record_chances(records, groups, person.most_records, person.most_groups)
    largest_total = column.amounts.bound.times * column.amounts.range[1]
    mean = mean_clipped_total(kept_chances, inside, largest_total, float(column.amounts.step)) / float(
        kept_chances @ np.arange(kept_chances.size)
    )
    return AmountMoments(mean, inside.square)  # squares go without a bound on totals


def _predict_groups(
    planned: ReleasePlan,
    assumptions: Assumptions,
    counted_share: float,
    whole: Mapping[int, AmountMoments],
    cut: Mapping[int, AmountMoments],
) -> Iterator[GroupPrediction]:
    """Groups of which a usual answer is known: of counts, and of sums of columns whose amounts are assumed."""
    job, records = planned.job, assumptions.records
    workload, most_groups = job.workload.queries, job.source.records.person.most_groups
    answered = job.workload.answered_steps or (None,) * len(workload.blocks)
    for (_, block), steps, group_error in zip(workload.block_starts(), answered, predict_errors(planned), strict=True):
        axis, row_kind = _summed_power(workload, block)
        if axis in whole and row_kind in (DEVIATION, SQUARE):
            continue  # from the middle of the range: no answers by themselves
        if job.release_context.totals:
            groups, domain = assumptions.per_person["most_groups"], job.measured.domain
            full_answer, kept_answer = (
                records / groups.mean * persons_by_group(domain, block.heads(domain.names), groups, bound)
                for bound in (None, most_groups)
            )
        else:
            full_answer = mean_answer(workload, block, records, whole, steps)
            kept_answer = mean_answer(workload, block, records * counted_share, cut, steps)
        if full_answer > 0:
            # both are sums of rounded numbers
            lost = 0.0 if math.isclose(full_answer, kept_answer) else full_answer - kept_answer
            yield GroupPrediction(group_error.group, group_error.unit, group_error.half_width, full_answer, lost)
    yield from _standard_deviations(planned, records * counted_share, whole, cut)


def _standard_deviations(
    planned: ReleasePlan, records: float, whole: Mapping[int, AmountMoments], cut: Mapping[int, AmountMoments]
) -> Iterator[GroupPrediction]:
    """What is predicted of the standard deviations of amounts that are assumed."""
    measured = planned.job.measured
    for rows in assumed_statistic_rows(planned, records, "even", cut):
        axis = measured.domain.axis(rows[0].columns[0])
        if rows[0].estimate.statistic == STANDARD_DEVIATION and axis in whole:
            half = max(entry.estimate.half_width for entry in rows)
            full_deviation, kept_deviation = (entry[axis].deviation for entry in (whole, cut))
            if full_deviation > 0:
                unit = measured.sums[rows[0].columns[0]].unit or rows[0].columns[0]
                yield GroupPrediction(rows[0].group, unit, half, full_deviation, full_deviation - kept_deviation)


def _summed_power(workload: Workload, block: Block) -> tuple[int, str]:
    """Of which column of amounts, by its axis, a group adds up deviations or squares; the last axis and nothing where it does neither."""
    axis = block.axes[-1] if block.separable and block.axes else -1
    column = workload.domain.attributes[axis].amounts
    if column is None or not column.squares:
        return axis, ""
    row = block.factors[-1].dense()[0, : column.bins]
    return axis, next((row_kind for row_kind in (DEVIATION, SQUARE) if np.array_equal(row, column.values(row_kind))), "")


GRID_STEPS = 2048
"""Steps of the grid on which amounts of a person are added up, from zero to the bound on their total."""
NEGLIGIBLE_SHARE = 1e-12
"""Of all persons: fewer are taken for none."""


def persons_by_group(domain: Domain, table: Sequence[str], groups: Distribution, most_groups: int | None) -> float:
    """The mean answer for one person of a table, with its totals, where a person counts in the first ``most_groups`` groups.

    A person's groups are different ones, every set of as many as likely as another. Those of a level are taken for equally large.

    Args:
        table: the attributes, or levels of them, that it is by.
        most_groups: None where all of them count.
    """
    answers, rows, (cells, _) = 0.0, 0, domain.groups_in(domain.names)
    for margin in domain.with_totals(table):
        number, bound = domain.groups_in(margin)
        rows += number
        answers += _mean_distinct_groups(groups, cells, number, number if most_groups is None else min(most_groups, bound))
    return answers / rows


def _mean_distinct_groups(groups: Distribution, cells: int, number: int, limit: int) -> float:
    """In how many groups a person counts in the mean, where all cells are so many groups and ``limit`` count.

    With d groups after j cells, the next cell is in a new group with probability (groups - d) together / (cells - j).
    """
    together = cells / number
    # of 0, 1, ... groups; of the last number or more
    chances, group_counts = np.zeros(limit + 1), np.arange(limit + 1)
    chances[0], mean_groups = 1.0, 0.0
    for taken, weight in enumerate(_number_chances(groups, cells)):
        mean_groups += float(weight * (chances @ group_counts))
        if taken < cells:
            transfer = chances[:-1] * np.minimum((number - group_counts[:-1]) * (together / (cells - taken)), 1)
            chances[:-1] -= transfer
            chances[1:] += transfer
    return mean_groups


def kept_record_chances(
    records: Distribution, groups: Distribution | None, most_records: int, most_groups: int | None
) -> Matrix:
    """The probabilities that 0, 1, 2, ... records of a person count, up to ``most_records``, or so many in each group."""
    record_chances = _number_chances(records, most_records)
    if groups is None or most_groups is None:
        return record_chances
    total_chances, sums = np.zeros(most_groups * most_records + 1), np.ones(1)
    for weight in _number_chances(groups, most_groups):
        total_chances[: sums.size] += weight * sums[: total_chances.size]
        sums = _convolve(sums, record_chances)
    return total_chances


def mean_clipped_total(record_chances: Matrix, amounts: Distribution, largest_total: float, step: float) -> float:
    """What the amounts of a person who has so many records with probabilities ``record_chances`` add up to in the mean, at most
    ``largest_total``.

    The amounts of whoever has more are scaled down, each to a step below: half a step in the mean.

    Args:
        amounts: within their range, from zero on.
    """
    grid_positions = amounts.values * (GRID_STEPS / largest_total)
    below = np.floor(grid_positions).astype(np.int64)
    step_chances = np.zeros(max(int(below.max()) + 2, GRID_STEPS))
    # of each number the two next to it, with its mean
    np.add.at(step_chances, below, amounts.weights * (below + 1 - grid_positions))
    np.add.at(step_chances, below + 1, amounts.weights * (grid_positions - below))
    grid, sums, mean_total = np.arange(GRID_STEPS) * (largest_total / GRID_STEPS), np.zeros(GRID_STEPS), 0.0
    sums[0] = 1.0
    for number, weight in enumerate(record_chances):
        remaining_chance = max(0.0, 1 - float(sums.sum()))
        mean_total += float(weight * (sums @ grid + remaining_chance * max(0.0, largest_total - number * step / 2)))
        sums = (
            _convolve(sums, step_chances[:GRID_STEPS])[:GRID_STEPS]
            if sums.sum() > NEGLIGIBLE_SHARE
            else np.zeros(GRID_STEPS)
        )
    return mean_total


def _convolve(first_chances: Matrix, second_chances: Matrix) -> Matrix:
    """The probabilities of sums of two independent numbers."""
    size = first_chances.size + second_chances.size - 1
    return np.asarray(np.fft.irfft(np.fft.rfft(first_chances, size) * np.fft.rfft(second_chances, size), size))


def _number_chances(distribution: Distribution, largest_number: int) -> Matrix:
    """The probabilities of 0, 1, ..., ``largest_number`` or more."""
    return np.bincount(np.minimum(np.rint(distribution.values), largest_number).astype(np.int64), distribution.weights)
