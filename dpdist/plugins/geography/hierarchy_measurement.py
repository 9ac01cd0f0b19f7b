"""Weighted sums over nested levels on the integer grid: what is measured, its exact sensitivity, and answers of all levels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Literal

import numpy as np
import scipy

from dpdist.api import InvalidInput
from dpdist.api.mechanisms import (
    GRID_BITS,
    MEMORY_COPIES,
    MEMORY_SHARE,
    SIZES,
    ArrayVector,
    Counts,
    Form,
    Identity,
    IdentityFactor,
    Kronecker,
    Layout,
    Matrix,
    MatrixFactor,
    MeasuredSpace,
    ProductSpace,
    ProgressCallback,
    SharedArray,
    Sizes,
    SpaceTerm,
    Sparse,
    StageBytes,
    Target,
    Total,
    TransformedAnswers,
    TransformedMeasurement,
    TransformPass,
    Vector,
    Workload,
    Workspace,
    answer_bytes,
    check_published_size,
    repeat_values,
    shard_bytes,
    slab_bytes,
    to_array,
)
from dpdist.api.pages import Operator
from dpdist.plugins.geography.nested_groups import CountedNodes, NestedLevels
from dpdist.plugins.geography.node_variances import MergedHierarchy, NodeVariances


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
    def measured_nodes(self) -> tuple[Matrix, ...]:
        """The measured nodes of every level but the last."""
        return tuple(np.flatnonzero(k) for k in self.inner)

    @property
    def rows(self) -> int:
        """Measured values of a column."""
        return sum(level_nodes.size for level_nodes in self.measured_nodes) + self.leaves.size

    @cached_property
    def starts(self) -> tuple[Matrix, ...]:
        """For every node of a level but the last the first of its children."""
        return tuple(np.searchsorted(p, np.arange(k.size)) for p, k in zip(self.parents, self.inner, strict=True))

    @cached_property
    def _members(self) -> tuple[Matrix, Matrix]:
        """The values in the order of their leaves, and where each leaf starts."""
        order = np.argsort(self.nodes, kind="stable")
        return order, np.searchsorted(self.nodes[order], np.arange(self.leaves.size))

    def sum_children(self, level: int, values: Matrix) -> Matrix:
        """Sums over the children of every node of a level, (columns, nodes)."""
        return np.asarray(np.add.reduceat(values, self.starts[level], axis=1))

    def measure(self, columns: Matrix) -> Matrix:
        """z of columns of counts, (columns, values) int64, exact: (columns, rows), the root first."""
        order, starts = self._members
        counts = np.add.reduceat(columns[:, order], starts, axis=1)
        measured, sums = [counts * self.leaves], counts * self.scale
        for level in reversed(range(len(self.inner))):
            sums = self.sum_children(level, sums)
            measured.insert(0, sums[:, self.measured_nodes[level]] * self.inner[level][self.measured_nodes[level]])
        return np.concatenate(measured, axis=1)

    @cached_property
    def variances(self) -> NodeVariances:
        """Of every node's sum, for noise of deviation 1."""
        tree = tuple(np.zeros(k.size) for k in (*self.inner, self.leaves))
        hierarchy = MergedHierarchy(self.parents, tree, np.ones(self.leaves.size))
        precisions = [k.astype(np.float64) ** 2 for k in self.inner]
        return NodeVariances.of(hierarchy, [*precisions, (self.leaves / self.scale) ** 2], 1.0 / self.scale)

    def estimates(self, measured: Matrix) -> list[Matrix]:
        """Least-squares estimates of the sums of all nodes, level by level, (columns, nodes): they add up."""
        variances, stop = self.variances, self.rows - self.leaves.size
        node_sums = [measured[:, stop:] * (self.scale / self.leaves)]
        child_sums: list[Matrix] = []
        for level in reversed(range(len(self.inner))):
            level_nodes, sums = self.measured_nodes[level], self.sum_children(level, node_sums[0])
            k, inside = self.inner[level][level_nodes], variances.inside[level].unscaled[level_nodes]
            updated_sums = sums.copy()
            updated_sums[:, level_nodes] += (
                k * inside * (measured[:, stop - level_nodes.size : stop] - k * sums[:, level_nodes])
            )
            child_sums.insert(0, sums)
            node_sums.insert(0, updated_sums)
            stop -= level_nodes.size
        for level, parents in enumerate(self.parents):
            gains = variances.inside[level + 1].unscaled / variances.below[level].unscaled[parents]
            node_sums[level + 1] += gains * (node_sums[level] - child_sums[level])[:, parents]
        estimates = [node_sums[-1] / self.scale]
        for level in reversed(range(len(self.inner))):
            estimates.insert(0, self.sum_children(level, estimates[0]))
        return estimates

    @property
    def column_squares(self) -> Matrix:
        """Squared length of every leaf's column, int64: about 2^60."""
        ancestor_squares = np.zeros(1, dtype=np.int64)
        for k, parents in zip(self.inner, self.parents, strict=True):
            ancestor_squares = (ancestor_squares + k**2)[parents]
        return np.asarray(self.leaves**2 + self.scale**2 * ancestor_squares)

    @property
    def matrix(self) -> Sparse:
        """The rows over the values of the attribute."""
        values, node = np.arange(self.nodes.size), self.nodes
        entries, level_rows = self.scale[node], [_rows(self.leaves[node], node, values, self.leaves.size)]
        for level in reversed(range(len(self.inner))):
            k, node = self.inner[level], self.parents[level][node]
            level_rows.insert(0, _rows(k[node] * entries, node, values, k.size)[self.measured_nodes[level]])
        return Sparse(scipy.sparse.csr_array(scipy.sparse.vstack(level_rows)))

    def arrays(self) -> tuple[Matrix, ...]:
        """All that it is made of."""
        return (*self.parents, self.nodes, self.scale, *self.inner, self.leaves)

    @staticmethod
    def from_arrays(arrays: tuple[Matrix, ...]) -> NodeRows:
        """The rows that ``arrays`` were taken of."""
        depth = (len(arrays) - 3) // 2
        return NodeRows(arrays[:depth], arrays[depth], arrays[depth + 1], arrays[depth + 2 : -1], arrays[-1])


