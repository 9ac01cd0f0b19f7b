"""The certified optimum of a workload that treats many cells alike: one dual weight for cells that are exchanged, a small block each.

The dual of ``coa`` is concave and does not change when exchangeable cells change places, so that one of its optima gives them the same
weight. The gram falls into one small block for every way to sum an attribute over orbits or to tell the values of one orbit apart:
min over v of (sum of copies tr (F D_v F')^1/2)^2 / sum(v), with one weight for each orbit of cells (docs/mathematics.md, section 6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dpdist.errors import InvalidInput
from dpdist.measurement.integer_measurement import IntegerMeasurement
from dpdist.measurement.orbit_measurement import column_squares, largest_variance, orbit_measurement
from dpdist.operators import Matrix, Stack
from dpdist.stability import Neighbours
from dpdist.strategies.dense import coa_barrier
from dpdist.strategies.dense.trace_problem import Summand, root_of
from dpdist.strategies.representations import WORST_WORK
from dpdist.strategies.strategy import OnStep, Solve, Strategy, check_not_empty, check_start, check_workload, ignore_step
from dpdist.workloads import Workload
from dpdist.workloads.symmetry import MOST_COMPONENTS, Symmetry, most_components, symmetry_of

MANY_CELLS = 2048
"""Cells from which a solve over all of them takes seconds, so that the optimum over orbits is found first."""
FEWER_ORBITS = 8
"""Cells for each orbit from which that optimum takes hardly any time beside it."""


@dataclass(frozen=True, repr=False)
class SymmetricStrategy(Strategy):
    """Rows over orbits for every component of a workload.

    Attributes:
        mixings: for each component, real rows over its integer basis.
    """

    symmetry: Symmetry = field(kw_only=True)
    mixings: tuple[Matrix, ...] = field(kw_only=True)

    @cached_property
    def _squares(self) -> Matrix:
        return column_squares(self.symmetry, self.mixings)

    @property
    def l2_sensitivity(self) -> float:
        return math.sqrt(float(self._squares.max()))

    def worst(self, workload: Workload) -> float | None:
        query_counts = [math.prod(f.shape[0] for f in block.factors) for block in workload.blocks]
        work = sum(
            query_counts[k] * m.shape[1] ** 2
            for c, m in zip(self.symmetry.components, self.mixings, strict=True)
            for k in c.blocks
        )
        if work > WORST_WORK:
            return None
        return self.unit_error * math.sqrt(largest_variance(self.symmetry, self.mixings))

    def _measurement(self, workload: Workload, neighbours: Neighbours, most_records: int) -> IntegerMeasurement:
        return orbit_measurement(self.symmetry, self.mixings, neighbours=neighbours, most_records=most_records)


def symmetric(
    workload: Workload,
    *,
    tolerance: float = 1e-6,
    max_iterations: int = 200,
    on_step: OnStep = ignore_step,
    start: Matrix | None = None,
) -> SymmetricStrategy:
    """The strategy of least total squared error for a union of products with exchangeable values, over up to millions of cells.

    Args:
        workload: a weighted union of products, (m, n).
        tolerance: certified relative gap at which the solve stops.
        max_iterations: of the solve.
        on_step: called with a ``Step`` after every iteration; may raise ``Cancelled``.
        start: checkpoint of an interrupted solve: the weights of the orbits.
    Returns: the strategy with its cost and a lower bound that no strategy can beat; see ``coa``.
    Raises: InvalidInput for queries that are no products over attributes.
    """
    if not 0 < tolerance < 1:
        raise InvalidInput(f"the tolerance is a relative gap in (0, 1), found {tolerance!r}")
    symmetry = symmetry_for(check_workload(workload))
    problem = _SymmetricProblem.of(symmetry)
    weights = None if start is None else check_start(start, (problem.cells,))
    mixings, cost, lower, record = coa_barrier.solve(
        problem, tolerance=tolerance, max_iterations=max_iterations, on_step=on_step, start=weights
    )
    whole = tuple(
        mixing @ root / math.sqrt(component.orbits.contrast_count)
        for mixing, root, component in zip(mixings, problem.roots, symmetry.components, strict=True)
    )
    return symmetric_strategy(symmetry, whole, cost * problem.scale, lower * problem.scale, record)


def weights_by_symmetry(workload: Workload, *, tolerance: float) -> Matrix | None:
    """Dual weights of all cells from the optimum over orbits; None where that spares a solve over all cells little.

    Args:
        workload: (m, n).
        tolerance: certified relative gap at which the solve over orbits stops.
    """
    if not starts_from_orbits(workload):
        return None
    strategy = symmetric(workload, tolerance=tolerance)
    assert strategy.solve is not None
    return None if strategy.solve.dual is None else strategy.symmetry.over_cells(strategy.solve.dual)


def starts_from_orbits(workload: Workload) -> bool:
    """Whether the optimum over orbits is found first, which takes hardly any time beside that over all cells."""
    codes = workload.orbits if workload.shape[1] >= MANY_CELLS else None
    if codes is None or most_components(codes) > MOST_COMPONENTS:
        return False
    return FEWER_ORBITS * math.prod(int(code.max()) + 1 for code in codes) <= workload.shape[1]


def symmetry_for(workload: Workload) -> Symmetry:
    """The symmetry of a workload. Raises: InvalidInput for queries that are no products over attributes."""
    codes = workload.orbits
    if codes is None:
        raise InvalidInput("the workload holds queries that are no product over attributes; choose 'coa' or 'auto'")
    symmetry = symmetry_of(workload, codes)
    check_not_empty(symmetry.components)
    return symmetry


def symmetric_strategy(
    symmetry: Symmetry, mixings: Sequence[Matrix], cost: float, lower: float, record: Solve
) -> SymmetricStrategy:
    """A strategy of real rows over the integer basis of each component."""
    rows = [component.rows(mixing) for component, mixing in zip(symmetry.components, mixings, strict=True)]
    return SymmetricStrategy("symmetric", Stack(rows), cost, lower, record, symmetry=symmetry, mixings=tuple(mixings))


@dataclass(frozen=True)
class _SymmetricProblem:
    """The dual over orbits, scaled to a mean diagonal of 1.

    Attributes:
        roots: for each component R with R'R the gram of the coordinates, scaled.
    """

    summands: tuple[Summand, ...]
    roots: tuple[Matrix, ...]
    sizes: Matrix
    scale: float

    @staticmethod
    def of(symmetry: Symmetry) -> _SymmetricProblem:
        roots, factors = [], []
        for component in symmetry.components:
            root = root_of(component.basis.gram())
            roots.append(root)
            factors.append(
                root
                if component.basis.operator is None
                else root @ component.basis.columns(np.arange(component.orbit_cells.size))
            )
        squares = (
            component.copies * float(np.vdot(f, f)) for f, component in zip(factors, symmetry.components, strict=True)
        )
        scale = sum(squares) / symmetry.sizes.size
        summands = tuple(
            Summand(factor / math.sqrt(scale), component.orbit_cells, float(component.copies))
            for factor, component in zip(factors, symmetry.components, strict=True)
        )
        return _SymmetricProblem(summands, tuple(root / math.sqrt(scale) for root in roots), symmetry.sizes, scale)

    @property
    def cells(self) -> int:
        """Orbits of cells."""
        return int(self.sizes.size)

    @property
    def rank(self) -> int:
        """Rows of the largest factor."""
        return max(int(summand.factor.shape[0]) for summand in self.summands)

    @property
    def initial_dual(self) -> Matrix:
        """One step of the fixed point from equal weights of all cells."""
        weight = self.sizes / self.sizes.sum()
        point, _ = coa_barrier.evaluate(self.summands, weight)
        return np.asarray(weight * point.diagonal)

    def expand(self, dual: Matrix) -> Matrix:
        """The weights of the orbits themselves."""
        return dual
