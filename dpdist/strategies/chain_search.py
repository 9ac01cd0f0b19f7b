"""Markov chains of persons who are in several cells or steps of a series: weights of a large lower bound, found by L-BFGS."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy

from dpdist.arrays import lapack
from dpdist.operators import Matrix
from dpdist.strategies.contribution_dual import root_of
from dpdist.strategies.dual_certificates import MarkovChain

COARSE_STEPS = 128
"""Of the first search, at most."""
SEARCH_STEPS = (40, 40, 30, 25)
"""Steps of L-BFGS in the first search, in the second, ...: later ones begin near their end, and each costs eight times as much."""
WORK = 2**32
"""Multiplications of one product of matrices, times the number of products (3 where steps need not be counted), up to which steps are
halved."""
MIN_PROBABILITY = 1e-12
"""Of a probability in the search."""


def best_chain(
    gram_of: Callable[[int, int], Matrix], steps: int, max_steps: int, separation: int
) -> tuple[MarkovChain, int]:
    """The chain of a large LB(M), and how many steps each of its steps stands for.

    Args:
        gram_of: V of a series of so many steps, each of which stands for so many of the whole one.
        steps: of the series.
        max_steps: how many steps of one person fit into it.
        separation: how far apart they are.
    """
    block_size = 1 << max(0, (-(-steps // COARSE_STEPS) - 1).bit_length())
    chain: MarkovChain | None = None
    for search in SEARCH_STEPS:
        block_count, block_separation = -(-steps // block_size), -(-separation // block_size)
        started = (
            _initial_chain(block_count, max_steps, block_separation)
            if chain is None
            else _refine_chain(chain, block_count, block_separation)
        )
        chain = _ChainSearch(gram_of(block_count, block_size), started).maximise(search)
        finer = replace(chain, start_probabilities=np.zeros(2 * block_count), separation=-(-2 * separation // block_size))
        if block_size == 1 or (2 * block_count) ** 3 * (max_steps if finer.counted else 3) > WORK:
            break
        block_size //= 2
    assert chain is not None
    return _round_chain(chain), block_size


def _round_chain(chain: MarkovChain) -> MarkovChain:
    """In single precision, as it is published; the probabilities of a row stay at most one together."""
    start_probabilities = chain.start_probabilities.astype(np.float32).astype(float)
    return replace(
        chain,
        start_probabilities=start_probabilities / start_probabilities.sum(),
        onward=(chain.onward * (1 - 1e-6)).astype(np.float32).astype(float),
    )


def _initial_chain(steps: int, max_steps: int, separation: int) -> MarkovChain:
    """Waits beyond the separation that fall exponentially and fill the series; so does the first step."""
    scale = max((steps - 1) / max(max_steps - 1, 1) - separation + 1, separation / 8)
    falling = np.exp(-np.arange(steps) / scale)
    falling /= falling.sum()
    onward = scipy.linalg.toeplitz(np.zeros(steps), np.pad(falling, (separation, 0))[:steps])
    return MarkovChain(falling, onward[np.triu_indices(steps, separation)], separation, max_steps)


def _refine_chain(chain: MarkovChain, steps: int, separation: int) -> MarkovChain:
    """The same chain in shorter steps: logarithms of its probabilities, by the step and the wait, interpolated."""
    waits = chain.steps - chain.separation
    log_table = np.full((chain.steps, waits), math.log(MIN_PROBABILITY))
    logs = np.log(np.maximum(chain.transitions(), MIN_PROBABILITY))
    for wait in range(waits):
        log_diagonal = np.diagonal(logs, chain.separation + wait)
        log_table[:, wait] = log_diagonal[np.minimum(np.arange(chain.steps), log_diagonal.size - 1)]
    positions = (np.arange(steps) + 0.5) * (chain.steps / steps) - 0.5
    rows, columns = np.triu_indices(steps, separation)
    coordinates = np.stack([positions[rows], positions[columns - rows - separation]])
    onward = np.exp(scipy.ndimage.map_coordinates(log_table, coordinates, order=1, mode="nearest")) * (chain.steps / steps)
    start_probabilities = np.exp(
        np.interp(positions, np.arange(chain.steps), np.log(np.maximum(chain.start_probabilities, MIN_PROBABILITY)))
    )
    sums = np.maximum(np.bincount(rows, onward, steps), 1.0)
    return MarkovChain(start_probabilities / start_probabilities.sum(), onward / sums[rows], separation, chain.max_steps)


@dataclass(frozen=True)
class _ChainSearch:
    """log LB(M) as a function of roots: the squares of a row's, over their sum, are its probabilities and that of no further step.

    Attributes:
        gram: V.
        start: the chain to begin with.
    """

    gram: Matrix
    start: MarkovChain

    @cached_property
    def rows(self) -> Matrix:
        """Of the entries of ``onward``."""
        return np.triu_indices(self.start.steps, self.start.separation)[0]

    def maximise(self, steps: int) -> MarkovChain:
        """Where L-BFGS stops. Squared roots are shares of all persons at first, which makes all of them equally steep."""
        start, size = self.start, self.start.steps
        ended = 1.0 - np.bincount(self.rows, start.onward, size)
        visit_weights = np.maximum(np.diag(start.mean_square()), MIN_PROBABILITY)
        start_squares = np.concatenate(
            [start.start_probabilities, visit_weights * np.maximum(ended, 1e-3), visit_weights[self.rows] * start.onward]
        )
        options = {"maxiter": steps, "maxcor": 10, "ftol": 1e-9, "gtol": 1e-12}
        result = scipy.optimize.minimize(
            self._objective,
            np.sqrt(np.maximum(start_squares, MIN_PROBABILITY**2)),
            jac=True,
            method="L-BFGS-B",
            options=options,
        )
        return self._chain_at(result.x)[0]

    def _chain_at(self, roots: Matrix) -> tuple[MarkovChain, float, Matrix]:
        """The chain, and the sums that its probabilities were divided by."""
        size, squares = self.start.steps, roots**2
        total = float(squares[:size].sum())
        sums = squares[size : 2 * size] + np.bincount(self.rows, squares[2 * size :], size)
        return (
            replace(self.start, start_probabilities=squares[:size] / total, onward=squares[2 * size :] / sums[self.rows]),
            total,
            sums,
        )

    def _objective(self, roots: Matrix) -> tuple[float, Matrix]:
        size = self.start.steps
        chain, total, sums = self._chain_at(roots)
        bound, root = root_of(self.gram, chain.mean_square())
        start_slopes, onward_slopes = slopes(chain, root.T @ root)
        # a row's probabilities are divided by their sum
        ended = -np.bincount(self.rows, chain.onward * onward_slopes, size)
        start_slopes = start_slopes - chain.start_probabilities @ start_slopes
        slope = np.concatenate([start_slopes / total, ended / sums, (onward_slopes + ended[self.rows]) / sums[self.rows]])
        return -2.0 * math.log(bound), -2.0 * roots * slope


def slopes(chain: MarkovChain, precision: Matrix) -> tuple[Matrix, Matrix]:
    """Of the mean of u'X u in ``first`` and ``onward``: with X of ``root_of``, those of log LB(M)."""
    onward, pairs = chain.transitions(), np.triu(precision, 1) * 2.0 + np.diag(np.diag(precision))
    start_slopes, onward_slopes = (
        _bounded_slopes(chain, onward, pairs) if chain.counted else _unbounded_slopes(chain, onward, pairs)
    )
    return start_slopes, onward_slopes[np.triu_indices(chain.steps, chain.separation)]