def _rows(entries: Matrix, rows: Matrix, columns: Matrix, count: int) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array((entries.astype(np.float64), (rows, columns)), shape=(count, columns.size))


SPACING = 2.0**-GRID_BITS
LINE_COPIES = 8
"""Arrays as long as a column and all that is measured of it, while it is measured or read."""


@dataclass(frozen=True)
class HierarchyMeasurement(TransformedMeasurement):
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
        return self.levels.surrounding_cells(self.shape)[0]

    @property
    def after(self) -> int:
        """The same of those after it. Columns are numbered by these, then by those before."""
        return self.levels.surrounding_cells(self.shape)[1]

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
        return Form.STORED if cells * LINE_COPIES > self.sizes.streamed_cells else Form.IN_MEMORY

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
        if self.form is Form.IN_MEMORY:
            columns = LINE_COPIES * 8 * (self.rows + layout.size)
            return StageBytes(MEMORY_COPIES * 8 * layout.size + columns + rows, answer_bytes(workload) + columns + rows)
        slab = max(slab_bytes(worker_bytes, max(layout.size, self.rows)), MEMORY_SHARE * self._line_bytes)
        return StageBytes(shard_bytes(max(layout.size, self.rows)) + rows, slab + rows)

    def exact_values(self, counts: Counts, work: Workspace, report_progress: ProgressCallback | None = None) -> Vector:
        if self.form is Form.IN_MEMORY:
            table = counts.table(self.levels.axes)
            counts.check_limit(int(table.sum()))
            return ArrayVector(self.node_rows.measure(self._columns(table)).reshape(-1))
        counts.check(work)
        values, after = self.node_rows.nodes.size * self.before, self.after
        task = partial(_measure_slab, self._share_rows(work), self.before)
        sides = [TransformPass(values, transpose_rows, 4 * 8 * after), TransformPass(after, task, self._line_bytes)]
        return work.run_passes(counts.values, sides, [Target(self.before * self.node_rows.rows, np.int64)], report_progress)[
            0
        ]

    def _columns(self, table: Matrix) -> Matrix:
        """The columns of a table, (columns, values)."""
        moved = np.moveaxis(table.reshape(self.before, -1, self.after), (2, 0, 1), (0, 1, 2))
        return np.ascontiguousarray(moved).reshape(self.before * self.after, -1)

    def _share_rows(self, work: Workspace) -> SharedRows:
        arrays = self.node_rows.arrays()
        flat = work.write(ArrayVector(np.concatenate([np.asarray(array, dtype=np.int64) for array in arrays])))
        return SharedRows(SharedArray(flat, (flat.size,)), tuple(array.size for array in arrays))

    def transform_answers(
        self, workload: Workload, work: Workspace, measured: Vector, report_progress: ProgressCallback | None = None
    ) -> TransformedAnswers:
        """All answers; a standard error depends on the node alone."""
        if workload.fingerprint != self.levels.fingerprint:
            raise InvalidInput("a measurement of nested levels answers only the queries that it was made for")
        before, after, rows, query_levels = self.before, self.after, self.node_rows, self.levels.counted_nodes
        deviations = [
            np.tile(np.sqrt(rows.variances.values[query_level.level][query_level.nodes]), before)
            for query_level in query_levels
        ]
        each_node = ArrayVector(np.concatenate(deviations))
        if work.in_memory:
            answers = _answer_levels(rows, query_levels, before, to_array(measured).reshape(after * before, -1))
            return TransformedAnswers(ArrayVector(answers.reshape(-1)), deviations=repeat_values(each_node, after, 1))
        line_count = before * sum(query_level.nodes.size for query_level in query_levels)
        levels = np.array([[query_level.level, query_level.nodes.size] for query_level in query_levels])
        nodes = work.write(ArrayVector(np.concatenate([query_level.nodes for query_level in query_levels])))
        task = partial(_answer_slab, self._share_rows(work), SharedArray(nodes, (nodes.size,)), levels, before)
        sides = [
            TransformPass(after, task, self._line_bytes + 3 * 8 * line_count),
            TransformPass(line_count, unchanged_rows, 4 * 8 * after),
        ]
        stored_answers = work.run_passes(measured, sides, [Target(after, np.float64)], report_progress)[0]
        return TransformedAnswers(stored_answers, deviations=repeat_values(work.write(each_node), after, 1))

    def row_blocks(self) -> Iterator[Matrix]:
        """The measured rows over all cells: for domains that can be written down."""
        factors: list[Operator] = [Total(size) for size in self.shape]
        for axis in self.levels.other_axes:
            factors[axis] = Identity(self.shape[axis])
        factors[self.levels.axis] = self.node_rows.matrix
        rows = Kronecker(factors).dense().reshape(self.before, self.node_rows.rows, self.after, -1)
        yield rows.transpose(2, 0, 1, 3).reshape(self.rows, -1).astype(np.int64)

    def measured_space(self, measured: Vector, shape: tuple[int, ...], most_bytes: int) -> MeasuredSpace:
        """One product: the rows over the attribute that has the levels, and the cells of the others."""
        rows, values = self.node_rows.rows, self.node_rows.nodes.size
        check_published_size(self.rows + rows * values, most_bytes)
        table = to_array(measured).reshape(self.after, self.before, rows).transpose(1, 2, 0)
        axes = self.levels.axes
        matrix = MatrixFactor(self.node_rows.matrix.dense().astype(np.int64))
        factors = tuple(matrix if axis == self.levels.axis else IdentityFactor(shape[axis]) for axis in axes)
        return ProductSpace((SpaceTerm(axes, factors),), shape, np.ascontiguousarray(table).ravel())


