"""The jobs that a release would be with other bounds, beside what is assumed of its records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path

from dpdist.api import InvalidSpec
from dpdist.api.planning import MOST_STEPS, RecordAssumptions, compile_job
from dpdist.api.steps import Job, ReleaseSpec, SumSpec
from dpdist.plugins.bound_tradeoffs.distributions import FILE, Distribution, distribution_of

COVERED_SHARES = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
"""Of persons, or of amounts, that the bounds which are compared leave whole."""


@dataclass(frozen=True)
class BoundAlternatives:
    """A bound and the values of it that are compared.

    Attributes:
        key: its key in the spec.
        current_value: its value there.
        job_with_value: the job with another value.
    """

    key: str
    current_value: float
    values: tuple[float, ...]
    job_with_value: Callable[[float], Job]


@dataclass(frozen=True)
class Assumptions(RecordAssumptions):
    """A release, and what is assumed of its records.

    Attributes:
        folder: from which files are taken.
        number: of records; None: it follows from the number of persons.
        persons: how many there are, where the number of records is not given.
        person_texts: how many records and groups a person has, in words, by the keys of their bounds.
        amount_texts: how large amounts are, in words, by columns.
    """

    spec: ReleaseSpec
    folder: Path
    number: float | None
    persons: float | None
    person_texts: Mapping[str, str]
    amount_texts: Mapping[str, str]

    def _distribution(self, text: str) -> Distribution:
        """Raises: InvalidSpec for a file that belongs to the records, which are private."""
        kind, *arguments = text.split()
        records = (self.folder / str(getattr(self.spec.records.location, "path", "."))).resolve()
        if kind == FILE and records != self.folder and (self.folder / arguments[0]).resolve().is_relative_to(records):
            raise InvalidSpec(f"assume: {arguments[0]} belongs to the records, which are private; name a public file")
        return distribution_of(text, self.folder)

    @cached_property
    def per_person(self) -> Mapping[str, Distribution]:
        """How many records and groups a person has, by the keys of their bounds."""
        distributions = {key: self._distribution(text) for key, text in self.person_texts.items()}
        if "most_groups" in distributions:  # nobody has records in more groups than there are
            grouped = self._job().measured.domain.grouped
            distributions["most_groups"] = distributions["most_groups"].clip(0, grouped.groups_in(grouped.names)[0])
        return distributions

    @cached_property
    def amounts(self) -> Mapping[str, Distribution]:
        """How large amounts are. Raises: InvalidSpec for a column that is not declared."""
        for name in self.amount_texts:
            if name not in self.spec.sums:
                raise InvalidSpec(
                    f"assume.amounts names {name!r}, which is no column under 'sums' ({', '.join(self.spec.sums) or 'none'})"
                )
        return {name: self._distribution(text) for name, text in self.amount_texts.items()}

    @property
    def records(self) -> float:
        """How many records there are; where persons are counted, how often one counts in a group without a bound."""
        return self.number or (self.persons or 0.0) * math.prod(
            distribution.mean for distribution in self.per_person.values()
        )

    @property
    def words(self) -> str:
        """What is assumed."""
        per_person = [f"{key.removeprefix('most_')} per person {text}" for key, text in self.person_texts.items()]
        amounts = [f"{name} {text}" for name, text in self.amount_texts.items()]
        return "; ".join([f"{self.records:,.0f} records", *per_person, *amounts])

    def bounds(self) -> Iterator[BoundAlternatives]:
        """The bounds that something is assumed about. Those that the budget chooses are not among them.

        Raises: InvalidSpec for what is not compared.
        """
        self._check()
        person = self.spec.records.person
        for key, distribution in self.per_person.items():
            current_value = getattr(person, key)
            if person.column is None or current_value is None or person.selection is not None:
                raise InvalidSpec(
                    f"assume: there is no declared {key!r} to compare values of; give 'person' a 'column' and {key!r}"
                )
            values = {float(math.ceil(distribution.quantile(covered_share))) for covered_share in COVERED_SHARES} | {
                1.0,
                float(current_value),
            }
            yield BoundAlternatives(key, current_value, tuple(sorted(values)), partial(self._with_person, key))
        for name, distribution in self.amounts.items():
            column = self.spec.sums[name]
            if column.selection is not None:
                raise InvalidSpec(f"assume.amounts: {name!r} has no declared 'to' of its own; leave 'private' out")
            ends = {
                end
                for covered_share in COVERED_SHARES
                if (end := _round_end(column, distribution.quantile(covered_share))) is not None
            }
            if column.most_per_person is not None:
                ends = {end for end in ends if (column.most_per_person / Fraction(str(end))).denominator == 1}
            yield BoundAlternatives(
                f"sums.{name}.to",
                float(column.last),
                tuple(sorted({*ends, float(column.last)})),
                partial(self._with_end, name),
            )

    def _check(self) -> None:
        """Raises: InvalidSpec for what loses more than is assumed."""
        person, bounded = self.spec.records.person, [name for name, entry in self.spec.sums.items() if entry.most_per_person]
        if person.participations is not None:
            raise InvalidSpec(
                "assume: how many records of a person lie in one step, and in how many steps, is not assumed; leave 'assume' out, or "
                "compare the bounds in a spec without 'participations'"
            )
        together = next(
            (entry.statistic for entry in self.spec.workload if len({*entry.statistic.columns} & {*self.amounts}) > 1), None
        )
        if together is not None:
            raise InvalidSpec(
                f"assume.amounts: how {' and '.join(map(repr, together.columns))} go together is not assumed; leave both out of 'assume', "
                f"or compare the bounds in a spec without {together.key()!r}"
            )
        bounds_by_assumption = {
            "records_per_person": "most_records",
            **({"groups_per_person": "most_groups"} if person.most_groups else {}),
        }
        missing = [name for name, key in bounds_by_assumption.items() if key not in self.per_person]
        if missing and any(name in self.amounts for name in bounded):
            raise InvalidSpec(
                f"assume: what 'most_per_person' cuts off depends on all records of a person; give {missing[0]!r}, too"
            )

    def _with_person(self, key: str, value: float) -> Job:
        person = self.spec.records.person.model_copy(update={key: int(value)})
        sums = {name: _total_within(column, person.records) for name, column in self.spec.sums.items()}
        return self._job(records=self.spec.records.model_copy(update={"person": person}), sums=sums)

    def _with_end(self, name: str, value: float) -> Job:
        column = self.spec.sums[name]
        steps = round((Fraction(str(value)) - column.first) / column.step)
        return self._job(
            sums={**self.spec.sums, name: _total_within(column.with_steps(steps), self.spec.records.person.records)}
        )

    def _job(self, **changed: object) -> Job:
        return compile_job(self.spec.model_copy(update=changed), folder=self.folder)


def _total_within(column: SumSpec, records: int) -> SumSpec:
    """The column without a bound on a person's total that so many records cannot exceed."""
    total = column.most_per_person
    return column if total is None or total < records * column.last else column.model_copy(update={"most_per_person": None})


def _round_end(column: SumSpec, amount: float) -> float | None:
    """A round amount that is not smaller, on the column's grid; None where the column has none."""
    size = 10 ** math.floor(math.log10(amount)) if amount > 0 else 1
    whole = next((size * factor for factor in (1, 1.5, 2, 3, 5, 7, 10) if size * factor >= amount), amount)
    steps = math.ceil((Fraction(str(whole)) - column.first) / column.step)
    return float(column.first + steps * column.step) if 1 <= steps <= MOST_STEPS else None
