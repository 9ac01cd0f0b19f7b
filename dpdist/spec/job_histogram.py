"""What one record adds to which cell, as a job says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from dpdist.domain import Attribute, Domain, Line, cuts_of, line_attribute, line_name, line_of
from dpdist.domain.numeric_columns import in_bins
from dpdist.errors import InvalidInput
from dpdist.size_limits import Sizes
from dpdist.spec.attributes import AttributeSpec
from dpdist.spec.queries import QuerySpec
from dpdist.spec.sections.amount_columns import ColumnSpec, SumSpec
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
        beside: columns that are read for a question of their own and counted in no cell.
    """

    attributes: Mapping[str, AttributeSpec]
    sums: Mapping[str, SumSpec]
    entries: tuple[QuerySpec, ...]
    most_records: int
    persons: bool
    folder: Path
    sizes: Sizes
    placeholders: bool = False
    beside: Mapping[str, ColumnSpec] = field(default_factory=dict)

    @cached_property
    def domain(self) -> Domain:
        """The declared domain, and lines. Attributes that only lines follow from are read and not counted."""
        names, asked = tuple(self.attributes), self.entries
        both = next((name for name in names if name in self.sums), None)
        if both is not None:
            raise InvalidInput(
                f"{both!r} is added up under 'sums' and cannot be an attribute of the same name: call its bins {in_bins(both)}"
            )
        alone = any(entry.kind.over_time and entry.statistic.columns for entry in asked)
        lines = self._lines
        only_read = {each.name for line in lines if line.line for each in line.line.of} - self._named
        return Domain(
            tuple(
                given.attribute(
                    name,
                    self.sizes,
                    folder=self.folder,
                    apart=self.persons,
                    everywhere=self.persons or all(entry.kind.asks_for(name, names) for entry in asked),
                    ordered=all(entry.kind.ordered_by(name) for entry in asked),
                )
                for name, given in self.attributes.items()
                if name not in only_read
            )
            + lines
            + tuple(
                given.attribute(
                    name,
                    everywhere=all(entry.statistic.adds_up(name) for entry in asked),
                    squares=any(entry.statistic.adds_up(name, squares=True) for entry in asked),
                    alone=alone,
                    records=self.most_records,
                )
                for name, given in self.sums.items()
            ),
            self.sizes,
            tuple(
                given.uncounted(name) for name, given in self.beside.items() if name not in {*self.attributes, *self.sums}
            ),
            tables=tuple(table for entry in asked for table in entry.kind.tables(names)) if self.persons else (),
        )

    @property
    def _named(self) -> set[str]:
        """The attributes that queries may name."""
        return {name for entry in self.entries for name in entry.kind.names(tuple(self.attributes))}

    @property
    def _lines(self) -> tuple[Attribute, ...]:
        """One attribute for each line that is asked for, cut wherever a query over it asks."""
        found: dict[str, list[QuerySpec]] = {}
        for entry in self.entries:
            if entry.kind.line is not None:
                found.setdefault(line_name(entry.kind.line), []).append(entry)
        return tuple(
            line_attribute(
                self._line(entries[0]),
                cuts_of([entry.kind.cuts for entry in entries]),
                everywhere=all(entry.kind.ordered_by(name) for entry in self.entries),
                sizes=self.sizes,
            )
            for name, entries in found.items()
        )

    def _line(self, entry: QuerySpec) -> Line:
        assert entry.kind.line is not None
        unknown = next((name for name in entry.kind.line if name not in self.attributes), None)
        if unknown is not None:
            raise InvalidInput(f"attribute {unknown!r} does not exist; declared are {', '.join(self.attributes)}")
        first, second = (self.attributes[name].bins(name, self.sizes) for name in entry.kind.line)
        a, b = entry.kind.line.values()
        return line_of(first, second, (a, b))

    def check_line(self, entry: QuerySpec) -> None:
        """Raises: InvalidInput where queries are over a line that two attributes do not have, or whose name another number has."""
        asked = entry.kind.line
        if asked is None:
            return
        self._line(entry)
        lines = [each.kind.line for each in self.entries if each.kind.line is not None]
        name = line_name(asked)
        if name in {*self.attributes, *self.sums} or any(line_name(each) == name and each != asked for each in lines):
            raise InvalidInput(
                f"two numbers are called {name!r}; rename an attribute, and say in 'records.columns' which column it is"
            )

    @property
    def quantity(self) -> Quantity:
        """What is measured of every cell."""
        return quantity_of(self.domain, centre=self.around, persons=self.persons)

    @property
    def bounded(self) -> str | None:
        """The column of amounts whose total of a person is bounded, None where there is none."""
        return next((name for name, given in self.sums.items() if given.most_per_person is not None), None)

    @property
    def totals(self) -> bool:
        """Whether the total of a person's amounts is bounded."""
        return self.bounded is not None

    @property
    def around(self) -> int | None:
        """The public count whose distance is filtered instead of the counts themselves."""
        return self.entries[0].kind.centre
