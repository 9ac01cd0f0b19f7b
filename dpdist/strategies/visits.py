"""The certified optimum for persons who have records in several steps of a series, and what no strategy can beat for longer ones.

Up to ``DENSE_STEPS`` steps the program of persons is solved by cutting planes. For longer series its weights are those of a series of
fewer, longer steps: a person in steps i, j, ... of it is spread evenly over persons in the steps f i + o, f j + o, ... of the long one, of
which two are at least as far apart. This is a bound, a few per cent below the optimum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
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
from dpdist.workloads import Filter, Workload, filtered
from dpdist.workloads.filters import coefficients
from dpdist.workloads.kinds import line_of

DENSE_STEPS = 128
"""Up to here the optimum is found: seconds."""
COARSE_STEPS, COARSE_ROUNDS = 64, (12, 6, 4)
"""Of the series whose weights bound longer ones: its steps at most, and the rounds for it and for series of twice as many steps."""
COARSE_WORK = 2**13
"""Steps times those of a person up to which weights are found."""
BOUND_STEPS = 2048
"""Up to here there is a bound: it takes an eigen-decomposition of the whole series."""
TOLERANCE = 1e-4
"""Relative gap that is asked for at least: the last digits of a person's optimum take as long as all before."""
BOUND_GAP = 1e-3
"""Relative gap at which it stops."""
TRIED = 2**20
"""Choices of steps up to which the longest person is known in every round."""
FIRST = 10
"""Last steps at least from which long persons are followed back, in every number of steps."""


def answers_visits(workload: Workload, moved: Distance) -> bool:
    """Whether the optimum is found: for few steps, where the longest person is known and the products of steps may be below zero."""
    line = of_one_series(workload)
    axis, axes, _ = line_of(workload)
    steps, series = line.shape[1], math.prod(workload.domain.shape[other] for other in axes if other != axis)
    most = fitting(moved.participations or 1, moved.separation, steps)
    plain = most > 1 and series == 1 and not (moved.signed or moved.replaced)
    return plain and steps <= DENSE_STEPS and number_of_chains(steps, most, moved.separation) <= CHAINS


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


def _solved(
    gram: Matrix, moved: Distance, tolerance: float, rounds: int = ROUNDS, starts: Mapping[Cells, float] | None = None
) -> PersonsOptimum:
    """The program over a series."""
    steps, apart = gram.shape[0], moved.separation
    most = fitting(moved.participations or 1, apart, steps)
    given = starts or _starts(steps, most, apart)
    return least_error(gram, given, _Walks(most, apart), tolerance=tolerance, rounds=rounds)


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
    (each,) = line_of(line)[2]
    spread = 1 << (-(-steps // COARSE_STEPS) - 1).bit_length() if steps > DENSE_STEPS else 1
    proof: PersonsBound | None = None
    for rounds in COARSE_ROUNDS:
        fewer = -(-steps // spread)
        apart = replace(moved, separation=-(-moved.separation // spread))
        if proof is not None and fewer * fitting(moved.participations or 1, apart.separation, fewer) > COARSE_WORK:
            break
        shorter = line if spread == 1 else filtered(fewer, "x0", [_every(each, spread, fewer)])
        found = _solved(shorter.gram(), apart, BOUND_GAP, rounds, None if proof is None else _halved(proof, fewer)).bound
        how = (
            found.how
            if spread == 1
            else f"{found.how} over {fewer} steps, and spread over {steps}: a bound below the optimum"
        )
        proof = replace(found, how=how, spread=spread, axis=axis)
        if spread == 1:
            break
        spread //= 2
    assert proof is not None
    return replace(proof, lower_bound=series * persons_bound(line.gram(), proof.mean_square(steps)))


def _halved(proof: PersonsBound, steps: int) -> dict[Cells, float]:
    """The persons of a proof in steps of half the length: two for each, in the first halves and in the second ones."""
    made: dict[Cells, float] = {}
    for person, weight in zip(proof.columns, proof.weights, strict=True):
        for half in (0, 1):
            spread = tuple(step for step in (2 * step + half for step in person) if step < steps)
            if spread:
                made[spread] = made.get(spread, 0.0) + weight / 2
    return made


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
