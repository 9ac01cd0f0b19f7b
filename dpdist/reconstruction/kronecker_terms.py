"""Strategies too large to be written down: stacks of Kronecker rows over marginal tables.

A term measures  (A_1 kron A_2 kron ...) t  where t is the table of some attributes. One term over all attributes is a Kronecker
strategy; one for every attribute set of a marginal workload is the optimal marginal strategy. Neither the cells nor the
rows are ever enumerated.

Terms must be independent of each other: every row of a term sums to zero along each of its attributes, unless the term is the
only one. Then the least-squares estimate is the sum of what the terms give one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from dpdist.operators import Dense, Identity, Kronecker, Matrix, Operator, Scaled, Total
from dpdist.workloads import Block


@dataclass(frozen=True)
class Term:
    """Real rows over one marginal table.

    Attributes:
        axes: the attributes of the table, ascending.
        factors: one matrix an attribute, (p_i, n_i).
        scale: multiplies all rows.
    """

    axes: tuple[int, ...]
    factors: tuple[Matrix, ...] = field(repr=False)
    scale: float = 1.0

    @property
    def square(self) -> float:
        """Largest squared column norm."""
        return self.scale**2 * math.prod(float(np.einsum("ij,ij->j", f, f).max()) for f in self.factors)

    @property
    def length(self) -> float:
        """Largest sum of absolute values in a column."""
        return abs(self.scale) * math.prod(float(np.abs(f).sum(axis=0).max()) for f in self.factors)

    def operator(self, shape: Sequence[int]) -> Operator:
        """The rows over all cells of a domain."""
        factors_by_axis = dict(zip(self.axes, self.factors, strict=True))
        rows = Kronecker(
            [
                _cheap_operator(factors_by_axis[axis]) if axis in factors_by_axis else Total(size)
                for axis, size in enumerate(shape)
            ]
        )
        return rows if self.scale == 1.0 else Scaled(self.scale, rows)


def subsets(axes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Every subset of some attributes, small ones first."""
    return [s for k in range(len(axes) + 1) for s in combinations(axes, k)]


def contrasts(size: int) -> Matrix:
    """Orthonormal rows that sum to zero, (size - 1, size): H'H = I - J/size (Helmert's basis)."""
    rows = np.zeros((size - 1, size))
    for k in range(1, size):
        rows[k - 1, :k] = 1.0
        rows[k - 1, k] = -k
        rows[k - 1] /= math.sqrt(k * (k + 1))
    return rows


def is_identity(matrix: Matrix) -> bool:
    """Whether a matrix is the identity, found without a second one."""
    square = matrix.shape[0] == matrix.shape[1]
    if matrix.strides[0] == -matrix.strides[1]:  # of ``identity_rows``: a diagonal is one number, so that ends tell all
        return square and bool(matrix[0, 0] == 1) and np.count_nonzero(matrix[0]) == np.count_nonzero(matrix[:, 0]) == 1
    return square and bool((matrix.diagonal() == 1).all()) and np.count_nonzero(matrix) == matrix.shape[0]


def _cheap_operator(matrix: Matrix) -> Operator:
    """The cheap operator of an identity matrix, else a dense one."""
    return Identity(matrix.shape[0]) if is_identity(matrix) else Dense(matrix)


Directions = Mapping[int, Matrix]
"""For an attribute, whole numbers that its rows are orthogonal to; their sum is not zero. Missing: all ones."""
NO_DIRECTIONS: Directions = {}
InvertedTerm = tuple[tuple[int, ...], tuple[Matrix, ...], float]
"""A measured term as it is read: its attributes, the pseudo-inverse of each factor, and the deviation of its noise."""


def row_squares(factor: Operator, inverse: Matrix) -> Matrix:
    """Squared norms of the rows of W_i pinv(M_i), block by block: there may be very many rows."""
    if isinstance(factor, Identity):
        return np.asarray(np.einsum("ij,ij->i", inverse, inverse))
    blocks = []
    for start, stop in factor.row_blocks():
        rows = factor.rows(start, stop) @ inverse
        blocks.append(np.einsum("ij,ij->i", rows, rows))
    return np.concatenate(blocks)


