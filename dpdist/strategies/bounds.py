"""Lower bounds on the cost of every strategy."""

from __future__ import annotations

import math

import numpy as np
import scipy

from dpdist.errors import InvalidInput
from dpdist.operators import Matrix
from dpdist.strategies import linear
from dpdist.strategies.base import gram_in_place, gram_of, proven_root_trace
from dpdist.workloads import Workload

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


def singular_value_bound(workload: Workload | Matrix) -> float:
    """(sum_i sqrt(lambda_i(V)))^2 / n: a lower bound of J for every strategy.

    Args:
        workload: a workload, or its gram W'W, (n, n), float64.
    Source: Li & Miklau 2013.
    """
    gram = gram_in_place(workload)
    return dual_bound(gram, np.ones(gram.shape[0]))


def laplace_bound(workload: Workload | Matrix, weights: Matrix | None = None) -> float:
    """No strategy has a lower cost under Laplace noise (variance at epsilon = 1).

    The larger one of twice ``dual_bound`` (every column's L1 norm is at least its L2 norm) and, of up to 1,024 cells,
    ``shared_length_bound``.

    Args:
        workload: a workload, or its gram W'W, (n, n), float64.
        weights: v, (n,), of the cells, non-negative, not all zero; by default all are equal.
    Source: Li & Miklau 2013, for the L2 length; docs/mathematics.md, section 5.
    """
    gram = gram_in_place(workload)
    cells = gram.shape[0]
    given = np.ones(cells) if weights is None else weights
    shared = shared_length_bound(linear.on_host(gram), given) if cells <= CELLS else 0.0
    return max(2.0 * dual_bound(gram, given), shared)


def dual_bound(workload: Workload | Matrix, dual: Matrix) -> float:
    """LB(v) = (tr (D_v^1/2 V D_v^1/2)^1/2)^2 / sum(v), a lower bound of J for every v >= 0.

    Args:
        workload: a workload, or its gram W'W, (n, n), float64.
        dual: v, (n,), non-negative, not all zero.
    Source: docs/mathematics.md, section 2.
    """
    gram = gram_in_place(workload)
    weights = np.asarray(dual, dtype=np.float64)
    if weights.shape != (gram.shape[0],) or not np.isfinite(weights).all() or (weights < 0).any() or weights.sum() == 0:
        raise InvalidInput(
            f"{gram.shape[0]} non-negative dual weights are needed, not all zero; found shape {weights.shape}"
        )
    root = linear.like(gram, np.sqrt(weights / weights.mean()))
    values = linear.eigenvalues(root[:, None] * gram * root)
    return float(proven_root_trace(values) ** 2 / weights.size)


def lemma_4(workload: Workload | Matrix, theta: float = 0.0) -> tuple[float, float]:
    """Lower and upper bound of OPT(V + theta I) from the singular values of W.

    max(2 ||W||_* - n, ||W||_*^2 / n) + theta <= OPT <= rho^2 (||W||_F^2 + theta n), rho = the largest column norm of the
    right singular vectors.

    Args:
        workload: a workload, or its gram W'W, (n, n), float64.
        theta: ridge that is added to W'W, counts squared.
    Source: KDD 2016, Lemma 4.
    """
    gram = gram_of(workload)
    n = gram.shape[0]
    values, vectors = scipy.linalg.eigh(gram, check_finite=False)
    singular = np.sqrt(np.maximum(values, 0.0))
    kept = values > n * np.finfo(float).eps * values[-1]
    largest = 1.0 if theta > 0 else float((vectors[:, kept] ** 2).sum(axis=1).max())
    nuclear = float(singular.sum())
    return max(2 * nuclear - n, nuclear**2 / n) + theta, largest * (float(values.sum()) + theta * n)


def low_rank_bounds(workload: Workload | Matrix) -> tuple[float, float, float]:
    """The bounds of LRM on the optimal epsilon-DP error at epsilon = 1: upper, lower, and their ratio.

    Upper: r sum_k lambda_k^2 (Lemma 3); lower: ``hardt_talwar`` (Lemma 4); lambda_k are W's non-zero singular values.

    Args:
        workload: a workload, or its gram W'W, (n, n), float64.
    Source: LRM (VLDB 2012), Lemmas 3 and 4.
    """
    gram = gram_of(workload)
    values = scipy.linalg.eigvalsh(gram, check_finite=False)
    kept = values[values > gram.shape[0] * np.finfo(float).eps * values[-1]]
    upper, lower = float(kept.size * kept.sum()), hardt_talwar(gram)
    return upper, lower, upper / lower


def hardt_talwar(workload: Workload | Matrix) -> float:
    """((2^r / r!) prod lambda_k)^(2/r) r^3: no epsilon-DP mechanism has a lower total squared error times epsilon^2.

    lambda_k are the non-zero singular values of W. Holds up to a universal constant.

    Args:
        workload: a workload, or its gram W'W, (n, n), float64.
    Source: LRM (VLDB 2012), Lemma 4.
    """
    gram = gram_of(workload)
    values = scipy.linalg.eigvalsh(gram, check_finite=False)
    singular = np.sqrt(values[values > gram.shape[0] * np.finfo(float).eps * values[-1]])
    rank = singular.size
    log_volume = rank * math.log(2.0) - math.lgamma(rank + 1) + float(np.log(singular).sum())
    return float(math.exp(2.0 / rank * log_volume) * rank**3)
