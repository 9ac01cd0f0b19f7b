"""Nested levels of one attribute, the same table at each: the weights of least error in whole numbers, with a certificate."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy

from dpdist.measurement.hierarchy_measurement import SPACING, NestedGrid, NodeRows
from dpdist.measurement.integer_measurement import GRID_BITS, Grid
from dpdist.operators import Identity, Kronecker, Matrix, Operator, Total
from dpdist.reconstruction.node_variances import NodeVariances, Passes
from dpdist.stability import Neighbours
from dpdist.strategies.strategy import OnStep, Solve, Step, Stop, Strategy, ignore, queries_of
from dpdist.workloads import Workload
from dpdist.workloads.nested_groups import Hierarchy, NestedLevels, nested_of

MOST_STEPS = 500
"""Steps of L-BFGS: hierarchies of up to 10^6 leaves take 50 to 200 (benchmarks/geography.py)."""
MEMORY_STEPS = 20
"""Steps that it remembers."""
REACH = 25.0
"""The logit of the largest share that is tried; that of the least is its negative."""
REACHES = 0.0, 3.0
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


def node_weights(tree: Hierarchy, *, tolerance: float = 1e-6, on_step: OnStep = ignore) -> NodeWeights:
    """The weights of least total variance.

    Args:
        tree: groups with the squared weights of their queries.
        tolerance: certified relative gap, and relative decrease of the cost in a step, at which the search ends.
        on_step: told the cost of every step.
    Returns: weights of unit sensitivity, with their cost and a lower bound for all strategies.
    """
    passes, leaf = Passes.of(tree)
    search = _Search(passes)
    found, steps, stop = search.least(tolerance, on_step)
    variances = search.variances(found)
    dual = -variances.slopes()[0][-1] * variances.scale**2 / passes.multiplicity
    bound, dual = best_bound(passes, dual)
    last = Step(steps, variances.total, variances.total / bound - 1.0)
    on_step(last)
    record = Solve("weights of nodes", stop, (last,), dual[leaf], products=float(steps))
    levels = (*variances.a[:-1], variances.a[-1][leaf])
    return NodeWeights(levels, variances.scale[leaf], variances.total, bound, record)


class _Search:
    """L-BFGS over the logits of the shares that measured nodes take of what their ancestors left, and over how much more or less than
    the rest each leaf takes (a logarithm)."""

    def __init__(self, passes: Passes) -> None:
        self.passes = passes
        self.cuts = np.cumsum([0, *(int(free.sum()) for free in passes.free), passes.multiplicity.size])

    def shares(self, given: Matrix) -> list[Matrix]:
        """The share of every node of a level but the last."""
        out = []
        for level, free in enumerate(self.passes.free):
            share = np.zeros(free.size)
            share[free] = scipy.special.expit(given[self.cuts[level] : self.cuts[level + 1]])
            out.append(share)
        return out

    def _taken(self, shares: list[Matrix], given: Matrix) -> tuple[list[Matrix], list[Matrix]]:
        """a of every node, and what the ancestors of each left."""
        left, out = [np.ones(1)], []
        for level, share in enumerate(shares):
            out.append(left[level] * share)
            left.append((left[level] * (1.0 - share))[self.passes.parents[level]])
        return [*out, left[-1] * np.exp(given[self.cuts[-2] :])], left

    def variances(self, given: Matrix) -> NodeVariances:
        """What these weights tell, where each leaf is scaled so that X has the diagonal 1."""
        return self._variances(self._taken(self.shares(given), given)[0])

    def _variances(self, weights: list[Matrix]) -> NodeVariances:
        total = weights[0]
        for parents, a in zip(self.passes.parents, weights[1:], strict=True):
            total = total[parents] + a
        return NodeVariances.of(self.passes, weights, np.sqrt(total))

    def cost(self, given: Matrix) -> tuple[float, Matrix]:
        """tr V X^-1 and its gradient."""
        shares = self.shares(given)
        weights, left = self._taken(shares, given)
        variances = self._variances(weights)
        slopes, scales = variances.slopes()
        total = scales / (2.0 * variances.scale)
        below = (slopes[-1] + total) * weights[-1]
        parts, below = [below], below / left[-1]
        for level in reversed(range(self.passes.depth)):
            starts, share, free = self.passes.starts[level], shares[level], self.passes.free[level]
            total, rest = np.add.reduceat(total, starts), np.add.reduceat(below, starts)
            slope = slopes[level] + total
            parts.append((left[level] * (slope - rest) * share * (1.0 - share))[free])
            below = slope * share + (1.0 - share) * rest
        return variances.total, np.concatenate(parts[::-1])

    def least(self, tolerance: float, on_step: OnStep) -> tuple[Matrix, int, Stop]:
        """The best parameters, how many steps it took, and why it ended."""
        taken, start = 0, np.zeros(self.cuts[-1])

        def tell(intermediate_result: scipy.optimize.OptimizeResult) -> None:
            nonlocal taken
            taken += 1
            on_step(Step(taken, float(intermediate_result.fun), math.inf))

        options = {"maxiter": MOST_STEPS, "maxcor": MEMORY_STEPS, "ftol": tolerance, "gtol": 0.0}
        for reach in REACHES:  # first with the rest to every leaf, where there is one optimum
            bounds = [(-REACH, REACH)] * int(self.cuts[-2]) + [(-reach, reach)] * self.passes.multiplicity.size
            unit = float(
                np.abs(self.cost(start)[1]).max()
            )  # so that a first step along the gradient is none across all bounds

            def scaled(given: Matrix, unit: float = unit) -> tuple[float, Matrix]:
                cost, gradient = self.cost(given)
                return cost / unit, gradient / unit

            found = scipy.optimize.minimize(
                scaled, start, jac=True, method="L-BFGS-B", bounds=bounds, callback=tell, options=options
            )
            start = found.x
        return start, taken, "iteration limit" if found.nit >= MOST_STEPS else "converged"


def best_bound(passes: Passes, dual: Matrix) -> tuple[float, Matrix]:
    """The greatest lower bound of some dual weights near the given ones, and those weights.

    v <- the diagonal of (D_v^1/2 V D_v^1/2)^1/2 is the fixed point of Denisov et al. 2022.
    """
    best = (0.0, dual)
    for _ in range(DUAL_STEPS):
        trace, roots = root_of_dual(passes, dual)
        bound = trace**2 / float(passes.multiplicity @ dual) * (1.0 - ROUNDING)
        if bound <= best[0]:
            break
        best, dual = (bound, dual), roots
    return best


def root_of_dual(passes: Passes, dual: Matrix) -> tuple[float, Matrix]:
    """A number not above tr K^1/2 for K = D^1/2 V D^1/2, D the diagonal of dual weights, and about the diagonal of K^1/2.

    K^1/2 is replaced by sum_j c_j K (K + t_j I)^-1, which is nowhere above it. Entry i of the diagonal of K (K + t I)^-1 is 1 less
    t / v_i times that of (V + t D^-1)^-1, which two passes give.
    """
    inner = list(passes.weights[:-1])
    least = passes.weights[-1] * dual
    low, high = float(least[least > 0].min()), _largest(passes, dual)
    diagonal = np.zeros_like(dual)
    for shift, factor in zip(*square_root_poles(low, high), strict=True):
        variances = NodeVariances.of(passes, [*inner, passes.weights[-1] + shift / dual], np.ones_like(dual))
        diagonal += factor * (1.0 - shift / dual * variances.values[-1])
    return float(passes.multiplicity @ diagonal), diagonal


def _largest(passes: Passes, dual: Matrix) -> float:
    """A number not below the largest eigenvalue of K: the sum over levels of that of each."""
    sums, total = dual * passes.multiplicity, float((passes.weights[-1] * dual).max())
    for level in reversed(range(passes.depth)):
        sums = passes.up(level, sums)
        total += float((passes.weights[level] * sums).max())
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
