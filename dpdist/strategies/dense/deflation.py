"""The roots of B'B where an eigen-decomposition loses the small ones: it is exact to eps of the largest eigenvalue.

B restricted to the eigenvectors of the small eigenvalues has fewer columns and nothing large beside them, so that another
eigen-decomposition finds them: roots down to 1e-10 of the largest, where one eigen-decomposition ends at 1e-8, in a third of the time of
singular values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpdist.operators import Matrix
from dpdist.strategies import linear_algebra
from dpdist.strategies.dense.trace_problem import EPSILON
from dpdist.strategies.linear_algebra import Array

DEFLATION_THRESHOLD = 1e-10
"""Eigenvalues below this part of the largest are found again: those above it have six digits."""
DEFLATIONS = 6
"""Eigen-decompositions at most: each finds five more decades of roots."""


@dataclass(frozen=True)
class Roots:
    """(B'B)^1/2 = U diag(s) U'.

    Attributes:
        values: s, (n,).
        vectors: U, (n, n).
        proven: a number not above the sum of all singular values of B.
        relative_time: the time that they took, in eigen-decompositions of all n columns.
    """

    values: Matrix
    vectors: Array
    proven: float
    relative_time: float

    @property
    def diagonal(self) -> Matrix:
        """diag (B'B)^1/2."""
        return linear_algebra.weighted_rows(self.vectors, self.values)


def deflated_roots(matrix: Array) -> Roots:
    """The roots of B'B, small ones from eigen-decompositions of their own.

    Proof of the sum: let U be orthogonal, and U'B'BU = R'R with R triangular by blocks. The singular values of R add up to at
    least those of its diagonal blocks, which are the roots of Schur's complements. A complement misses its block by
    ||K_11^-1/2 K_12||^2, the square of the rounding of the eigen-decompositions before over the least eigenvalue that they kept: below
    n eps^2 ||K|| / KEPT (measured on grams of benchmarks/optimisers.py: 0.6 of 256 and 5 of 1,024). The product of B and U
    moves each root by at most n eps ||B||.

    Args:
        matrix: B, (m, n).
    """
    n = int(matrix.shape[1])
    values, vectors = linear_algebra.eigh((matrix.T @ matrix).T, overwrite=True)
    roots = np.zeros(n)
    proven, coupling, moved, relative_time, remaining = 0.0, 0.0, 0.0, 0.0, n
    for level in range(DEFLATIONS):
        largest = max(float(values[-1]), 0.0)
        relative_time += (remaining / n) ** 3
        small = int(np.searchsorted(values, DEFLATION_THRESHOLD * largest)) if level < DEFLATIONS - 1 else 0
        roots[small:remaining] = np.sqrt(np.maximum(values[small:], EPSILON * largest))
        lower_values = np.maximum(values[small:] - EPSILON * largest - coupling, 0.0)
        proven += float(np.maximum(np.sqrt(lower_values) - moved, 0.0).sum())
        if small == 0:
            break
        moved = n * EPSILON * float(roots.max())
        coupling += n * EPSILON**2 / DEFLATION_THRESHOLD * largest
        small_columns = matrix @ vectors[:, :small]
        rest = small_columns.T @ small_columns
        del small_columns  # memory: LAPACK needs the room
        values, turned = linear_algebra.eigh(rest.T, overwrite=True)
        vectors[:, :small] = vectors[:, :small] @ turned
        remaining = small
    return Roots(np.maximum(roots, EPSILON * float(roots.max())), vectors, proven, relative_time)
