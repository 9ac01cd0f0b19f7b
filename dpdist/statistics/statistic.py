"""Quantity: what is measured of the records of a cell, and how far neighbours move it. Statistic: what is made of sums of amounts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from dpdist.domain.numeric_columns import SQUARE
from dpdist.domain.spelling_suggestions import closest_name
from dpdist.operators import Matrix
from dpdist.stability import Distance

Range = tuple[float, float]
"""The smallest and the largest value of a column."""
MEANS, VARIANCES = "means", "variances"
"""The tables that statistics are published in: one of means, and one whose rows name their statistic."""


@dataclass(frozen=True, kw_only=True)
class ReleaseTraits:
    """What else a release is, as far as a quantity can be against it.

    Attributes:
        attributes: those that records are grouped by.
        tables: of each group of queries the tables that it lists; none where it asks for anything else.
        levels: the attribute of every level, by the level's name.
        columns: of amounts that are declared.
        statistics: of each group of queries, with their columns of amounts.
        series: whether a group asks for filters.
        identifies_persons: whether persons are distinguished.
        in_groups: whether every person counts once in each of some groups.
        bounded: the column of amounts whose total is bounded for each person.
        totals: whether persons count in other tables beside that of all values: in totals, or by levels.
        has_public_counts, non_negative: whether post-processing takes public counts, and fits cells.
    """

    attributes: tuple[str, ...]
    tables: tuple[tuple[tuple[str, ...], ...], ...]
    levels: Mapping[str, str]
    columns: tuple[str, ...]
    statistics: tuple[tuple[str, tuple[str, ...]] | None, ...]
    series: bool
    identifies_persons: bool
    in_groups: bool
    bounded: str | None
    totals: bool
    has_public_counts: bool
    non_negative: bool


Refusal = tuple[tuple[str, ...], str]
"""The part of a spec that is refused, and why."""


class Quantity(ABC):
    """What is measured of the records of a cell.

    Attributes:
        counts_records: whether numbers of records are measured, so that public ones can be put in.
        counts_totals: whether a person counts once in all values of an attribute together, and in the groups of its levels.
        withheld: why readers can ask no further questions of the measurement; None where they can.
    """

    counts_records: bool = True
    counts_totals: ClassVar[bool] = False
    withheld: ClassVar[str | None] = None

    @abstractmethod
    def stability(self, moved: Distance) -> Distance:
        """How far what is measured can move when so many records move from one cell to another."""

    def refuses(self, traits: ReleaseTraits) -> Refusal | None:
        """What it does not go with, and why; None where it goes with all that is asked."""
        requested_columns = {name for statistic in traits.statistics if statistic for name in statistic[1]}
        idle = set(traits.columns) - requested_columns
        if idle and closest_name(name := min(idle), requested_columns) is None:  # a misspelt name is refused where it stands
            reason = f"no group of the workload asks for {name!r}; add 'sum: {name}' to one, or leave it out of 'sums'"
            return ("sums",), reason
        if traits.totals and not self.counts_totals:
            return ("domain",), (
                "'total' and 'most_groups' of an attribute are of persons, who count once in all its values or in a group of a level, and "
                "records add up by themselves: set 'count: persons', or leave them out and ask for 'marginals' without the attribute or "
                "with the level"
            )
        if not traits.has_public_counts or self.counts_records:
            return None
        return ("postprocess", "known"), (
            "'known' is a number of records, and this release measures none: distances from a count ('around'), sums alone, or persons "
            "by group; leave it out"
        )


@dataclass(frozen=True)
class Estimated:
    """A statistic of the records of one group, with its interval.

    Attributes:
        standard_error: by the delta method; None where there may be no record, or where the estimate is an end of its range.
        low, high: the ends of its 95 % interval.
        remark: what readers should know of it.
    """

    statistic: str
    value: float
    standard_error: float | None
    low: float
    high: float
    remark: str = ""

    @property
    def half_width(self) -> float:
        """Half the length of its interval."""
        return (self.high - self.low) / 2


class Statistic(ABC):
    """What is made of sums over the records of a group. Subclasses say what they are; the registry lists one object of each.

    Attributes:
        name: in specs.
        columns: of how many columns of amounts it is.
        summands: the sums that it is made of: what of each column is multiplied (``dpdist.domain.numeric_columns``).
        statistic_names: the statistics that ``compute`` computes of them.
        published: the statistics that are published beside the sums where a spec asks for it; none for sums themselves.
        table: where they are published.
        help_text: what a spec's key of its name asks for.
        plural: what is published of it, in words.
        interval: how its interval is made, in words.
    """

    name: ClassVar[str]
    columns: ClassVar[int] = 1
    summands: ClassVar[tuple[tuple[str, ...], ...]]
    statistic_names: ClassVar[tuple[str, ...]] = ()
    published: ClassVar[tuple[str, ...]] = ()
    table: ClassVar[str] = VARIANCES
    help_text: ClassVar[str] = ""
    plural: ClassVar[str]
    interval: ClassVar[str] = ""

    @property
    def squares(self) -> bool:
        """Whether it needs the squares of amounts."""
        return any(SQUARE in summand for summand in self.summands)

    def compute(
        self, statistic: str, values: Matrix, covariance: Matrix, width: float, ranges: Sequence[Range]
    ) -> Estimated:
        """One of the statistics that it tells.

        Args:
            values: estimates of the sums that it is made of.
            covariance: of these.
            width: standard errors that an interval reaches to both sides.
            ranges: of each column.
        """
        raise NotImplementedError(f"{self.name} is given by the answers themselves")


class RecordCounts(Quantity):
    """The number of records of every cell."""

    def stability(self, moved: Distance) -> Distance:
        return moved


@dataclass(frozen=True)
class PersonsByGroup(Quantity):
    """The different persons that have records in a cell: one record of each is counted there.

    Attributes:
        record_quantity: how their records are counted.
        groups: in how many of each table a person can count, where there are several.
    """

    record_quantity: Quantity
    groups: tuple[int, ...] = (2**63,)
    counts_records = False
    counts_totals = True
    withheld = "it counts persons by group, and sums over groups are no numbers of persons"

    def stability(self, moved: Distance) -> Distance:
        """In each table a person counts in as many of its groups as are allowed, or in as many as can be."""
        moved = self.record_quantity.stability(moved)
        return replace(moved, groups=sum(min(moved.groups, groups) for groups in self.groups))

    def refuses(self, traits: ReleaseTraits) -> Refusal | None:
        """A person in two groups counts in both, so that no table is a sum of another one."""
        if not traits.in_groups or any(traits.statistics):
            return ("records", "person"), (
                "'count: persons' counts every person once in each of some groups, whatever amounts their records have: give 'person' a "
                "'column' and 'most_groups', and leave 'most_records' and 'sums' out"
            )
        names = sorted(traits.attributes)
        requested_tables = [table for query_tables in traits.tables for table in query_tables or ((),)]
        are_complete = [sorted(traits.levels.get(name, name) for name in table) == names for table in requested_tables]
        if not all(are_complete) or names not in map(sorted, requested_tables):
            return ("records", "person"), (
                f"'count: persons' publishes the table of all attributes, 'marginals: {{of: [[{', '.join(traits.attributes)}]]}}', and "
                "beside it tables with levels in place of attributes: persons of other tables are no sums of these, so make a release of "
                "its own for each"
            )
        return super().refuses(traits)


@dataclass(frozen=True)
class Distances(Quantity):
    """How far the number of records of every cell is from a public count.

    A count that moves by one moves its distance by one, up or down whichever way the count went: where a record is replaced, both of its
    changes may go up.

    Attributes:
        record_quantity: how the records are counted.
    """

    centre: int
    record_quantity: Quantity
    counts_records = False
    withheld = "it measured distances from a known count, and not counts of records"

    def stability(self, moved: Distance) -> Distance:
        return Distance(self.record_quantity.stability(moved).length, replaced=False)
