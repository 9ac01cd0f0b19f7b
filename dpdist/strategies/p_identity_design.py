"""p-Identity strategies: the cells with a few learnt queries, under Laplace noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from dpdist.arrays import lapack
from dpdist.errors import InvalidInput
from dpdist.operators import Dense, Matrix
from dpdist.strategies.lower_bounds import laplace_bound
from dpdist.strategies.representations import DenseStrategy
from dpdist.strategies.strategy import (
    OnStep,
    Solve,
    Step,
    Stop,
    check_start,
    gram_of,
    ignore_step,
)
from dpdist.workloads import Gram, Workload

CELLS_A_QUERY = 16
"""Cells for every learnt query, as McKenna et al. found best on ranges."""
RESTARTS = 3
COST_AGREEMENT = 1e-6
"""How closely two ways to compute a cost have to agree, relative to it."""


def learnt_queries(cells: int) -> int:
    """How many queries are learnt for so many cells."""
    return max(1, cells // CELLS_A_QUERY)


def p_identity(
    workload: Workload | Gram,
    *,
    queries: int | None = None,
    restarts: int = RESTARTS,
    max_iterations: int = 500,
    seed: int = 0,
    on_step: OnStep = ignore_step,
    start: Matrix | None = None,
) -> DenseStrategy:
    """The best p-Identity strategy under Laplace noise (by total error) that the starts lead to; never worse than the identity.

    Args:
        workload: a workload, or its gram W'W, (n, n).
        queries: p, learnt queries; default n / 16, at least 1.
        restarts: random starts.
        max_iterations: of L-BFGS from each start.
        seed: fixes the random starts.
        on_step: called with a ``Step`` after every iteration; may raise ``Cancelled``.
        start: checkpoint Theta, (p, n), of an interrupted solve: the only start.
    Returns: a strategy for Laplace noise, with its cost at epsilon = 1 and a lower bound.
    Raises: InvalidInput.
    Source: McKenna, Miklau, Hay, Machanavajjhala 2018 (HDMM), OPT_0.
    """
    gram = gram_of(workload)
    cells = gram.shape[0]
    rows = learnt_queries(cells) if queries is None else queries
    if rows < 1 or restarts < 1:
        raise InvalidInput(f"a p-Identity strategy has at least one learnt query and one start, found {rows} and {restarts}")
    state = np.random.default_rng(seed)
    starts = [state.uniform(0.0, 1.0, (rows, cells)) for _ in range(restarts)]
    if start is not None:
        starts = [np.maximum(check_start(start, (rows, cells)), 0.0)]
    best_fit = fit_p_identity(gram, starts, max_iterations=max_iterations, on_step=on_step)
    record = Solve("p-identity", best_fit.stop, best_fit.history)
    return DenseStrategy("p-identity", Dense(best_fit.matrix), best_fit.cost, laplace_bound(Gram(gram)), record, norm="l1")


@dataclass(frozen=True)
class PIdentityFit:
    """The best p-Identity strategy that some starts lead to.

    Attributes:
        cost: 2 tr(V (A'A)^-1), never above the identity's.
        theta: the learnt queries, none where the identity is better.
    """

    cost: float
    theta: Matrix
    stop: Stop
    history: tuple[Step, ...]

    @property
    def matrix(self) -> Matrix:
        """A, every column of unit L1 length."""
        return np.asarray(np.vstack([np.eye(self.theta.shape[1]), self.theta]) / (1.0 + self.theta.sum(axis=0)))


def fit_p_identity(
    gram: Matrix, starts: Sequence[Matrix], *, max_iterations: int = 500, on_step: OnStep = ignore_step
) -> PIdentityFit:
    """The p-Identity strategy of least cost that several starts, all of one shape, lead to."""
    scale = float(np.trace(gram)) or 1.0
    unit = gram / scale
    best, theta = 2.0 * float(np.trace(gram)), np.zeros((0, gram.shape[0]))
    history: list[Step] = []
    stop: Stop = "converged"
    for point in starts:
        shape = point.shape

        def value(flat: Matrix, shape: tuple[int, ...] = shape) -> tuple[float, Matrix]:
            cost, gradient = cost_and_gradient(unit, flat.reshape(shape))
            return cost, gradient.ravel()

        bounds = scipy.optimize.Bounds(0.0, np.inf)
        options = {"maxiter": max_iterations, "maxfun": 2 * max_iterations, "maxcor": 10}
        result = scipy.optimize.minimize(value, point.ravel(), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        stop = "iteration limit" if result.nit >= max_iterations else "converged"
        cost = 2.0 * scale * float(result.fun)
        if cost < best and _is_confirmed(unit, result.x.reshape(shape), float(result.fun)):
            best, theta = cost, result.x.reshape(shape)
        history.append(Step(len(history) + 1, best, float("inf")))
        on_step(replace(history[-1], checkpoint=theta))
    return PIdentityFit(best, theta, stop, tuple(history))


def _is_confirmed(gram: Matrix, theta: Matrix, cost: float) -> bool:
    """Whether a cost is that of its queries: of very long ones, as of a workload that asks for a total alone, rounding leaves nothing."""
    lengths = 1.0 + theta.sum(axis=0)
    try:
        inner = lapack.cho_factor(np.eye(gram.shape[0]) + theta.T @ theta)
    except np.linalg.LinAlgError:
        return False
    direct = float(np.trace(lapack.cho_solve(inner, lengths[:, None] * gram * lengths)))
    return cost > 0 and abs(direct - cost) <= COST_AGREEMENT * cost


def cost_and_gradient(gram: Matrix, theta: Matrix) -> tuple[float, Matrix]:
    """tr(S V S M) and its gradient in Theta, (p, n): products of n x n with n x p matrices only."""
    lengths = 1.0 + theta.sum(axis=0)
    inner = lapack.cho_factor(np.eye(theta.shape[0]) + theta @ theta.T)
    solved = lapack.cho_solve(inner, theta)  # Theta M = (I + Theta Theta')^-1 Theta
    weighted = gram * lengths  # V S
    scaled = lengths[:, None] * weighted
    weighted_queries = scaled @ theta.T  # S V S Theta'
    cost = float(np.trace(scaled) - np.einsum("ij,ji->", weighted_queries, solved))
    # diag(V S M) = diag(V S) - diag(V S Theta' (I + Theta Theta')^-1 Theta)
    along = np.diag(weighted) - np.einsum("ik,ki->i", weighted_queries / lengths[:, None], solved)
    # Theta M (S V S) M = solved (S V S) - (solved S V S Theta') solved
    twice = solved @ scaled
    twice -= (twice @ theta.T) @ solved
    return cost, 2.0 * along - 2.0 * twice
