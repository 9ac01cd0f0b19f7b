"""Chains: grams that are a scaled minimum of heights, as those of prefix sums are, whose inverses are tridiagonal."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from dpdist.arrays import lapack
from dpdist.operators import Matrix

MISMATCH = 1e-13
"""Largest relative difference of an entry from the form above that is rounding."""
ACCURACY = 1e-8
"""Relative error of the diagonal by quadrature."""
ROUNDING = 10.0
"""In eps ||T||: error of T's entries and of LAPACK's eigenvalues, rounded up (measured on prefix sums up to 2,048 cells: 5)."""
COMPARISON_ROUNDING = 4.0
"""In eps: error of the mismatch itself."""
ILL_CONDITIONED = 1e-3
"""Ratio of pivots below which a gram is not safely of full rank, or its roots span more decades than eigenvalues have digits."""
EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Chain:
    """V_ij = scale_i t_min(i,j) scale_j.

    Attributes:
        scale: q, (n,), positive.
        steps: delta, (n,), positive: t's differences.
        mismatch: largest relative difference from the gram's entries.
    """

    scale: Matrix
    steps: Matrix
    mismatch: float

    def inverse(self, weight: Matrix) -> tuple[Matrix, Matrix]:
        """Diagonal and off-diagonal of T, the inverse of D_v^1/2 V D_v^1/2."""
        column = self.scale * np.sqrt(weight)
        inverse = 1.0 / self.steps
        diagonal = inverse.copy()
        diagonal[:-1] += inverse[1:]
        return diagonal / column**2, -inverse[1:] / (column[:-1] * column[1:])

    def spectrum(self, weight: Matrix) -> tuple[Matrix, Matrix, float]:
        """s and U with D_v^1/2 V D_v^1/2 = U diag(s^2) U', and a number that is not above sum(s)."""
        diagonal, off_diagonal = self.inverse(weight)
        values, vectors = lapack.eigh_tridiagonal(diagonal, off_diagonal, lapack_driver="stevd")
        eigenvalue_error = ROUNDING * EPSILON * _gershgorin_bound(diagonal, off_diagonal)
        values = np.maximum(values, eigenvalue_error)
        # ||K|| is at most tr K
        form = (self.mismatch + COMPARISON_ROUNDING * EPSILON) * self._trace(weight)
        proven = np.sqrt(np.maximum(1.0 / (values + eigenvalue_error) - form, 0.0)).sum()
        return 1.0 / np.sqrt(values), vectors, float(proven)

    def root_diagonal(self, weight: Matrix) -> Matrix:
        """The diagonal of (D_v^1/2 V D_v^1/2)^1/2 to a relative error of about ``ACCURACY``."""
        diagonal, off_diagonal = self.inverse(weight)
        diagonal_roots = np.zeros(diagonal.size)
        smallest = 1.0 / self._trace(weight)  # T's least eigenvalue is above 1 / tr K
        for shift, quadrature_weight in zip(*_quadrature(smallest, _gershgorin_bound(diagonal, off_diagonal)), strict=True):
            shifted = diagonal + shift
            ahead = scipy.linalg.lapack.dpttrf(shifted, off_diagonal)[0]
            back = scipy.linalg.lapack.dpttrf(shifted[::-1], off_diagonal[::-1])[0][::-1]
            diagonal_roots += quadrature_weight / (ahead + back - shifted)
        return diagonal_roots

    def _trace(self, weight: Matrix) -> float:
        return float((self.scale**2 * np.cumsum(self.steps)) @ weight)

    def cost(self, column: Matrix, roots: Matrix, vectors: Matrix) -> float:
        """tr(Z V Z U diag(1/s) U'), Z = diag(column)."""
        summed = vectors * (self.scale * column)[:, None]
        np.cumsum(summed[::-1], axis=0, out=summed[::-1])
        return float(self.steps @ np.einsum("ia,ia,a->i", summed, summed, 1.0 / roots))


def chain_of(gram: Matrix) -> Chain | None:
    """The chain that a gram is, None for all others: first rejected by n numbers, then compared entry by entry."""
    diagonal = np.diag(gram)
    if gram.shape[0] < 3 or not (gram[0] > 0).all() or not (diagonal > 0).all():
        return None
    scale = gram[0] / math.sqrt(float(gram[0, 0]))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        heights = diagonal / scale**2
        steps = np.diff(heights, prepend=0.0)
        ahead = scale[:-1] * heights[:-1] * scale[1:]
        near = np.abs(ahead - np.diag(gram, 1)) <= MISMATCH * ahead
    if not (steps > 0).all() or not near.all() or not np.isfinite(heights).all():
        return None
    pivots = scale * np.sqrt(steps)  # of Cholesky's factor
    if pivots.min() <= ILL_CONDITIONED * pivots.max():
        return None
    mismatch = 0.0
    for start in range(0, gram.shape[0], 256):
        rows = slice(start, start + 256)
        form = np.minimum(heights[rows, None], heights) * scale
        form *= scale[rows, None]
        mismatch = max(mismatch, float((np.abs(form - gram[rows]) / form).max()))
        if mismatch > MISMATCH:
            return None
    return Chain(scale, steps, mismatch)


def _gershgorin_bound(diagonal: Matrix, off_diagonal: Matrix) -> float:
    """Gershgorin's bound of a tridiagonal matrix's largest eigenvalue."""
    reach = np.abs(diagonal)
    reach[:-1] += np.abs(off_diagonal)
    reach[1:] += np.abs(off_diagonal)
    return float(reach.max())


def _quadrature(smallest: float, largest: float) -> tuple[Matrix, Matrix]:
    """Shifts s^2 and weights w with T^-1/2 = sum of w (T + s^2 I)^-1 for eigenvalues of T between two numbers."""
    ratio = smallest / largest
    nodes = math.ceil((math.log(1.0 / ratio) + 6.0) * math.log(1.0 / ACCURACY) / (2.0 * math.pi**2))
    period = float(scipy.special.ellipkm1(ratio))
    arguments = (np.arange(nodes) + 0.5) * period / nodes
    sine, cosine, delta, _ = scipy.special.ellipj(arguments, 1.0 - ratio)
    root = math.sqrt(smallest)
    return (root * sine / cosine) ** 2, 2.0 * period * root / (math.pi * nodes) * delta / cosine**2
