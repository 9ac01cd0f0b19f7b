"""Lower bounds on the cost of every strategy."""

from __future__ import annotations

import math

import numpy as np
import scipy

from dpdist.errors import InvalidInput
from dpdist.operators import Matrix
from dpdist.strategies import linear, shared_lengths
from dpdist.strategies.base import gram_in_place, gram_of, proven_root_trace
from dpdist.workloads import Workload


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
    shared = shared_lengths.shared_length_bound(linear.on_host(gram), given) if cells <= shared_lengths.CELLS else 0.0
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
