"""The certified optimum for persons who have records in several steps of a series, and what no strategy can beat for longer ones.

Up to ``DENSE_STEPS`` steps the program of persons is solved by cutting planes. For longer series the weights of persons are those of a
Markov chain (``dual_certificates``), which bound every strategy a little below the optimum. Where even a chain would take long, its
steps are longer ones: a person in steps i, j, ... is spread evenly over persons in the steps f i + o, f j + o, ... of the long series, of
which two are at least as far apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dpdist.api.mechanisms import (
    ROUNDS,
    Contribution,
    DenseStrategy,
    Distance,
    Filter,
    Matrix,
    PersonsBound,
    PersonsOptimum,
    Solve,
    Step,
    Workload,
    answers_growing,
    best_chain,
    coefficients,
    filtered,
    fitting_participations,
    least_error,
    longest_chain_steps,
    padded_coefficients,
    persons_bound,
    trace_chain,
)
from dpdist.api.pages import Toeplitz
from dpdist.plugins.streams.step_chains import CHAINS, number_of_chains
from dpdist.plugins.streams.triangular_factor import single_series_workload, triangular_strategy

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
    steps = series_workload.shape[1]
    series = math.prod(workload.domain.shape[attribute] for attribute in axes if attribute != axis)
    max_steps = fitting_participations(moved.participations or 1, moved.separation, steps)
    allows_negative = max_steps > 1 and series == 1 and not (moved.signed or moved.replaced)
    return allows_negative and _is_enumerable(steps, max_steps, moved.separation)


def optimise_participation(workload: Workload, moved: Distance, *, tolerance: float = 1e-6) -> DenseStrategy:
    """The lower triangular strategy of least total error for persons in several steps of one series.

    Args:
        workload: one filter of the past of one series, for which ``answers_participation``.
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
    steps = series_workload.shape[1]
    series = math.prod(workload.domain.shape[attribute] for attribute in axes if attribute != axis)
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
            yield longest_chain_steps(precision, self.max_steps, self.separation)

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
