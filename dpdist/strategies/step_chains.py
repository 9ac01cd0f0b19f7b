"""What no strategy can beat for persons in many steps of a long series: weights on all their choices of steps, as a Markov chain.

For a distribution over persons u and M the mean of u u', no strategy has less error than LB(M) (persons.py). Where a person's steps are a
Markov chain, M and the slope of LB in each of its probabilities take a few products of matrices over the steps, although the chain weighs
more persons than could be listed. L-BFGS finds them for a few long steps first. Each further search, in steps of half the length, begins
with the probabilities of the last one. docs/mathematics.md, section 11.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy

from dpdist.operators import Matrix
from dpdist.strategies.persons import root_of
from dpdist.strategies.proofs import MarkovChain

COARSE_STEPS = 128
"""Of the first search, at most."""
SEARCHES = (40, 40, 30, 25)
"""Steps of L-BFGS in the first search, in the second, ...: later ones begin near their end, and each costs eight times as much."""
WORK = 2**32
"""Multiplications of one product of matrices, times the number of products (3 where steps need not be counted), up to which steps are
halved."""
LEAST = 1e-12
"""Of a probability in the search."""


def best_chain(gram_of: Callable[[int, int], Matrix], steps: int, most: int, separation: int) -> tuple[MarkovChain, int]:
    """The chain of a large LB(M), and how many steps each of its steps stands for.

    Args:
        gram_of: V of a series of so many steps, each of which stands for so many of the whole one.
        steps: of the series.
        most: how many steps of one person fit into it.
        separation: how far apart they are.
    """
    spread = 1 << max(0, (-(-steps // COARSE_STEPS) - 1).bit_length())
    chain: MarkovChain | None = None
    for search in SEARCHES:
        fewer, apart = -(-steps // spread), -(-separation // spread)
        started = _started(fewer, most, apart) if chain is None else _refined(chain, fewer, apart)
        chain = _ChainSearch(gram_of(fewer, spread), started).found(search)
        finer = replace(chain, first=np.zeros(2 * fewer), separation=-(-2 * separation // spread))
        if spread == 1 or (2 * fewer) ** 3 * (most if finer.counted else 3) > WORK:
            break
        spread //= 2
    assert chain is not None
    return _rounded(chain), spread


def _rounded(chain: MarkovChain) -> MarkovChain:
    """In single precision, as it is published; the probabilities of a row stay at most one together."""
    first = chain.first.astype(np.float32).astype(float)
    return replace(chain, first=first / first.sum(), onward=(chain.onward * (1 - 1e-6)).astype(np.float32).astype(float))


def _started(steps: int, most: int, separation: int) -> MarkovChain:
    """Waits beyond the separation that fall exponentially and fill the series; so does the first step."""
    scale = max((steps - 1) / max(most - 1, 1) - separation + 1, separation / 8)
    falling = np.exp(-np.arange(steps) / scale)
    falling /= falling.sum()
    onward = scipy.linalg.toeplitz(np.zeros(steps), np.pad(falling, (separation, 0))[:steps])
    return MarkovChain(falling, onward[np.triu_indices(steps, separation)], separation, most)


def _refined(chain: MarkovChain, steps: int, separation: int) -> MarkovChain:
    """The same chain in shorter steps: logarithms of its probabilities, by the step and the wait, interpolated."""
    waits = chain.steps - chain.separation
    listed = np.full((chain.steps, waits), math.log(LEAST))
    logs = np.log(np.maximum(chain.transitions(), LEAST))
    for wait in range(waits):
        known = np.diagonal(logs, chain.separation + wait)
        listed[:, wait] = known[np.minimum(np.arange(chain.steps), known.size - 1)]
    places = (np.arange(steps) + 0.5) * (chain.steps / steps) - 0.5
    rows, columns = np.triu_indices(steps, separation)
    where = np.stack([places[rows], places[columns - rows - separation]])
    onward = np.exp(scipy.ndimage.map_coordinates(listed, where, order=1, mode="nearest")) * (chain.steps / steps)
    first = np.exp(np.interp(places, np.arange(chain.steps), np.log(np.maximum(chain.first, LEAST))))
    sums = np.maximum(np.bincount(rows, onward, steps), 1.0)
    return MarkovChain(first / first.sum(), onward / sums[rows], separation, chain.most)


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

    def found(self, steps: int) -> MarkovChain:
        """Where L-BFGS stops. Squared roots are shares of all persons at first, which makes all of them equally steep."""
        start, size = self.start, self.start.steps
        ended = 1.0 - np.bincount(self.rows, start.onward, size)
        visits = np.maximum(np.diag(start.mean_square()), LEAST)
        shares = np.concatenate([start.first, visits * np.maximum(ended, 1e-3), visits[self.rows] * start.onward])
        options = {"maxiter": steps, "maxcor": 10, "ftol": 1e-9, "gtol": 1e-12}
        found = scipy.optimize.minimize(
            self._objective, np.sqrt(np.maximum(shares, LEAST**2)), jac=True, method="L-BFGS-B", options=options
        )
        return self._at(found.x)[0]

    def _at(self, roots: Matrix) -> tuple[MarkovChain, float, Matrix]:
        """The chain, and the sums that its probabilities were divided by."""
        size, shares = self.start.steps, roots**2
        total = float(shares[:size].sum())
        sums = shares[size : 2 * size] + np.bincount(self.rows, shares[2 * size :], size)
        return (
            replace(self.start, first=shares[:size] / total, onward=shares[2 * size :] / sums[self.rows]),
            total,
            sums,
        )

    def _objective(self, roots: Matrix) -> tuple[float, Matrix]:
        size = self.start.steps
        chain, total, sums = self._at(roots)
        bound, root = root_of(self.gram, chain.mean_square())
        of_first, of_onward = slopes(chain, root.T @ root)
        ended = -np.bincount(self.rows, chain.onward * of_onward, size)  # a row's probabilities are divided by their sum
        of_first = of_first - chain.first @ of_first
        slope = np.concatenate([of_first / total, ended / sums, (of_onward + ended[self.rows]) / sums[self.rows]])
        return -2.0 * math.log(bound), -2.0 * roots * slope


def slopes(chain: MarkovChain, precision: Matrix) -> tuple[Matrix, Matrix]:
    """Of the mean of u'X u in ``first`` and ``onward``: with X of ``root_of``, those of log LB(M)."""
    onward, pairs = chain.transitions(), np.triu(precision, 1) * 2.0 + np.diag(np.diag(precision))
    first, moved = _counted(chain, onward, pairs) if chain.counted else _uncounted(chain, onward, pairs)
    return first, moved[np.triu_indices(chain.steps, chain.separation)]