def _unbounded_slopes(chain: MarkovChain, onward: Matrix, pairs: Matrix) -> tuple[Matrix, Matrix]:
    """With G = (1 - P)^-1 the mean is sum_ij p_i G_ij Y_ij, p = first G."""
    unit = np.eye(chain.steps)
    visit_counts = lapack.solve_triangular(unit - onward, unit)
    step_visits = chain.start_probabilities @ visit_counts
    start_slopes = visit_counts @ np.einsum("ij,ij->i", pairs, visit_counts)
    product = scipy.linalg.blas.dtrmm
    moved = product(
        1.0, visit_counts, product(1.0, visit_counts, step_visits[:, None] * pairs, side=1, trans_a=1), trans_a=1
    )
    return start_slopes, moved + step_visits[:, None] * start_slopes


def _bounded_slopes(chain: MarkovChain, onward: Matrix, pairs: Matrix) -> tuple[Matrix, Matrix]:
    """Backwards through the products of ``MarkovChain.mean_square``."""
    visited = [np.diag(chain.start_probabilities)]
    for _ in range(chain.max_steps - 1):
        alone = np.diag(visited[-1]) @ onward
        visited.append(visited[-1] @ onward)
        np.fill_diagonal(visited[-1], alone)
    back, moved = pairs, np.zeros_like(pairs)
    for before in reversed(visited[:-1]):
        alone, off_diagonal = np.diag(back).copy(), np.triu(back, 1)
        moved += before.T @ off_diagonal + np.diag(before)[:, None] * alone
        back = pairs + off_diagonal @ onward.T + np.diag(onward @ alone)
    return np.diag(back), moved
