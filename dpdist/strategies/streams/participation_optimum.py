"""The certified optimum for persons who have records in several steps of a series, and what no strategy can beat for longer ones.

Up to ``DENSE_STEPS`` steps the program of persons is solved by cutting planes. For longer series the weights of persons are those of a
Markov chain (step_chains.py), which bound every strategy a little below the optimum. Where even a chain would take long, its steps are
longer ones: a person in steps i, j, ... is spread evenly over persons in the steps f i + o, f j + o, ... of the long series, of which
two are at least as far apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy

from dpdist.arrays import lapack
from dpdist.arrays.causal_filters import padded_coefficients
from dpdist.measurement.sensitivity.participation import CHAINS, fitting, followed_back, number_of_chains
from dpdist.operators import Matrix, Toeplitz
from dpdist.stability import Distance
from dpdist.strategies.contribution_dual import ROUNDS, PersonsOptimum, least_error, persons_bound, root_of
from dpdist.strategies.dual_certificates import Cells, MarkovChain, PersonsBound
from dpdist.strategies.filter_strategies import answers_growing
from dpdist.strategies.representations import DenseStrategy
from dpdist.strategies.strategy import Solve, Step
from dpdist.strategies.streams.triangular_factor import factored, of_one_series
from dpdist.workloads import Filter, Workload, filtered
from dpdist.workloads.time_filters import coefficients
from dpdist.workloads.workload_kind import line_of

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
        # a row's probabilities are divided by their sum
        ended = -np.bincount(self.rows, chain.onward * of_onward, size)
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
    later = lapack.solve_triangular(unit - onward, unit)
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


DENSE_STEPS = 128
"""Up to here the optimum is found: seconds."""
BOUND_STEPS = 2048
"""Up to here there is a bound: it takes an eigen-decomposition of the whole series."""
TOLERANCE = 1e-4
"""Relative gap that is asked for at least: the last digits of a person's optimum take as long as all before."""
BOUND_GAP, BOUND_ROUNDS = 1e-3, 12
"""Relative gap at which it stops, and the rounds of cutting planes at most."""
TRIED = 2**20
"""Choices of steps up to which the longest person is known in every round."""
FIRST = 10
"""Last steps at least from which long persons are followed back, in every number of steps."""


def _listed(steps: int, most: int, separation: int) -> bool:
    """Whether the steps are few, and the longest person among them is known."""
    return steps <= DENSE_STEPS and number_of_chains(steps, most, separation) <= CHAINS


def answers_visits(workload: Workload, moved: Distance) -> bool:
    """Whether the optimum is found: for few steps, where the longest person is known and the products of steps may be below zero."""
    line = of_one_series(workload)
    axis, axes, _ = line_of(workload)
    steps, series = line.shape[1], math.prod(workload.domain.shape[other] for other in axes if other != axis)
    most = fitting(moved.participations or 1, moved.separation, steps)
    plain = most > 1 and series == 1 and not (moved.signed or moved.replaced)
    return plain and _listed(steps, most, moved.separation)


def persons_by_step(workload: Workload, moved: Distance, *, tolerance: float = 1e-6) -> DenseStrategy:
    """The lower triangular strategy of least total error for persons in several steps of one series.

    Args:
        workload: one filter of the past of one series, which ``answers_visits``.
        moved: in how many steps one person has records, and how far apart.
        tolerance: certified relative gap at which cutting planes stop.
    Returns: the factor with ``persons``, the proof. Its cost is that of one step.
    """
    gram, tolerance = workload.gram(), max(tolerance, TOLERANCE)
    found = _solved(gram, moved, tolerance)
    bound = replace(found.bound, lower_bound=persons_bound(gram, found.bound.mean_square(len(gram))))
    stop = Step(1, bound.lower_bound * found.longest, found.longest - 1.0)
    record = Solve("persons", "converged" if found.longest <= 1.0 + tolerance else "stalled", (stop,))
    made = factored(workload, found.root.T @ found.root, record)
    return replace(made, persons=bound)


def _starts(steps: int, most: int, separation: int) -> dict[Cells, float]:
    """Persons in as many steps as fit, as close as they may be, from every step."""
    length = (most - 1) * separation
    return {tuple(range(first, first + length + 1, separation)): 1.0 / (steps - length) for first in range(steps - length)}