def _uncounted(chain: MarkovChain, onward: Matrix, pairs: Matrix) -> tuple[Matrix, Matrix]:
    """With G = (1 - P)^-1 the mean is sum_ij p_i G_ij Y_ij, p = first G."""
    unit = np.eye(chain.steps)
    later = scipy.linalg.solve_triangular(unit - onward, unit, check_finite=False)
    visits = chain.first @ later
    first = later @ np.einsum("ij,ij->i", pairs, later)
    product = scipy.linalg.blas.dtrmm
    moved = product(1.0, later, product(1.0, later, visits[:, None] * pairs, side=1, trans_a=1), trans_a=1)
    return first, moved + visits[:, None] * first


def _counted(chain: MarkovChain, onward: Matrix, pairs: Matrix) -> tuple[Matrix, Matrix]:
    """Backwards through the products of ``MarkovChain.mean_square``."""
    visited = [np.diag(chain.first)]
    for _ in range(chain.most - 1):
        alone = np.diag(visited[-1]) @ onward
        visited.append(visited[-1] @ onward)
        np.fill_diagonal(visited[-1], alone)
    back, moved = pairs, np.zeros_like(pairs)
    for before in reversed(visited[:-1]):
        alone, apart = np.diag(back).copy(), np.triu(back, 1)
        moved += before.T @ apart + np.diag(before)[:, None] * alone
        back = pairs + apart @ onward.T + np.diag(onward @ alone)
    return np.diag(back), moved
