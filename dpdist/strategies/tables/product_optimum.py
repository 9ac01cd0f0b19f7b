"""The strategy of least error for queries that are one product: the product of the certified optimum of each attribute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dpdist.domain import Domain
from dpdist.errors import InvalidInput
from dpdist.measurement.dense_measurement import complete_rank
from dpdist.operators import Identity, Matrix, Operator, Total, identity_rows
from dpdist.reconstruction.kronecker_terms import Term
from dpdist.strategies.dense.minimax import least_worst
from dpdist.strategies.dual_certificates import DualWeights, LargestBound
from dpdist.strategies.optimal import coa
from dpdist.strategies.representations import TermStrategy
from dpdist.strategies.strategy import OnStep, Solve, Step, Stop, check_workload, ignore_step
from dpdist.workloads import Block, Gram, Workload
from dpdist.workloads.integer_basis import column_codes
from dpdist.workloads.product_form import differing_axes, merge_blocks


def kronecker(workload: Workload, *, tolerance: float = 1e-6, on_step: OnStep = ignore_step) -> TermStrategy:
    """The strategy of least error for a product workload: the product of the certified optimum of each factor.

    Args:
        workload: products of queries of single attributes that differ in what they ask of one attribute alone, (m, n): such as sums and
            counts of the same groups.
        tolerance: certified relative gap at which the solves stop.
        on_step: called with a ``Step`` after every iteration; may raise ``Cancelled``.
    Returns: a strategy with ``terms``; its gap is at most the sum of the factors' gaps.
    Raises: InvalidInput when the queries are not a single product together.
    Source: McKenna, Miklau, Hay, Machanavajjhala 2018 (HDMM), OPT_kron, with the optimum of each factor.
    """
    block = _check_product(workload)
    by_axis = dict(zip(block.axes, block.scaled(block.factors), strict=True))
    axes, factors = [], []
    cost = lower = block.weight**2
    stop: Stop = "converged"
    for axis, size in enumerate(workload.domain.shape):
        factor = by_axis.get(axis, Total(size))
        matrix, factor_cost, factor_lower, factor_stop = _factor_optimum(
            factor, tolerance / len(workload.domain.shape), on_step
        )
        cost, lower = cost * factor_cost, lower * factor_lower
        stop = factor_stop if factor_stop != "converged" else stop
        if matrix is not None:
            axes.append(axis)
            factors.append(matrix)
    term = Term(tuple(axes), tuple(factors))
    operator = term.operator(workload.domain.shape)
    return TermStrategy("kronecker", operator, cost, lower, Solve("kronecker", stop, ()), terms=(term,))


def _check_product(workload: Workload) -> Block:
    """The product that all queries of a workload are together. Raises: InvalidInput."""
    product = merge_blocks(workload.blocks) if check_workload(workload).kind.is_product else None
    if product is None:
        raise InvalidInput(
            "a Kronecker strategy answers one product of queries of single attributes, or several that differ in one attribute alone, "
            f"found {len(workload.blocks)} groups; choose 'coa', 'marginals' or 'auto'"
        )
    return product


def kronecker_worst(workload: Workload, *, tolerance: float = 1e-4, on_step: OnStep = ignore_step) -> TermStrategy:
    """The strategy of a product workload whose largest error (standard error times weight) is least: one optimum for each factor.

    gamma_2(A kron B) = gamma_2(A) gamma_2(B), so the least largest variance and its lower bound multiply, too. Products that differ in
    one attribute alone are one product, with the queries of that attribute from all of them.

    Returns: a strategy with ``terms``; ``solve`` records the largest variance at sensitivity 1 and its certified gap.
    Raises: InvalidInput when the queries are not a single product together.
    Source: Lee, Shraibman, Spalek 2008 (a direct product theorem for gamma_2).
    """
    product = _check_product(workload)
    asked = dict(zip(product.axes, product.scaled(product.factors), strict=True))
    upper = lower = cost = product.weight**2
    axes: list[int] = []
    factors: list[Matrix] = []
    stop: Stop = "converged"
    proofs, answer_weight = dict[int, LargestBound | None](), 1.0
    for axis, size in enumerate(workload.domain.shape):
        if axis not in product.asked_axes:
            continue
        axes.append(axis)
        if isinstance(asked[axis], Identity):
            factors.append(identity_rows(size))
            cost, answer_weight = cost * size, answer_weight / size
            continue
        queries = _queries_along(axis, size, workload.blocks)
        solved = least_worst(queries, tolerance=tolerance / len(product.axes), on_step=on_step)
        assert solved.solve is not None
        assert solved.workload_cost is not None
        last_step = solved.solve.history[-1]
        upper = upper * last_step.objective
        lower = lower * last_step.objective / (1.0 + last_step.gap)
        cost = cost * solved.workload_cost
        stop = solved.solve.stop if solved.solve.stop != "converged" else stop
        factors.append(_full_column_rank(solved.matrix()))
        proofs[axis] = solved.solve.largest
    term = Term(tuple(axes), tuple(factors))
    steps = (Step(1, upper, upper / lower - 1.0),)
    record = Solve(
        "kronecker, least worst query", stop, steps, largest=_multiply_proofs(proofs, answer_weight, workload.blocks)
    )
    return TermStrategy("kronecker", term.operator(workload.domain.shape), cost, None, record, terms=(term,))


def _queries_along(axis: int, size: int, blocks: Sequence[Block]) -> Workload:
    """What groups of products ask of an attribute of so many values: all of it where they differ, each with its weight, else the first."""
    differing = axis in differing_axes(blocks)
    queries = []
    for block in blocks if differing else blocks[:1]:
        factor: Operator = Total(size)
        scale = None
        if axis in block.axes:
            position = block.axes.index(axis)
            factor, scale = block.factors[position], block.scales[position] if block.scales else None
        rows = tuple(str(row) for row in range(factor.shape[0]))
        weight = block.weight if differing else 1.0
        queries.append(Block(block.name, (0,), (factor,), (rows,), weight, scales=() if scale is None else (scale,)))
    return Workload(Domain.of_shape(size), tuple(queries))


def _multiply_proofs(
    proofs: Mapping[int, LargestBound | None], answer_weight: float, blocks: Sequence[Block]
) -> LargestBound | None:
    """The product of the proofs of some attributes, for a weight of every answer of the others; None where one is not known."""
    known_proofs = {axis: proof for axis, proof in proofs.items() if proof is not None}
    if len(known_proofs) < len(proofs):
        return None
    cells = DualWeights("products", {axis: proof.cells.arrays[0] for axis, proof in known_proofs.items()})
    answers = []
    for number, block in enumerate(blocks):
        scale, arrays = answer_weight, dict[int, Matrix | None]()
        for axis, proof in known_proofs.items():
            (weights,) = proof.answers[number if len(proof.answers) > 1 else 0][1]
            if axis in block.axes:
                arrays[axis] = weights
            elif weights is not None:  # the total, which is one answer
                scale *= float(weights[0])
        answers.append((scale, tuple(arrays.get(axis) for axis in block.axes)))
    return LargestBound(cells, tuple(answers))


def _factor_optimum(factor: Operator, tolerance: float, on_step: OnStep) -> tuple[Matrix | None, float, float, Stop]:
    """Strategy of one factor (None: the total), its cost, lower bound and why the solve stopped."""
    if isinstance(factor, Total):
        return None, 1.0, 1.0, "converged"
    if isinstance(factor, Identity):
        return identity_rows(factor.n), float(factor.n), float(factor.n), "converged"
    # cells with equal columns are one cell: the optimum and its strategy are those of the merged ones
    codes = column_codes(factor)
    _, representatives = np.unique(codes, return_index=True)
    solved = coa(Gram(factor.gram()[np.ix_(representatives, representatives)]), tolerance=tolerance, on_step=on_step)
    assert solved.workload_cost is not None
    assert solved.lower_bound is not None
    assert solved.solve is not None
    return _full_column_rank(solved.matrix())[:, codes], solved.workload_cost, solved.lower_bound, solved.solve.stop


def _full_column_rank(matrix: Matrix) -> Matrix:
    """Rows with the same A'A up to 1e-9, as many as columns: once rounded they can be inverted, so answers stay unbiased."""
    values, vectors = np.linalg.eigh(matrix @ matrix.T)
    nonzero = values > matrix.shape[0] * np.finfo(float).eps * values[-1]
    return complete_rank(vectors[:, nonzero].T @ matrix)
