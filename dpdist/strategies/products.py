"""Product workloads: the certified optimum of each factor is the certified optimum of the product.

V(A kron B) = V(A) kron V(B), and the lower bound, the optimum and its strategy factorise in the same way (docs/mathematics.md).
A domain of a million cells costs two optimisations over a thousand cells.
"""

from __future__ import annotations

import numpy as np

from dpdist.domain import Domain
from dpdist.errors import InvalidInput
from dpdist.grids.dense import completed
from dpdist.grids.terms import Term
from dpdist.operators import Identity, Matrix, Operator, Total
from dpdist.strategies.base import OnStep, Solve, Step, Stop, ignore, queries_of
from dpdist.strategies.optimum import coa
from dpdist.strategies.proofs import DualWeights, LargestBound
from dpdist.strategies.representations import TermStrategy
from dpdist.strategies.worst import least_worst
from dpdist.workloads import Block, Workload
from dpdist.workloads.basis import column_codes
from dpdist.workloads.kinds import is_product


def kronecker(workload: Workload, *, tolerance: float = 1e-6, on_step: OnStep = ignore) -> TermStrategy:
    """The strategy of least error for a product workload: the product of the certified optimum of each factor.

    Args:
        workload: one product of queries of single attributes, (m, n).
        tolerance: certified relative gap at which the solves stop.
        on_step: called with a ``Step`` after every iteration; may raise ``Cancelled``.
    Returns: a strategy with ``terms``; its gap is at most the sum of the factors' gaps.
    Raises: InvalidInput when the workload is not a single product.
    Source: McKenna, Miklau, Hay, Machanavajjhala 2018 (HDMM), OPT_kron, with the optimum of each factor.
    """
    queries_of(workload)
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


def kronecker_worst(workload: Workload, *, tolerance: float = 1e-4, on_step: OnStep = ignore) -> TermStrategy:
    """The strategy of a product workload whose largest error (standard error times weight) is least: one optimum for each factor.

    gamma_2(A kron B) = gamma_2(A) gamma_2(B), so the least largest variance and its lower bound multiply, too.

    Returns: a strategy with ``terms``; ``solve`` records the largest variance at sensitivity 1 and its certified gap.
    Raises: InvalidInput when the workload is not a single product.
    Source: Lee, Shraibman, Spalek 2008 (a direct product theorem for gamma_2).
    """
    queries_of(workload)
    if not is_product(workload):
        raise InvalidInput(
            f"a Kronecker strategy answers one product of queries of single attributes, found {len(workload.blocks)} groups; "
            "choose 'coa', 'marginals' or 'auto'"
        )
    block = workload.blocks[0]
    upper = lower = cost = block.weight**2
    axes: list[int] = []
    factors: list[Matrix] = []
    stop: Stop = "converged"
    proofs, share = dict[int, LargestBound | None](), 1.0
    scales = block.scales or (None,) * len(block.factors)
    by_axis = {a: (f, s) for a, f, s in zip(block.axes, block.factors, scales, strict=True)}
    for axis, attribute in enumerate(workload.domain.attributes):
        factor, scale = by_axis.get(axis, (Total(attribute.size), None))
        if isinstance(factor, Total):
            continue
        axes.append(axis)
        if isinstance(factor, Identity) and scale is None:
            factors.append(np.eye(factor.n))
            cost, share = cost * factor.n, share / factor.n
            continue
        rows = tuple(str(row) for row in range(factor.shape[0]))
        alone = Workload(
            Domain((attribute,)), (Block(block.name, (0,), (factor,), (rows,), scales=() if scale is None else (scale,)),)
        )
        solved = least_worst(alone, tolerance=tolerance / len(block.axes), on_step=on_step)
        assert solved.solve is not None
        assert solved.workload_cost is not None
        last = solved.solve.history[-1]
        upper, lower, cost = upper * last.objective, lower * last.objective / (1.0 + last.gap), cost * solved.workload_cost
        stop = solved.solve.stop if solved.solve.stop != "converged" else stop
        factors.append(full_column_rank(solved.matrix()))
        proofs[axis] = solved.solve.largest
    term = Term(tuple(axes), tuple(factors))
    steps = (Step(1, upper, upper / lower - 1.0),)
    record = Solve("kronecker, least worst query", stop, steps, largest=_product_of(proofs, share, block))
    return TermStrategy("kronecker", term.operator(workload.domain.shape), cost, None, record, terms=(term,))


def _product_of(proofs: dict[int, LargestBound | None], share: float, block: Block) -> LargestBound | None:
    """The product of the proofs of some factors, for a weight of every answer of the others; None where one is not known."""
    known = {axis: proof for axis, proof in proofs.items() if proof is not None}
    cells = DualWeights("products", {axis: proof.cells.arrays[0] for axis, proof in known.items()})
    answers = tuple(known[axis].answers[0][1][0] if axis in known else None for axis in block.axes)
    return LargestBound(cells, ((share, answers),)) if len(known) == len(proofs) else None


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
