"""Weighted sums over nested levels on the integer grid: what is measured, its exact sensitivity, and answers of all levels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Literal

import numpy as np
import scipy

from dpdist.arrays.array_workspace import OnDone, Workspace
from dpdist.arrays.lazy_vector import Held, Repeated, Vector, held
from dpdist.arrays.transpose_passes import MEMORY_SHARE, Side, Target, slab_bytes
from dpdist.domain import Layout
from dpdist.errors import InvalidInput
from dpdist.measurement.coefficient_vectors import Form
from dpdist.measurement.dense_measurement import OverCells
from dpdist.measurement.integer_measurement import (
    GRID_BITS,
    HELD_COPIES,
    Counts,
    StageBytes,
    answer_bytes,
    shard_bytes,
    small_enough,
)
from dpdist.measurement.transformed_answers import Transformed, TransformedGrid
from dpdist.operators import Identity, Kronecker, Matrix, Operator, Sparse, Total
from dpdist.reconstruction.least_squares import Shared
from dpdist.reconstruction.measured_space import MeasuredSpace
from dpdist.reconstruction.node_variances import NodeVariances, Passes
from dpdist.reconstruction.product_space import Cells, ListedFactor, OpenTerm, ProductSpace
from dpdist.size_limits import SIZES, Sizes
from dpdist.workloads import Workload
from dpdist.workloads.nested_groups import CountedNodes, NestedLevels


@dataclass(frozen=True)
class NodeRows:
    """What is measured of a column of counts, one a value: whole numbers throughout.

    Attributes:
        parents: of every level of nodes but the first, ascending.
        nodes: for every value its node of the last level.
        scale: e of every leaf.
        inner: k of the nodes of every level but the last; 0 where nothing is measured.
        leaves: K of every leaf.
    """

    parents: tuple[Matrix, ...] = field(repr=False)
    nodes: Matrix = field(repr=False)
    scale: Matrix = field(repr=False)
    inner: tuple[Matrix, ...] = field(repr=False)
    leaves: Matrix = field(repr=False)

    @cached_property
    def kept(self) -> tuple[Matrix, ...]:
        """The measured nodes of every level but the last."""
        return tuple(np.flatnonzero(k) for k in self.inner)

    @property
    def rows(self) -> int:
        """Measured values of a column."""
        return sum(kept.size for kept in self.kept) + self.leaves.size

    @cached_property
    def starts(self) -> tuple[Matrix, ...]:
        """For every node of a level but the last the first of its children."""
        return tuple(np.searchsorted(p, np.arange(k.size)) for p, k in zip(self.parents, self.inner, strict=True))

    @cached_property
    def _members(self) -> tuple[Matrix, Matrix]:
        """The values in the order of their leaves, and where each leaf starts."""
        order = np.argsort(self.nodes, kind="stable")
        return order, np.searchsorted(self.nodes[order], np.arange(self.leaves.size))

    def up(self, level: int, values: Matrix) -> Matrix:
        """Sums over the children of every node of a level, (columns, nodes)."""
        return np.asarray(np.add.reduceat(values, self.starts[level], axis=1))

    def measure(self, columns: Matrix) -> Matrix:
        """z of columns of counts, (columns, values) int64, exact: (columns, rows), the root first."""
        order, starts = self._members
        counts = np.add.reduceat(columns[:, order], starts, axis=1)
        out, sums = [counts * self.leaves], counts * self.scale
        for level in reversed(range(len(self.inner))):
            sums = self.up(level, sums)
            out.insert(0, sums[:, self.kept[level]] * self.inner[level][self.kept[level]])
        return np.concatenate(out, axis=1)

    @cached_property
    def variances(self) -> NodeVariances:
        """Of every node's sum, for noise of deviation 1."""
        tree = tuple(np.zeros(k.size) for k in (*self.inner, self.leaves))
        passes = Passes(self.parents, tree, np.ones(self.leaves.size))
        a = [k.astype(np.float64) ** 2 for k in self.inner]
        return NodeVariances.of(passes, [*a, (self.leaves / self.scale) ** 2], 1.0 / self.scale)

    def estimates(self, measured: Matrix) -> list[Matrix]:
        """Least-squares estimates of the sums of all nodes, level by level, (columns, nodes): they add up."""
        variances, stop = self.variances, self.rows - self.leaves.size
        found = [measured[:, stop:] * (self.scale / self.leaves)]
        below: list[Matrix] = []
        for level in reversed(range(len(self.inner))):
            kept, sums = self.kept[level], self.up(level, found[0])
            k, inside = self.inner[level][kept], variances.inside[level].plain[kept]
            own = sums.copy()
            own[:, kept] += k * inside * (measured[:, stop - kept.size : stop] - k * sums[:, kept])
            below.insert(0, sums)
            found.insert(0, own)
            stop -= kept.size
        for level, parents in enumerate(self.parents):
            shares = variances.inside[level + 1].plain / variances.below[level].plain[parents]
            found[level + 1] += shares * (found[level] - below[level])[:, parents]
        out = [found[-1] / self.scale]
        for level in reversed(range(len(self.inner))):
            out.insert(0, self.up(level, out[0]))
        return out

    @property
    def column_squares(self) -> Matrix:
        """Squared length of every leaf's column, int64: about 2^60."""
        shared = np.zeros(1, dtype=np.int64)
        for k, parents in zip(self.inner, self.parents, strict=True):
            shared = (shared + k**2)[parents]
        return np.asarray(self.leaves**2 + self.scale**2 * shared)

    @property
    def matrix(self) -> Sparse:
        """The rows over the values of the attribute."""
        values, node = np.arange(self.nodes.size), self.nodes
        entries, parts = self.scale[node], [_rows(self.leaves[node], node, values, self.leaves.size)]
        for level in reversed(range(len(self.inner))):
            k, node = self.inner[level], self.parents[level][node]
            parts.insert(0, _rows(k[node] * entries, node, values, k.size)[self.kept[level]])
        return Sparse(scipy.sparse.csr_array(scipy.sparse.vstack(parts)))

    def arrays(self) -> tuple[Matrix, ...]:
        """All that it is made of."""
        return (*self.parents, self.nodes, self.scale, *self.inner, self.leaves)

    @staticmethod
    def made_of(arrays: tuple[Matrix, ...]) -> NodeRows:
        """The rows that ``arrays`` were taken of."""
        depth = (len(arrays) - 3) // 2
        return NodeRows(arrays[:depth], arrays[depth], arrays[depth + 1], arrays[depth + 2 : -1], arrays[-1])


