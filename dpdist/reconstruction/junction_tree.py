"""Tables of all attribute sets, made of a few that agree: the model of adaptive rounds. No cell of a domain is held.

While rounds are chosen, measured tables are brought to the nearest non-negative ones that agree (``nearest_tables``), and what is
expected of them is published (``measured_tables``). Two attributes that no measured table holds together are taken for independent given
those between them, along the tree of measured pairs of largest mutual information (Chow & Liu 1968). A table of three or more attributes
that was not measured is the one of largest entropy with the tables of one attribute less (iterative proportional fitting). All of it is
post-processing, and none of it is unbiased.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np

from dpdist.operators import Matrix
from dpdist.reconstruction.nonnegative_tables import Axes, TableFamily, nearest, within

TOLERANCE = 0.1
"""How far fitted tables may disagree, in standard errors of a cell of the most accurate one."""
SWEEPS = 5
"""Of iterative proportional fitting: 20 change the total variation of Adult's tables of three attributes by less than 1 % (prototype)."""


@dataclass(frozen=True)
class TableModel:
    """Tables of all sets of some attributes.

    Attributes:
        fitted: non-negative tables that agree, one of each attribute among them.
        total: records in each.
        stretch: what the dependence of two attributes that no fitted table holds, as a path has it, is multiplied with.
    """

    fitted: Mapping[Axes, Matrix] = field(repr=False)
    total: float
    stretch: float = 1.0

    @cached_property
    def _axes(self) -> list[int]:
        """The attributes."""
        return sorted(axes[0] for axes in self.fitted if len(axes) == 1)

    @cached_property
    def _made(self) -> dict[Axes, Matrix]:
        return {**self._pairs, **self.fitted}

    def table(self, axes: Axes) -> Matrix:
        """The table of some attributes (ascending), an array of one axis an attribute."""
        if not axes:
            return np.array(self.total)
        if axes not in self._made:
            held = first_holding(self.fitted, axes)
            self._made[axes] = self._by_fitting(axes) if held is None else margin(self.fitted[held], held, axes)
        return self._made[axes]

    def _by_fitting(self, axes: Axes) -> Matrix:
        """Iterative proportional fitting of independent attributes to the tables of one attribute less."""
        smaller = [(part, self.table(part)) for part in combinations(axes, len(axes) - 1)]
        return _fitted(self.independent(axes), axes, smaller)

    @cached_property
    def _known(self) -> dict[Axes, Matrix]:
        """The tables of all pairs of attributes that a fitted table holds."""
        inside = {pair: held for held in reversed(list(self.fitted)) for pair in combinations(held, 2)}
        return {pair: margin(self.fitted[held], held, pair) for pair, held in inside.items()}

    @cached_property
    def _near(self) -> dict[int, list[int]]:
        return _tree(self._axes, {pair: _information(table) for pair, table in self._known.items()})

    @cached_property
    def _pairs(self) -> dict[Axes, Matrix]:
        """The tables of all pairs of attributes that no fitted table holds, along the tree."""
        along: dict[Axes, Matrix] = {
            (first, axis): table
            for first in self._axes
            for axis, table in self._along(first)
            if first < axis and (first, axis) not in self._known
        }
        if self.stretch != 1.0:
            along = {pair: self._stretched(pair, table) for pair, table in along.items()}
        return {**self._known, **along}

    def beside(self) -> Iterator[tuple[Axes, Matrix]]:
        """The pairs that a fitted table holds and that are no edge of the tree: by how much paths are off independence, in each cell."""
        for first in self._axes:
            for axis, table in self._along(first):
                if first < axis and (first, axis) in self._known and axis not in self._near[first]:
                    yield (first, axis), table - self.independent((first, axis))

    def independent(self, axes: Axes) -> Matrix:
        """The table of attributes, were they independent."""
        return independent([self.fitted[(axis,)] for axis in axes], self.total)

    def _stretched(self, pair: Axes, table: Matrix) -> Matrix:
        """A table with more of its dependence, and the tables of both attributes that it has."""
        apart = self.independent(pair)
        return _fitted(
            np.maximum(apart + self.stretch * (table - apart), 0.0), pair, [((axis,), self.fitted[(axis,)]) for axis in pair]
        )

    def _along(self, first: int) -> Iterator[tuple[int, Matrix]]:
        """The joint tables of an attribute with every other: along the tree, and independent of those that it does not reach."""
        near, known = self._near, self._known
        reached, waiting = {first}, [(first, np.diag(self.fitted[(first,)]))]
        while waiting:
            here, table = waiting.pop()
            for axis in near[here]:
                if axis not in reached:
                    pair = known[here, axis] if here < axis else known[axis, here].T
                    rows = pair.sum(axis=1, keepdims=True)
                    share = np.divide(
                        pair, rows, out=np.tile(self.fitted[(axis,)] / self.total, (len(pair), 1)), where=rows > 0
                    )
                    reached.add(axis)
                    waiting.append((axis, table @ share))
                    yield waiting[-1]
        for axis in sorted(set(self._axes) - reached):
            yield axis, self.independent((first, axis))


