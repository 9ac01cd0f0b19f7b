"""The optimum for a series that grows: the lower triangular factor of COA's precision.

A filter of the past is a lower triangular W. For the least-error precision X of its gram there is one lower triangular C with
C'C = X (Cholesky's of X with steps in reverse order); then W C^-1 is lower triangular, too: every step is measured from itself and
earlier ones and read from measurements so far, at no more error than COA's strategy has (docs/mathematics.md, section 8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import scipy

from dpdist.domain import Domain
from dpdist.errors import InvalidInput, NotPositiveDefinite
from dpdist.grids.base import Grid
from dpdist.grids.triangular import triangular_grid
from dpdist.operators import Dense, Identity, Kronecker, Matrix, Operator, Total
from dpdist.stability import Neighbours
from dpdist.strategies.base import OnStep, Strategy, ignore
from dpdist.strategies.filters import is_past
from dpdist.strategies.optimum import coa
from dpdist.strategies.representations import DenseStrategy
from dpdist.workloads import Block, Workload
from dpdist.workloads.kinds import is_filters, line_of


@dataclass(frozen=True, repr=False)
class TriangularStrategy(Strategy):
    """A lower triangular matrix along the steps of every series."""

    factor: Matrix = field(kw_only=True, repr=False)

    def worst(self, workload: Workload) -> float:
        (each,) = line_of(workload)[2]
        spread = each.matvec(scipy.linalg.solve_triangular(self.factor, np.eye(each.n), lower=True, check_finite=False))
        return self.unit_error * math.sqrt(float(np.einsum("ij,ij->i", spread, spread).max()))

    def _grid(self, workload: Workload, neighbours: Neighbours, most_records: int) -> Grid:
        axis, axes, _ = line_of(workload)
        shape, sizes = tuple(workload.domain.shape[a] for a in axes), workload.domain.sizes
        place = axes.index(axis)
        return triangular_grid(
            self.factor, shape, place, axes, neighbours=neighbours, most_records=most_records, sizes=sizes
        )


def answers_growing(workload: Workload) -> bool:
    """Whether ``triangular`` answers a workload: one filter of the past whose present counts."""
    return is_filters(workload) and is_past(workload) and float(line_of(workload)[2][0].entries.read(0, 1)[0]) != 0.0


def of_one_series(workload: Workload) -> Workload:
    """The same filter of one series alone. Raises: InvalidInput when the workload is not one filter of the past."""
    if not answers_growing(workload):
        raise InvalidInput(
            "a triangular strategy answers one filter of the past whose coefficient for the present step is "
            "not zero; choose 'auto' or 'coa'"
        )
    axis, _, (each,) = line_of(workload)
    attribute = workload.domain.attributes[axis]
    block = workload.blocks[0]
    return Workload(
        Domain((attribute,), workload.domain.sizes),
        (Block(block.name, (0,), (each,), (tuple(str(step) for step in range(each.n)),), block.weight),),
    )


def triangular(
    workload: Workload, *, tolerance: float = 1e-6, on_step: OnStep = ignore, start: Matrix | None = None
) -> DenseStrategy:
    """The lower triangular strategy of least total error for one filter of the past.

    Args:
        workload: a workload of one series (``of_one_series``).
        tolerance: certified relative gap of COA's optimum.
        on_step: called with a ``Step`` after every iteration; may raise ``Cancelled``.
        start: checkpoint of an interrupted solve: dual weights, (n,).
    Returns: the triangular factor with its cost and COA's lower bound.
    Raises: InvalidInput for other workloads; NotPositiveDefinite when rounding leaves no factor.
    """
    optimum = coa(of_one_series(workload), tolerance=tolerance, on_step=on_step, start=start)
    matrix = optimum.matrix()
    precision = matrix.T @ matrix
    try:
        reversed_factor = scipy.linalg.cholesky(precision[::-1, ::-1], lower=False, check_finite=False)
    except scipy.linalg.LinAlgError as error:
        raise NotPositiveDefinite(
            "the optimal precision of this filter is singular to rounding: no triangular factor; set 'mechanism: square-root'"
        ) from error
    factor = np.tril(reversed_factor[::-1, ::-1])
    factor /= np.sqrt(np.einsum("ij,ij->j", factor, factor).max())
    (each,) = line_of(workload)[2]
    spread = each.matvec(scipy.linalg.solve_triangular(factor, np.eye(each.n), lower=True, check_finite=False))
    cost = workload.blocks[0].weight ** 2 * float(np.einsum("ij,ij->", spread, spread))
    return replace(optimum, name="triangular", operator=Dense(factor), workload_cost=cost)


def over_series(workload: Workload, found: DenseStrategy) -> TriangularStrategy:
    """The strategy for every series of a workload, from that of one."""
    axis, axes, _ = line_of(workload)
    series = math.prod(workload.domain.shape[a] for a in axes if a != axis)
    line = found.operator
    assert isinstance(line, Dense)
    parts: list[Operator] = [
        line if other == axis else Identity(size) if other in axes else Total(size)
        for other, size in enumerate(workload.domain.shape)
    ]
    operator = parts[0] if len(parts) == 1 else Kronecker(parts)
    cost = None if found.workload_cost is None else series * found.workload_cost
    lower = None if found.lower_bound is None else series * found.lower_bound
    return TriangularStrategy("triangular", operator, cost, lower, found.solve, factor=line.array)
