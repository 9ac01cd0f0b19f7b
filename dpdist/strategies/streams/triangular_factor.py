"""The optimum for a series that grows: the lower triangular factor of COA's precision.

A filter of the past is a lower triangular W. For the least-error precision X of its gram there is one lower triangular C with
C'C = X (Cholesky's of X with steps in reverse order); then W C^-1 is lower triangular, too: every step is measured from itself and
earlier ones and read from measurements so far, at no more error than COA's strategy has (docs/mathematics.md, section 8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy

from dpdist.arrays import lapack
from dpdist.domain import Domain
from dpdist.errors import InvalidInput, NotPositiveDefinite
from dpdist.measurement.integer_measurement import Grid
from dpdist.measurement.triangular_measurement import triangular_grid
from dpdist.operators import Dense, Identity, Kronecker, Matrix, Operator, Total
from dpdist.stability import Neighbours
from dpdist.strategies.dual_certificates import PersonsBound
from dpdist.strategies.filter_strategies import answers_growing
from dpdist.strategies.optimal import coa
from dpdist.strategies.representations import DenseStrategy
from dpdist.strategies.strategy import OnStep, Solve, Strategy, ignore
from dpdist.workloads import Block, Workload
from dpdist.workloads.workload_kind import line_of


@dataclass(frozen=True, repr=False)
class TriangularStrategy(Strategy):
    """A lower triangular matrix along the steps of every series.

    Attributes:
        first_steps: of the first horizon of a stream that was extended, for which its noise is; None: of the only one.
    """

    factor: Matrix = field(kw_only=True, repr=False)
    first_steps: int | None = field(default=None, kw_only=True)
    persons: PersonsBound | None = field(default=None, kw_only=True)

    def worst(self, workload: Workload) -> float:
        (each,) = line_of(workload)[2]
        spread = each.matvec(lapack.solve_triangular(self.factor, np.eye(each.n), lower=True))
        return self.unit_error * math.sqrt(float(np.einsum("ij,ij->i", spread, spread).max()))

    def _grid(self, workload: Workload, neighbours: Neighbours, most_records: int) -> Grid:
        axis, axes, _ = line_of(workload)
        shape, sizes = tuple(workload.domain.shape[a] for a in axes), workload.domain.sizes
        place = axes.index(axis)
        given: dict[str, Any] = {"neighbours": neighbours, "most_records": most_records, "sizes": sizes}
        return triangular_grid(self.factor, shape, place, axes, first_steps=self.first_steps, **given)


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
    assert optimum.solve is not None
    return replace(factored(workload, matrix.T @ matrix, optimum.solve), lower_bound=optimum.lower_bound)


def factored(workload: Workload, precision: Matrix, solve: Solve) -> DenseStrategy:
    """The lower triangular factor of a precision, in unit sensitivity, with its cost. Raises: NotPositiveDefinite."""
    try:
        reversed_factor = lapack.cholesky(precision[::-1, ::-1], lower=False)
    except scipy.linalg.LinAlgError as error:
        raise NotPositiveDefinite(
            "the optimal precision of this filter is singular to rounding: no triangular factor; set 'mechanism: square-root'"
        ) from error
    return of_factor(workload, np.tril(reversed_factor[::-1, ::-1]), solve)


def of_factor(workload: Workload, factor: Matrix, solve: Solve) -> DenseStrategy:
    """A lower triangular factor, in unit sensitivity, with its cost."""
    factor = factor / np.sqrt(np.einsum("ij,ij->j", factor, factor).max())
    return DenseStrategy("triangular", Dense(factor), _cost(workload, factor), None, solve)


def _cost(workload: Workload, factor: Matrix) -> float:
    """Total variance of one series at noise multiplier 1, for a factor of any length."""
    (each,) = line_of(workload)[2]
    spread = each.matvec(lapack.solve_triangular(factor, np.eye(each.n), lower=True))
    longest = float(np.einsum("ij,ij->j", factor, factor).max())
    return workload.blocks[0].weight ** 2 * longest * float(np.einsum("ij,ij->", spread, spread))


def continued(workload: Workload, former: Matrix, own: DenseStrategy) -> DenseStrategy:
    """A factor that goes on after that of a former horizon: its rows stay, and those of the longer horizon's own factor follow.

    They are brought to the scale that costs least, which is searched around the one in which the last diagonal entries agree.
    """
    steps, whole = former.shape[0], own.operator.dense()

    def of(scale: float) -> Matrix:
        made: Matrix = math.exp(scale) * whole
        made[:steps] = 0.0
        made[:steps, :steps] = former
        return made

    middle = math.log(abs(former[-1, -1] / whole[steps - 1, steps - 1]))
    found = scipy.optimize.minimize_scalar(
        lambda scale: _cost(workload, of(scale)),
        bounds=(middle - 1.0, middle + 1.0),
        method="bounded",
        options={"maxiter": 30},
    )
    factor = of(float(found.x))
    return replace(own, operator=Dense(factor), workload_cost=_cost(workload, factor))


def over_series(workload: Workload, found: DenseStrategy, first_steps: int | None = None) -> TriangularStrategy:
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
    own = found.persons
    proof = None if own is None else replace(own, lower_bound=series * own.lower_bound, axis=axis)
    given: dict[str, Any] = {"factor": line.array, "first_steps": first_steps, "persons": proof}
    return TriangularStrategy("triangular", operator, cost, lower, found.solve, **given)
