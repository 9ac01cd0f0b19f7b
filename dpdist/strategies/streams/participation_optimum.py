"""The certified optimum for persons who have records in several steps of a series, and what no strategy can beat for longer ones.

Up to ``DENSE_STEPS`` steps the program of persons is solved by cutting planes. For longer series the weights of persons are those of a
Markov chain (``dual_certificates``), which bound every strategy a little below the optimum. Where even a chain would take long, its
steps are longer ones: a person in steps i, j, ... is spread evenly over persons in the steps f i + o, f j + o, ... of the long series, of
which two are at least as far apart.
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
from dpdist.measurement.sensitivity.participation import CHAINS, fitting_participations, number_of_chains, trace_chain
from dpdist.operators import Matrix, Toeplitz
from dpdist.stability import Distance
from dpdist.strategies.contribution_dual import ROUNDS, PersonsOptimum, least_error, persons_bound, root_of
from dpdist.strategies.dual_certificates import Contribution, MarkovChain, PersonsBound
from dpdist.strategies.filter_strategies import answers_growing
from dpdist.strategies.representations import DenseStrategy
from dpdist.strategies.strategy import Solve, Step
from dpdist.strategies.streams.triangular_factor import single_series_workload, triangular_strategy
from dpdist.workloads import Filter, Workload, filtered
from dpdist.workloads.time_filters import coefficients

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
MIN_LAST_STEPS = 10
"""Last steps at least from which long persons are followed back, in every number of steps."""


def _is_enumerable(steps: int, max_steps: int, separation: int) -> bool:
    """Whether the steps are few, and the longest person among them is known."""
    return steps <= DENSE_STEPS and number_of_chains(steps, max_steps, separation) <= CHAINS


def answers_participation(workload: Workload, moved: Distance) -> bool:
    """Whether the optimum is found: for few steps, where the longest person is known and the products of steps may be below zero."""
    series_workload = single_series_workload(workload)
    axis, axes, _ = workload.kind.filters_along_axis
    steps, series = (
        series_workload.shape[1],
        math.prod(workload.domain.shape[attribute] for attribute in axes if attribute != axis),
    )
    max_steps = fitting_participations(moved.participations or 1, moved.separation, steps)
    allows_negative = max_steps > 1 and series == 1 and not (moved.signed or moved.replaced)
    return allows_negative and _is_enumerable(steps, max_steps, moved.separation)


def optimise_participation(workload: Workload, moved: Distance, *, tolerance: float = 1e-6) -> DenseStrategy:
    """The lower triangular strategy of least total error for persons in several steps of one series.

    Args:
        workload: one filter of the past of one series, which ``answers_visits``.
        moved: in how many steps one person has records, and how far apart.
        tolerance: certified relative gap at which cutting planes stop.
    Returns: the factor with ``persons``, the proof. Its cost is that of one step.
    """
    gram, tolerance = workload.gram(), max(tolerance, TOLERANCE)
    optimum = _solve_participation(gram, moved, tolerance)
    bound = replace(optimum.bound, lower_bound=persons_bound(gram, optimum.bound.mean_square(len(gram))))
    stop = Step(1, bound.lower_bound * optimum.longest, optimum.longest - 1.0)
    record = Solve("persons", "converged" if optimum.longest <= 1.0 + tolerance else "stalled", (stop,))
    strategy = triangular_strategy(workload, optimum.root.T @ optimum.root, record)
    return replace(strategy, persons=bound)


def _starts(steps: int, max_steps: int, separation: int) -> dict[Contribution, float]:
    """Persons in as many steps as fit, as close as they may be, from every step."""
    length = (max_steps - 1) * separation
    return {tuple(range(start, start + length + 1, separation)): 1.0 / (steps - length) for start in range(steps - length)}


def _solve_participation(gram: Matrix, moved: Distance, tolerance: float, rounds: int = ROUNDS) -> PersonsOptimum:
    """The program over a series."""
    steps, separation = gram.shape[0], moved.separation
    max_steps = fitting_participations(moved.participations or 1, separation, steps)
    return least_error(
        gram, _starts(steps, max_steps, separation), _LongChains(max_steps, separation), tolerance=tolerance, rounds=rounds
    )


def has_steps_bound(workload: Workload) -> bool:
    """Whether ``steps_bound`` knows a bound: one filter of the past over few enough steps."""
    return answers_growing(workload) and single_series_workload(workload).shape[1] <= BOUND_STEPS


def steps_bound(workload: Workload, moved: Distance) -> PersonsBound:
    """What no strategy can beat for persons in several steps of every series, for series of up to ``BOUND_STEPS`` steps.

    Persons who are replaced, who lie in several series or whose amounts have signs reach at least as far as those of one series.
    """
    series_workload = single_series_workload(workload)
    axis, axes, _ = workload.kind.filters_along_axis
    steps, series = (
        series_workload.shape[1],
        math.prod(workload.domain.shape[attribute] for attribute in axes if attribute != axis),
    )
    max_steps = fitting_participations(moved.participations or 1, moved.separation, steps)
    if _is_enumerable(steps, max_steps, moved.separation):
        proof = replace(_solve_participation(series_workload.gram(), moved, BOUND_GAP, BOUND_ROUNDS).bound, axis=axis)
    else:
        (stream_filter,) = series_workload.kind.filters
        chain, block_size = best_chain(
            lambda block_count, block_size: filtered(
                block_count, "x0", [_subsampled_filter(stream_filter, block_size, block_count)]
            ).gram(),
            steps,
            max_steps,
            moved.separation,
        )
        spread = f", spread over {steps}" if block_size > 1 else ""
        description = f"a Markov chain over {chain.steps} steps{spread}: a bound below the optimum"
        proof = PersonsBound(0.0, description, chain=chain, block_size=block_size, axis=axis)
    return replace(proof, lower_bound=series * persons_bound(series_workload.gram(), proof.mean_square(steps)))


def _subsampled_filter(stream_filter: Toeplitz, block_size: int, block_count: int) -> Filter:
    """The filter of longer steps: every so many of its coefficients."""
    return coefficients(padded_coefficients(stream_filter, stream_filter.n)[::block_size][:block_count])


class _LongChains:
    """Long persons for a precision: chains by dynamic programming over consecutive steps, then step by step to where they are longest."""

    def __init__(self, max_steps: int, separation: int) -> None:
        self.max_steps, self.separation = max_steps, separation

    def __call__(self, precision: Matrix) -> Iterator[Contribution]:
        """Some for every number of steps."""
        steps = precision.shape[0]
        step_indices = np.arange(steps)
        is_separated = step_indices[None, :] - step_indices[:, None] >= self.separation
        joined = np.where(is_separated, 2.0 * precision, -np.inf)
        values, sources = [np.diag(precision)], []
        for _ in range(self.max_steps - 1):
            reached = values[-1][:, None] + joined
            source = reached.argmax(axis=0)
            values.append(reached[source, step_indices] + np.diag(precision))
            sources.append(source)
        for count, value in enumerate(values):
            for end in np.argsort(-value)[: max(MIN_LAST_STEPS, steps // 4)]:
                if np.isfinite(value[end]):
                    yield self._improve_chain(precision, trace_chain(sources[:count], int(end)))
        if number_of_chains(steps, self.max_steps, self.separation) <= TRIED:
            from dpdist.measurement.sensitivity.exhaustive_search import longest_chain

            yield tuple(int(step) for step in longest_chain(precision, self.max_steps, self.separation)[1])

    def _improve_chain(self, precision: Matrix, chain: list[int]) -> Contribution:
        """The chain after each of its steps was moved to where it is longest, until none moves."""
        diagonal, moved = np.diag(precision), True
        while moved:
            moved = False
            for index, step in enumerate(chain):
                other_steps = chain[:index] + chain[index + 1 :]
                low = chain[index - 1] + self.separation if index else 0
                high = chain[index + 1] - self.separation if index + 1 < len(chain) else precision.shape[0] - 1
                scores = diagonal[low : high + 1] + 2.0 * precision[low : high + 1][:, other_steps].sum(axis=1)
                best = low + int(scores.argmax())
                if scores[best - low] > scores[step - low] + 1e-12:
                    chain[index], moved = best, True
        return tuple(chain)
