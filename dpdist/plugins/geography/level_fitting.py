"""The same table at nested levels, not negative and adding up: the sums of non-negative counts of the finest groups that are closest.

Every column of the table, one cell of the other attributes, is a tree by itself, and its closest counts are found exactly
(``nearest_counts``), in the time of putting the groups in order. The true answers are such sums, so that the total squared error, weighted
as in the workload, is never larger than that of the given answers, whatever these are (docs/mathematics.md, section 12).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from dpdist.api import InvalidInput
from dpdist.api.mechanisms import (
    MEMORY,
    ArrayVector,
    Matrix,
    SharedArray,
    Target,
    TransformPass,
    Vector,
    Workload,
    Workspace,
    to_array,
)
from dpdist.plugins.geography.hierarchy_measurement import transpose_rows, unchanged_rows
from dpdist.plugins.geography.nested_groups import Hierarchy, NestedLevels, nested_of
from dpdist.plugins.nonnegative_answers.answer_fit import AnswerFit, PreparedFit

UNQUERIED_WEIGHT = 1e-9
"""Weight of finest groups that no query counts, relative to the largest: without any their counts would not be determined."""
NODE_COPIES = 10
"""Arrays over the groups of all levels, while a column is fitted."""
NEWTON_STEPS = 60
"""Newton steps for what a record is worth where the number of all is given: 4 to 8 are usual."""


@dataclass(frozen=True)
class LevelFit(PreparedFit):
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
    flat: SharedArray

    @classmethod
    def of(cls, workload: Workload, work: Workspace) -> LevelFit:
        """The fit. Raises: InvalidInput where the workload asks for something else."""
        levels = nested_of(workload)
        arrays, tree = _tree_arrays(levels), levels.tree
        flat = work.write(ArrayVector(np.concatenate([entry.astype(np.float64) for entry in arrays])))
        blocks = tuple(entry.nodes.size for entry in levels.counted_nodes)
        nodes = sum(tree.sizes)
        return cls(
            blocks,
            *levels.surrounding_cells(workload.domain.shape),
            nodes,
            nodes - tree.sizes[-1],
            SharedArray(flat, (flat.size,)),
        )

    @cached_property
    def _tree(self) -> tuple[Matrix, ...]:
        """What ``_tree_arrays`` gave: indices as whole numbers."""
        ends = np.cumsum([self.inner + 1, self.inner, self.inner, self.nodes, sum(self.blocks)])
        *tree_arrays, weight_shares = np.split(self.flat.values, ends)
        return (
            *(np.ascontiguousarray(indices).astype(np.int64) for indices in (*tree_arrays[:3], tree_arrays[4])),
            tree_arrays[3].copy(),
            weight_shares,
        )

    def __reduce__(self) -> tuple[type[LevelFit], tuple[object, ...]]:
        return LevelFit, (self.blocks, self.before, self.after, self.nodes, self.inner, self.flat)

    def fit_stored(self, answers: Vector, work: Workspace) -> Vector:
        """The closest answers, line by line."""
        line_count = self.before * sum(self.blocks)
        fit = TransformPass(self.after, partial(_fit_slab, self), _line_bytes(self.before, self.blocks, self.nodes))
        sides = [
            TransformPass(line_count, transpose_rows, 4 * 8 * self.after),
            fit,
            TransformPass(line_count, unchanged_rows, 4 * 8 * self.after),
        ]
        return work.run_passes(answers, sides, [Target(self.after, np.float64)])[0]

    def fit_in_memory(self, values: Matrix, records: float | None) -> Matrix:
        """The same of answers in memory, given the number of all records where it is public."""
        if records is None:
            return to_array(self.fit_stored(ArrayVector(values), MEMORY))
        line_values = values.reshape(-1, self.after)
        price, (fitted_lines, total, growth) = 0.0, self._fit_columns(line_values, 0.0)
        while total < records:
            price = 2.0 * price + 1.0
            fitted_lines, total, growth = self._fit_columns(line_values, price)
        for _ in range(NEWTON_STEPS):  # the total is convex in the price, so that Newton's method comes from above
            if abs(total - records) <= 1e-9 * (records + 1.0) or growth == 0:
                break
            price -= (total - records) / growth
            fitted_lines, total, growth = self._fit_columns(line_values, price)
        return fitted_lines.reshape(-1)

    def _fit_columns(self, line_values: Matrix, price: float) -> tuple[Matrix, float, float]:
        """Fitted lines, what all columns hold, and how fast that grows with the price."""
        from dpdist.plugins.geography.nonnegative_tree import nearest_counts

        first_child, low, high, query_nodes, weights, weight_shares = self._tree
        block_values = np.split(line_values.T, np.cumsum(self.blocks)[:-1] * self.before, axis=1)
        targets, start = np.zeros((line_values.shape[1] * self.before, self.nodes)), 0
        for block, size in zip(block_values, self.blocks, strict=True):
            block_slice = slice(start, start + size)
            targets[:, query_nodes[block_slice]] += block.reshape(-1, size) * weight_shares[block_slice]
            start += size
        counts, growth = nearest_counts(first_child, low, high, weights, targets, price)
        block_answers = (
            counts[:, nodes].reshape(-1, self.before * nodes.size)
            for nodes in np.split(query_nodes, np.cumsum(self.blocks)[:-1])
        )
        return np.concatenate(list(block_answers), axis=1).T, float(counts[:, 0].sum()), growth


class NestedLevelFit(AnswerFit):
    """The fit of workloads of nested levels."""

    def can_fit(self, workload: Workload) -> bool:
        try:
            nested_of(workload)
        except InvalidInput:
            return False
        return True

    def line_bytes(self, workload: Workload) -> int:
        levels = nested_of(workload)
        blocks = tuple(query_level.nodes.size for query_level in levels.counted_nodes)
        return _line_bytes(levels.surrounding_cells(workload.domain.shape)[0], blocks, sum(levels.tree.sizes))

    def prepare(self, workload: Workload, work: Workspace) -> PreparedFit:
        return LevelFit.of(workload, work)


NESTED_LEVELS = NestedLevelFit()


def _line_bytes(before: int, blocks: tuple[int, ...], nodes: int) -> int:
    """A column for every cell before the attribute that has the levels, and the tree."""
    return 8 * (before * (4 * sum(blocks) + 3 * nodes) + NODE_COPIES * nodes)


def _fit_slab(fit: LevelFit, start: int, slab: Matrix) -> Matrix:
    """Fitted answers of some lines, (queries of a line, lines)."""
    return fit._fit_columns(slab.reshape(slab.shape[0], -1).T, 0.0)[0]


def _tree_arrays(levels: NestedLevels) -> tuple[Matrix, ...]:
    """The tree as ``nearest_counts`` takes it, then of every query its node and its share of the weight of this node."""
    tree = levels.tree
    starts = np.concatenate([[0], np.cumsum(tree.sizes)])
    weights = np.concatenate(tree.weights)
    weight_shares = [
        query_level.squares / tree.weights[query_level.level][query_level.nodes] for query_level in levels.counted_nodes
    ]
    leaves = weights[starts[-2] :]
    np.maximum(leaves, UNQUERIED_WEIGHT * weights.max(), out=leaves)
    first_children = [tree.starts(level) + starts[level + 1] for level in range(tree.depth)]
    query_nodes = [query_level.nodes + starts[query_level.level] for query_level in levels.counted_nodes]
    low, high = _leaf_ranges(tree)
    return (
        np.concatenate([*first_children, [starts[-1]]]),
        low,
        high,
        weights,
        np.concatenate(query_nodes),
        np.concatenate(weight_shares),
    )


def _leaf_ranges(tree: Hierarchy) -> tuple[Matrix, Matrix]:
    """Of every node that is no leaf the first leaf, and one past the last."""
    bounds = [(np.arange(tree.sizes[-1]), np.arange(1, tree.sizes[-1] + 1))]
    for level in reversed(range(tree.depth)):
        first_children = tree.starts(level)
        last_children = np.append(first_children[1:], tree.sizes[level + 1]) - 1
        bounds.insert(0, (bounds[0][0][first_children], bounds[0][1][last_children]))
    low, high = zip(*bounds[:-1], strict=True) if tree.depth else ((np.zeros(0),), (np.zeros(0),))
    return np.concatenate(low), np.concatenate(high)