@dataclass(frozen=True)
class SharedRows:
    """Rows that tasks read from where they were written."""

    flat: SharedArray
    sizes: tuple[int, ...]

    @cached_property
    def rows(self) -> NodeRows:
        """The rows."""
        return NodeRows.from_arrays(tuple(np.split(self.flat.values, np.cumsum(self.sizes)[:-1])))

    def __reduce__(self) -> tuple[type[SharedRows], tuple[SharedArray, tuple[int, ...]]]:
        return SharedRows, (self.flat, self.sizes)


def transpose_rows(start: int, slab: Matrix) -> Matrix:
    """Some rows as parts of columns."""
    return np.ascontiguousarray(slab.T)


def unchanged_rows(start: int, rows: Matrix) -> tuple[Matrix]:
    """Some rows, put together again."""
    return (rows,)


def _measure_slab(shared_rows: SharedRows, before: int, start: int, values: Matrix) -> tuple[Matrix]:
    """z of some lines, each of which is some columns."""
    line_count = values.shape[0]
    return (shared_rows.rows.measure(values.reshape(line_count * before, -1)).reshape(line_count, -1),)


def _answer_slab(
    shared_rows: SharedRows, nodes: SharedArray, levels: Matrix, before: int, start: int, slab: Matrix
) -> Matrix:
    """What some lines say of all that is asked for, (queries of a column, lines)."""
    node_lists = np.split(nodes.values, np.cumsum(levels[:, 1])[:-1])
    query_levels = tuple(
        CountedNodes(int(level), level_nodes) for (level, _), level_nodes in zip(levels, node_lists, strict=True)
    )
    return _answer_levels(shared_rows.rows, query_levels, before, slab.reshape(slab.shape[0] * before, -1))


def _answer_levels(rows: NodeRows, query_levels: tuple[CountedNodes, ...], before: int, measured: Matrix) -> Matrix:
    """The same of columns, (columns, rows): (queries of a line, lines)."""
    estimates = rows.estimates(measured)
    level_answers = (
        estimates[query_level.level][:, query_level.nodes].reshape(-1, before, query_level.nodes.size)
        for query_level in query_levels
    )
    return np.concatenate([block.transpose(1, 2, 0).reshape(-1, block.shape[0]) for block in level_answers])
