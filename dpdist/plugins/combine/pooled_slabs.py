"""Generalised least squares over measured tables that are read slab by slab: for all values of one attribute together, and then for some.

Along an attribute whose measured rows M have M'M = a I + b 11', M'z is a times the table, and what all of its values share. So a table is
its sum over the values, (a + n b) of it with noise of the square n (a + n b) s^2, and what every value differs by from their mean, with
noise of the square s^2 / a (1 - 1/n) once it is divided by a; both are independent. So the sums are pooled as one measurement without the
attribute, and the differences of a few values at a time as another one, with the same matrices each time: estimates and variances are
those of ``pooled_measurement.pool`` over everything. Along the other attributes rows may be any that ``pool`` takes: tables, the levels of
a geography, the steps of a series.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dpdist.api import InvalidInput
from dpdist.api.joining import ArrayVector, Identity, Matrix, OutOfMemory, Vector
from dpdist.api.queries import Block
from dpdist.plugins.combine.independent_terms import MOST_DENSE_VALUES, Axes, Eigenvalues, IndependentTerm
from dpdist.plugins.combine.pooled_measurement import ANSWER_COPIES, PooledMeasurement, check_disagreement, pool

HELD_BYTES, TABLE_BYTES = 2**30, 2**24
"""What was measured in a release is held up to so many bytes when it is joined with others, and pooled slab by slab from so many on; a
table of all cells is read from the store slab by slab, however large."""
SLAB_VALUES = 2**21
"""Values of the largest table that are pooled at once."""
MOST_TOGETHER = 32
"""Values of the attribute whose slabs are pooled at once: their matrices are written down."""
SLAB_COPIES, HELD_COPIES = 40, 5
"""Of the values of a slab, while it is pooled and answered from, and of what is held (tests measure them)."""


@dataclass(frozen=True)
class StoredTable:
    """A measured table that is read slab by slab along its first attribute.

    Attributes:
        axes: its attributes, that of the slabs first.
        values: what was measured, M'z of the rows M along the first attribute, flat.
        deviation: of the noise in each z.
        unit: of a value.
        factors: rows along each of the other attributes, None for every value by itself; (): all of them are.
        varying, constant: the eigenvalues of M'M on what sums to zero and on constants: 1 and 1 where every value was measured by itself.
        other_eigenvalues: those along each of the other attributes; (): all are 1 and 1.
    """

    axes: Axes
    values: Vector = field(repr=False)
    deviation: float
    unit: float = 1.0
    factors: tuple[Matrix | None, ...] = field(default=(), repr=False)
    varying: float = 1.0
    constant: float = 1.0
    other_eigenvalues: tuple[Eigenvalues | None, ...] = ()

    @property
    def other_factors(self) -> tuple[Matrix | None, ...]:
        """Rows along each attribute but the first."""
        return self.factors or (None,) * (len(self.axes) - 1)

    def slab_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """How many rows there are along each attribute but the first."""
        pairs = zip(self.axes[1:], self.other_factors, strict=True)
        return tuple(shape[axis] if factor is None else len(factor) for axis, factor in pairs)

    def read_slabs(self, shape: tuple[int, ...], start: int, stop: int) -> Matrix:
        """The slabs of some values of the first attribute."""
        slab = self.slab_shape(shape)
        size = math.prod(slab)
        slabs = np.asarray(self.values.read(start * size, stop * size), dtype=np.float64) * self.unit
        return slabs.reshape(stop - start, *slab)

    def term(self, slabs: Matrix, deviation: float) -> IndependentTerm:
        """Some slabs, (values of the first attribute, rows of the others), as a measurement with noise of a deviation in units."""
        order = np.argsort(self.axes)
        factors = (None, *self.other_factors)
        eigenvalues = ((1.0, 1.0), *(self.other_eigenvalues or ((1.0, 1.0),) * len(self.other_factors)))
        values = np.ascontiguousarray(slabs.transpose(order)).ravel()
        return IndependentTerm(
            tuple(sorted(self.axes)),
            tuple(factors[place] for place in order),
            values,
            deviation * self.unit,
            tuple(eigenvalues[place] for place in order),
        )


def is_read_by_slabs(values: int) -> bool:
    """Whether so many measured values are pooled slab by slab."""
    return 8 * values > TABLE_BYTES


def slab_bytes(shape: tuple[int, ...], answers: int, *, axis: int = 0, held_values: int = 0) -> int:
    """What it takes to pool tables over a domain slab by slab, with so many answers.

    Args:
        axis: the attribute of the slabs.
        held_values: that are not read from the store.
    """
    slab = max(SLAB_VALUES, math.prod(shape[:axis] + shape[axis + 1 :]))
    return 8 * (SLAB_COPIES * slab + ANSWER_COPIES * answers + HELD_COPIES * held_values)


def pools_by_slabs(
    shape: tuple[int, ...], tables: Sequence[StoredTable], terms: Sequence[IndependentTerm], blocks: Sequence[Block]
) -> bool:
    """Whether measurements are pooled slab by slab: some table is stored, or so large and able to be. Raises: as ``slab_axis``."""
    is_large = any(is_read_by_slabs(term.values.size) for term in terms)
    return bool(tables) or (is_large and slab_axis(shape, tables, terms, blocks) is not None)


def slab_axis(
    shape: tuple[int, ...], tables: Sequence[StoredTable], terms: Sequence[IndependentTerm], blocks: Sequence[Block]
) -> int | None:
    """The attribute along which measurements can be read in slabs; None where they are pooled as a whole.

    Raises: InvalidInput for stored tables, which are not held as a whole, that cannot be.
    """
    first_axes = {table.axes[0] for table in tables}
    candidates = first_axes if tables else set(range(len(shape)))
    able = [
        axis
        for axis in candidates
        if len(first_axes) <= 1
        and all(block.separable for block in blocks)
        and all(axis not in term.axes or _eigenvalues(term, axis) is not None for term in terms)
    ]
    if tables and not able:
        raise InvalidInput(
            "tables that are read in parts must have the same first attribute, along which the others are tables, too, and queries no "
            "conditions over several attributes"
        )
    return max(able, key=lambda axis: shape[axis], default=None)


def _eigenvalues(term: IndependentTerm, axis: int) -> tuple[float, float] | None:
    """The eigenvalues of the rows along an attribute, where they are those of tables."""
    return None if term.is_joint else term.eigenvalues[term.axes.index(axis)]


class SlabPool:
    """Several measurements of the same records that are not pooled as a whole; what was measured is read when it is asked for."""

    def __init__(
        self,
        shape: tuple[int, ...],
        tables: Sequence[StoredTable],
        terms: Sequence[IndependentTerm],
        blocks: Sequence[Block] = (),
        *,
        memory_bytes: int | None = None,
    ) -> None:
        """Refuse what cannot be pooled.

        Args:
            tables: those that are read slab by slab, all along one attribute.
            terms: further measurements, which are held.
            blocks: queries that will be asked.
        Raises: InvalidInput for tables that are not read along one attribute; OutOfMemory.
        """
        axis = slab_axis(shape, tables, terms, blocks)
        if axis is None:
            raise InvalidInput("no attribute has rows of tables in everything that was measured")
        self.shape, self.axis, self.blocks = shape, axis, tuple(blocks)
        self.stored, self.terms = tuple(tables), tuple(terms)
        held_values = sum(term.values.size for term in terms)
        needed_bytes = slab_bytes(shape, sum(block.queries for block in blocks), axis=axis, held_values=held_values)
        if memory_bytes is not None and needed_bytes > memory_bytes:
            cure = "give this process more memory, or ask for fewer answers"
            raise OutOfMemory("joining measurements", needed_bytes, memory_bytes, cure)

    @cached_property
    def tables(self) -> tuple[StoredTable, ...]:
        """All tables that vary with the attribute of the slabs."""
        return (*self.stored, *map(self._held_table, filter(self._varies, self.terms)))

    @cached_property
    def _sums(self) -> list[Matrix]:
        return [self._sum_slabs(table) for table in self.tables]

    @cached_property
    def totals(self) -> PooledMeasurement:
        """What was measured of the sums over all values of the attribute."""
        size = self.shape[self.axis]
        one = tuple(1 if axis == self.axis else length for axis, length in enumerate(self.shape))
        others = [term for term in self.terms if not self._varies(term)]
        summed = [
            table.term(total[None] / table.constant, table.deviation * math.sqrt(size / table.constant))
            for table, total in zip(self.tables, self._sums, strict=True)
            if table.constant > 0
        ]
        return pool(one, [*summed, *others], [self._without_axis(block, 1) for block in self.blocks])

    def _varies(self, term: IndependentTerm) -> bool:
        return self.axis in term.axes

    def _held_table(self, term: IndependentTerm) -> StoredTable:
        place = term.axes.index(self.axis)
        counts = [
            self.shape[axis] if factor is None else len(factor) for axis, factor in zip(term.axes, term.factors, strict=True)
        ]
        slabs, factor = np.moveaxis(term.values.reshape(counts), place, 0), term.factors[place]
        if factor is not None:
            slabs = np.tensordot(factor.T, slabs, axes=(1, 0))
        varying, constant = term.eigenvalues[place] or (1.0, 1.0)
        others = tuple(position for position in range(len(term.axes)) if position != place)
        return StoredTable(
            (self.axis, *(term.axes[position] for position in others)),
            ArrayVector(np.ascontiguousarray(slabs).reshape(-1)),
            term.deviation,
            factors=tuple(term.factors[position] for position in others),
            varying=varying,
            constant=constant,
            other_eigenvalues=tuple(term.eigenvalues[position] for position in others),
        )

    def _ranges(self) -> Iterator[tuple[int, int]]:
        slabs = (
            max(math.prod(table.slab_shape(self.shape)), math.prod(self.shape[axis] for axis in table.axes[1:]))
            for table in self.tables
        )
        step = max(1, min(MOST_TOGETHER, SLAB_VALUES // max(slabs), MOST_DENSE_VALUES // self._dense_values))
        return ((start, min(start + step, self.shape[self.axis])) for start in range(0, self.shape[self.axis], step))

    @property
    def _dense_values(self) -> int:
        """Values of the other attributes that are put together."""
        factors = {
            axis
            for table in self.tables
            for axis, eigenvalues in zip(table.axes[1:], table.other_eigenvalues, strict=False)
            if eigenvalues is None
        }
        return math.prod(self.shape[axis] for axis in factors)

    def _sum_slabs(self, table: StoredTable) -> Matrix:
        total = np.zeros(table.slab_shape(self.shape))
        for start, stop in self._ranges():
            total += table.read_slabs(self.shape, start, stop).sum(axis=0)
        return total

    def _without_axis(self, block: Block, size: int) -> Block:
        """A group of queries that asks of the attribute of slabs for each of so many values."""
        if self.axis not in block.axes:
            return block
        place = block.axes.index(self.axis)
        factors, labels = list(block.factors), list(block.labels)
        factors[place], labels[place] = Identity(size), tuple(map(str, range(size)))
        return Block(block.name, block.axes, tuple(factors), tuple(labels))

    def _pool_slabs(self, start: int, stop: int) -> PooledMeasurement:
        """What some values of the attribute differ from the mean of all by."""
        some = tuple(stop - start if axis == self.axis else length for axis, length in enumerate(self.shape))
        terms = [
            table.term(
                (table.read_slabs(self.shape, start, stop) - total / self.shape[self.axis]) / table.varying,
                table.deviation / math.sqrt(table.varying),
            )
            for table, total in zip(self.tables, self._sums, strict=True)
            if table.varying > 0
        ]
        return pool(some, terms, dense=(self.axis,))

    def estimates(self, *, compare: bool = False) -> list[tuple[Matrix, Matrix]]:
        """The best linear unbiased estimates of all groups of queries, and their variances.

        Args:
            compare: whether measurements that contradict each other are refused, as ``PooledMeasurement.check_agreement`` does.
        Raises: NotMeasured; InvalidInput.
        """
        columns = [self._from_totals(block) for block in self.blocks]
        asked = [place for place, block in enumerate(self.blocks) if self.axis in block.axes]
        disagreement, freedom = self.totals.disagreement, 0
        for start, stop in self._ranges() if asked or compare else ():
            pooled = self._pool_slabs(start, stop)
            disagreement, freedom = disagreement + pooled.disagreement, freedom + pooled.freedom
            for place in asked:
                self._add_slabs(pooled, self.blocks[place], start, stop, columns[place])
        if compare:  # differences from a mean sum to zero: of n values n - 1 are free
            freedom -= freedom // self.shape[self.axis]
            check_disagreement(disagreement, self.totals.freedom + freedom)
        return [(answers.ravel(), variances.ravel()) for answers, variances in columns]

    def _from_totals(self, block: Block) -> tuple[Matrix, Matrix]:
        """What follows from the sums over all values of the attribute."""
        answers, variances = self.totals.estimate(self._without_axis(block, 1))
        if self.axis not in block.axes:
            return answers, variances
        place = block.axes.index(self.axis)
        factor, size = block.factors[place], self.shape[self.axis]
        mean = factor.matvec(np.ones(size)) / size
        rows = [1 if position == place else each.shape[0] for position, each in enumerate(block.factors)]
        along = [-1 if position == place else 1 for position in range(len(rows))]
        scale = mean.reshape(along)
        return answers.reshape(rows) * scale, variances.reshape(rows) * scale**2

    def _estimate_slabs(self, pooled: PooledMeasurement, block: Block, count: int) -> tuple[Matrix, Matrix]:
        return pooled.estimate(self._without_axis(block, count))

    def _add_slabs(
        self, pooled: PooledMeasurement, block: Block, start: int, stop: int, columns: tuple[Matrix, Matrix]
    ) -> None:
        """Add what some values of the attribute differ from the mean of all by, and once its variances."""
        place, size = block.axes.index(self.axis), self.shape[self.axis]
        answers, variances = self._estimate_slabs(pooled, block, stop - start)
        factor = block.factors[place]
        rows = [stop - start if position == place else each.shape[0] for position, each in enumerate(block.factors)]
        moved = np.moveaxis(answers.reshape(rows), place, 0)
        whole = np.moveaxis(columns[0], place, 0)
        if isinstance(factor, Identity):
            whole[start:stop] += moved
        else:
            taken = np.zeros((size, stop - start))
            taken[np.arange(start, stop), np.arange(stop - start)] = 1.0
            whole += np.tensordot(factor.matvec(taken), moved, axes=(1, 0))
        if start == 0:
            mean = factor.matvec(np.ones(size)) / size
            rest = np.maximum(factor.row_norms_squared() - size * mean**2, 0.0)
            one = np.moveaxis(variances.reshape(rows), place, 0)[:1]
            np.moveaxis(columns[1], place, 0)[...] += rest.reshape([-1] + [1] * (one.ndim - 1)) * one
