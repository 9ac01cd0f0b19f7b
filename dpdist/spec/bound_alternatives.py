"""The jobs that a release would be with other bounds, beside what is assumed of its records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path

from dpdist.domain.numeric_columns import MOST_STEPS
from dpdist.errors import InvalidSpec
from dpdist.spec.compile import compiled
from dpdist.spec.job import Job
from dpdist.spec.release_spec import ReleaseSpec
from dpdist.spec.sections.amount_columns import SumSpec
from dpdist.spec.sections.assumptions import FILE, AssumeSpec, Distribution, distribution_of

SHARES = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
"""Of persons, or of amounts, that the bounds which are compared leave whole."""


@dataclass(frozen=True)
class OtherBound:
    """A bound and the values of it that are compared.

    Attributes:
        key: its key in the spec.
        own: its value there.
        over: the job with another value.
    """

    key: str
    own: float
    values: tuple[float, ...]
    over: Callable[[float], Job]


@dataclass(frozen=True)
class Assumptions:
    """A release, and what is assumed of its records.

    Attributes:
        folder: from which files are taken.
    """

    spec: ReleaseSpec
    given: AssumeSpec
    folder: Path

    def _distribution(self, text: str) -> Distribution:
        """Raises: InvalidSpec for a file that belongs to the records, which are private."""
        kind, *given = text.split()
        records = (self.folder / str(getattr(self.spec.records.location, "path", "."))).resolve()
        if kind == FILE and records != self.folder and (self.folder / given[0]).resolve().is_relative_to(records):
            raise InvalidSpec(f"assume: {given[0]} belongs to the records, which are private; name a public file")
        return distribution_of(text, self.folder)

    @cached_property
    def per_person(self) -> Mapping[str, Distribution]:
        """How many records and groups a person has, by the keys of their bounds."""
        found = {"most_records": self.given.records_per_person, "most_groups": self.given.groups_per_person}
        given = {key: self._distribution(text) for key, text in found.items() if text is not None}
        if "most_groups" in given:  # nobody has records in more groups than there are
            grouped = self._job().measured.domain.grouped
            given["most_groups"] = given["most_groups"].clipped(0, grouped.groups_in(grouped.names)[0])
        return given

    @cached_property
    def amounts(self) -> Mapping[str, Distribution]:
        """How large amounts are. Raises: InvalidSpec for a column that is not declared."""
        for name in self.given.amounts:
            if name not in self.spec.sums:
                raise InvalidSpec(
                    f"assume.amounts names {name!r}, which is no column under 'sums' ({', '.join(self.spec.sums) or 'none'})"
                )
        return {name: self._distribution(text) for name, text in self.given.amounts.items()}

    @property
    def records(self) -> float:
        """How many records there are; where persons are counted, how often one counts in a group without a bound."""
        return self.given.records or (self.given.persons or 0.0) * math.prod(each.mean for each in self.per_person.values())

    @property
    def words(self) -> str:
        """What is assumed."""
        given = {"records per person": self.given.records_per_person, "groups per person": self.given.groups_per_person}
        told = [f"{name} {each}" for name, each in {**given, **self.given.amounts}.items() if each is not None]
        return "; ".join([f"{self.records:,.0f} records", *told])

    def bounds(self) -> Iterator[OtherBound]:
        """The bounds that something is assumed about. Those that the budget chooses are not among them.

        Raises: InvalidSpec for what is not compared.
        """
        self._check()
        person = self.spec.records.person
        for key, found in self.per_person.items():
            own = getattr(person, key)
            if person.column is None or own is None or person.selection is not None:
                raise InvalidSpec(
                    f"assume: there is no declared {key!r} to compare values of; give 'person' a 'column' and {key!r}"
                )
            values = {float(math.ceil(found.at(share))) for share in SHARES} | {1.0, float(own)}
            yield OtherBound(key, own, tuple(sorted(values)), partial(self._with_person, key))
        for name, found in self.amounts.items():
            column = self.spec.sums[name]
            if column.selection is not None:
                raise InvalidSpec(f"assume.amounts: {name!r} has no declared 'to' of its own; leave 'private' out")
            ends = {end for share in SHARES if (end := _end(column, found.at(share))) is not None}
            if column.most_per_person is not None:
                ends = {end for end in ends if (column.most_per_person / Fraction(str(end))).denominator == 1}
            yield OtherBound(
                end_of(name),
                float(column.last),
                tuple(sorted({*ends, float(column.last)})),
                partial(self._with_end, name),
            )

    def _check(self) -> None:
        """Raises: InvalidSpec for what loses more than is assumed."""
        person, bounded = self.spec.records.person, [name for name, each in self.spec.sums.items() if each.most_per_person]
        if person.participations is not None:
            raise InvalidSpec(
                "assume: how many records of a person lie in one step, and in how many steps, is not assumed; leave 'assume' out, or "
                "compare the bounds in a spec without 'participations'"
            )
        together = next(
            (each.statistic for each in self.spec.workload if len({*each.statistic.columns} & {*self.amounts}) > 1), None
        )
        if together is not None:
            raise InvalidSpec(
                f"assume.amounts: how {' and '.join(map(repr, together.columns))} go together is not assumed; leave both out of 'assume', "
                f"or compare the bounds in a spec without {together.key()!r}"
            )
        needed = {
            "records_per_person": "most_records",
            **({"groups_per_person": "most_groups"} if person.most_groups else {}),
        }
        missing = [name for name, key in needed.items() if key not in self.per_person]
        if missing and any(name in self.amounts for name in bounded):
            raise InvalidSpec(
                f"assume: what 'most_per_person' cuts off depends on all records of a person; give {missing[0]!r}, too"
            )

    def _with_person(self, key: str, value: float) -> Job:
        person = self.spec.records.person.model_copy(update={key: int(value)})
        sums = {name: _total_within(each, person.records) for name, each in self.spec.sums.items()}
        return self._job(records=self.spec.records.model_copy(update={"person": person}), sums=sums)

    def _with_end(self, name: str, value: float) -> Job:
        column = self.spec.sums[name]
        steps = round((Fraction(str(value)) - column.first) / column.step)
        return self._job(sums={**self.spec.sums, name: _total_within(column.up_to(steps), self.spec.records.person.records)})

    def _job(self, **changed: object) -> Job:
        return compiled(self.spec.model_copy(update=changed), folder=self.folder)


def _total_within(column: SumSpec, records: int) -> SumSpec:
    """The column without a bound on a person's total that so many records cannot exceed."""
    total = column.most_per_person
    return column if total is None or total < records * column.last else column.model_copy(update={"most_per_person": None})


def end_of(column: str) -> str:
    """The key of the largest amount of a column."""
    return f"sums.{column}.to"


def _end(column: SumSpec, amount: float) -> float | None:
    """A round amount that is not smaller, on the column's grid; None where the column has none."""
    size = 10 ** math.floor(math.log10(amount)) if amount > 0 else 1
    whole = next((size * each for each in (1, 1.5, 2, 3, 5, 7, 10) if size * each >= amount), amount)
    steps = math.ceil((Fraction(str(whole)) - column.first) / column.step)
    return float(column.first + steps * column.step) if 1 <= steps <= MOST_STEPS else None
