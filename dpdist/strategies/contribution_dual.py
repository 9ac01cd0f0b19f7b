"""The least-error strategy for persons: the program of COA over a set of contributions, with a proof of how close a strategy is.

A person moves the counts by a vector u of a known set U. Minimise tr(V X^-1) subject to u'X u <= 1 for all u in U. For any probability
weights on U and M = sum weight u u', no strategy has a smaller total error than LB(M) = (tr (M^1/2 V M^1/2)^1/2)^2, because X that is
allowed has tr(M X) <= 1. The geometric mean of V and M^-1 has exactly this error for a person of mean length one: where no u is longer
than 1 + gap, it is within that gap of the optimum. The weights are found by L-BFGS on log LB, a concave function; vectors u are added as
they are found too long (cutting planes).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy

from dpdist.arrays import lapack
from dpdist.operators import Matrix
from dpdist.strategies.dual_certificates import Contribution, PersonsBound, contribution_rows, mean_of
from dpdist.strategies.strategy import proven_root_trace

Oracle = Callable[[Matrix], Iterable[Contribution]]
"""Persons who are long for a precision X, the longest that can be found among them."""
ROUNDS, STEPS = 40, 40
"""Of cutting planes, and of L-BFGS in each."""
MIN_WEIGHT = 1e-12
"""Weights below it are left out of the next round."""
STARVED_WEIGHT = 1e-6
"""A long contribution with less weight gets a new share: its logarithm would grow too slowly."""
NEW_WEIGHT = 0.05
"""The weight that all new vectors of a round begin with together."""
PRODUCTS = 2**21
"""Products of two cells of contributions that are listed: 64 MiB, in a third of the time that the cells alone take."""
FLOOR = 1e-9
"""Weight of every single cell: M stays invertible, and the bound loses as little."""


@dataclass(frozen=True)
class PersonsOptimum:
    """What the weights give.

    Attributes:
        root: rows of the strategy: X = root' root, for which the mean squared length of persons is one.
        bound: the proof.
        longest: the largest u'X u that was found: one more than the gap.
    """

    root: Matrix
    bound: PersonsBound
    longest: float


def root_of(gram: Matrix, mean: Matrix) -> tuple[float, Matrix]:
    """LB^1/2, and rows of the geometric mean of V and M^-1 over it: the strategy of least error for persons of mean square M."""
    lower = lapack.cholesky(mean, lower=True)
    values, vectors = lapack.eigh(lower.T @ gram @ lower, driver="evd")
    singular = np.sqrt(np.maximum(values, 0.0))
    total = float(singular.sum())
    turned = lapack.solve_triangular(lower, vectors * np.sqrt(singular / total), lower=True, trans=1)
    return total, turned.T


def persons_bound(gram: Matrix, mean: Matrix) -> float:
    """A number not above LB(M): eigenvalues are taken off what LAPACK may be off by."""
    lower = lapack.cholesky(mean, lower=True)
    values = lapack.eigvalsh(lower.T @ gram @ lower)
    return proven_root_trace(values) ** 2 * (1 - 1e-12)


def least_error(
    gram: Matrix, starts: Mapping[Contribution, float], oracle: Oracle, *, tolerance: float, rounds: int = ROUNDS
) -> PersonsOptimum:
    """The strategy of least error for the persons that an oracle knows.

    Args:
        gram: V, (n, n).
        starts: contributions with weights to begin with; every single cell is added.
        oracle: finds long persons. It need not find the longest for the bound to hold.
        tolerance: relative gap at which it stops.
    """
    cells = gram.shape[0]
    contributions: dict[Contribution, float] = {(cell,): FLOOR / cells for cell in range(cells)}
    for start, weight in starts.items():
        contributions[start] = contributions.get(start, 0.0) + weight
    best: PersonsOptimum | None = None
    for number in range(rounds):
        columns = tuple(contributions)
        weights = _balance_weights(gram, columns, np.array(list(contributions.values())), STEPS * (1 + number // 4))
        mean = mean_of(contribution_rows(columns, cells), weights)
        total, root = root_of(gram, mean)
        precision = root.T @ root
        squared_lengths = {
            contribution: squared_length(precision, contribution) for contribution in (*columns, *oracle(precision))
        }
        longest = max(squared_lengths.values())
        if best is None or longest * total**2 < best.longest * best.bound.lower_bound:
            description = f"{len(columns)} contributions, found one after the other"
            best = PersonsOptimum(root, PersonsBound(total**2, description, columns, tuple(weights.tolist())), longest)
        if longest <= 1.0 + tolerance:
            break
        contributions = {
            contribution: weight
            for contribution, weight in zip(columns, weights.tolist(), strict=True)
            if weight > MIN_WEIGHT or len(contribution) == 1
        }
        new_contributions = [
            contribution
            for contribution, square in squared_lengths.items()
            if square > 1.0 + tolerance / 4 and contributions.get(contribution, 0.0) < STARVED_WEIGHT
        ]
        contributions |= dict.fromkeys(new_contributions, NEW_WEIGHT / max(len(new_contributions), 1))
    assert best is not None
    return best


def squared_length(precision: Matrix, cells: Sequence[int]) -> float:
    """u'X u."""
    return float(precision[np.ix_(cells, cells)].sum())


def _balance_weights(gram: Matrix, columns: Sequence[Contribution], start: Matrix, steps: int) -> Matrix:
    """Weights of the largest bound: their logarithms by L-BFGS."""
    mean, squares_of = _linear_maps(columns, gram.shape[0])
    floor = np.array([FLOOR / gram.shape[0] if len(contribution) == 1 else 0.0 for contribution in columns])

    def weights_of(logs: Matrix) -> Matrix:
        free = np.exp(logs - logs.max())
        return np.asarray(floor + (1.0 - floor.sum()) * free / free.sum())

    def objective(logs: Matrix) -> tuple[float, Matrix]:
        weights = weights_of(logs)
        total, root = root_of(gram, mean(weights))
        squares = squares_of(root)
        free = weights - floor
        return -2.0 * math.log(total), -free * (squares - float(free @ squares) / free.sum())

    result = scipy.optimize.minimize(
        objective,
        np.log(np.maximum(start, MIN_WEIGHT)),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": steps, "maxcor": 20, "ftol": 1e-15, "gtol": 1e-12},
    )
    return weights_of(result.x)


def _linear_maps(
    columns: Sequence[Contribution], cells: int
) -> tuple[Callable[[Matrix], Matrix], Callable[[Matrix], Matrix]]:
    """What gives M of weights, and u'X u of every contribution of a root of X: both are linear in the products u u'.

    These are listed, (contributions, cells^2), as long as they are few.
    """
    if sum(len(contribution) ** 2 for contribution in columns) > PRODUCTS:
        contribution_matrix = contribution_rows(columns, cells)
        return partial(mean_of, contribution_matrix), lambda root: np.asarray((contribution_matrix @ root.T) ** 2).sum(
            axis=1
        )
    arrays = [np.array(contribution, dtype=np.int64) for contribution in columns]
    pair_indices = np.concatenate([(contribution[:, None] * cells + contribution).reshape(-1) for contribution in arrays])
    ends = np.cumsum([0, *(contribution.size**2 for contribution in arrays)])
    products = scipy.sparse.csr_matrix((np.ones(pair_indices.size), pair_indices, ends), shape=(len(arrays), cells**2))
    transposed = products.T.tocsr()
    return lambda weights: (transposed @ weights).reshape(cells, cells), lambda root: products @ (root.T @ root).reshape(-1)
