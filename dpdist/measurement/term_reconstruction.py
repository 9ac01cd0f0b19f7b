"""Answers of a strategy over tables: the sum of what each measured term says, block by block of queries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpdist.arrays.lazy_vector import Vector
from dpdist.arrays.transpose_passes import Target, TransformPass
from dpdist.errors import InvalidInput
from dpdist.measurement.integer_terms import IntegerTerm, apply_along, split_by_term
from dpdist.operators import Matrix, Operator, Total, identity_rows
from dpdist.privacy.noise import Noise
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers
from dpdist.reconstruction.kronecker_terms import (
    NO_DIRECTIONS,
    Directions,
    InvertedTerm,
    align_to_axis,
    block_variances,
    is_identity,
    mean_answers,
    oblique_inverse,
    row_squares,
    sums_to_zero,
)
from dpdist.reconstruction.least_squares import left_inverse
from dpdist.workloads import Block, Workload

Inverses = tuple[tuple[Matrix, ...], ...]
"""For every term, the pseudo-inverse of each of its factors, (n_i, p_i)."""


def inverses_of(terms: Sequence[IntegerTerm], directions: Directions = NO_DIRECTIONS) -> Inverses:
    """The inverses of terms."""
    inverses = []
    for term in terms:
        directed_factors = [(factor, directions.get(axis)) for axis, factor in zip(term.axes, term.factors, strict=True)]
        inverses.append(tuple(_pseudo_inverse(f) if u is None else oblique_inverse(f, u) for f, u in directed_factors))
    return tuple(inverses)


def invert_terms(terms: Sequence[IntegerTerm], inverses: Inverses) -> list[InvertedTerm]:
    """What variances depend on, of every term, for noise of deviation 1."""
    return [(term.axes, term_inverses, term.unit) for term, term_inverses in zip(terms, inverses, strict=True)]


def read_terms(terms: Sequence[IntegerTerm], inverses: Inverses, measured: Matrix, noise: Noise) -> list[MeasuredTerm]:
    """What every measured term knows, of a measurement that is held."""
    return [
        read_term(term, values, term_inverses, noise)
        for (term, values), term_inverses in zip(split_by_term(terms, measured), inverses, strict=True)
    ]


@dataclass(frozen=True)
class MeasuredTerm:
    """What one term knows of a table.

    Attributes:
        values: as measured, an array of one axis an attribute.
        unit: what a measured one stands for, counts.
        inverses: what makes a table of them, a matrix (n_i, p_i) an attribute.
        deviation: of the noise in each value, counts.
    """

    axes: tuple[int, ...]
    values: Matrix
    unit: float
    inverses: tuple[Matrix, ...]
    deviation: float


def read_term(term: IntegerTerm, measured: Matrix, inverses: tuple[Matrix, ...], noise: Noise) -> MeasuredTerm:
    """What a measured term knows."""
    values = measured.reshape([f.shape[0] for f in term.factors])
    return MeasuredTerm(term.axes, values, term.unit, inverses, term.unit * noise.deviation)


def block_answers(
    block: Block, measured_terms: Sequence[MeasuredTerm], directions: Directions = NO_DIRECTIONS
) -> tuple[Matrix, Matrix]:
    """Answers of a block's unweighted queries and their standard errors, both (queries,) float64.

    The estimate is xhat = sum over parts of (kron of pinv(M_i)) y / n_j over the attributes j outside; a block's factors act
    on it attribute by attribute. Noise is uncorrelated between parts, so variances add.
    """
    if not block.separable:
        raise InvalidInput(f"queries {block.name!r} are not a product over attributes; choose mechanism 'coa' or 'identity'")
    factors_by_axis = dict(zip(block.axes, block.factors, strict=True))
    sizes = [factor.shape[0] for factor in block.factors]
    total = np.zeros(sizes)
    for measured_term in measured_terms:
        factors = [
            factors_by_axis.get(axis, Total(inverse.shape[0]))
            for axis, inverse in zip(measured_term.axes, measured_term.inverses, strict=True)
        ]
        if any(sums_to_zero(f, inverse) for f, inverse in zip(factors, measured_term.inverses, strict=True)):
            continue
        tensor = measured_term.values.astype(np.float64) * measured_term.unit
        for position, (factor, inverse) in enumerate(zip(factors, measured_term.inverses, strict=True)):
            tensor = _apply_operator(factor, apply_along(inverse, tensor, position), position)
        block_tensor = tensor.reshape(
            [n for axis, n in zip(measured_term.axes, tensor.shape, strict=True) if axis in factors_by_axis]
        )
        block_tensor = block_tensor.reshape(
            [n if axis in measured_term.axes else 1 for axis, n in zip(block.axes, sizes, strict=True)]
        )
        for block_position, axis in enumerate(block.axes):
            if axis not in measured_term.axes:
                block_tensor = block_tensor * align_to_axis(
                    mean_answers(factors_by_axis[axis], directions.get(axis)), block_position, len(sizes)
                )
        total += block_tensor
    inverted_terms = (
        (measured_term.axes, measured_term.inverses, measured_term.deviation) for measured_term in measured_terms
    )
    return total.ravel(), np.sqrt(block_variances(block, inverted_terms, directions)).ravel()


def product_answers(
    term: IntegerTerm,
    inverses: tuple[Matrix, ...],
    workload: Workload,
    z: Vector,
    noise: Noise,
    answer_request: AnswerRequest,
) -> Answers:
    """Answers of one product of queries from a measurement that is too large to be held, in two passes.

    Raises: InvalidInput when the workload is not the one product that the measurement is for.
    """
    (block,) = workload.blocks
    factors_by_axis = dict(zip(block.axes, block.factors, strict=True))
    factors = [factors_by_axis.get(axis) for axis in term.axes]
    if block.asked_axes != term.axes or any(f is None for f in factors):
        raise InvalidInput("a measurement of this size can answer only the product of queries that it was made for")
    axis_factors = tuple((f, inverse) for f, inverse in zip(factors, inverses, strict=True) if f is not None)
    spreads = tuple(np.sqrt(row_squares(f, inverse)) for f, inverse in axis_factors)
    deviation = term.unit * noise.deviation
    sizes = [(inverse.shape[1], inverse.shape[0], f.shape[0]) for f, inverse in axis_factors]
    widest = math.prod(max(size) for size in sizes[1:])
    queries = math.prod(f.shape[0] for f, _ in axis_factors[1:])
    half = noise.half_width_95(0.0)
    rows = math.prod(inverse.shape[1] for _, inverse in axis_factors[1:])
    sides = [
        TransformPass(rows, partial(_answer_first_axis, axis_factors[0], term.unit), 4 * 8 * max(sizes[0])),
        TransformPass(
            axis_factors[0][0].shape[0],
            partial(_answer_other_axes, axis_factors[1:], spreads, deviation, half),
            6 * 8 * widest,
        ),
    ]
    targets = [Target(queries, np.float64, name) for name in answer_request.names]
    return Answers(*answer_request.work.run_passes(z, sides, targets, answer_request.report_progress))


FactorInverse = tuple[Operator, Matrix]
"""A factor of the workload, and the pseudo-inverse of the strategy's factor for the same attribute."""