def _rows(entries: Matrix, rows: Matrix, columns: Matrix, count: int) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array((entries.astype(np.float64), (rows, columns)), shape=(count, columns.size))


SPACING = 2.0**-GRID_BITS
LINE_COPIES = 8
"""Arrays as long as a column and all that is measured of it, while it is measured or read."""


@dataclass(frozen=True)
class NestedGrid(TransformedGrid, OverCells):
    """Weighted sums over nodes, of every column of a table: those of one column follow each other, the root first.

    Attributes:
        levels: what is asked for.
        shape: sizes of the domain's attributes.
        sensitivity_squared: exact for add-remove; for replace-one twice that, which two cells of different columns reach.
    """

    levels: NestedLevels
    node_rows: NodeRows
    shape: tuple[int, ...]
    sensitivity_squared: int
    spacing: float = SPACING
    norm: Literal["l2"] = "l2"
    sizes: Sizes = SIZES

    @property
    def before(self) -> int:
        """Cells of the table of the attributes before the one that has the levels."""
        return self.levels.beside(self.shape)[0]

    @property
    def after(self) -> int:
        """The same of those after it. Columns are numbered by these, then by those before."""
        return self.levels.beside(self.shape)[1]

    @property
    def rows(self) -> int:
        return self.before * self.after * self.node_rows.rows

    @property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        return (self.levels.axes,)

    @property
    def form(self) -> Form:
        """Through the store where the table, with the copies that holding it takes, is larger than others that are held."""
        cells = self.before * self.after * self.node_rows.nodes.size
        return Form.STORED if cells * LINE_COPIES > self.sizes.streamed_cells else Form.HELD

    @property
    def digest(self) -> str:
        content = hashlib.sha256(
            repr(("nested", self.levels.axes, self.levels.axis, self.shape, self.sensitivity_squared)).encode()
        )
        for array in self.node_rows.arrays():
            content.update(repr(array.shape).encode())
            content.update(np.ascontiguousarray(array, dtype=np.int64).tobytes())
        return content.hexdigest()

    @property
    def _line_bytes(self) -> int:
        return LINE_COPIES * 8 * self.before * (self.node_rows.rows + self.node_rows.nodes.size)

    def memory(self, workload: Workload, layout: Layout, worker_bytes: int) -> StageBytes:
        """Slabs of columns where the table is too large to be held, else copies of it and of z; and the rows in every task."""
        rows = LINE_COPIES * 8 * (self.node_rows.rows + self.node_rows.nodes.size)
        if self.form is Form.HELD:
            columns = LINE_COPIES * 8 * (self.rows + layout.size)
            return StageBytes(HELD_COPIES * 8 * layout.size + columns + rows, answer_bytes(workload) + columns + rows)
        slab = max(slab_bytes(worker_bytes, max(layout.size, self.rows)), MEMORY_SHARE * self._line_bytes)
        return StageBytes(shard_bytes(max(layout.size, self.rows)) + rows, slab + rows)

    def exact(self, counts: Counts, work: Workspace, on_done: OnDone | None = None) -> Vector:
        if self.form is Form.HELD:
            table = counts.table(self.levels.axes)
            counts.check_few(int(table.sum()))
            return Held(self.node_rows.measure(self._columns(table)).reshape(-1))
        counts.check(work)
        values, after = self.node_rows.nodes.size * self.before, self.after
        task = partial(_measured, self._shared(work), self.before)
        sides = [Side(values, transposed, 4 * 8 * after), Side(after, task, self._line_bytes)]
        return work.passes(counts.values, sides, [Target(self.before * self.node_rows.rows, np.int64)], on_done)[0]

    def _columns(self, table: Matrix) -> Matrix:
        """The columns of a table, (columns, values)."""
        moved = np.moveaxis(table.reshape(self.before, -1, self.after), (2, 0, 1), (0, 1, 2))
        return np.ascontiguousarray(moved).reshape(self.before * self.after, -1)

    def _shared(self, work: Workspace) -> SharedRows:
        arrays = self.node_rows.arrays()
        flat = work.write(Held(np.concatenate([np.asarray(each, dtype=np.int64) for each in arrays])))
        return SharedRows(Shared(flat, (flat.size,)), tuple(each.size for each in arrays))

    def transformed(
        self, workload: Workload, work: Workspace, measured: Vector, on_done: OnDone | None = None
    ) -> Transformed:
        """All answers; a standard error depends on the node alone."""
        if workload.fingerprint != self.levels.fingerprint:
            raise InvalidInput("a measurement of nested levels answers only the queries that it was made for")
        before, after, rows, asked = self.before, self.after, self.node_rows, self.levels.asked
        spread = [np.tile(np.sqrt(rows.variances.values[each.level][each.nodes]), before) for each in asked]
        each_node = Held(np.concatenate(spread))
        if work.in_memory:
            answers = _answered(rows, asked, before, held(measured).reshape(after * before, -1))
            return Transformed(Held(answers.reshape(-1)), spread=Repeated(each_node, after, 1))
        lines = before * sum(each.nodes.size for each in asked)
        levels = np.array([[each.level, each.nodes.size] for each in asked])
        nodes = work.write(Held(np.concatenate([each.nodes for each in asked])))
        task = partial(_read, self._shared(work), Shared(nodes, (nodes.size,)), levels, before)
        sides = [Side(after, task, self._line_bytes + 3 * 8 * lines), Side(lines, as_it_is, 4 * 8 * after)]
        made = work.passes(measured, sides, [Target(after, np.float64)], on_done)[0]
        return Transformed(made, spread=Repeated(work.write(each_node), after, 1))

    def row_blocks(self) -> Iterator[Matrix]:
        """The measured rows over all cells: for domains that can be written down."""
        factors: list[Operator] = [Total(size) for size in self.shape]
        for axis in self.levels.others:
            factors[axis] = Identity(self.shape[axis])
        factors[self.levels.axis] = self.node_rows.matrix
        rows = Kronecker(factors).dense().reshape(self.before, self.node_rows.rows, self.after, -1)
        yield rows.transpose(2, 0, 1, 3).reshape(self.rows, -1).astype(np.int64)

    def space(self, measured: Vector, shape: tuple[int, ...], most_bytes: int) -> MeasuredSpace:
        """One product: the rows over the attribute that has the levels, and the cells of the others."""
        rows, values = self.node_rows.rows, self.node_rows.nodes.size
        small_enough(self.rows + rows * values, most_bytes)
        table = held(measured).reshape(self.after, self.before, rows).transpose(1, 2, 0)
        axes = self.levels.axes
        matrix = ListedFactor(self.node_rows.matrix.dense().astype(np.int64))
        factors = tuple(matrix if axis == self.levels.axis else Cells(shape[axis]) for axis in axes)
        return ProductSpace((OpenTerm(axes, factors),), shape, np.ascontiguousarray(table).ravel())


