"""What one record adds to which cell, as a job says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from dpdist.domain import (
    Attribute,
    Domain,
    LinearCombination,
    combination_attribute,
    combination_name,
    combine_attributes,
    cuts_of,
)
from dpdist.domain.numeric_columns import in_bins
from dpdist.errors import InvalidInput
from dpdist.size_limits import Sizes
from dpdist.spec.attributes import AttributeSpec
from dpdist.spec.queries import QuerySpec
from dpdist.spec.sections.amount_columns import ColumnSpec, SumSpec
from dpdist.spec.sections.thresholded_cells import KeySpec
from dpdist.statistics.statistic import Quantity
from dpdist.statistics.statistic_registry import quantity_of


@dataclass(frozen=True)
class CountedCells:
    """What one record adds to which cell: the declared attributes and columns of amounts, as far as the queries ask for them.

    Attributes:
        entries: the queries, which decide which bins are needed.
        most_records: of one person, as the bound on a total divides them.
        persons: whether persons are counted in each group, and not their records.
        placeholders: whether values of one stand for names that are not selected yet.
        uncounted_columns: columns that are read for a question of their own and counted in no cell.
    """

    attributes: Mapping[str, AttributeSpec]
    sums: Mapping[str, SumSpec]
    entries: tuple[QuerySpec, ...]
    most_records: int
    persons: bool
    folder: Path
    sizes: Sizes
    placeholders: bool = False
    uncounted_columns: Mapping[str, ColumnSpec | KeySpec] = field(default_factory=dict)

    @cached_property
    def domain(self) -> Domain:
        """The declared domain, and lines. Attributes that only lines follow from are read and not counted."""
        names, entries = tuple(self.attributes), self.entries
        duplicate = next((name for name in names if name in self.sums), None)
        if duplicate is not None:
            raise InvalidInput(
                f"{duplicate!r} is added up under 'sums' and cannot be an attribute of the same name: call its bins {in_bins(duplicate)}"
            )
        alone = any(entry.kind.over_time and entry.statistic.columns for entry in entries)
        derived_attributes = self._derived_attributes
        only_read = {
            source_attribute.name
            for derived_attribute in derived_attributes
            if derived_attribute.line
            for source_attribute in derived_attribute.line.of
        } - self._queryable_names
        return Domain(
            tuple(
                declaration.attribute(
                    name,
                    self.sizes,
                    folder=self.folder,
                    separate_levels=self.persons,
                    everywhere=self.persons or all(entry.kind.asks_for(name, names) for entry in entries),
                    ordered=all(entry.kind.ordered_by(name) for entry in entries),
                )
                for name, declaration in self.attributes.items()
                if name not in only_read
            )
            + derived_attributes
            + tuple(
                declaration.attribute(
                    name,
                    everywhere=all(entry.statistic.adds_up(name) for entry in entries),
                    squares=any(entry.statistic.adds_up(name, squares=True) for entry in entries),
                    alone=alone,
                    records=self.most_records,
                )
                for name, declaration in self.sums.items()
            ),
            self.sizes,
            tuple(
                declaration.uncounted(name)
                for name, declaration in self.uncounted_columns.items()
                if name not in {*self.attributes, *self.sums}
            ),
            tables=tuple(table for entry in entries for table in entry.kind.tables(names)) if self.persons else (),
        )

    @property
    def _queryable_names(self) -> set[str]:
        """The attributes that queries may name."""
        return {name for entry in self.entries for name in entry.kind.names(tuple(self.attributes))}

    @property
    def _derived_attributes(self) -> tuple[Attribute, ...]:
        """One attribute for each line that is asked for, cut wherever a query over it asks."""
        entries_by_name: dict[str, list[QuerySpec]] = {}
        for entry in self.entries:
            if entry.kind.line_coefficients is not None:
                entries_by_name.setdefault(combination_name(entry.kind.line_coefficients), []).append(entry)
        return tuple(
            combination_attribute(
                self._derivation(entries[0]),
                cuts_of([entry.kind.cut_points for entry in entries]),
                everywhere=all(entry.kind.ordered_by(name) for entry in self.entries),
                sizes=self.sizes,
            )
            for name, entries in entries_by_name.items()
        )

    def _derivation(self, entry: QuerySpec) -> LinearCombination:
        assert entry.kind.line_coefficients is not None
        unknown = next((name for name in entry.kind.line_coefficients if name not in self.attributes), None)
        if unknown is not None:
            raise InvalidInput(f"attribute {unknown!r} does not exist; declared are {', '.join(self.attributes)}")
        first_attribute, second_attribute = (
            self.attributes[name].bins(name, self.sizes) for name in entry.kind.line_coefficients
        )
        first_coefficient, second_coefficient = entry.kind.line_coefficients.values()
        return combine_attributes(first_attribute, second_attribute, (first_coefficient, second_coefficient))

    def check_line(self, entry: QuerySpec) -> None:
        """Raises: InvalidInput where queries are over a line that two attributes do not have, or whose name another number has."""
        derivation = entry.kind.line_coefficients
        if derivation is None:
            return
        self._derivation(entry)
        derivations = [
            candidate.kind.line_coefficients for candidate in self.entries if candidate.kind.line_coefficients is not None
        ]
        name = combination_name(derivation)
        if name in {*self.attributes, *self.sums} or any(
            combination_name(candidate) == name and candidate != derivation for candidate in derivations
        ):
            raise InvalidInput(
                f"two numbers are called {name!r}; rename an attribute, and say in 'records.columns' which column it is"
            )

    @property
    def quantity(self) -> Quantity:
        """What is measured of every cell."""
        return quantity_of(self.domain, centre=self.centre, persons=self.persons)

    @property
    def bounded_column(self) -> str | None:
        """The column of amounts whose total of a person is bounded, None where there is none."""
        return next((name for name, sum_column in self.sums.items() if sum_column.most_per_person is not None), None)

    @property
    def has_bounded_total(self) -> bool:
        """Whether the total of a person's amounts is bounded."""
        return self.bounded_column is not None

    @property
    def centre(self) -> int | None:
        """The public count whose distance is filtered instead of the counts themselves."""
        return self.entries[0].kind.centre
