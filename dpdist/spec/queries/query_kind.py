"""What every kind of queries says of itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from dpdist.domain import Domain
from dpdist.domain.numeric_columns import PRESENCE
from dpdist.errors import InvalidInput
from dpdist.spec.queries.filter_kinds import FiltersSpec
from dpdist.spec.queries.statistics import StatisticKind
from dpdist.spec.tagged_unions import SpecKind
from dpdist.workloads import Block, Workload

BY_DESCRIPTION = "asks the same for every combination of these attributes' values"
WRITTEN_VALUES = 2**22
"""Values of an attribute that intervals and predicates write down."""


class QueryKind(SpecKind):
    """One kind of queries. Its fields are its key, with what users write under it."""

    names_itself: ClassVar[bool] = True
    """Whether the words of an answer say which records it counts, so that equal words of two releases are comparable."""
    over_time: ClassVar[bool] = False
    """Whether it asks for series, which a release measures step by step."""

    @abstractmethod
    def counts(self, domain: Domain, folder: Path) -> Workload:
        """How many records each query holds, over a domain without columns of amounts.

        Args:
            folder: from which files are taken.
        Raises: InvalidInput when the domain cannot have the queries.
        """

    @abstractmethod
    def question(self) -> str:
        """What is asked, in words that go on from 'counts'."""

    def workload_for(self, statistic: StatisticKind, domain: Domain, folder: Path, *, scaled: bool) -> Workload:
        """What is added up for a statistic over the records that each query counts.

        Args:
            scaled: whether an error as large as the largest amount weighs as much as one of a record.
        """
        return statistic.sum_workload(self.counts(domain.grouped, folder), domain, scaled=scaled)

    def words(self, statistic: StatisticKind) -> str:
        """What is asked for a statistic, in words."""
        return statistic.words(self.question())

    def unfit_reason(self, statistic: StatisticKind) -> str | None:
        """Why a statistic is not asked of these queries; None where it is."""
        return None

    def ordered_by(self, name: str) -> bool:
        """Whether every query is over the order of an attribute."""
        return False

    def asks_for(self, name: str, names: Sequence[str]) -> bool:
        """Whether every query asks for values of an attribute out of the given ones."""
        return self.ordered_by(name)

    def block_counts_records(self, statistic: StatisticKind, domain: Domain, folder: Path) -> list[bool]:
        """Of each block of the workload whether its answers are numbers of records: sums are none, nor are differences."""
        blocks = self.counts(domain.grouped, folder).blocks
        adds = self.adds_only(blocks)
        return [adds and set(factors) == {PRESENCE} for _ in blocks for factors in statistic.sums]

    def names(self, declared: Sequence[str]) -> Collection[str]:
        """The attributes that its queries may name, of those that are declared."""
        return declared

    @property
    def line_coefficients(self) -> Mapping[str, int] | None:
        """The two attributes and coefficients of the line that its queries are over; None where they are over declared attributes."""
        return None

    @property
    def cut_points(self) -> tuple[int, ...] | None:
        """Of a line the numbers c with queries that tell those up to c from the others; None for every number."""
        return None

    def answered_steps(self, domain: Domain, folder: Path) -> list[range | None] | None:
        """Of each block of a series the steps that are answered, None for all; None where it is no series."""
        return None

    def adds_only(self, blocks: Sequence[Block]) -> bool:
        """Whether no query takes records away from others."""
        return True

    @property
    def reads_file(self) -> bool:
        """Whether queries are in a file, whose name says nothing of what it holds."""
        return False

    def tables(self, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """The attributes of each table that is asked for by itself, of those declared; none where anything else is."""
        return ()

    @property
    def series(self) -> FiltersSpec:
        """The series that are asked for. Raises: InvalidInput where none are."""
        raise InvalidInput(f"{self.label()} asks for no series over time, which only 'filters' do")

    @property
    def centre(self) -> int | None:
        """The public count whose distances are asked for in place of counts."""
        return None


class OrderedQuery(QueryKind):
    """Queries over the order of attributes, ``of``, for every combination of values of others, ``by``."""

    @property
    def ordered_attributes(self) -> tuple[str, ...]:
        """The attributes over whose order it is."""
        names = getattr(self, self.key()).of
        return (names,) if isinstance(names, str) else names

    def ordered_by(self, name: str) -> bool:
        return name in self.ordered_attributes

    def asks_for(self, name: str, names: Sequence[str]) -> bool:
        return name in self.names(names)

    def names(self, declared: Sequence[str]) -> Collection[str]:
        return (*self.ordered_attributes, *getattr(self, self.key()).by)

    def check(self, domain: Domain) -> None:
        """Raises: InvalidInput where an attribute has no order."""
        for name in self.ordered_attributes:
            check_ordered(domain, name)


class DerivedColumnQuery(OrderedQuery):
    """Queries over a number that follows from two attributes (``dpdist.domain.derived_columns``)."""

    @property
    @abstractmethod
    def line_coefficients(self) -> Mapping[str, int]: ...


def check_listable(domain: Domain) -> None:
    """Raises: InvalidInput when an attribute has more values than can be written down."""
    for attribute in domain.attributes:
        if attribute.size > WRITTEN_VALUES:
            raise InvalidInput(
                f"{attribute.name!r} has {attribute.size:,} values; beyond {WRITTEN_VALUES:,} only marginals and filters are "
                "answered: give its bins a 'width'"
            )


def check_ordered(domain: Domain, name: str) -> None:
    """Raises: InvalidInput when an attribute has no order."""
    if domain.attribute(name).categories:
        raise InvalidInput(f"attribute {name!r} has categories, which have no order; ranges and cdf need edges or from/to")


def combination_text(names: Sequence[str]) -> str:
    """Words for the attributes by which queries are asked."""
    return f", for each {' and '.join(names)}" if names else ""
