"""Nested levels of one attribute, the same table at each: the weights of least error in whole numbers, with a certificate."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy

from dpdist.api.mechanisms import (
    GRID_BITS,
    Identity,
    IntegerMeasurement,
    Kronecker,
    Matrix,
    Neighbours,
    OnStep,
    Solve,
    Step,
    Stop,
    Strategy,
    Total,
    Workload,
    check_workload,
    ignore_step,
)
from dpdist.api.pages import Operator
from dpdist.plugins.geography.hierarchy_measurement import SPACING, HierarchyMeasurement, NodeRows
from dpdist.plugins.geography.nested_groups import Hierarchy, NestedLevels, nested_of
from dpdist.plugins.geography.node_variances import MergedHierarchy, NodeVariances

MOST_STEPS = 500
"""Steps of L-BFGS: hierarchies of up to 10^6 leaves take 50 to 200 (benchmarks/geography.py)."""
MEMORY_STEPS = 20
"""Steps that it remembers."""
LOGIT_RANGE = 25.0
"""The logit of the largest share that is tried; that of the least is its negative."""
LEAF_LOG_RANGES = 0.0, 3.0
"""The logarithm of the most that a leaf takes, in parts of what its ancestors left."""
POLES = 16
"""Of the rational function: its relative error is below 1e-8 for eigenvalues up to 10^6 apart."""
DUAL_STEPS = 4
"""Improvements of the dual weights that are tried before the bound is taken."""
ROUNDING = 1e-9
"""Part of a bound that is given away for rounding."""


@dataclass(frozen=True)
class NodeWeights:
    """The weights found, with what is proven about them.

    Attributes:
        levels: a of every node, level by level.
        scale: of every leaf: the root of the sum of a over its ancestors and itself. A row counts its leaves divided by their scales.
        cost: tr V X^-1, where X has the diagonal 1.
        lower_bound: no X with a diagonal of at most one has less.
    """

    levels: tuple[Matrix, ...] = field(repr=False)
    scale: Matrix = field(repr=False)
    cost: float
    lower_bound: float
    solve: Solve


def node_weights(tree: Hierarchy, *, tolerance: float = 1e-6, on_step: OnStep = ignore_step) -> NodeWeights:
    """The weights of least total variance.

    Args:
        tree: groups with the squared weights of their queries.
        tolerance: certified relative gap, and relative decrease of the cost in a step, at which the search ends.
        on_step: told the cost of every step.
    Returns: weights of unit sensitivity, with their cost and a lower bound for all strategies.
    """
    hierarchy, leaf = MergedHierarchy.of(tree)
    search = _WeightSearch(hierarchy)
    parameters, steps, stop = search.minimise(tolerance, on_step)
    variances = search.variances(parameters)
    dual = -variances.slopes()[0][-1] * variances.scale**2 / hierarchy.multiplicity
    bound, dual = best_bound(hierarchy, dual)
    last_step = Step(steps, variances.total, variances.total / bound - 1.0)
    on_step(last_step)
    record = Solve("weights of nodes", stop, (last_step,), dual[leaf], products=float(steps))
    levels = (*variances.precisions[:-1], variances.precisions[-1][leaf])
    return NodeWeights(levels, variances.scale[leaf], variances.total, bound, record)


class _WeightSearch:
    """L-BFGS over the logits of the shares that measured nodes take of what their ancestors left, and over how much more or less than
    the rest each leaf takes (a logarithm)."""

    def __init__(self, hierarchy: MergedHierarchy) -> None:
        self.hierarchy = hierarchy
        self.cuts = np.cumsum([0, *(int(free.sum()) for free in hierarchy.worth_measuring), hierarchy.multiplicity.size])

    def node_fractions(self, parameters: Matrix) -> list[Matrix]:
        """The share of every node of a level but the last."""
        fractions = []
        for level, free in enumerate(self.hierarchy.worth_measuring):
            fraction = np.zeros(free.size)
            fraction[free] = scipy.special.expit(parameters[self.cuts[level] : self.cuts[level + 1]])
            fractions.append(fraction)
        return fractions

    def _split_precisions(self, fractions: list[Matrix], parameters: Matrix) -> tuple[list[Matrix], list[Matrix]]:
        """a of every node, and what the ancestors of each left."""
        remainders, precisions = [np.ones(1)], []
        for level, fraction in enumerate(fractions):
            precisions.append(remainders[level] * fraction)
            remainders.append((remainders[level] * (1.0 - fraction))[self.hierarchy.parents[level]])
        return [*precisions, remainders[-1] * np.exp(parameters[self.cuts[-2] :])], remainders

    def variances(self, parameters: Matrix) -> NodeVariances:
        """What these weights tell, where each leaf is scaled so that X has the diagonal 1."""
        return self._variances(self._split_precisions(self.node_fractions(parameters), parameters)[0])

    def _variances(self, weights: list[Matrix]) -> NodeVariances:
        total = weights[0]
        for parents, level_weights in zip(self.hierarchy.parents, weights[1:], strict=True):
            total = total[parents] + level_weights
        return NodeVariances.of(self.hierarchy, weights, np.sqrt(total))

    def cost(self, parameters: Matrix) -> tuple[float, Matrix]:
        """tr V X^-1 and its gradient."""
        fractions = self.node_fractions(parameters)
        weights, remainders = self._split_precisions(fractions, parameters)
        variances = self._variances(weights)
        slopes, scales = variances.slopes()
        total = scales / (2.0 * variances.scale)
        below = (slopes[-1] + total) * weights[-1]
        level_slopes, below = [below], below / remainders[-1]
        for level in reversed(range(self.hierarchy.depth)):
            starts, fraction, free = self.hierarchy.starts[level], fractions[level], self.hierarchy.worth_measuring[level]
            total, rest = np.add.reduceat(total, starts), np.add.reduceat(below, starts)
            slope = slopes[level] + total
            level_slopes.append((remainders[level] * (slope - rest) * fraction * (1.0 - fraction))[free])
            below = slope * fraction + (1.0 - fraction) * rest
        return variances.total, np.concatenate(level_slopes[::-1])

    def minimise(self, tolerance: float, on_step: OnStep) -> tuple[Matrix, int, Stop]:
        """The best parameters, how many steps it took, and why it ended."""
        taken, start = 0, np.zeros(self.cuts[-1])

        def count_step(intermediate_result: scipy.optimize.OptimizeResult) -> None:
            nonlocal taken
            taken += 1
            on_step(Step(taken, float(intermediate_result.fun), math.inf))

        options = {"maxiter": MOST_STEPS, "maxcor": MEMORY_STEPS, "ftol": tolerance, "gtol": 0.0}
        for reach in LEAF_LOG_RANGES:  # first with the rest to every leaf, where there is one optimum
            bounds = [(-LOGIT_RANGE, LOGIT_RANGE)] * int(self.cuts[-2]) + [
                (-reach, reach)
            ] * self.hierarchy.multiplicity.size
            unit = float(
                np.abs(self.cost(start)[1]).max() or 1.0
            )  # so that a first step along the gradient is none across all bounds

            def scaled(parameters: Matrix, unit: float = unit) -> tuple[float, Matrix]:
                cost, gradient = self.cost(parameters)
                return cost / unit, gradient / unit

            result = scipy.optimize.minimize(
                scaled, start, jac=True, method="L-BFGS-B", bounds=bounds, callback=count_step, options=options
            )
            start = result.x
        return start, taken, "iteration limit" if result.nit >= MOST_STEPS else "converged"


def best_bound(hierarchy: MergedHierarchy, dual: Matrix) -> tuple[float, Matrix]:
    """The greatest lower bound of some dual weights near the given ones, and those weights.

    v <- the diagonal of (D_v^1/2 V D_v^1/2)^1/2 is the fixed point of Denisov et al. 2022.
    """
    best = (0.0, dual)
    for _ in range(DUAL_STEPS):
        trace, roots = root_of_dual(hierarchy, dual)
        bound = trace**2 / float(hierarchy.multiplicity @ dual) * (1.0 - ROUNDING)
        if bound <= best[0]:
            break
        best, dual = (bound, dual), roots
    return best


def root_of_dual(hierarchy: MergedHierarchy, dual: Matrix) -> tuple[float, Matrix]:
    """A number not above tr K^1/2 for K = D^1/2 V D^1/2, D the diagonal of dual weights, and about the diagonal of K^1/2.

    K^1/2 is replaced by sum_j c_j K (K + t_j I)^-1, which is nowhere above it. Entry i of the diagonal of K (K + t I)^-1 is 1 less
    t / v_i times that of (V + t D^-1)^-1, which two passes give.
    """
    inner = list(hierarchy.weights[:-1])
    leaf_weights = hierarchy.weights[-1] * dual
    low, high = float(leaf_weights[leaf_weights > 0].min()), _eigenvalue_bound(hierarchy, dual)
    diagonal = np.zeros_like(dual)
    for shift, factor in zip(*square_root_poles(low, high), strict=True):
        variances = NodeVariances.of(hierarchy, [*inner, hierarchy.weights[-1] + shift / dual], np.ones_like(dual))
        diagonal += factor * (1.0 - shift / dual * variances.values[-1])
    return float(hierarchy.multiplicity @ diagonal), diagonal


def _eigenvalue_bound(hierarchy: MergedHierarchy, dual: Matrix) -> float:
    """A number not below the largest eigenvalue of K: the sum over levels of that of each."""
    sums, total = dual * hierarchy.multiplicity, float((hierarchy.weights[-1] * dual).max())
    for level in reversed(range(hierarchy.depth)):
        sums = hierarchy.sum_children(level, sums)
        total += float((hierarchy.weights[level] * sums).max())
    return total


def square_root_poles(low: float, high: float) -> tuple[Matrix, Matrix]:
    """Shifts t and factors c with sum_j c_j x / (x + t_j) <= x^1/2 for every x > 0, and nearly equal from ``low`` to ``high``.

    >>> shifts, factors = square_root_poles(1.0, 1e6)
    >>> bool(abs((factors * 50.0 / (50.0 + shifts)).sum() / 50.0**0.5 - 1) < 1e-6)
    True
    """
    ratio = low / max(high, 2.0 * low)
    quarter = float(scipy.special.ellipkm1(ratio))
    sn, cn, dn, _ = scipy.special.ellipj((np.arange(POLES) + 0.5) * quarter / POLES, 1.0 - ratio)
    shifts, factors = low * (sn / cn) ** 2, 2.0 * quarter * math.sqrt(low) / (math.pi * POLES) * dn / cn**2
    # the quotient is a sum of 1 / cosh(log(x / t_j) / 2): smooth over units of log x, so a fine grid shows its maximum
    x = np.exp(np.arange(math.log(low) - 1.0, math.log(max(high, 2.0 * low)) + 1.0, 1e-3))
    quotient = sum(factor * np.sqrt(x) / (x + shift) for shift, factor in zip(shifts, factors, strict=True))
    return shifts, factors / (float(np.max(quotient)) * (1.0 + 1e-9))


SCALE_BITS = 14
"""Bits of the scales of leaves; the other bits of the grid are those of the nodes above. Leaves then take exactly what is left."""
EQUAL_SCALE = 1e-6
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
        largest = max(
            float(values[query_level.level][query_level.nodes].max()) for query_level in nested_of(workload).counted_nodes
        )
        return self.l2_sensitivity / SPACING * math.sqrt(largest)

    def _measurement(self, workload: Workload, neighbours: Neighbours, most_records: int) -> IntegerMeasurement:
        squared = int(self.node_rows.column_squares.max()) * most_records**2
        sides = 1 if neighbours == "add-remove" else 2
        domain = workload.domain
        return HierarchyMeasurement(self.levels, self.node_rows, domain.shape, sides * squared, sizes=domain.sizes)


def nested(workload: Workload, *, tolerance: float = 1e-6, on_step: OnStep = ignore_step) -> NestedStrategy:
    """The best weighted sums over the nodes of nested levels, with the same table at each level.

    Args:
        workload: (m, n), tables that differ in one attribute alone, of which each asks for another level.
        tolerance: relative decrease of the cost in a step at which the search ends.
        on_step: told every step.
    Returns: the strategy, with a bound below every strategy's cost. Time and memory are linear in the number of groups.
    Raises: InvalidInput when the workload asks for something else.
    Source: section "Nested levels" of docs/mathematics.md.
    """
    levels = nested_of(check_workload(workload))
    solution = node_weights(levels.tree, tolerance=tolerance, on_step=on_step)
    return nested_strategy(workload, round_weights(levels, solution), solution.lower_bound, solution.solve)


def nested_strategy(workload: Workload, rows: NodeRows, lower_bound: float, solve: Solve) -> NestedStrategy:
    """The strategy of some rows, with the cost that these have; ``lower_bound`` is for one column."""
    levels = nested_of(workload)
    columns = math.prod(workload.domain.shape[axis] for axis in levels.other_axes)
    terms = zip(levels.tree.weights, rows.variances.values, strict=True)
    cost = columns * int(rows.column_squares.max()) * math.fsum(float(b @ values) for b, values in terms)
    return NestedStrategy(
        "nested", _operator(workload, levels, rows), cost, columns * lower_bound, solve, levels=levels, node_rows=rows
    )


def round_weights(levels: NestedLevels, solution: NodeWeights) -> NodeRows:
    """Weights in whole numbers. Those of leaves are rounded last, down: they take what the others left of the longest column."""
    tree, smallest_scale = levels.tree, float(solution.scale.min())
    scale = np.ones(tree.sizes[-1], dtype=np.int64)
    if float(solution.scale.max()) > smallest_scale * (1.0 + EQUAL_SCALE):
        scale = np.maximum(1, np.rint(2.0**SCALE_BITS * smallest_scale / solution.scale).astype(np.int64))
    unit = 2.0**GRID_BITS / (smallest_scale * float(scale.max()))
    inner = tuple(np.rint(np.sqrt(precisions) * unit).astype(np.int64) for precisions in solution.levels[:-1])
    ancestor_squares = np.zeros(1, dtype=np.int64)
    for k, parents in zip(inner, tree.parents, strict=True):
        ancestor_squares = (ancestor_squares + k**2)[parents]
    remainder = np.maximum(4**GRID_BITS - scale**2 * ancestor_squares, 1).astype(np.float64)
    return NodeRows(tree.parents, levels.nodes, scale, inner, np.floor(np.sqrt(remainder)).astype(np.int64))


def restore_rows(levels: NestedLevels, values: Matrix) -> NodeRows:
    """The rows that were kept as whole numbers in a row (``whole_numbers``)."""
    sizes = levels.tree.sizes
    arrays = np.split(values.astype(np.int64), np.cumsum([sizes[-1], *sizes])[:-1])
    return NodeRows(levels.tree.parents, levels.nodes, arrays[0], tuple(arrays[1:-1]), arrays[-1])


def whole_numbers(rows: NodeRows) -> Matrix:
    """All whole numbers of rows."""
    return np.concatenate([rows.scale, *rows.inner, rows.leaves])


def _operator(workload: Workload, levels: NestedLevels, rows: NodeRows) -> Operator:
    """The rows over all cells."""
    factors: list[Operator] = [Total(size) for size in workload.domain.shape]
    for axis in levels.other_axes:
        factors[axis] = Identity(workload.domain.shape[axis])
    factors[levels.axis] = rows.matrix
    return Kronecker(factors)
