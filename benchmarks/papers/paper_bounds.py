"""Bounds of papers that no certificate uses: they hold up to constants, or are above the bounds that ``dpdist.strategies`` has."""

from __future__ import annotations

import math

import numpy as np

from dpdist.arrays import lapack
from dpdist.strategies.strategy import gram_of
from dpdist.workloads import Gram, Workload


def lemma_4(workload: Workload | Gram, theta: float = 0.0) -> tuple[float, float]:
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
    values, vectors = lapack.eigh(gram)
    singular = np.sqrt(np.maximum(values, 0.0))
    nonzero = values > n * np.finfo(float).eps * values[-1]
    largest = 1.0 if theta > 0 else float((vectors[:, nonzero] ** 2).sum(axis=1).max())
    nuclear = float(singular.sum())
    return max(2 * nuclear - n, nuclear**2 / n) + theta, largest * (float(values.sum()) + theta * n)


def low_rank_bounds(workload: Workload | Gram) -> tuple[float, float, float]:
    """The bounds of LRM on the optimal epsilon-DP error at epsilon = 1: upper, lower, and their ratio.

    Upper: r sum_k lambda_k^2 (Lemma 3); lower: ``hardt_talwar`` (Lemma 4); lambda_k are W's non-zero singular values.

    Args:
        workload: a workload, or its gram W'W, (n, n), float64.
    Source: LRM (VLDB 2012), Lemmas 3 and 4.
    """
    gram = gram_of(workload)
    values = lapack.eigvalsh(gram)
    nonzero = values[values > gram.shape[0] * np.finfo(float).eps * values[-1]]
    upper, lower = float(nonzero.size * nonzero.sum()), hardt_talwar(Gram(gram))
    return upper, lower, upper / lower


def hardt_talwar(workload: Workload | Gram) -> float:
    """((2^r / r!) prod lambda_k)^(2/r) r^3: no epsilon-DP mechanism has a lower total squared error times epsilon^2.

    lambda_k are the non-zero singular values of W. Holds up to a universal constant.

    Args:
        workload: a workload, or its gram W'W, (n, n), float64.
    Source: LRM (VLDB 2012), Lemma 4.
    """
    gram = gram_of(workload)
    values = lapack.eigvalsh(gram)
    singular = np.sqrt(values[values > gram.shape[0] * np.finfo(float).eps * values[-1]])
    rank = singular.size
    log_volume = rank * math.log(2.0) - math.lgamma(rank + 1) + float(np.log(singular).sum())
    return float(math.exp(2.0 / rank * log_volume) * rank**3)
