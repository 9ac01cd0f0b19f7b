"""How noise and lost records trade for several values of each bound, on assumed records: no real one is read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dpdist.domain import Domain
from dpdist.domain.numeric_columns import DEVIATION, SQUARE
from dpdist.errors import InvalidInput
from dpdist.operators import Matrix
from dpdist.planner.error_prediction import predicted, rows_of_assumed, whole_amounts
from dpdist.planner.release_plan import Plan, plan
from dpdist.planner.simulated_answers import AmountMoments, usual
from dpdist.privacy.noise import NORMAL_95
from dpdist.runtime.context import Context
from dpdist.spec.bound_alternatives import Assumptions, OtherBound, end_of
from dpdist.spec.sections.assumptions import Distribution
from dpdist.statistics.variance_statistics import STANDARD_DEVIATION
from dpdist.workloads import Block, Workload


@dataclass(frozen=True)
class OfGroup:
    """What is predicted of a group of queries under a bound.

    Attributes:
        group, unit, half_width: as in ``predicted.Predicted``.
        answer: the usual answer over all records, those beyond the bounds, too.
        lost: how much smaller it is where the bounds hold.
    """

    group: str
    unit: str
    half_width: float
    answer: float
    lost: float

    @property
    def share(self) -> float:
        """The root of the mean squared error, of noise and loss, as a share of the usual answer."""
        return math.hypot(self.half_width / NORMAL_95, self.lost) / self.answer


@dataclass(frozen=True)
class Trade:
    """What is predicted under one value of a bound.

    Attributes:
        lost: the share of the records that do not count, or of the sum that is cut off.
    """

    value: float
    lost: float
    groups: tuple[OfGroup, ...]

    @property
    def error(self) -> float:
        """The root of the mean, over the groups of queries, of their squared shares."""
        return math.sqrt(float(np.mean([each.share**2 for each in self.groups])))


@dataclass(frozen=True)
class Compared:
    """Several values of a bound, the other bounds as they are.

    Attributes:
        key: of the bound in the spec.
        own: its value there.
    """

    key: str
    own: float
    tried: tuple[Trade, ...]

    @property
    def best(self) -> Trade:
        """The one of least predicted error."""
        return min(self.tried, key=lambda each: each.error)

    @property
    def facts(self) -> dict[str, Any]:
        """As JSON has them."""
        tried = [{**asdict(each), "error": each.error} for each in self.tried]
        return {"bound": self.key, "own": self.own, "least": self.best.value, "tried": tried}


def compared(context: Context, given: Assumptions | None) -> list[Compared]:
    """What is predicted under several values of each bound that something is assumed about; nothing is charged.

    Raises: InvalidSpec for what cannot be assumed; as ``plan`` and ``predicted``.
    """
    if given is None:
        return []
    return [Compared(each.key, each.own, tuple(_trades(context, given, each))) for each in given.bounds()]


def _trades(context: Context, given: Assumptions, bound: OtherBound) -> Iterator[Trade]:
    for value in bound.values:
        planned = plan(context, bound.over(value))
        columns = planned.job.measured.domain.attributes
        kept, whole = _kept(given, planned), whole_amounts(given, planned)
        cut = {axis: _cut(given, planned, axis) for axis in whole}
        of = [axis for axis in whole if bound.key == end_of(columns[axis].name)]
        lost = 1 - kept * math.prod(cut[axis].mean / whole[axis].mean for axis in of)
        groups = tuple(_groups(planned, given, kept, whole, cut))
        if not groups:
            raise InvalidInput(
                "assume: no group of queries counts records or adds up amounts that are assumed, so nothing is predicted"
            )
        yield Trade(value, lost, groups)


def _kept(given: Assumptions, planned: Plan) -> float:
    """The share of the records that count."""
    person = planned.job.source.records.person
    return math.prod(each.within(0, getattr(person, key)) / each.mean for key, each in given.per_person.items())


def _cut(given: Assumptions, planned: Plan, axis: int) -> AmountMoments:
    """The amounts of the records that count, as they are added up."""
    column, person = planned.job.measured.domain.attributes[axis], planned.job.source.records.person
    assert column.amounts is not None
    inside = given.amounts[column.name].clipped(*column.amounts.range)
    if column.amounts.bound is None:
        return AmountMoments(inside.mean, inside.square)
    records, groups = (given.per_person.get(key) for key in ("most_records", "most_groups"))
    assert records is not None
    kept = kept_of_person(records, groups, person.most_records, person.most_groups)
    most = column.amounts.bound.times * column.amounts.range[1]
    mean = added_up(kept, inside, most, float(column.amounts.step)) / float(kept @ np.arange(kept.size))
    return AmountMoments(mean, inside.square)  # squares go without a bound on totals


def _groups(
    planned: Plan, given: Assumptions, kept: float, whole: Mapping[int, AmountMoments], cut: Mapping[int, AmountMoments]
) -> Iterator[OfGroup]:
    """Groups of which a usual answer is known: of counts, and of sums of columns whose amounts are assumed."""
    job, records = planned.job, given.records
    workload, most = job.workload.queries, job.source.records.person.most_groups
    answered = job.workload.answered or (None,) * len(workload.blocks)
    for (_, block), steps, each in zip(workload.block_starts(), answered, predicted(planned), strict=True):
        axis, what = _adds_up(workload, block)
        if axis in whole and what in (DEVIATION, SQUARE):
            continue  # from the middle of the range: no answers by themselves
        if job.beside.totals:
            groups, domain = given.per_person["most_groups"], job.measured.domain
            every, counted = (
                records / groups.mean * persons_by_group(domain, block.heads(domain.names), groups, bound)
                for bound in (None, most)
            )
        else:
            every = usual(workload, block, records, whole, steps)
            counted = usual(workload, block, records * kept, cut, steps)
        if every > 0:
            # both are sums of rounded numbers
            lost = 0.0 if math.isclose(every, counted) else every - counted
            yield OfGroup(each.group, each.unit, each.half_width, every, lost)
    yield from _standard_deviations(planned, records * kept, whole, cut)


def _standard_deviations(
    planned: Plan, records: float, whole: Mapping[int, AmountMoments], cut: Mapping[int, AmountMoments]
) -> Iterator[OfGroup]:
    """What is predicted of the standard deviations of amounts that are assumed."""
    measured = planned.job.measured
    for rows in rows_of_assumed(planned, records, "even", cut):
        axis = measured.domain.axis(rows[0].columns[0])
        if rows[0].made.statistic == STANDARD_DEVIATION and axis in whole:
            half = max(each.made.half_width for each in rows)
            every, counted = (each[axis].deviation for each in (whole, cut))
            if every > 0:
                unit = measured.sums[rows[0].columns[0]].unit or rows[0].columns[0]
                yield OfGroup(rows[0].group, unit, half, every, every - counted)


def _adds_up(workload: Workload, block: Block) -> tuple[int, str]:
    """Of which column of amounts, by its axis, a group adds up deviations or squares; the last axis and nothing where it does neither."""
    axis = block.axes[-1] if block.separable and block.axes else -1
    column = workload.domain.attributes[axis].amounts
    if column is None or not column.squares:
        return axis, ""
    row = block.factors[-1].dense()[0, : column.bins]
    return axis, next((what for what in (DEVIATION, SQUARE) if np.array_equal(row, column.values(what))), "")


PARTS = 2048
"""Steps of the grid on which amounts of a person are added up, from zero to the bound on their total."""
NOBODY = 1e-12
"""Of all persons: fewer are taken for none."""


def persons_by_group(domain: Domain, table: Sequence[str], groups: Distribution, most: int | None) -> float:
    """The mean answer for one person of a table, with its totals, where a person counts in the first ``most`` groups.

    A person's groups are different ones, every set of as many as likely as another. Those of a level are taken for equally large.

    Args:
        table: the attributes, or levels of them, that it is by.
        most: None where all of them count.
    """
    answers, rows, (cells, _) = 0.0, 0, domain.groups_in(domain.names)
    for each in domain.with_totals(table):
        number, bound = domain.groups_in(each)
        rows += number
        answers += _distinct(groups, cells, number, number if most is None else min(most, bound))
    return answers / rows


def _distinct(groups: Distribution, cells: int, number: int, limit: int) -> float:
    """In how many groups a person counts in the mean, where all cells are so many groups and ``limit`` count.

    With d groups after j cells, the next cell is in a new group with probability (groups - d) together / (cells - j).
    """
    together = cells / number
    # of 0, 1, ... groups; of the last number or more
    chances, told = np.zeros(limit + 1), np.arange(limit + 1)
    chances[0], found = 1.0, 0.0
    for taken, weight in enumerate(_by_number(groups, cells)):
        found += float(weight * (chances @ told))
        if taken < cells:
            new = chances[:-1] * np.minimum((number - told[:-1]) * (together / (cells - taken)), 1)
            chances[:-1] -= new
            chances[1:] += new
    return found


def kept_of_person(records: Distribution, groups: Distribution | None, most_records: int, most_groups: int | None) -> Matrix:
    """The probabilities that 0, 1, 2, ... records of a person count, up to ``most_records`` in each group where groups are told apart."""
    each = _by_number(records, most_records)
    if groups is None or most_groups is None:
        return each
    found, sums = np.zeros(most_groups * most_records + 1), np.ones(1)
    for weight in _by_number(groups, most_groups):
        found[: sums.size] += weight * sums[: found.size]
        sums = _convolved(sums, each)
    return found


def added_up(kept: Matrix, amounts: Distribution, most: float, step: float) -> float:
    """What the amounts of a person who has so many records with probabilities ``kept`` add up to in the mean, at most ``most``.

    The amounts of whoever has more are scaled down, each to a step below: half a step in the mean.

    Args:
        amounts: within their range, from zero on.
    """
    places = amounts.values * (PARTS / most)
    below = np.floor(places).astype(np.int64)
    parts = np.zeros(max(int(below.max()) + 2, PARTS))
    # of each number the two next to it, with its mean
    np.add.at(parts, below, amounts.weights * (below + 1 - places))
    np.add.at(parts, below + 1, amounts.weights * (places - below))
    grid, sums, found = np.arange(PARTS) * (most / PARTS), np.zeros(PARTS), 0.0
    sums[0] = 1.0
    for number, weight in enumerate(kept):
        beyond = max(0.0, 1 - float(sums.sum()))
        found += float(weight * (sums @ grid + beyond * max(0.0, most - number * step / 2)))
        sums = _convolved(sums, parts[:PARTS])[:PARTS] if sums.sum() > NOBODY else np.zeros(PARTS)
    return found


def _convolved(one: Matrix, other: Matrix) -> Matrix:
    """The probabilities of sums of two independent numbers."""
    size = one.size + other.size - 1
    return np.asarray(np.fft.irfft(np.fft.rfft(one, size) * np.fft.rfft(other, size), size))


def _by_number(given: Distribution, most: int) -> Matrix:
    """The probabilities of 0, 1, ..., ``most`` or more."""
    return np.bincount(np.minimum(np.rint(given.values), most).astype(np.int64), given.weights)
