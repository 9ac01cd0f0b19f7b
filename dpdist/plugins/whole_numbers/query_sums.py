"""Groups of queries as sums over a joint table: along each attribute groups of its values, or ranges of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from dpdist.api.rounding import Groups, Identity, ListedRanges, Matrix, Operator, Prefix, Total

DENSE_ENTRIES = 2**22
"""Entries of the rows of an attribute that are looked at one by one."""


@dataclass(frozen=True)
class AxisSums:
    """What a group of queries asks of one attribute: groups of its values, or ranges of them.

    Attributes:
        labels: of every value the number of its group, -1 for none; None for ranges.
        ranges: first value and the one behind the last of every row; None for groups.
        rows: how many there are.
    """

    labels: Matrix | None
    ranges: Matrix | None
    rows: int

    @property
    def is_total(self) -> bool:
        """Whether all values are one group."""
        return self.labels is not None and bool((self.labels == 0).all())

    @property
    def is_single(self) -> bool:
        """Whether every value is a group of its own."""
        if self.labels is None or self.labels.size > self.rows or (self.labels < 0).any():
            return False
        return int(np.bincount(self.labels).max()) == 1

    @property
    def is_contiguous(self) -> bool:
        """Whether the values of every row follow each other."""
        if self.labels is None:
            return True
        first_of_run = np.concatenate([[True], self.labels[1:] != self.labels[:-1]])
        runs = self.labels[first_of_run & (self.labels >= 0)]
        return np.unique(runs).size == runs.size

    def cells_of(self) -> tuple[Matrix, Matrix] | None:
        """For ranges that tell their values apart, rows whose difference is each of them (the second may be none, -1); else None."""
        assert self.ranges is not None
        size = int(self.ranges.max())
        rows = {(int(start), int(stop)): row for row, (start, stop) in enumerate(self.ranges)}
        if all((value, value + 1) in rows for value in range(size)):
            return np.array([rows[value, value + 1] for value in range(size)]), np.full(size, -1)
        if all((0, value + 1) in rows for value in range(size)):
            prefixes = np.array([rows[0, value + 1] for value in range(size)])
            return prefixes, np.concatenate([[-1], prefixes[:-1]])
        return None

    def add_up(self, table: Matrix, axis: int) -> Matrix:
        """Sums along an axis of a table."""
        moved = np.moveaxis(table, axis, 0)
        if self.ranges is not None:
            sums = np.concatenate([np.zeros_like(moved[:1]), np.cumsum(moved, axis=0)])
            return np.moveaxis(sums[self.ranges[:, 1]] - sums[self.ranges[:, 0]], 0, axis)
        assert self.labels is not None
        if self.rows == 1 and self.is_total:
            return np.asarray(table.sum(axis=axis, keepdims=True))
        cells = np.flatnonzero(self.labels >= 0)
        operator = scipy.sparse.csr_array(
            (np.ones(cells.size, dtype=table.dtype), (self.labels[cells], cells)), shape=(self.rows, self.labels.size)
        )
        sums = operator @ moved.reshape(self.labels.size, -1)
        return np.moveaxis(sums.reshape(self.rows, *moved.shape[1:]), 0, axis)


def axis_sums(factor: Operator) -> AxisSums | None:
    """What a factor of a block adds up; None for what is no row of zeros and ones, or no range."""
    inner, size = factor.unpadded, factor.shape[1]
    labels = np.full(size, -1)
    if isinstance(inner, Identity | Total | Groups):
        counted = {Identity: lambda: np.arange(inner.shape[1]), Total: lambda: np.zeros(inner.shape[1], dtype=np.int64)}
        labels[: inner.shape[1]] = inner.groups if isinstance(inner, Groups) else counted[type(inner)]()
        return AxisSums(labels, None, factor.shape[0])
    if isinstance(inner, Prefix):
        stops = np.arange(1, inner.n + 1)
        return AxisSums(None, np.stack([np.zeros_like(stops), stops], axis=1), factor.shape[0])
    if isinstance(inner, ListedRanges) and math.prod(factor.shape) > DENSE_ENTRIES:
        return AxisSums(None, inner.ends + np.array([0, 1]), factor.shape[0])
    return None if math.prod(factor.shape) > DENSE_ENTRIES else _sums_of_rows(np.asarray(factor.rows(0, factor.shape[0])))


def _sums_of_rows(rows: Matrix) -> AxisSums | None:
    """The same of rows that are written down."""
    if not np.isin(rows, (0.0, 1.0)).all() or not rows.any(axis=1).all():
        return None
    if (rows.sum(axis=0) <= 1).all():
        return AxisSums(np.where(rows.any(axis=0), rows.argmax(axis=0), -1), None, len(rows))
    first, stop = rows.argmax(axis=1), rows.shape[1] - rows[:, ::-1].argmax(axis=1)
    return AxisSums(None, np.stack([first, stop], axis=1), len(rows)) if (stop - first == rows.sum(axis=1)).all() else None


@dataclass(frozen=True)
class QuerySums:
    """A group of queries as sums over the joint table.

    Attributes:
        number: of the group; negative for counts that are known.
        axes: what it asks of every attribute of the joint table.
        is_asked: whether its answers are read from this table.
    """

    number: int
    axes: tuple[AxisSums, ...]
    is_asked: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows along every attribute."""
        return tuple(axis.rows for axis in self.axes)

    @property
    def is_partition(self) -> bool:
        """Whether every cell is in one of its sums at most."""
        return all(axis.labels is not None for axis in self.axes)

    def add_up(self, cells: Matrix) -> Matrix:
        """Sums of the cells of a joint table."""
        for position, axis in enumerate(self.axes):
            cells = axis.add_up(cells, position)
        return cells

    def partition(self, answers: Matrix, shape: Sequence[int]) -> tuple[QuerySums, Matrix] | None:
        """The same as sums of which every cell is in one at most, with their answers; None for ranges that leave values open."""
        axes = list(self.axes)
        for position, (axis, size) in enumerate(zip(self.axes, shape, strict=True)):
            if axis.labels is None:
                pair = axis.cells_of()
                if pair is None:
                    return None
                less = np.take(
                    np.concatenate([answers, np.zeros_like(np.take(answers, [0], position))], position), pair[1], position
                )
                values = np.where(np.arange(size) < len(pair[0]), np.arange(size), -1)
                answers, axes[position] = np.take(answers, pair[0], position) - less, AxisSums(values, None, len(pair[0]))
        return QuerySums(self.number, tuple(axes), self.is_asked), answers

    def labels(self, shape: Sequence[int]) -> Matrix:
        """Of every cell the number of its sum, -1 for none; of a partition."""
        numbers, is_counted = np.zeros(shape, dtype=np.int64), np.ones(shape, dtype=bool)
        for position, axis in enumerate(self.axes):
            assert axis.labels is not None
            along = axis.labels.reshape([-1 if place == position else 1 for place in range(len(shape))])
            numbers, is_counted = numbers * axis.rows + along, is_counted & (along >= 0)
        return np.where(is_counted, numbers, -1).ravel()