def nearest_model(shape: tuple[int, ...], tables: Mapping[Axes, Matrix], weights: Mapping[Axes, float]) -> TableModel:
    """The model of the nearest tables to unbiased ones.

    Args:
        tables: unbiased, one of each attribute among them, in the order in which they were measured.
        weights: of each table the inverse variance of a cell.
    """
    axes = tuple(tables)
    largest = max(weights.values())
    family = TableFamily(axes, shape, tuple(weights[each] / largest for each in axes))
    given = [tables[each] for each in axes]
    total = max(family.total(given), 1.0)
    found = nearest(family, given, total, TOLERANCE / math.sqrt(largest))
    return TableModel(dict(zip(axes, found.tables, strict=True)), total)


def independent(ones: Sequence[Matrix], total: float) -> Matrix:
    """The table of independent attributes, of which each has a table of its own."""
    out = np.array(total)
    for each in ones:
        out = np.multiply.outer(out, each / total)
    return out


def _fitted(table: Matrix, axes: Axes, smaller: Sequence[tuple[Axes, Matrix]]) -> Matrix:
    """Iterative proportional fitting to smaller tables."""
    for _ in range(SWEEPS):
        for part, wanted in smaller:
            found = margin(table, axes, part)
            ratio = np.divide(wanted, found, out=np.zeros_like(wanted), where=found > 0)
            table = table * within(ratio, part, axes)
    return np.asarray(table)


def margin(table: Matrix, axes: Axes, wanted: Axes) -> Matrix:
    """The table of some of a table's attributes."""
    return np.asarray(table.sum(axis=tuple(place for place, axis in enumerate(axes) if axis not in wanted)))


def first_holding(tables: Iterable[Axes], axes: Axes) -> Axes | None:
    """The first table that holds some attributes; None if none does."""
    return next((each for each in tables if set(axes) <= set(each)), None)


def _information(pair: Matrix) -> float:
    """Mutual information, in records times nats."""
    alone = pair.sum(axis=1, keepdims=True) * pair.sum(axis=0, keepdims=True)
    inside = pair > 0
    return float((pair[inside] * np.log(pair[inside] * pair.sum() / alone[inside])).sum())


def _tree(attributes: Sequence[int], information: Mapping[Axes, float]) -> dict[int, list[int]]:
    """The neighbours of every attribute in the forest of pairs whose sum is largest."""
    near: dict[int, list[int]] = {axis: [] for axis in attributes}
    group = {axis: axis for axis in attributes}
    for one, other in sorted(information, key=lambda pair: (-information[pair], pair)):
        if group[one] != group[other]:
            near[one].append(other)
            near[other].append(one)
            joined, into = group[other], group[one]
            group = {axis: into if each == joined else each for axis, each in group.items()}
    return near