def _solved(gram: Matrix, moved: Distance, tolerance: float, rounds: int = ROUNDS) -> PersonsOptimum:
    """The program over a series."""
    steps, apart = gram.shape[0], moved.separation
    most = fitting(moved.participations or 1, apart, steps)
    return least_error(gram, _starts(steps, most, apart), _Walks(most, apart), tolerance=tolerance, rounds=rounds)


def bounds_steps(workload: Workload) -> bool:
    """Whether ``steps_bound`` knows a bound: one filter of the past over few enough steps."""
    return answers_growing(workload) and of_one_series(workload).shape[1] <= BOUND_STEPS


def steps_bound(workload: Workload, moved: Distance) -> PersonsBound:
    """What no strategy can beat for persons in several steps of every series, for series of up to ``BOUND_STEPS`` steps.

    Persons who are replaced, who lie in several series or whose amounts have signs reach at least as far as those of one series.
    """
    line = of_one_series(workload)
    axis, axes, _ = line_of(workload)
    steps, series = line.shape[1], math.prod(workload.domain.shape[other] for other in axes if other != axis)
    most = fitting(moved.participations or 1, moved.separation, steps)
    if _listed(steps, most, moved.separation):
        proof = replace(_solved(line.gram(), moved, BOUND_GAP, BOUND_ROUNDS).bound, axis=axis)
    else:
        (each,) = line_of(line)[2]
        chain, spread = best_chain(
            lambda fewer, spread: filtered(fewer, "x0", [_every(each, spread, fewer)]).gram(), steps, most, moved.separation
        )
        how = f"a Markov chain over {chain.steps} steps{f', spread over {steps}' if spread > 1 else ''}: a bound below the optimum"
        proof = PersonsBound(0.0, how, chain=chain, spread=spread, axis=axis)
    return replace(proof, lower_bound=series * persons_bound(line.gram(), proof.mean_square(steps)))


def _every(each: Toeplitz, spread: int, fewer: int) -> Filter:
    """The filter of longer steps: every so many of its coefficients."""
    return coefficients(padded_coefficients(each, each.n)[::spread][:fewer])


class _Walks:
    """Long persons for a precision: chains by dynamic programming over consecutive steps, then step by step to where they are longest."""

    def __init__(self, most: int, separation: int) -> None:
        self.most, self.separation = most, separation

    def __call__(self, precision: Matrix) -> Iterator[Cells]:
        """Some for every number of steps."""
        steps = precision.shape[0]
        places = np.arange(steps)
        apart = places[None, :] - places[:, None] >= self.separation
        joined = np.where(apart, 2.0 * precision, -np.inf)
        values, came = [np.diag(precision)], []
        for _ in range(self.most - 1):
            reached = values[-1][:, None] + joined
            source = reached.argmax(axis=0)
            values.append(reached[source, places] + np.diag(precision))
            came.append(source)
        for count, value in enumerate(values):
            for end in np.argsort(-value)[: max(FIRST, steps // 4)]:
                if np.isfinite(value[end]):
                    yield self._settled(precision, followed_back(came[:count], int(end)))
        if number_of_chains(steps, self.most, self.separation) <= TRIED:
            from dpdist.measurement.sensitivity.exhaustive_search import longest_chain

            yield tuple(int(step) for step in longest_chain(precision, self.most, self.separation)[1])

    def _settled(self, precision: Matrix, chain: list[int]) -> Cells:
        """The chain after each of its steps was moved to where it is longest, until none moves."""
        diagonal, moved = np.diag(precision), True
        while moved:
            moved = False
            for place, step in enumerate(chain):
                others = chain[:place] + chain[place + 1 :]
                low = chain[place - 1] + self.separation if place else 0
                high = chain[place + 1] - self.separation if place + 1 < len(chain) else precision.shape[0] - 1
                scores = diagonal[low : high + 1] + 2.0 * precision[low : high + 1][:, others].sum(axis=1)
                best = low + int(scores.argmax())
                if scores[best - low] > scores[step - low] + 1e-12:
                    chain[place], moved = best, True
        return tuple(chain)
