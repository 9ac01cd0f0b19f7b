"""What parts of the budget find in the records before a release is planned: bounds, names, what bounds leave out, quantiles.

They are found one after the other, each under a charge of its own: the bound on a person's records, on which all others depend; names and
edges of bins, on which groups depend; the bound on groups; ranges of amounts of the records that count then; what all these bounds leave
out; and quantiles and rows of a thresholded histogram.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from dpdist.errors import InvalidInput
from dpdist.privacy.accounting import Loss
from dpdist.privacy.contribution_histogram import split_budget
from dpdist.privacy.ledger.charges import BOUND, BOUND_LOSS, EDGES, QUANTILES, RANGES, SELECTIONS, THRESHOLDED
from dpdist.spec.attributes import SelectionSpec
from dpdist.spec.attributes.private_values import EdgesSelectionSpec
from dpdist.spec.job_histogram import CountedCells
from dpdist.spec.sections.amount_columns import QuantilesSpec
from dpdist.spec.sections.budgets import ReleaseBudgetSpec
from dpdist.spec.sections.records import RecordsSpec
from dpdist.spec.sections.thresholded_cells import ThresholdedSpec

MOST_QUANTILES = 10_000
"""Of all columns and groups of a release: they stand in its certificate."""


@dataclass(frozen=True)
class DeclaredNames:
    """Nothing is found first, or nothing more."""

    failure: ClassVar[Fraction] = Fraction(0)


@dataclass(frozen=True)
class PreprocessingStep:
    """What a part of the budget finds in the records before the release is planned.

    Attributes:
        budget_share: of the budget as the spec says it.
        make_job: the ``Job`` with what was found, or with placeholders for it (None), and a budget.
        spent: the share that was spent on what is found before it.
        failure: the deltas of all selections of names that are still to be made.
        subject: the attribute or column of which it is found; empty where it is of the whole release.
        number: of it among those of its kind.
        laplace: whether the spec asks for Laplace noise, which leaves a delta unspent.
    """

    budget_share: Fraction
    make_job: Callable[[Any, ReleaseBudgetSpec], Any]
    spent: Fraction
    failure: Fraction
    subject: str
    number: int
    laplace: bool

    spec_text: ClassVar[str]
    """How a spec asks for it."""
    spec_path: ClassVar[tuple[str, ...]]
    """Where a spec asks for it, up to what it is of."""
    ends: ClassVar[tuple[str, ...]]
    """What ends the id of its charge, of the first of its kind and of each next one."""
    of_bounds: ClassVar[bool] = True
    is_independent: ClassVar[bool] = False
    """Whether the release is the same whatever is found."""
    chooses_records: ClassVar[bool] = False
    """Whether it decides which records count."""
    fewest: ClassVar[Any] = None
    """Of values, as few as may be found: whatever is asked for must be possible with them, too. None: nothing depends on it."""

    def split_budget(self, budget: ReleaseBudgetSpec) -> tuple[Loss, Loss]:
        """What it spends of a budget, of which ``spent`` is not there any more, and the rest. Raises: InvalidInput."""
        loss = budget.loss_with("l1") if self.laplace else budget.loss
        whole = Loss.gaussian(budget.rho_beside(self.failure)) if self.failure else loss
        return split_budget(whole, self.budget_share / (1 - self.spent))

    @property
    def suffix(self) -> str:
        """Ends the id of its charge."""
        return self.ends[self.number]

    @property
    def key(self) -> str:
        """How a spec asks for it, and of what."""
        return f"{self.spec_text} of {self.subject!r}" if self.subject else self.spec_text

    @property
    def key_path(self) -> tuple[str, ...]:
        """Where a spec asks for it."""
        return (*self.spec_path, self.subject) if self.subject else self.spec_path

    def check_share(self) -> None:
        """Raises: InvalidInput where there are too many of its kind, or nothing is left of the budget."""
        if self.number >= len(self.ends):
            raise InvalidInput(
                f"a release asks for {self.spec_text} of at most {len(self.ends)}: declare those of {self.subject!r}"
            )
        if self.budget_share + self.spent >= 1:
            raise InvalidInput(f"{self.key} and what is found before it spend all of the budget: lower the shares")

    def check_measured(self, records: RecordsSpec, measured: CountedCells) -> None:
        """Raises: InvalidInput for records and cells that it cannot be found for."""
        if self.of_bounds and measured.bounded_column:
            raise InvalidInput(
                f"{self.key} goes without 'most_per_person', which cuts the amounts of a person down by their sum: it looks at records and "
                "amounts one by one"
            )
        if self.of_bounds and records.counts is not None:
            raise InvalidInput(
                f"{self.key} looks at single records and at those of a person, and nobody knows any more which were counted before, nor "
                "whose: give the records themselves, or leave it out"
            )


@dataclass(frozen=True)
class NameSelectionStep(PreprocessingStep):
    """The names of an attribute are selected from the records."""

    selection: SelectionSpec

    of_bounds = False
    spec_text, spec_path, ends = "'categories: private'", ("domain",), SELECTIONS


@dataclass(frozen=True)
class EdgesStep(PreprocessingStep):
    """The edges of the bins of an attribute are chosen from the records."""

    selection: EdgesSelectionSpec

    fewest = ()
    spec_text, spec_path, ends = "'edges: private'", ("domain",), EDGES


@dataclass(frozen=True)
class PrivateBound(PreprocessingStep):
    """A bound is chosen.

    Attributes:
        largest: the largest one that is considered.
    """

    largest: int

    spec_path: ClassVar[tuple[str, ...]] = ("records", "person", "selection")
    ends: ClassVar[tuple[str, ...]] = (BOUND,)


class RecordsBound(PrivateBound):
    """How many records of a person count."""

    spec_text, chooses_records = "'most_records: private'", True

    def check_measured(self, records: RecordsSpec, measured: CountedCells) -> None:
        """Raises: InvalidInput for steps, in each of which so many records would count, and for persons, who count once in a group."""
        super().check_measured(records, measured)
        if records.person.participations or measured.persons:
            raise InvalidInput(f"{self.key} goes without 'participations' and 'count: persons': give a number")


class GroupsBound(PrivateBound):
    """In how many groups a person counts."""

    spec_text, chooses_records = "'most_groups: private'", True


@dataclass(frozen=True)
class RangeBound(PrivateBound):
    """The range of a column, in steps around zero.

    Attributes:
        below: how far beneath zero it is considered.
    """

    below: int

    spec_text, spec_path, ends = "'to: private'", ("sums",), RANGES

    def check_measured(self, records: RecordsSpec, measured: CountedCells) -> None:
        """Raises: InvalidInput for other statistics of the column than sums and means."""
        super().check_measured(records, measured)
        statistic_specs = (entry.statistic for entry in measured.entries)
        statistics = {statistic_spec.key() for statistic_spec in statistic_specs if self.subject in statistic_spec.columns}
        if not statistics or not statistics <= {"sum", "mean"}:
            raise InvalidInput(f"{self.key} is chosen for sums and means of it alone: ask for these, or give a number")


@dataclass(frozen=True)
class TruncationLossStep(PreprocessingStep):
    """What the declared bounds leave out is measured.

    Attributes:
        largest_excess: the largest number of a person's records beyond the bounds that is measured.
    """

    largest_excess: int

    is_independent = True
    spec_text, spec_path, ends = "'left_out'", ("left_out",), (BOUND_LOSS,)

    def check_measured(self, records: RecordsSpec, measured: CountedCells) -> None:
        """Raises: InvalidInput where nothing is bounded."""
        super().check_measured(records, measured)
        if records.person.column is None and not measured.sums:
            raise InvalidInput("nothing is bounded: 'left_out' needs a person 'column' or 'sums'; leave it out")


@dataclass(frozen=True)
class QuantileStep(PreprocessingStep):
    """Quantiles of columns are chosen by group."""

    quantiles_spec: QuantilesSpec

    is_independent = True
    spec_text, spec_path, ends = "'quantiles'", ("quantiles",), (QUANTILES,)

    def check_measured(self, records: RecordsSpec, measured: CountedCells) -> None:
        """Raises: InvalidInput for groups that are not declared, and for too many of them."""
        super().check_measured(records, measured)
        groups = math.prod(measured.domain.grouped.attribute(name).shown for name in self.quantiles_spec.by)
        if groups * len(self.quantiles_spec.at) * len(self.quantiles_spec.of) > MOST_QUANTILES:
            raise InvalidInput(
                f"a release chooses at most {MOST_QUANTILES:,} quantiles of all columns and groups: ask for fewer"
            )


@dataclass(frozen=True)
class ThresholdedStep(PreprocessingStep):
    """Rows of a thresholded histogram are published."""

    thresholded_spec: ThresholdedSpec

    is_independent = True
    spec_text, spec_path, ends = "'thresholded'", ("thresholded",), (THRESHOLDED,)

    def check_measured(self, records: RecordsSpec, measured: CountedCells) -> None:
        """Raises: InvalidInput for columns that the release reads for something else."""
        super().check_measured(records, measured)
        named = {*measured.attributes, *measured.sums}
        both = next((name for name in self.thresholded_spec.of if name in named), None)
        if both is not None:
            raise InvalidInput(
                f"{both!r} is an attribute or column of amounts, too: call the keys otherwise, and name their column under 'records: "
                "columns'"
            )
        _ = self.thresholded_spec.space