def sums_to_zero(factor: Operator, inverse: Matrix) -> bool:
    """Whether a term says nothing about queries that sum over the attribute."""
    if not isinstance(factor, Total):
        return False
    return float(np.abs(inverse.sum(axis=0)).max()) <= 1e-10 * float(np.abs(inverse).max())


def unit_direction(direction: Matrix | None, size: int) -> Matrix:
    """u with 1'u = 1: how a record is spread over the values where a term knows nothing."""
    return np.full(size, 1.0 / size) if direction is None else direction / float(direction.sum())


def mean_answers(factor: Operator, direction: Matrix | None = None) -> Matrix:
    """What a factor's queries count where a term knows nothing: one record spread over the values along the direction."""
    return factor.matvec(unit_direction(direction, factor.shape[1]))


def oblique_inverse(factor: Matrix, direction: Matrix) -> Matrix:
    """The right inverse M# of rows with M u = 0 whose columns sum to zero, (n, p): of the rows and the total together.

    With all rows that the direction leaves, [M; 1'] is square and its inverse is [M#, u]; with fewer, M# = (I - u 1') M^+.
    """
    real = factor.astype(np.float64)
    inverse = np.linalg.pinv(real)
    unit = unit_direction(direction, real.shape[1])
    return np.asarray(inverse - np.outer(unit, inverse.sum(axis=0)))


def align_to_axis(values: Matrix, axis: int, dimensions: int) -> Matrix:
    """A vector as a tensor that varies along one axis only."""
    return values.reshape([-1 if position == axis else 1 for position in range(dimensions)])


def total_variance(block: Block, inverted_terms: Iterable[InvertedTerm], directions: Directions = NO_DIRECTIONS) -> float:
    """The sum of a block's ``block_variances``, each times the squared weight of its query: no query is looked at by itself."""
    factors_by_axis, total = dict(zip(block.axes, block.scaled(block.factors), strict=True)), 0.0
    for axes, inverses, deviation in inverted_terms:
        square = deviation**2
        for axis, inverse in zip(axes, inverses, strict=True):
            square *= float(row_squares(factors_by_axis.get(axis, Total(inverse.shape[0])), inverse).sum())
        for axis in set(block.axes) - set(axes):
            square *= float(np.square(mean_answers(factors_by_axis[axis], directions.get(axis))).sum())
        total += square
    return block.weight**2 * total


def block_variances(block: Block, inverted_terms: Iterable[InvertedTerm], directions: Directions = NO_DIRECTIONS) -> Matrix:
    """Variance of each of a block's unweighted queries, in the order of its factors' rows, an array of one axis a factor.

    The estimate is the sum over terms of (kron of pinv(M_i)) y / n_j over the attributes j outside (u_j, and the oblique inverse, where
    there is a direction); noise is independent between terms, so variances add.
    """
    factors_by_axis = dict(zip(block.axes, block.factors, strict=True))
    sizes = [factor.shape[0] for factor in block.factors]
    variances = np.zeros(sizes)
    for axes, inverses, deviation in inverted_terms:
        factors = [factors_by_axis.get(axis, Total(inverse.shape[0])) for axis, inverse in zip(axes, inverses, strict=True)]
        if any(sums_to_zero(f, inverse) for f, inverse in zip(factors, inverses, strict=True)):
            continue
        axis_squares = {axis: row_squares(f, inverse) for axis, f, inverse in zip(axes, factors, inverses, strict=True)}
        squares = np.full((1,) * len(sizes), deviation**2)
        for axis, values in axis_squares.items():
            if axis not in factors_by_axis:
                squares = squares * values[0]
        for position, axis in enumerate(block.axes):
            values = (
                axis_squares[axis]
                if axis in axis_squares
                else mean_answers(factors_by_axis[axis], directions.get(axis)) ** 2
            )
            squares = squares * align_to_axis(values, position, len(sizes))
        variances += squares
    return variances
