"""Product workloads: the certified optimum of each factor is the certified optimum of the product.

V(A kron B) = V(A) kron V(B), and so do the lower bound, the optimum and its strategy factorise (docs/mathematics.md): a
domain of a million cells costs two optimisations over a thousand.
"""

from __future__ import annotations

import numpy as np

from dpdist.errors import InvalidInput
from dpdist.grids.dense import completed
from dpdist.grids.terms import Term
from dpdist.operators import Identity, Matrix, Operator, Total
from dpdist.strategies.base import OnStep, Solve, Stop, ignore
from dpdist.strategies.optimum import coa
from dpdist.strategies.representations import TermStrategy
from dpdist.workloads import Workload
from dpdist.workloads.basis import column_codes
from dpdist.workloads.kinds import is_product


def kronecker(workload: Workload, *, tolerance: float = 1e-6, on_step: OnStep = ignore) -> TermStrategy:
    """The least-error strategy of a product workload, one certified optimum a factor.

    Returns: a strategy with ``terms``; its gap is at most the sum of the factors' gaps.
    Raises: InvalidInput when the workload is not a single product.
    """
    if not is_product(workload):
        raise InvalidInput(
            f"a Kronecker strategy answers one product of queries of single attributes, found {len(workload.blocks)} groups; "
            "choose 'coa', 'marginals' or 'auto'"
        )
    block = workload.blocks[0]
    by_axis = dict(zip(block.axes, block.scaled(block.factors), strict=True))
    axes, factors = [], []
    cost = lower = block.weight**2
    stop: Stop = "converged"
    for axis, size in enumerate(workload.domain.shape):
        factor = by_axis.get(axis, Total(size))
        matrix, factor_cost, factor_lower, found = _factor_optimum(factor, tolerance / len(workload.domain.shape), on_step)
        cost, lower = cost * factor_cost, lower * factor_lower
        stop = found if found != "converged" else stop
        if matrix is not None:
            axes.append(axis)
            factors.append(matrix)
    term = Term(tuple(axes), tuple(factors))
    operator = term.operator(workload.domain.shape)
    return TermStrategy("kronecker", operator, cost, lower, Solve("kronecker", stop, ()), terms=(term,))


def _factor_optimum(factor: Operator, tolerance: float, on_step: OnStep) -> tuple[Matrix | None, float, float, Stop]:
    """Strategy of one factor (None: the total), its cost, lower bound and why the solve stopped."""
    if isinstance(factor, Total):
        return None, 1.0, 1.0, "converged"
    if isinstance(factor, Identity):
        return np.eye(factor.n), float(factor.n), float(factor.n), "converged"
    # cells with equal columns are one cell: the optimum and its strategy are those of the merged ones
    codes = column_codes(factor)
    _, first = np.unique(codes, return_index=True)
    solved = coa(factor.gram()[np.ix_(first, first)], tolerance=tolerance, on_step=on_step)
    assert solved.workload_cost is not None
    assert solved.lower_bound is not None
    assert solved.solve is not None
    return full_column_rank(solved.matrix())[:, codes], solved.workload_cost, solved.lower_bound, solved.solve.stop


def full_column_rank(matrix: Matrix) -> Matrix:
    """Rows with the same A'A up to 1e-9, as many as columns: once rounded they can be inverted, so answers stay unbiased."""
    values, vectors = np.linalg.eigh(matrix @ matrix.T)
    kept = values > matrix.shape[0] * np.finfo(float).eps * values[-1]
    return completed(vectors[:, kept].T @ matrix)
