"""Domain: several attributes and the cells that they span."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from dpdist.domain.attributes import Attribute, Level
from dpdist.domain.labels import even_edges, twins
from dpdist.domain.numeric_columns import MOST_STEPS, in_bins
from dpdist.domain.spelling_suggestions import did_you_mean
from dpdist.errors import InvalidInput
from dpdist.size_limits import SIZES, Sizes


def sizes_of(shape: int | Iterable[int]) -> tuple[int, ...]:
    """Sizes of attributes; one number is the size of a single one. Raises: InvalidInput for anything else.

    >>> sizes_of(8), sizes_of([2, 3])
    ((8,), (2, 3))
    """
    sizes = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    if not sizes or not all(isinstance(size, int | np.integer) and size >= 1 for size in sizes):
        found = sizes if all(np.ndim(size) == 0 for size in sizes) else type(shape).__name__
        raise InvalidInput(f"a shape needs positive whole sizes, found {found}; give a Domain for attributes with names")
    return tuple(int(size) for size in sizes)


@dataclass(frozen=True)
class Domain:
    """Several attributes. Their cells are numbered in C order: the last attribute changes fastest.

    >>> Domain((Attribute("a", categories=("x", "y")), Attribute("b", edges=(0, 1, 2, 3)))).shape
    (2, 3)

    Attributes:
        sizes: from which other paths are taken, for all that is computed over the domain.
        beside: what else is read of the records, and is counted in no cell.
        added: names of the columns of amounts that this domain was taken from without them.
        tables: where persons are counted, the tables that are asked for, by names of attributes and of their levels.
    """

    attributes: tuple[Attribute, ...]
    sizes: Sizes = field(default=SIZES, compare=False, repr=False)
    beside: tuple[Attribute, ...] = field(default=(), compare=False, repr=False)
    added: tuple[str, ...] = field(default=(), compare=False, repr=False)
    tables: tuple[tuple[str, ...], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        names = list(self.columns)
        if not names:
            raise InvalidInput("a domain needs at least one attribute, found none")
        if twice := [name for name, times in Counter(names).items() if times > 1]:
            duplicates = ", ".join(map(repr, twice))
            raise InvalidInput(
                f"attributes, their levels and columns of amounts have different names, found {duplicates} twice; rename one of both"
            )
        if alike := twins(names):
            first, second = map(ascii, alike)
            raise InvalidInput(f"the names {first} and {second} look the same; rename one of both")
        if any(attribute.amounts is not None for attribute in self.attributes[: len(self.grouping_attributes)]):
            raise InvalidInput("columns of amounts come after all other attributes, of which there is at least one")
        if self.shares_per_record > MOST_STEPS:
            raise InvalidInput(
                f"the shares of all amounts multiply to {self.shares_per_record:,}, allowed are {MOST_STEPS:,}; take larger steps, or "
                "make a release for each"
            )
        if len(self.amounts) > 1 and self.sums_alone:
            raise InvalidInput("where filters add up amounts there is one column of them: make a release for each")
        if len(self.amounts) > 1 and any(
            attribute.amounts.bound for attribute in self.amounts if attribute.amounts is not None
        ):
            raise InvalidInput(
                "where the total of a person is bounded there is one column of amounts; make a release for each, or leave the bounds out"
            )

    @property
    def grouping_attributes(self) -> tuple[Attribute, ...]:
        """The attributes that records are grouped by: all but columns of amounts, which come after them."""
        amounts = sum(attribute.amounts is not None for attribute in self.attributes)
        return self.attributes[: len(self.attributes) - amounts] or self.attributes

    @property
    def grouped(self) -> Domain:
        """The domain without columns of amounts."""
        return (
            Domain(self.grouping_attributes, self.sizes, added=tuple(attribute.name for attribute in self.amounts))
            if self.amounts
            else self
        )

    @property
    def amounts(self) -> tuple[Attribute, ...]:
        """The columns of amounts."""
        return tuple(attribute for attribute in self.attributes if attribute.amounts is not None)

    def with_totals(self, table: Sequence[str]) -> tuple[tuple[str | None, ...], ...]:
        """The tables in which persons are counted by themselves for one that is asked for: by what each attribute is taken (``taken``)."""
        groupings = list[tuple[str | None, ...]]()
        for attribute in self.attributes:
            level = next((level.name for level in attribute.levels if level.name in table), None)
            groupings.append((level,) if level else (attribute.name,) if attribute.total is None else (attribute.name, None))
        return tuple(product(*groupings))

    @property
    def person_tables(self) -> tuple[tuple[str | None, ...], ...]:
        """All tables in which persons are counted by themselves; first that of all values."""
        tables = ((), *self.tables)
        return tuple(dict.fromkeys(person_table for table in tables for person_table in self.with_totals(table)))

    def groups_in(self, table: Sequence[str | None]) -> tuple[int, int]:
        """How many groups such a table has, and in how many of them a person can count."""
        taken = [attribute.grouping_by(name) for attribute, name in zip(self.attributes, table, strict=True)]
        groups = math.prod(attribute.groups for attribute in taken)
        return groups, min([groups, *(attribute.most for attribute in taken if attribute.most is not None)])

    @property
    def column_attributes(self) -> tuple[Attribute, ...]:
        """The attributes whose values are in columns: of a line, those that it follows from."""
        attributes = (
            source
            for attribute in self.attributes
            for source in ((attribute,) if attribute.line is None else attribute.line.of)
        )
        return tuple({source.name: source for source in (*attributes, *self.beside)}.values())

    @property
    def own_names(self) -> tuple[str, ...]:
        """Names of the attributes that follow from no others: those that are meant where none are named."""
        return tuple(attribute.name for attribute in self.attributes if attribute.line is None)

    @property
    def dependent(self) -> tuple[str, ...]:
        """Names of the lines of which some numbers go with no record, beside some values of the other attributes."""
        columns = [
            source.name
            for attribute in self.attributes
            for source in ((attribute,) if attribute.line is None else attribute.line.of)
        ]
        return tuple(
            attribute.name
            for attribute in self.attributes
            if attribute.line and any(columns.count(source.name) > 1 for source in attribute.line.of)
        )

    @property
    def shares_per_record(self) -> int:
        """Into how many shares counting divides every record: one where there are no amounts."""
        return math.prod(
            attribute.amounts.shares_per_record for attribute in self.attributes if attribute.amounts is not None
        )

    @property
    def whole_records(self) -> bool:
        """Whether each record adds exactly 1 to one cell."""
        return self.shares_per_record == 1 and all(
            attribute.amounts.bound is None for attribute in self.attributes if attribute.amounts is not None
        )

    def measurable(self, *, fractional_records: bool, sums: bool) -> bool:
        """Whether what counts can be measured where records may be divided, or sums of whole steps added up alone, or neither."""
        return self.whole_records or fractional_records or (sums and self.sums_alone)

    @property
    def scale(self) -> float:
        """What measured values are divided by to become answers: the shares of a record, or those of an amount of one."""
        return math.prod(attribute.amounts.scale for attribute in self.attributes if attribute.amounts is not None)

    @property
    def sums_alone(self) -> bool:
        """Whether amounts are added up and no record is counted."""
        return any(attribute.amounts.alone for attribute in self.attributes if attribute.amounts is not None)

    @property
    def max_abs_shares(self) -> int:
        """The most shares that a record has in all cells, whatever their signs."""
        return math.prod(attribute.amounts.max_abs_shares for attribute in self.attributes if attribute.amounts is not None)

    def divide_records(
        self, kinds: NDArray[np.int64], numbers: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The cells that records of some kinds are divided among, and how many shares of them each gets.

        Args:
            kinds: numbers of kinds of records, in the order of cells; negative ones are left out.
            numbers: how many records of each kind there are; one where it is not given.
        """
        rest = kinds[kinds >= 0]
        share_counts = np.ones(rest.size, dtype=np.int64) if numbers is None else numbers[kinds >= 0]
        codes: list[NDArray[np.int64]] = []
        for attribute in reversed(self.amounts):
            rest, code = np.divmod(rest, attribute.kinds)
            codes.insert(0, code)
        for axis, attribute in enumerate(self.amounts):
            amounts, code = attribute.amounts, codes[axis]
            assert amounts is not None
            alone = code > amounts.width  # in a bin after those that amounts are divided among
            first_bin, bin_shares = amounts.divide_records(np.where(alone, 0, code))
            first_bin = np.where(alone, code - amounts.width - 1 + amounts.bins, first_bin)
            bin_shares = np.where(alone, np.eye(len(bin_shares), 1, dtype=np.int64) * amounts.shares_per_record, bin_shares)
            count = len(bin_shares)
            share_counts = (share_counts * bin_shares).ravel()
            after = np.where(alone, 0, np.arange(count)[:, None])
            rest = (rest * attribute.size + first_bin + after).ravel()
            codes = [np.tile(axis_codes, count) for axis_codes in codes]
        return rest[share_counts != 0], share_counts[share_counts != 0]

    @staticmethod
    def of_shape(shape: int | Iterable[int], sizes: Sizes = SIZES) -> Domain:
        """An anonymous domain x0, x1, ... of the given sizes, for workloads without records."""
        shape = sizes_of(shape)
        return Domain(tuple(Attribute(f"x{i}", edges=even_edges(0, 1, int(n), sizes)) for i, n in enumerate(shape)), sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each attribute."""
        return tuple(attribute.size for attribute in self.attributes)

    @property
    def cells(self) -> int:
        """Number of cells: the product of the sizes."""
        return math.prod(self.shape)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the attributes, in order."""
        return tuple(attribute.name for attribute in self.attributes)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the attributes, then those of their levels."""
        return (*self.names, *(level.name for attribute in self.attributes for level in attribute.levels))

    def level(self, name: str) -> tuple[int, Level | None]:
        """The attribute that a name means, and its level if it is that of one. Raises: InvalidInput for an unknown name."""
        for axis, attribute in enumerate(self.attributes):
            match = next((level for level in attribute.levels if level.name == name), None)
            if match is not None:
                return axis, match
        return self.axis(name), None

    def axis(self, name: str) -> int:
        """Position of an attribute. Raises InvalidInput for an unknown name."""
        if name in self.columns[len(self.names) :]:
            raise InvalidInput(f"{name!r} is a level of an attribute: only tables ('marginals' with 'of') ask for levels")
        if name in self.added:
            raise InvalidInput(
                f"of {name!r} sums are measured and no numbers of records by its values: ask for its sum or mean, or declare its bins "
                f"as attribute {in_bins(name)}"
            )
        if name not in self.names:
            alike = did_you_mean(name, self.columns)
            raise InvalidInput(f"attribute {name!r} does not exist{alike}; declared are {', '.join(self.columns)}")
        return self.names.index(name)

    def attribute(self, name: str) -> Attribute:
        """An attribute by its name. Raises InvalidInput for an unknown one."""
        return self.attributes[self.axis(name)]


@dataclass(frozen=True)
class Layout:
    """What a count holds: every cell of a domain, or (with ``tables``) the marginal tables of some attribute sets in a row.

    >>> Layout((2, 3, 4), ((0, 1), (2,))).size
    10

    Attributes:
        shares_per_record: into how many every record is divided (``Domain.divided``): a record raises all counts together by so much.
        max_abs_shares: the most shares of a record, whatever their signs; 0 where none is negative.
    """

    shape: tuple[int, ...]
    tables: tuple[tuple[int, ...], ...] = ()
    shares_per_record: int = 1
    max_abs_shares: int = 0

    @property
    def size(self) -> int:
        """Number of counts."""
        return sum(self._sizes) if self.tables else math.prod(self.shape)

    @property
    def _sizes(self) -> list[int]:
        return [math.prod(self.shape[axis] for axis in axes) for axes in self.tables]

    def positions(self, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which counts the records of the given cells of the domain raise by one; negative cells are left out."""
        counted_cells = cells[cells >= 0]
        if not self.tables:
            return counted_cells
        codes = np.unravel_index(counted_cells, self.shape)
        table_positions, table_start = [], 0
        for axes, size in zip(self.tables, self._sizes, strict=True):
            flat = np.zeros(counted_cells.size, dtype=np.int64)
            for axis in axes:
                flat = flat * self.shape[axis] + codes[axis]
            table_positions.append(table_start + flat)
            table_start += size
        return np.concatenate(table_positions)

    def table(self, counts: NDArray[np.int64], axes: tuple[int, ...]) -> NDArray[np.int64]:
        """The table of some attributes, from the first counted table that holds them. Raises: InvalidInput if none does."""
        start = 0
        tables = self.tables or (tuple(range(len(self.shape))),)
        for table_axes, size in zip(tables, self._sizes or [self.size], strict=True):
            if set(axes) <= set(table_axes):
                whole = counts[start : start + size].reshape([self.shape[axis] for axis in table_axes])
                return np.asarray(whole.sum(axis=tuple(i for i, axis in enumerate(table_axes) if axis not in axes)))
            start += size
        raise InvalidInput(f"no counted table holds the attributes {axes}")
