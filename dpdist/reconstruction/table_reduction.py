"""Queries that are read from noisy cells by adding up tables: one pass over the cells for many tables, and no row over the cells.

A query of products over attributes is a query of the table of the attributes that it does not sum over. Tables take some additions a
cell, whatever is asked of them; rows take a number a cell for each query.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

import numpy as np

from dpdist.arrays.lazy_vector import Vector, batches
from dpdist.operators import Dense, Kronecker, Matrix, Operator, TallMatrix, Total
from dpdist.operators.linear_operator import ROW_BLOCK_BYTES
from dpdist.privacy.noise import Noise
from dpdist.workloads import Block, Workload

Axes = tuple[int, ...]
"""Attributes of a table, ascending."""
PASS_CELLS = 2**22
"""Cells that are read at a time."""
PASS_COPIES, COLUMN_COPIES = 4, 12
"""Of the cells of a pass, and of the queries of a task: what is computed from them beside them."""
TASK_ADDITIONS = 4 * 10**9
"""Additions of a task: some seconds."""
TASK_QUERIES = 2**22
"""Queries of a task at most: they are held at once."""


def reads_tables(workload: Workload) -> bool:
    """Whether all queries are products over attributes, each of whole numbers or of a few rows of numbers, such as sums of amounts."""
    return all(
        block.separable
        and all(isinstance(f, Dense) or (f.integral and not isinstance(f, TallMatrix)) for f in block.factors)
        for block in workload.blocks
    )


@dataclass(frozen=True)
class TableReduction:
    """How tables are read from noisy cells.

    Attributes:
        spacing: what a unit of the measurement stands for, counts.
    """

    workload: Workload
    spacing: float

    def rows_a_task(self) -> int:
        """Queries of a task, the same on every machine."""
        queries, cells = self.workload.shape
        tables = max(1, TASK_ADDITIONS // cells)
        return max(1, min(TASK_QUERIES, queries, math.ceil(queries * tables / len(self.workload.blocks))))

    def task_bytes(self) -> int:
        """What a task takes: a pass over cells, its tables, and its columns of answers."""
        queries, rows = self.workload.shape[0], self.rows_a_task()
        tables = max(self._table_cells(start, min(queries, start + rows)) for start in range(0, queries, rows))
        return 8 * (PASS_COPIES * min(PASS_CELLS, self.workload.shape[1]) + 2 * tables + COLUMN_COPIES * min(rows, queries))

    def _table_cells(self, start: int, stop: int) -> int:
        """Cells of the tables that some queries need."""
        shape = self.workload.domain.shape
        tables = {tuple(_asked_factors(block)) for _, block in self._blocks(start, stop)}
        return sum(math.prod(shape[axis] for axis in axes) for axes in tables)

    def _blocks(self, start: int, stop: int) -> list[tuple[int, Block]]:
        """The blocks of some queries, with the number of their first one."""
        return [
            (block_start, block)
            for block_start, block in self.workload.block_starts()
            if block_start < stop and start < block_start + block.queries
        ]

    def answers(self, measured: Vector, noise: Noise, start: int, stop: int) -> list[Matrix]:
        """Answers of the unweighted queries start..stop, their standard errors, and half widths of 95 % intervals: a task."""
        blocks = self._blocks(start, stop)
        tables = self._tables(measured, [block for _, block in blocks])
        columns: list[tuple[Matrix, Matrix, Matrix]] = []
        for block_start, block in blocks:
            asked = slice(max(start - block_start, 0), min(stop - block_start, block.queries))
            factors = _asked_factors(block)
            answers = Kronecker(list(factors.values())).matvec(tables[tuple(factors)]) if factors else tables[()]
            squares, fourths = self._noise_weights(block)
            columns.append((answers[asked], squares[asked], fourths[asked]))
        values, squares, fourths = (np.concatenate(column) for column in zip(*columns, strict=True))
        errors = np.sqrt(squares) * noise.deviation * self.spacing
        half = errors * noise.half_width_95(fourths / np.maximum(squares**2, 1e-300))
        return [values, errors, half]

    def _tables(self, measured: Vector, blocks: Sequence[Block]) -> dict[Axes, Matrix]:
        """The noisy tables that some blocks need, by their attributes, in counts."""
        shape = self.workload.domain.shape
        tables = {axes: np.zeros([shape[axis] for axis in axes]) for axes in map(tuple, map(_asked_factors, blocks))}
        for box in _cell_ranges(shape):
            cells = measured.read(box.start, box.stop) * self.spacing
            for inner_axes, sums in _sum_out(cells, box.shape, set(map(box.inner_axes, tables))):
                for axes, table in tables.items():
                    if box.inner_axes(axes) == inner_axes:
                        index = box.table_index(axes)
                        table[index] += sums.reshape(table[index].shape)
        return {axes: table.ravel() for axes, table in tables.items()}

    def _noise_weights(self, block: Block) -> tuple[Matrix, Matrix]:
        """Sums of the squares and of the fourth powers of the entries of every query, over all cells."""
        factors = _asked_factors(block)
        summed_cells = math.prod(size for axis, size in enumerate(self.workload.domain.shape) if axis not in factors)
        squares = fourths = np.array([float(summed_cells)])
        for factor in factors.values():
            factor_squares, factor_fourths = _row_powers(factor)
            squares = np.multiply.outer(squares, factor_squares).ravel()
            fourths = np.multiply.outer(fourths, factor_fourths).ravel()
        return squares, fourths


def _asked_factors(block: Block) -> dict[int, Operator]:
    """What a block asks of the attributes that it does not sum over, in their order."""
    factors = zip(block.axes, block.factors, strict=True)
    return {axis: factor for axis, factor in sorted(factors, key=lambda pair: pair[0]) if not isinstance(factor, Total)}


def _row_powers(factor: Operator) -> tuple[Matrix, Matrix]:
    """Sums of the squares and of the fourth powers of every row."""
    low, high = factor.entry_range
    squares = np.asarray(factor.row_norms_squared(), dtype=np.float64)
    if factor.integral and low >= -1 and high <= 1:
        return squares, squares
    step = max(1, ROW_BLOCK_BYTES // (16 * factor.shape[1]))
    rows = (factor.rows(start, stop).astype(np.float64) for start, stop in batches(factor.shape[0], step))
    return squares, np.concatenate([np.einsum("ij,ij,ij,ij->i", part, part, part, part) for part in rows])


@dataclass(frozen=True)
class CellRange:
    """Consecutive cells: those of one value of each of the first attributes, of some values of the next, and of all values of the others.

    Attributes:
        codes: the values of the first attributes.
        low, high: the values of the next one.
        shape: how many values it has of that one and of each of the others.
        start: its first cell.
    """

    codes: tuple[int, ...]
    low: int
    high: int
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        """The cell behind its last one."""
        return self.start + math.prod(self.shape)

    def inner_axes(self, axes: Axes) -> Axes:
        """The attributes of a table of which the box has several values, counted from the first such one."""
        return tuple(axis - len(self.codes) for axis in axes if axis >= len(self.codes))

    def table_index(self, axes: Axes) -> tuple[int | slice, ...]:
        """The part of a table of some attributes that the box adds to."""
        fixed = len(self.codes)
        return tuple(
            self.codes[axis] if axis < fixed else slice(self.low, self.high) if axis == fixed else slice(None)
            for axis in axes
        )


def _cell_ranges(shape: tuple[int, ...]) -> Iterator[CellRange]:
    """All cells in their order, at most ``PASS_CELLS`` at a time."""
    divided = next(axis for axis in range(len(shape)) if math.prod(shape[axis + 1 :]) <= PASS_CELLS)
    inner_shape = shape[divided + 1 :]
    step, start = max(1, PASS_CELLS // math.prod(inner_shape)), 0
    for codes in np.ndindex(*shape[:divided]):
        for low, high in batches(shape[divided], step):
            box = CellRange(codes, low, high, (high - low, *inner_shape), start)
            yield box
            start = box.stop


def _sum_out(
    cells: Matrix, shape: tuple[int, ...], wanted: Set[Axes], axis: int = 0, kept: Axes = ()
) -> Iterator[tuple[Axes, Matrix]]:
    """Tables of some cells, by their attributes. What several of them sum over is summed once, so that all take a few additions a cell.

    Args:
        cells: in the order of the attributes in ``kept``, and then of those from ``axis`` on; the others are summed over.
    """
    if axis == len(shape):
        yield kept, cells
        return
    with_axis = {axes for axes in wanted if axis in axes}
    if with_axis:
        yield from _sum_out(cells, shape, with_axis, axis + 1, (*kept, axis))
    without = wanted - with_axis
    if without:
        kept_cells = math.prod(shape[kept_axis] for kept_axis in kept)
        sums = cells.reshape(kept_cells, shape[axis], -1).sum(axis=1).ravel()
        yield from _sum_out(sums, shape, without, axis + 1, kept)
