"""The certified optimum for persons who have records in several steps of a series, and what no strategy can beat for longer ones.

Up to ``DENSE_STEPS`` steps the program of persons is solved by cutting planes. For longer series the weights of persons are those of a
Markov chain (step_chains.py), which bound every strategy a little below the optimum. Where even a chain would take long, its steps are
longer ones: a person in steps i, j, ... is spread evenly over persons in the steps f i + o, f j + o, ... of the long series, of which
two are at least as far apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dpdist.arrays.past import padded_coefficients
from dpdist.grids.participations import CHAINS, fitting, followed_back, number_of_chains
from dpdist.operators import Matrix, Toeplitz
from dpdist.stability import Distance
from dpdist.strategies.base import Solve, Step
from dpdist.strategies.filters import answers_growing
from dpdist.strategies.lower_factors import factored, of_one_series
from dpdist.strategies.persons import ROUNDS, PersonsOptimum, least_error, persons_bound
from dpdist.strategies.proofs import Cells, PersonsBound
from dpdist.strategies.representations import DenseStrategy
from dpdist.strategies.step_chains import best_chain
from dpdist.workloads import Filter, Workload, filtered
from dpdist.workloads.filters import coefficients
from dpdist.workloads.kinds import line_of

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
            from dpdist.grids.searches import longest_chain

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
