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

from dpdist.api import InvalidInput
from dpdist.api.mechanisms import (
    Dense,
    DenseStrategy,
    Domain,
    Identity,
    IntegerMeasurement,
    Kronecker,
    Matrix,
    Neighbours,
    NotPositiveDefinite,
    OnStep,
    PersonsBound,
    Solve,
    Strategy,
    Total,
    Workload,
    answers_growing,
    check_workload,
    coa,
    ignore_step,
    lapack,
)
from dpdist.api.pages import Block, Operator
from dpdist.plugins.streams.triangular_measurement import triangular_measurement


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
        (stream_filter,) = workload.kind.filters
        error_rows = stream_filter.matvec(lapack.solve_triangular(self.factor, np.eye(stream_filter.n), lower=True))
        return self.unit_error * math.sqrt(float(np.einsum("ij,ij->i", error_rows, error_rows).max()))

    def _measurement(self, workload: Workload, neighbours: Neighbours, most_records: int) -> IntegerMeasurement:
        axis, axes, _ = workload.kind.filters_along_axis
        shape, sizes = tuple(workload.domain.shape[table_axis] for table_axis in axes), workload.domain.sizes
        step_axis = axes.index(axis)
        options: dict[str, Any] = {"neighbours": neighbours, "most_records": most_records, "sizes": sizes}
        return triangular_measurement(self.factor, shape, step_axis, axes, first_steps=self.first_steps, **options)


def single_series_workload(workload: Workload) -> Workload:
    """The same filter of one series alone. Raises: InvalidInput when the workload is not one filter of the past."""
    if not answers_growing(workload):
        raise InvalidInput(
            "a triangular strategy answers one filter of the past whose coefficient for the present step is "
            "not zero; choose 'auto' or 'coa'"
        )
    axis, _, (stream_filter,) = workload.kind.filters_along_axis
    attribute = workload.domain.attributes[axis]
    block = workload.blocks[0]
    return Workload(
        Domain((attribute,), workload.domain.sizes),
        (Block(block.name, (0,), (stream_filter,), (tuple(str(step) for step in range(stream_filter.n)),), block.weight),),
    )


def triangular(
    workload: Workload, *, tolerance: float = 1e-6, on_step: OnStep = ignore_step, start: Matrix | None = None
) -> DenseStrategy:
    """The lower triangular strategy of least total error for one filter of the past.

    Args:
        workload: a workload of one series (``single_series_workload``).
        tolerance: certified relative gap of COA's optimum.
        on_step: called with a ``Step`` after every iteration; may raise ``Cancelled``.
        start: checkpoint of an interrupted solve: dual weights, (n,).
    Returns: the triangular factor with its cost and COA's lower bound.
    Raises: InvalidInput for other workloads; NotPositiveDefinite when rounding leaves no factor.
    """
    optimum = coa(single_series_workload(check_workload(workload)), tolerance=tolerance, on_step=on_step, start=start)
    matrix = optimum.matrix()
    assert optimum.solve is not None
    return replace(triangular_strategy(workload, matrix.T @ matrix, optimum.solve), lower_bound=optimum.lower_bound)


def triangular_strategy(workload: Workload, precision: Matrix, solve: Solve) -> DenseStrategy:
    """The lower triangular factor of a precision, in unit sensitivity, with its cost. Raises: NotPositiveDefinite."""
    try:
        reversed_factor = lapack.cholesky(precision[::-1, ::-1], lower=False)
    except scipy.linalg.LinAlgError as error:
        raise NotPositiveDefinite(
            "the optimal precision of this filter is singular to rounding: no triangular factor; set 'mechanism: square-root'"
        ) from error
    return strategy_from_factor(workload, np.tril(reversed_factor[::-1, ::-1]), solve)


def strategy_from_factor(workload: Workload, factor: Matrix, solve: Solve) -> DenseStrategy:
    """A lower triangular factor, in unit sensitivity, with its cost."""
    factor = factor / np.sqrt(np.einsum("ij,ij->j", factor, factor).max())
    return DenseStrategy("triangular", Dense(factor), _cost(workload, factor), None, solve)


def _cost(workload: Workload, factor: Matrix) -> float:
    """Total variance of one series at noise multiplier 1, for a factor of any length."""
    (stream_filter,) = workload.kind.filters
    error_rows = stream_filter.matvec(lapack.solve_triangular(factor, np.eye(stream_filter.n), lower=True))
    longest = float(np.einsum("ij,ij->j", factor, factor).max())
    return workload.blocks[0].weight ** 2 * longest * float(np.einsum("ij,ij->", error_rows, error_rows))


def extend_factor(workload: Workload, former_factor: Matrix, own_strategy: DenseStrategy) -> DenseStrategy:
    """A factor that goes on after that of a former horizon: its rows stay, and those of the longer horizon's own factor follow.

    They are brought to the scale that costs least, which is searched around the one in which the last diagonal entries agree.
    """
    steps, whole = former_factor.shape[0], own_strategy.operator.dense()

    def extend_with_scale(scale: float) -> Matrix:
        extended: Matrix = math.exp(scale) * whole
        extended[:steps] = 0.0
        extended[:steps, :steps] = former_factor
        return extended

    middle = math.log(abs(former_factor[-1, -1] / whole[steps - 1, steps - 1]))
    result = scipy.optimize.minimize_scalar(
        lambda scale: _cost(workload, extend_with_scale(scale)),
        bounds=(middle - 1.0, middle + 1.0),
        method="bounded",
        options={"maxiter": 30},
    )
    factor = extend_with_scale(float(result.x))
    return replace(own_strategy, operator=Dense(factor), workload_cost=_cost(workload, factor))


def strategy_over_series(
    workload: Workload, series_strategy: DenseStrategy, first_steps: int | None = None
) -> TriangularStrategy:
    """The strategy for every series of a workload, from that of one."""
    axis, axes, _ = workload.kind.filters_along_axis
    series = math.prod(workload.domain.shape[table_axis] for table_axis in axes if table_axis != axis)
    series_operator = series_strategy.operator
    assert isinstance(series_operator, Dense)
    factors: list[Operator] = [
        series_operator if attribute == axis else Identity(size) if attribute in axes else Total(size)
        for attribute, size in enumerate(workload.domain.shape)
    ]
    operator = factors[0] if len(factors) == 1 else Kronecker(factors)
    cost = None if series_strategy.workload_cost is None else series * series_strategy.workload_cost
    lower = None if series_strategy.lower_bound is None else series * series_strategy.lower_bound
    series_proof = series_strategy.persons
    proof = None if series_proof is None else replace(series_proof, lower_bound=series * series_proof.lower_bound, axis=axis)
    fields: dict[str, Any] = {"factor": series_operator.array, "first_steps": first_steps, "persons": proof}
    return TriangularStrategy("triangular", operator, cost, lower, series_strategy.solve, **fields)
