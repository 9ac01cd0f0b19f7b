"""A lower bound under Laplace noise that sees how the L1 length of a column is shared.

Let W = B A, where every column of A has an L1 length of at most 1, and let v be weights of the cells that sum to 1. Row i of A has the
share s_i = sum_j v_j |a_ij|, and sum_i s_i <= 1. Put x_i = ||b_i|| s_i, sorted from the largest on. By Hoelder's inequality

    sum_i x_i^(2/3) <= (sum_i ||b_i||^2)^(1/3) (sum_i s_i)^(2/3),   so   ||B||_F^2 >= (sum_i x_i^(2/3))^3.

The x_i cannot be small. Without its first k terms W = sum_i b_i a_i' misses sum_(i > k) b_i a_i', and column j of what they span lies
no closer to w_j than E = span(b_1 .. b_k) does. So sum_(i > k) x_i >= t_k = min over E of sum_j v_j dist(w_j, E), for every k.
Where t is replaced by any convex sequence below it, with steps d_k = t_(k-1) - t_k >= 0 that do not rise, the x_i are weakly
supermajorised by the d_k (sums of the smallest are as large), and x^(2/3) is concave and rises: sum x_i^(2/3) >= sum d_k^(2/3).

For any symmetric G and the projector Q off E, dist(w_j, E) = ||Q w_j|| >= <Q w_j, G w_j> / ||G w_j||, so t_k is at least the sum of
all but the k largest eigenvalues of the symmetric part of G sum_j v_j w_j w_j' / ||G w_j||. These sums are convex in k, and so is the
maximum over several G. If S = sum_j v_j w_j w_j' has eigenvalues l, and all columns have the same length, the best G are
min(1, c / l), one for each c; a few c are taken.
"""

from __future__ import annotations

import numpy as np
import scipy

from dpdist.operators import Matrix

CELLS = 1024
"""Cells up to which it is computed, by one eigen-decomposition for each of the ``CURVES``: 3 CPU seconds at 1,024."""
CURVES = 16
"""Ranks at which the eigenvalues are cut; 48 raise the bound by 1 to 2 % on prefix sums and ranges of 256 and 512 cells."""


def shared_length_bound(gram: Matrix, weights: Matrix) -> float:
    """2 (sum_k d_k^(2/3))^3: no strategy has a lower cost under Laplace noise (variance at epsilon = 1).

    It is the optimum of the identity and of a total, and grows as n log^3 n on prefix sums and ranges of all lengths, as the best
    strategies known do; twice the singular value bound grows as n log^2 n.

    Args:
        gram: V = W'W, (n, n), float64.
        weights: v, (n,), non-negative, not all zero; they are divided by their sum.
    """
    shares = weights / weights.sum()
    squares, columns = _along_axes(gram, shares)
    rank = squares.size
    missed = np.zeros(rank + 1)
    for place in np.unique(np.geomspace(1, rank, CURVES).astype(int)) - 1 if rank else ():
        missed = np.maximum(missed, _missed(columns, shares, np.minimum(1.0, squares[place] / squares)))
    rounding = 32 * shares.size * np.finfo(float).eps  # of columns and lengths, relative
    return float(2.0 * (np.maximum(-np.diff(missed), 0.0) ** (2 / 3)).sum() ** 3 * (1.0 - rounding))


def _along_axes(gram: Matrix, shares: Matrix) -> tuple[Matrix, Matrix]:
    """The eigenvalues l of S that are not 0, from the largest on, and the columns of W along its eigenvectors, (rank, n)."""
    values, vectors = scipy.linalg.eigh(gram, check_finite=False)
    columns = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    squares, vectors = scipy.linalg.eigh((columns * shares) @ columns.T, check_finite=False)
    rank = int((squares > squares.size * np.finfo(float).eps * squares[-1]).sum())
    return squares[::-1][:rank], vectors.T[::-1][:rank] @ columns


def _missed(columns: Matrix, shares: Matrix, damped: Matrix) -> Matrix:
    """A lower bound of t_k, for k = 0 .. rank, from one diagonal G."""
    lengths = np.linalg.norm(damped[:, None] * columns, axis=0)
    scaled = np.divide(shares, lengths, out=np.zeros_like(shares), where=lengths > 0)
    product = damped[:, None] * ((columns * scaled) @ columns.T)
    found = scipy.linalg.eigvalsh((product + product.T) / 2, check_finite=False)
    found -= found.size * np.finfo(float).eps * np.abs(found).max()  # never more than the true ones
    return np.concatenate([np.cumsum(found)[::-1], [0.0]])