@dataclass(frozen=True)
class SharedRows:
    """Rows that tasks read from where they were written."""

    flat: Shared
    sizes: tuple[int, ...]

    @cached_property
    def rows(self) -> NodeRows:
        """The rows."""
        return NodeRows.made_of(tuple(np.split(self.flat.values, np.cumsum(self.sizes)[:-1])))

    def __reduce__(self) -> tuple[type[SharedRows], tuple[Shared, tuple[int, ...]]]:
        return SharedRows, (self.flat, self.sizes)


def transposed(start: int, slab: Matrix) -> Matrix:
    """Some rows as parts of columns."""
    return np.ascontiguousarray(slab.T)


def as_it_is(start: int, gathered: Matrix) -> tuple[Matrix]:
    """Some rows, put together again."""
    return (gathered,)


def _measured(shared: SharedRows, before: int, start: int, gathered: Matrix) -> tuple[Matrix]:
    """z of some lines, each of which is some columns."""
    lines = gathered.shape[0]
    return (shared.rows.measure(gathered.reshape(lines * before, -1)).reshape(lines, -1),)


def _read(shared: SharedRows, nodes: Shared, levels: Matrix, before: int, start: int, slab: Matrix) -> Matrix:
    """What some lines say of all that is asked for, (queries of a column, lines)."""
    parts = np.split(nodes.values, np.cumsum(levels[:, 1])[:-1])
    asked = tuple(CountedNodes(int(level), part) for (level, _), part in zip(levels, parts, strict=True))
    return _answered(shared.rows, asked, before, slab.reshape(slab.shape[0] * before, -1))


def _answered(rows: NodeRows, asked: tuple[CountedNodes, ...], before: int, measured: Matrix) -> Matrix:
    """The same of columns, (columns, rows): (queries of a line, lines)."""
    found = rows.estimates(measured)
    parts = (found[each.level][:, each.nodes].reshape(-1, before, each.nodes.size) for each in asked)
    return np.concatenate([part.transpose(1, 2, 0).reshape(-1, part.shape[0]) for part in parts])
