"""Nested levels of one attribute, the same table at each: the weights of least error in whole numbers, with a certificate."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dpdist.grids.base import GRID_BITS, Grid
from dpdist.grids.nested import SPACING, NestedGrid
from dpdist.grids.node_rows import NodeRows
from dpdist.operators import Identity, Kronecker, Matrix, Operator, Total
from dpdist.stability import Neighbours
from dpdist.strategies.base import OnStep, Solve, Strategy, ignore, queries_of
from dpdist.strategies.node_weights import NodeWeights, node_weights
from dpdist.workloads import Workload
from dpdist.workloads.nested import NestedLevels, nested_of

SCALE_BITS = 14
"""Bits of the scales of leaves; the other bits of the grid are those of the nodes above. Leaves then take exactly what is left."""
ALIKE = 1e-6
"""Scales that differ by less are one, and nodes have all bits."""


@dataclass(frozen=True, repr=False)
class NestedStrategy(Strategy):
    """Weighted sums over the nodes of nested levels, for every cell of the same table."""

    levels: NestedLevels = field(kw_only=True)
    node_rows: NodeRows = field(kw_only=True)

    @cached_property
    def l2_sensitivity(self) -> float:
        return math.sqrt(int(self.node_rows.column_squares.max())) * SPACING

    def worst(self, workload: Workload) -> float | None:
        values = self.node_rows.variances.values
        largest = max(float(values[each.level][each.nodes].max()) for each in nested_of(workload).asked)
        return self.l2_sensitivity / SPACING * math.sqrt(largest)

    def _grid(self, workload: Workload, neighbours: Neighbours, most_records: int) -> Grid:
        squared = int(self.node_rows.column_squares.max()) * most_records**2
        sides = 1 if neighbours == "add-remove" else 2
        domain = workload.domain
        return NestedGrid(self.levels, self.node_rows, domain.shape, sides * squared, sizes=domain.sizes)


def nested(workload: Workload, *, tolerance: float = 1e-6, on_step: OnStep = ignore) -> NestedStrategy:
    """The best weighted sums over the nodes of nested levels, with the same table at each level.

    Args:
        workload: (m, n), tables that differ in one attribute alone, of which each asks for another level.
        tolerance: relative decrease of the cost in a step at which the search ends.
        on_step: told every step.
    Returns: the strategy, with a bound below every strategy's cost. Time and memory are linear in the number of groups.
    Raises: InvalidInput when the workload asks for something else.
    Source: section "Nested levels" of docs/mathematics.md.
    """
    levels = nested_of(queries_of(workload))
    found = node_weights(levels.tree, tolerance=tolerance, on_step=on_step)
    return nested_strategy(workload, whole_rows(levels, found), found.lower_bound, found.solve)


def nested_strategy(workload: Workload, rows: NodeRows, lower_bound: float, solve: Solve) -> NestedStrategy:
    """The strategy of some rows, with the cost that these have; ``lower_bound`` is for one column."""
    levels = nested_of(workload)
    columns = math.prod(workload.domain.shape[axis] for axis in levels.others)
    terms = zip(levels.tree.weights, rows.variances.values, strict=True)
    cost = columns * int(rows.column_squares.max()) * math.fsum(float(b @ values) for b, values in terms)
    return NestedStrategy(
        "nested", _operator(workload, levels, rows), cost, columns * lower_bound, solve, levels=levels, node_rows=rows
    )


def whole_rows(levels: NestedLevels, found: NodeWeights) -> NodeRows:
    """Weights in whole numbers. Those of leaves are rounded last, down: they take what the others left of the longest column."""
    tree, least = levels.tree, float(found.scale.min())
    scale = np.ones(tree.sizes[-1], dtype=np.int64)
    if float(found.scale.max()) > least * (1.0 + ALIKE):
        scale = np.maximum(1, np.rint(2.0**SCALE_BITS * least / found.scale).astype(np.int64))
    unit = 2.0**GRID_BITS / (least * float(scale.max()))
    inner = tuple(np.rint(np.sqrt(a) * unit).astype(np.int64) for a in found.levels[:-1])
    shared = np.zeros(1, dtype=np.int64)
    for k, parents in zip(inner, tree.parents, strict=True):
        shared = (shared + k**2)[parents]
    left = np.maximum(4**GRID_BITS - scale**2 * shared, 1).astype(np.float64)
    return NodeRows(tree.parents, levels.nodes, scale, inner, np.floor(np.sqrt(left)).astype(np.int64))


def kept_rows(levels: NestedLevels, values: Matrix) -> NodeRows:
    """The rows that were kept as whole numbers in a row (``whole_numbers``)."""
    sizes = levels.tree.sizes
    parts = np.split(values.astype(np.int64), np.cumsum([sizes[-1], *sizes])[:-1])
    return NodeRows(levels.tree.parents, levels.nodes, parts[0], tuple(parts[1:-1]), parts[-1])


def whole_numbers(rows: NodeRows) -> Matrix:
    """All whole numbers of rows."""
    return np.concatenate([rows.scale, *rows.inner, rows.leaves])


def _operator(workload: Workload, levels: NestedLevels, rows: NodeRows) -> Operator:
    """The rows over all cells."""
    factors: list[Operator] = [Total(size) for size in workload.domain.shape]
    for axis in levels.others:
        factors[axis] = Identity(workload.domain.shape[axis])
    factors[levels.axis] = rows.matrix
    return Kronecker(factors)