def _answer_first_axis(factor_inverse: FactorInverse, unit: float, start: int, slab: Matrix) -> Matrix:
    factor, inverse = factor_inverse
    return np.asarray(factor.matvec(inverse @ np.ascontiguousarray(slab.T.astype(np.float64) * unit)))


def _answer_other_axes(
    axis_factors: tuple[FactorInverse, ...],
    spreads: tuple[Matrix, ...],
    deviation: float,
    half: float,
    start: int,
    slab: Matrix,
) -> tuple[Matrix, Matrix, Matrix]:
    tensor = slab.reshape(slab.shape[0], *(inverse.shape[1] for _, inverse in axis_factors))
    for position, (factor, inverse) in enumerate(axis_factors, start=1):
        tensor = _apply_operator(factor, apply_along(inverse, tensor, position), position)
    error = deviation * spreads[0][start : start + slab.shape[0]]
    for axis_norms in spreads[1:]:
        error = np.multiply.outer(error, axis_norms)
    return tensor, error, half * error


def _apply_operator(factor: Operator, tensor: Matrix, position: int) -> Matrix:
    """An operator applied along one axis of a tensor."""
    front = np.moveaxis(tensor, position, 0)
    flat = factor.matvec(np.ascontiguousarray(front).reshape(front.shape[0], -1))
    return np.moveaxis(flat.reshape(factor.shape[0], *front.shape[1:]), 0, position)


def _pseudo_inverse(factor: Matrix) -> Matrix:
    """M^+ of integer rows of full row rank, or of more rows than columns and full column rank, (n, p) float64."""
    if is_identity(factor):
        return identity_rows(len(factor))
    real = factor.astype(np.float64)
    if real.shape[0] >= real.shape[1]:
        return left_inverse(real)
    return np.linalg.solve(real @ real.T, real).T
