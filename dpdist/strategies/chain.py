"""Grams whose inverse is tridiagonal, so that an eigen-decomposition takes n^2 operations and a fixed-point step takes n.

    V_ij = q_i t_min(i,j) q_j,   t rising:   prefix sums (also weighted), all ranges, exponential kernels.

With t = L delta (running sums), K = D^1/2 V D^1/2 has the tridiagonal inverse T = D^-1/2 Q^-1 L'^-1 diag(1/delta) L^-1 Q^-1 D^-1/2,
whose eigenvectors are K's. The diagonal of K^1/2 = T^-1/2 alone needs none of them: it is a sum over few s of the diagonals of
(T + s^2 I)^-1, by the quadrature of Hale, Higham & Trefethen 2008 (method 3), each from the pivots of two factorisations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from dpdist.operators import Matrix

EPSILON = float(np.finfo(np.float64).eps)
MISMATCH = 1e-13
"""Largest relative difference of an entry from the form above that is rounding."""
SINGULAR = 1e-6
"""Ratio of pivots below which a gram is not safely of full rank."""
ACCURACY = 1e-8
"""Relative error of the diagonal by quadrature."""
ROUNDING = 10.0
"""In eps ||T||: error of T's entries and of LAPACK's eigenvalues, rounded up (measured on prefix sums up to 2,048 cells: 5)."""
COMPARING = 4.0
"""In eps: error of the mismatch itself."""


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
        diagonal, beside = self.inverse(weight)
        values, vectors = scipy.linalg.eigh_tridiagonal(diagonal, beside, lapack_driver="stevd", check_finite=False)
        off = ROUNDING * EPSILON * _largest(diagonal, beside)
        values = np.maximum(values, off)
        form = (self.mismatch + COMPARING * EPSILON) * self._trace(weight)  # ||K|| is at most tr K
        proven = np.sqrt(np.maximum(1.0 / (values + off) - form, 0.0)).sum()
        return 1.0 / np.sqrt(values), vectors, float(proven)

    def root_diagonal(self, weight: Matrix) -> Matrix:
        """The diagonal of (D_v^1/2 V D_v^1/2)^1/2 to a relative error of about ``ACCURACY``."""
        diagonal, beside = self.inverse(weight)
        out = np.zeros(diagonal.size)
        least = 1.0 / self._trace(weight)  # T's least eigenvalue is above 1 / tr K
        for shift, share in zip(*_quadrature(least, _largest(diagonal, beside)), strict=True):
            shifted = diagonal + shift
            ahead = scipy.linalg.lapack.dpttrf(shifted, beside)[0]
            back = scipy.linalg.lapack.dpttrf(shifted[::-1], beside[::-1])[0][::-1]
            out += share / (ahead + back - shifted)
        return out

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
    if pivots.min() <= SINGULAR * pivots.max():
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


def _largest(diagonal: Matrix, beside: Matrix) -> float:
    """Gershgorin's bound of a tridiagonal matrix's largest eigenvalue."""
    reach = np.abs(diagonal)
    reach[:-1] += np.abs(beside)
    reach[1:] += np.abs(beside)
    return float(reach.max())


def _quadrature(least: float, largest: float) -> tuple[Matrix, Matrix]:
    """Shifts s^2 and weights w with T^-1/2 = sum of w (T + s^2 I)^-1 for eigenvalues of T between two numbers."""
    ratio = least / largest
    nodes = math.ceil((math.log(1.0 / ratio) + 6.0) * math.log(1.0 / ACCURACY) / (2.0 * math.pi**2))
    period = float(scipy.special.ellipkm1(ratio))
    places = (np.arange(nodes) + 0.5) * period / nodes
    sine, cosine, delta, _ = scipy.special.ellipj(places, 1.0 - ratio)
    root = math.sqrt(least)
    return (root * sine / cosine) ** 2, 2.0 * period * root / (math.pi * nodes) * delta / cosine**2
