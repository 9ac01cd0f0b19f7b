"""Nested groups of one attribute's values: blocks in tracts in counties, the same table at each of these levels."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from dpdist.api import InvalidInput
from dpdist.api.mechanisms import Identity, Matrix, Padded, Total, Workload
from dpdist.api.pages import Block, Groups, Operator

NONE = -1
"""Number of the group of a value that is in none."""


@dataclass(frozen=True)
class Hierarchy:
    """Nested groups, level by level: level 0 is one node, all values; those of the last level are never divided.

    Attributes:
        parents: for every level but the first, the node of the level before that each node lies in: ascending, and every node
            of the level before has one or more.
        weights: for every level, by node, the sum of the squared weights of the queries that count it.

    >>> Hierarchy((np.array([0, 0]), np.array([0, 0, 1])), (np.ones(1), np.ones(2), np.ones(3))).sizes
    (1, 2, 3)
    """

    parents: tuple[Matrix, ...] = field(repr=False)
    weights: tuple[Matrix, ...] = field(repr=False)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Nodes of every level."""
        return tuple(level_weights.size for level_weights in self.weights)

    @property
    def depth(self) -> int:
        """Number of the last level."""
        return len(self.parents)

    def starts(self, level: int) -> Matrix:
        """For every node of a level the first of its children, which follow each other."""
        return np.searchsorted(self.parents[level], np.arange(self.weights[level].size))


@dataclass(frozen=True)
class CountedNodes:
    """Which node each row of a block's factor counts.

    Attributes:
        squares: the squared weight of the queries of each row.
    """

    level: int
    nodes: Matrix = field(repr=False)
    squares: Matrix | float = field(default=1.0, repr=False)


@dataclass(frozen=True)
class NestedLevels:
    """A workload that asks for the same table at every level of one attribute.

    Attributes:
        axis: the attribute that has the levels.
        other_axes: the other attributes that are asked for, ascending; the rest are summed over.
        nodes: for every value of the attribute its node of the last level.
        counted_nodes: for every block of queries the nodes that they count.
        fingerprint: of the workload.
    """

    axis: int
    other_axes: tuple[int, ...]
    tree: Hierarchy
    nodes: Matrix = field(repr=False)
    counted_nodes: tuple[CountedNodes, ...]
    fingerprint: str

    @property
    def axes(self) -> tuple[int, ...]:
        """The attributes of the table that is counted, ascending."""
        return tuple(sorted((self.axis, *self.other_axes)))

    def surrounding_cells(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Cells of the table of the other attributes before the one that has the levels, and after it; shape: of the domain."""
        before, after = (
            [shape[axis] for axis in self.other_axes if (axis < self.axis) == is_lower] for is_lower in (True, False)
        )
        return math.prod(before), math.prod(after)


@lru_cache(maxsize=8)
def nested_of(workload: Workload) -> NestedLevels:
    """The levels that a workload asks for. Raises: InvalidInput, which says why, where it asks for something else."""
    axis, other_axes = _attributes(workload)
    codes = [_codes(_factor(block, axis, workload), block.name) for block in workload.blocks]
    order = sorted(range(len(codes)), key=lambda block_index: int(codes[block_index].max()))  # coarse levels first
    nodes, parents, weights = np.zeros(workload.domain.shape[axis], dtype=np.int64), [], [np.zeros(1)]
    counted_nodes: dict[int, CountedNodes] = {}
    for block_index in order:
        block, code = workload.blocks[block_index], codes[block_index]
        rows = _factor(block, axis, workload).shape[0]
        below, of_group, above = _divided(nodes, code, rows, block.name)
        if above.size > weights[-1].size:
            nodes = below
            parents.append(above)
            weights.append(np.zeros(above.size))
        else:  # the groups that the level before has, too: each node has one child, in the same order
            of_group = above[of_group]
        counted_nodes[block_index] = CountedNodes(len(parents), of_group, _squares(block, axis))
        weights[-1][of_group] += counted_nodes[block_index].squares
    tree = Hierarchy(tuple(parents), tuple(weights))
    ordered_nodes = tuple(counted_nodes[block_index] for block_index in range(len(codes)))
    return NestedLevels(axis, other_axes, tree, nodes, ordered_nodes, workload.fingerprint)


def _attributes(workload: Workload) -> tuple[int, tuple[int, ...]]:
    """The attribute that has the levels, and the others that are asked for."""
    if not all(block.separable for block in workload.blocks):
        raise InvalidInput("the workload holds queries that are no product over attributes")
    shape = workload.domain.shape
    factors_by_axis = [[_factor(block, axis, workload) for block in workload.blocks] for axis in range(len(shape))]
    unlike = [axis for axis, factors in enumerate(factors_by_axis) if len({factor.fingerprint for factor in factors}) > 1]
    if len(unlike) != 1:
        raise InvalidInput(
            "the workload does not ask for the same table at several levels of one attribute: its groups of queries differ in "
            f"{len(unlike)} attributes"
        )
    (axis,) = unlike
    other_axes = []
    for other_axis, factors in enumerate(factors_by_axis):
        if other_axis == axis or isinstance(factors[0], Total):
            continue
        if not isinstance(factors[0], Identity):
            raise InvalidInput(f"attribute {workload.domain.names[other_axis]!r} is not asked for value by value")
        other_axes.append(other_axis)
    if any(
        scales is not None and block.axes[position] != axis
        for block in workload.blocks
        for position, scales in _scales(block)
    ):
        raise InvalidInput("queries of one level have different weights within a table")
    return axis, tuple(other_axes)


def _scales(block: Block) -> list[tuple[int, Matrix | None]]:
    return list(enumerate(block.scales))


def _factor(block: Block, axis: int, workload: Workload) -> Operator:
    """What a block asks of an attribute; its sum where it does not name it."""
    return block.factors[block.axes.index(axis)] if axis in block.axes else Total(workload.domain.shape[axis])


def _squares(block: Block, axis: int) -> Matrix | float:
    """The squared weights of a block's queries, one for each row of the attribute's factor."""
    scales = block.scales[block.axes.index(axis)] if block.scales and axis in block.axes else None
    return block.weight**2 * (1.0 if scales is None else scales**2)


def _codes(factor: Operator, name: str) -> Matrix:
    """The group of every value, ``NONE`` of values that are in none. Raises: InvalidInput where the rows are no groups."""
    if isinstance(factor, Padded):
        return np.append(_codes(factor.operator, name), np.full(factor.extra, NONE))
    if isinstance(factor, Identity):
        return np.arange(factor.shape[1])
    if isinstance(factor, Total):
        return np.zeros(factor.shape[1], dtype=np.int64)
    if isinstance(factor, Groups):
        return factor.groups
    raise InvalidInput(f"queries {name!r} are no level of an attribute")


def _divided(nodes: Matrix, code: Matrix, groups: int, name: str) -> tuple[Matrix, Matrix, Matrix]:
    """A level below nodes: the new node of every value, that of every group, and the node that each new one lies in.

    Values of a node that are in no group make a new node together.
    """
    span = groups + 1
    keys, below = np.unique(nodes * span + code + 1, return_inverse=True)
    above, group = np.divmod(keys, span)
    real = np.flatnonzero(group > 0)
    of_group = np.full(groups, NONE)
    of_group[group[real] - 1] = real
    if real.size != groups or (of_group == NONE).any():
        raise InvalidInput(f"the groups of {name!r} are empty, or do not lie within those of the coarser levels")
    return below, of_group, above
