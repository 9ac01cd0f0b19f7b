"""What is asked of the records that each query counts: their number, or a statistic of columns of amounts out of the registry."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import Field, create_model, model_validator

from dpdist.domain import Domain
from dpdist.domain.numeric_columns import PRESENCE
from dpdist.spec.tagged_unions import Family, SpecKind
from dpdist.statistics.statistic import Statistic
from dpdist.statistics.statistic_registry import STATISTICS
from dpdist.statistics.sum_statistics import sums_of
from dpdist.workloads import Workload


class StatisticKind(SpecKind):
    """What is asked of the records that a query counts. This one: their number."""

    @model_validator(mode="after")
    def _different_columns(self) -> StatisticKind:
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"a {self.key()} is that of two columns; ask for the variance of one")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of amounts that it is of."""
        names = getattr(self, self.key(), ())
        return (names,) if isinstance(names, str) else names

    @property
    def sums(self) -> tuple[tuple[str, ...], ...]:
        """The sums that it is made of: what of each column is multiplied."""
        return STATISTICS[self.key()].summands if self.columns else ((PRESENCE,),)

    @property
    def is_derived(self) -> bool:
        """Whether it is made of several measured sums, and published beside them with an interval of its own."""
        return bool(self.columns and STATISTICS[self.key()].published)

    def adds_up(self, name: str, *, squares: bool = False) -> bool:
        """Whether a column of amounts is added up, or its squares are."""
        return name in self.columns and (not squares or STATISTICS[self.key()].squares)

    def sum_workload(self, counts: Workload, domain: Domain, *, scaled: bool) -> Workload:
        """What is added up over the records that queries count.

        Args:
            counts: the queries, over the domain without columns of amounts.
            scaled: whether an error as large as the largest amount, or the largest average of a person, weighs as much as one of a
                record.
        Raises: InvalidInput for a column that is not declared.
        """
        if self.columns:
            return sums_of(counts, domain, STATISTICS[self.key()], self.columns, scaled=scaled)
        return Workload(domain, counts.blocks) if domain.amounts else counts

    def words(self, question: str) -> str:
        """What is asked, where ``question`` says which records the queries count."""
        if not self.columns:
            return question
        sum_text = f"{STATISTICS[self.key()].plural} of {' and '.join(self.columns)}"
        if question == "the count of all records":
            return f"{sum_text} over all records"
        question_text = question.removeprefix("counts ")
        return (
            f"{sum_text} over {question_text.removeprefix('of ')}"
            if question_text.startswith("of ")
            else f"{sum_text} {question_text}"
        )


@cache
def kind_of(statistic: Statistic) -> type[StatisticKind]:
    """The kind of a statistic: its key is the statistic's name."""
    type_and_example: tuple[Any, Any] = (str, "amount") if statistic.columns == 1 else (tuple[str, str], ["amount", "tip"])
    key: Any = {
        statistic.name: (type_and_example[0], Field(description=statistic.help_text, examples=[type_and_example[1]]))
    }
    return create_model(f"{type(statistic).__name__}Of", __base__=StatisticKind, __doc__=statistic.help_text, **key)


class StatisticFamily(Family[StatisticKind]):
    """The statistics that specs can ask for: those of the registry."""

    @property
    def kinds(self) -> dict[str, type[StatisticKind]]:
        return {name: kind_of(statistic) for name, statistic in STATISTICS.items()}


STATISTIC_KINDS = StatisticFamily(default=StatisticKind())
"""The statistics of the registry, and numbers of records where a spec asks for none."""
