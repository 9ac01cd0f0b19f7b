"""Counts: of records, of persons by group, and their distances from a public count."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpdist.quantities.base import Beside, Quantity, Refusal
from dpdist.stability import Distance


class RecordCounts(Quantity):
    """The number of records of every cell."""

    def stability(self, moved: Distance) -> Distance:
        return moved


@dataclass(frozen=True)
class PersonsByGroup(Quantity):
    """The different persons that have records in a cell: one record of each is counted there.

    Attributes:
        of: how their records are counted.
        groups: how many there are in each table, where there are tables of totals.
    """

    of: Quantity
    groups: tuple[int, ...] = (2**63,)
    counts_records = False
    counts_totals = True
    withheld = "it counts persons by group, and sums over groups are no numbers of persons"

    def stability(self, moved: Distance) -> Distance:
        """In each table a person counts in as many of its groups as are allowed, or in all."""
        moved = self.of.stability(moved)
        return replace(moved, groups=sum(min(moved.groups, groups) for groups in self.groups))

    def refuses(self, beside: Beside) -> Refusal | None:
        """A person in two groups counts in both, so that no table is a sum of another one."""
        if not beside.in_groups or any(beside.statistics):
            return ("records", "person"), (
                "'count: persons' counts every person once in each of some groups, whatever amounts their records have: give 'person' a "
                "'column' and 'most_groups', and leave 'most_records' and 'sums' out"
            )
        whole = [len(some) == 1 and sorted(some[0]) == sorted(beside.attributes) for some in beside.tables]
        if beside.levels or not all(whole):
            return ("records", "person"), (
                f"'count: persons' publishes one table of all attributes, 'marginals: {{of: [[{', '.join(beside.attributes)}]]}}', without "
                "levels: persons of other tables are no sums of these, so make a release of its own for each"
            )
        return super().refuses(beside)


@dataclass(frozen=True)
class Distances(Quantity):
    """How far the number of records of every cell is from a public count.

    A count that moves by one moves its distance by one, up or down whichever way the count went: where a record is replaced, both of its
    changes may go up.

    Attributes:
        of: how the records are counted.
    """

    centre: int
    of: Quantity
    counts_records = False
    withheld = "it measured distances from a known count, and not counts of records"

    def stability(self, moved: Distance) -> Distance:
        return Distance(self.of.stability(moved).length, replaced=False)
