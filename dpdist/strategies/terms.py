"""Strategies too large to be written down: stacks of Kronecker rows over marginal tables.

A term measures  (A_1 kron A_2 kron ...) t  where t is the table of some attributes. One term over all attributes is a Kronecker
strategy; one for every attribute set of a marginal workload is the optimal marginal strategy. Neither the cells nor the
rows are ever enumerated.

Terms must be independent of each other: every row of a term sums to zero along each of its attributes, unless the term is the
only one. Then the least-squares estimate is the sum of what the terms give one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from dpdist.operators import Dense, Identity, Kronecker, Matrix, Operator, Scaled, Total


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

    def operator(self, shape: Sequence[int]) -> Operator:
        """The rows over all cells of a domain."""
        places = dict(zip(self.axes, self.factors, strict=True))
        rows = Kronecker([_cheapest(places[axis]) if axis in places else Total(size) for axis, size in enumerate(shape)])
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


def _cheapest(matrix: Matrix) -> Operator:
    """The cheap operator of an identity matrix, else a dense one."""
    square = matrix.shape[0] == matrix.shape[1]
    return Identity(matrix.shape[0]) if square and (matrix == np.eye(matrix.shape[0])).all() else Dense(matrix)
