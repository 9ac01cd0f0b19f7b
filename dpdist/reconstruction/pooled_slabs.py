"""Generalised least squares over measured tables that are read slab by slab: for all values of one attribute together, and then for some.

Along an attribute of whose values each is measured by itself, a table is its sum over them and what every value differs by from their
mean. Both have independent noise, of the squares n s^2 and s^2 (1 - 1/n). So the sums are pooled as one measurement without the attribute,
and the differences of a few values at a time as another one, with the same matrices each time: estimates and variances are those of
``pooled_measurement.pool`` over everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from dpdist.arrays.lazy_vector import ArrayVector, Vector
from dpdist.errors import InvalidInput, OutOfMemory
from dpdist.operators import Identity, Matrix
from dpdist.reconstruction.measured_space import NotMeasured
from dpdist.reconstruction.pooled_measurement import ANSWER_COPIES, Axes, IndependentTerm, PooledMeasurement, pool
from dpdist.workloads import Block

HELD_BYTES, TABLE_BYTES = 2**28, 2**24
"""Measured tables of one release that are held at most when they are joined with those of others; a larger table of all cells is read slab
by slab."""
SLAB_VALUES = 2**21
"""Values of the largest table that are pooled at once."""
MOST_TOGETHER = 32
"""Values of the attribute whose slabs are pooled at once: their matrices are written down."""
SLAB_COPIES = 40
"""Of the values of a slab, while it is pooled and answered from (a test measures them)."""


@dataclass(frozen=True)
class StoredTable:
    """A measured table of which every value was measured by itself.

    Attributes:
        axes: its attributes, ascending; slabs are read along the first.
        values: what was measured, flat.
        deviation: of the noise of each.
        unit: of a value.
    """

    axes: Axes
    values: Vector = field(repr=False)
    deviation: float
    unit: float = 1.0

    def read(self, shape: tuple[int, ...], start: int, stop: int) -> Matrix:
        """The slabs of some values of the first attribute."""
        size = math.prod(shape[axis] for axis in self.axes[1:])
        slabs = np.asarray(self.values.read(start * size, stop * size), dtype=np.float64) * self.unit
        return slabs.reshape(stop - start, *(shape[axis] for axis in self.axes[1:]))


def is_read_by_slabs(cell_multiple: int | None, values: int) -> bool:
    """Whether so many measured values are a table of all cells that is read slab by slab."""
    return cell_multiple is not None and 8 * values > TABLE_BYTES


def slab_bytes(shape: tuple[int, ...], answers: int) -> int:
    """What it takes to pool tables over a domain slab by slab, with so many answers."""
    slab = max(SLAB_VALUES, math.prod(shape[1:]))
    return 8 * (SLAB_COPIES * slab + ANSWER_COPIES * answers)


class SlabPool:
    """Several measurements of the same records, of tables that are not held in memory together."""

    def __init__(
        self,
        shape: tuple[int, ...],
        tables: Sequence[StoredTable],
        terms: Sequence[IndependentTerm],
        blocks: Sequence[Block] = (),
        *,
        memory_bytes: int | None = None,
    ) -> None:
        """Read all tables once, for their sums.

        Args:
            tables: those that are read slab by slab, all along one attribute.
            terms: further measurements, which are held.
            blocks: queries that will be asked.
        Raises: InvalidInput for tables that are not read along one attribute; OutOfMemory.
        """
        self.shape, self.axis, self.blocks = shape, tables[0].axes[0], tuple(blocks)
        self.tables = (*tables, *map(self._held_table, filter(self._varies, terms)))
        if any(table.axes[0] != self.axis for table in self.tables) or any(not block.separable for block in blocks):
            raise InvalidInput(
                "tables that are read in parts must have the same first attribute, and queries no conditions over several attributes"
            )
        needed_bytes = slab_bytes(tuple(shape[self.axis :]), sum(block.queries for block in blocks))
        if memory_bytes is not None and needed_bytes > memory_bytes:
            cure = "give this process more memory, or ask for fewer answers"
            raise OutOfMemory("joining measurements", needed_bytes, memory_bytes, cure)
        self._sums = [self._sum_slabs(table) for table in self.tables]
        size = shape[self.axis]
        one = tuple(1 if axis == self.axis else length for axis, length in enumerate(shape))
        others = [term for term in terms if not self._varies(term)]
        summed = [
            IndependentTerm(
                table.axes, (None,) * len(table.axes), total.ravel(), table.deviation * table.unit * math.sqrt(size)
            )
            for table, total in zip(self.tables, self._sums, strict=True)
        ]
        self.totals = pool(one, [*summed, *others], [self._without_axis(block, 1) for block in blocks])

    def _varies(self, term: IndependentTerm) -> bool:
        return self.axis in term.axes

    def _held_table(self, term: IndependentTerm) -> StoredTable:
        if term.is_joint or any(factor is not None for factor in term.factors) or term.axes[0] != self.axis:
            raise InvalidInput("a table that is read in parts is joined with tables alone whose first attribute is the same")
        return StoredTable(term.axes, ArrayVector(term.values), term.deviation)

    def _ranges(self) -> Iterator[tuple[int, int]]:
        slab = max(math.prod(self.shape[axis] for axis in table.axes[1:]) for table in self.tables)
        step = max(1, min(MOST_TOGETHER, SLAB_VALUES // slab))
        return ((start, min(start + step, self.shape[self.axis])) for start in range(0, self.shape[self.axis], step))

    def _sum_slabs(self, table: StoredTable) -> Matrix:
        total = np.zeros([self.shape[axis] for axis in table.axes[1:]])
        for start, stop in self._ranges():
            total += table.read(self.shape, start, stop).sum(axis=0)
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
            IndependentTerm(
                table.axes,
                (None,) * len(table.axes),
                (table.read(self.shape, start, stop) - total / self.shape[self.axis]).ravel(),
                table.deviation * table.unit,
            )
            for table, total in zip(self.tables, self._sums, strict=True)
        ]
        return pool(some, terms, dense=(self.axis,))

    def check_measured(self) -> None:
        """Accept queries of which everything was measured, looking at a few slabs. Raises: NotMeasured."""
        start, stop = next(self._ranges())
        pooled = self._pool_slabs(start, stop)
        for block in self.blocks:
            self.totals.estimate(self._without_axis(block, 1))
            if self.axis in block.axes:
                self._estimate_slabs(pooled, block, stop - start)

    def estimates(self) -> list[tuple[Matrix, Matrix]]:
        """The best linear unbiased estimates of all groups of queries, and their variances. Raises: NotMeasured."""
        columns = [self._from_totals(block) for block in self.blocks]
        asked = [place for place, block in enumerate(self.blocks) if self.axis in block.axes]
        for start, stop in self._ranges() if asked else ():
            pooled = self._pool_slabs(start, stop)
            for place in asked:
                self._add_slabs(pooled, self.blocks[place], start, stop, columns[place])
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
        try:
            return pooled.estimate(self._without_axis(block, count))
        except NotMeasured as lack:
            raise NotMeasured(tuple(sorted({*lack.axes, self.axis}))) from None

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
