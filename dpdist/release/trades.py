"""How noise and lost records trade for several values of each bound, on assumed records: no real one is read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dpdist.domain.amounts import Amounts
from dpdist.errors import InvalidInput
from dpdist.privacy.noise import NORMAL_95
from dpdist.release.context import Context
from dpdist.release.plan import Plan, plan
from dpdist.release.predicted import assumed, predicted
from dpdist.spec.other_bounds import Assumptions, OtherBound, end_of


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
        person, columns = planned.job.source.records.person, planned.job.measured.domain.attributes
        kept = math.prod(each.within(0, getattr(person, key)) / each.mean for key, each in given.per_person.items())
        whole, cut = dict[int, float](), dict[int, float]()
        for axis, column in enumerate(columns):
            found = given.amounts.get(column.name)
            if found is not None and column.amounts is not None and _has_two_ends(column.amounts):
                whole[axis], cut[axis] = found.mean, found.within(*column.amounts.range)
        of = [axis for axis in whole if bound.key == end_of(columns[axis].name)]
        lost = 1 - kept * math.prod(cut[axis] / whole[axis] for axis in of)
        groups = tuple(_groups(planned, given.records, kept, whole, cut))
        if not groups:
            raise InvalidInput(
                "assume: no group of queries counts records or adds up amounts that are assumed, so nothing is predicted"
            )
        yield Trade(value, lost, groups)


def _groups(
    planned: Plan, records: float, kept: float, whole: Mapping[int, float], cut: Mapping[int, float]
) -> Iterator[OfGroup]:
    """Groups of which a usual answer is known: of counts, and of sums of columns whose amounts are assumed."""
    workload = planned.job.workload.queries
    for (_, block), each in zip(workload.block_starts(), predicted(planned), strict=True):
        every, counted = (
            float(assumed(workload, block, number, "even", means).values.mean())
            for number, means in ((records, whole), (records * kept, cut))
        )
        if every > 0:
            yield OfGroup(each.group, each.unit, each.half_width, every, every - counted)


def _has_two_ends(amounts: Amounts) -> bool:
    """Whether records are divided between the ends of the range alone, so that their mean amount says how."""
    return not (amounts.squares or amounts.alone or amounts.bound)
