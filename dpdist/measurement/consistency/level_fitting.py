"""The same table at nested levels, not negative and adding up: the sums of non-negative counts of the finest groups that are closest.

Every column of the table, one cell of the other attributes, is a tree by itself, and its closest counts are found exactly
(``nearest_counts``), in the time of putting the groups in order. The true answers are such sums, so that the total squared error, weighted
as in the workload, is never larger than that of the given answers, whatever these are (docs/mathematics.md, section 12).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from dpdist.arrays.array_workspace import MEMORY, OnDone, Workspace
from dpdist.arrays.lazy_vector import Held, Vector, held
from dpdist.arrays.transpose_passes import Side, Target
from dpdist.measurement.hierarchy_measurement import as_it_is, transposed
from dpdist.operators import Matrix
from dpdist.reconstruction.least_squares import Shared
from dpdist.workloads import Workload
from dpdist.workloads.nested_groups import Hierarchy, NestedLevels, nested_of

UNASKED = 1e-9
"""Weight of finest groups that no query counts, relative to the largest: without any their counts would not be determined."""
NODE_COPIES = 10
"""Arrays over the groups of all levels, while a column is fitted."""
TIMES = 60
"""Newton steps for what a record is worth where the number of all is given: 4 to 8 are usual."""


@dataclass(frozen=True)
class LevelFit:
    """The fit of a workload of nested levels.

    Attributes:
        blocks: groups that each block of queries counts.
        before, after: cells of the other attributes before the one that has the levels, and after it.
    """

    blocks: tuple[int, ...]
    before: int
    after: int
    nodes: int
    inner: int
    flat: Shared

    @classmethod
    def of(cls, workload: Workload, work: Workspace) -> LevelFit:
        """The fit. Raises: InvalidInput where the workload asks for something else."""
        levels = nested_of(workload)
        arrays, tree = _arrays(levels), levels.tree
        flat = work.write(Held(np.concatenate([each.astype(np.float64) for each in arrays])))
        blocks = tuple(each.nodes.size for each in levels.asked)
        nodes = sum(tree.sizes)
        return cls(blocks, *levels.beside(workload.domain.shape), nodes, nodes - tree.sizes[-1], Shared(flat, (flat.size,)))

    @cached_property
    def _tree(self) -> tuple[Matrix, ...]:
        """What ``_arrays`` gave: indices as whole numbers."""
        ends = np.cumsum([self.inner + 1, self.inner, self.inner, self.nodes, sum(self.blocks)])
        *parts, shares = np.split(self.flat.values, ends)
        return *(np.ascontiguousarray(each).astype(np.int64) for each in (*parts[:3], parts[4])), parts[3].copy(), shares

    def __reduce__(self) -> tuple[type[LevelFit], tuple[object, ...]]:
        return LevelFit, (self.blocks, self.before, self.after, self.nodes, self.inner, self.flat)

    def fitted(self, answers: Vector, work: Workspace, price: float = 0.0, on_done: OnDone | None = None) -> Vector:
        """The closest answers, line by line."""
        lines = self.before * sum(self.blocks)
        fit = Side(self.after, partial(_fitted, self, price), _line_bytes(self.before, self.blocks, self.nodes))
        sides = [Side(lines, transposed, 4 * 8 * self.after), fit, Side(lines, as_it_is, 4 * 8 * self.after)]
        return work.passes(answers, sides, [Target(self.after, np.float64)], on_done)[0]

    def held(self, values: Matrix, records: float | None) -> Matrix:
        """The same of answers in memory, given the number of all records where it is public."""
        if records is None:
            return held(self.fitted(Held(values), MEMORY))
        lines = values.reshape(-1, self.after)
        price, (found, total, growth) = 0.0, self._columns(lines, 0.0)
        while total < records:
            price = 2.0 * price + 1.0
            found, total, growth = self._columns(lines, price)
        for _ in range(TIMES):  # the total is convex in the price, so that Newton's method comes from above
            if abs(total - records) <= 1e-9 * (records + 1.0) or growth == 0:
                break
            price -= (total - records) / growth
            found, total, growth = self._columns(lines, price)
        return found.reshape(-1)

    def _columns(self, lines: Matrix, price: float) -> tuple[Matrix, float, float]:
        """Fitted lines, what all columns hold, and how fast that grows with the price."""
        from dpdist.reconstruction.nonnegative_tree import nearest_counts

        first, low, high, asked, weights, shares = self._tree
        parts = np.split(lines.T, np.cumsum(self.blocks)[:-1] * self.before, axis=1)
        given, start = np.zeros((lines.shape[1] * self.before, self.nodes)), 0
        for part, size in zip(parts, self.blocks, strict=True):
            own = slice(start, start + size)
            given[:, asked[own]] += part.reshape(-1, size) * shares[own]
            start += size
        found, growth = nearest_counts(first, low, high, weights, given, price)
        made = (
            found[:, nodes].reshape(-1, self.before * nodes.size) for nodes in np.split(asked, np.cumsum(self.blocks)[:-1])
        )
        return np.concatenate(list(made), axis=1).T, float(found[:, 0].sum()), growth


def line_bytes(workload: Workload) -> int:
    """What a line of a workload of nested levels takes while it is fitted."""
    levels = nested_of(workload)
    blocks = tuple(each.nodes.size for each in levels.asked)
    return _line_bytes(levels.beside(workload.domain.shape)[0], blocks, sum(levels.tree.sizes))


def _line_bytes(before: int, blocks: tuple[int, ...], nodes: int) -> int:
    """A column for every cell before the attribute that has the levels, and the tree."""
    return 8 * (before * (4 * sum(blocks) + 3 * nodes) + NODE_COPIES * nodes)


def _fitted(fit: LevelFit, price: float, start: int, slab: Matrix) -> Matrix:
    """Fitted answers of some lines, (queries of a line, lines)."""
    return fit._columns(slab.reshape(slab.shape[0], -1).T, price)[0]


def _arrays(levels: NestedLevels) -> tuple[Matrix, ...]:
    """The tree as ``nearest_counts`` takes it, then of every query its node and its share of the weight of this node."""
    tree = levels.tree
    starts = np.concatenate([[0], np.cumsum(tree.sizes)])
    weights = np.concatenate(tree.weights)
    shares = [each.squares / tree.weights[each.level][each.nodes] for each in levels.asked]
    leaves = weights[starts[-2] :]
    np.maximum(leaves, UNASKED * weights.max(), out=leaves)
    first = [tree.starts(level) + starts[level + 1] for level in range(tree.depth)]
    asked = [each.nodes + starts[each.level] for each in levels.asked]
    low, high = _leaves(tree)
    return np.concatenate([*first, [starts[-1]]]), low, high, weights, np.concatenate(asked), np.concatenate(shares)


def _leaves(tree: Hierarchy) -> tuple[Matrix, Matrix]:
    """Of every node that is no leaf the first leaf, and one past the last."""
    bounds = [(np.arange(tree.sizes[-1]), np.arange(1, tree.sizes[-1] + 1))]
    for level in reversed(range(tree.depth)):
        first = tree.starts(level)
        last = np.append(first[1:], tree.sizes[level + 1]) - 1
        bounds.insert(0, (bounds[0][0][first], bounds[0][1][last]))
    low, high = zip(*bounds[:-1], strict=True) if tree.depth else ((np.zeros(0),), (np.zeros(0),))
    return np.concatenate(low), np.concatenate(high)
