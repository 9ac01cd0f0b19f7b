"""Weighted sums over the nodes of a hierarchy in whole numbers: what is measured of a column of counts, and least squares for it.

The row of a node u counts k_u e_i for every record of its leaf i, that of a leaf K_i, where e_i is the same at all levels. So a
column's squared length is K_i^2 + e_i^2 sum_u k_u^2, and least squares for the numbers e_i x_i is that of a tree.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy

from dpdist.grids.node_variances import NodeVariances, Passes
from dpdist.operators import Matrix, Sparse


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
