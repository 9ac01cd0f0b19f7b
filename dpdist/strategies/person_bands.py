"""Lower triangular strategies that end within two of a person's separations: the best of many steps, each with coefficients of its own.

Where the rows of C end within two separations, only consecutive steps of a person meet, and what one adds, u'Xu with X = C'C, is the sum
of a chain: its largest is exact by dynamic programming. The mean of all chains with weights exp(sharpness u'Xu) is as well, with its
gradient, and stands for the largest while C is sought by L-BFGS from the best filter of the past. docs/mathematics.md, section 11.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from dpdist.grids.participations import number_of_chains
from dpdist.operators import Matrix
from dpdist.stability import Distance
from dpdist.strategies.bands import Visitors, banded
from dpdist.strategies.base import Solve
from dpdist.strategies.lower_factors import of_factor, of_one_series
from dpdist.strategies.representations import DenseStrategy
from dpdist.workloads import Workload
from dpdist.workloads.kinds import line_of

SHARPNESSES, STEPS = (20.0, 100.0, 500.0), 60
"""How much larger the largest weighs than the number of chains, in turn; and steps of L-BFGS for each."""
NEVER = -1e300
"""The logarithm of no chain at all."""


def persons_in_bands(workload: Workload, moved: Distance) -> DenseStrategy:
    """A lower triangular strategy of small total error for persons in several steps, of as many bands as two of their separations.

    Args:
        workload: one filter of the past, of whose series each is measured so.
        moved: in how many steps one person has records, and how far apart.
    Returns: the factor, of unit columns at most. Its cost is that of one step.
    """
    line, persons = of_one_series(workload), Visitors.of(workload, moved)
    (each,) = line_of(line)[2]
    steps, width = persons.steps, persons.widths[-1]
    given = banded(workload, moved=moved).coefficients.real
    start = scipy.linalg.toeplitz(np.pad(given, (0, steps - given.size)), np.zeros(steps))
    rows, columns = np.tril_indices(steps)
    kept = rows - columns < width
    rows, columns = rows[kept], columns[kept]
    lags = range(persons.separation, width)
    entropy = math.log(number_of_chains(steps, persons.most, persons.separation))

    def factor_of(entries: Matrix) -> Matrix:
        factor = np.zeros((steps, steps))
        factor[rows, columns] = entries
        return factor

    def objective(entries: Matrix, sharpness: float) -> tuple[float, Matrix]:
        factor = factor_of(entries)
        inverse = scipy.linalg.solve_triangular(factor, np.eye(steps), lower=True, check_finite=False)
        spread = each.matvec(inverse)
        error = float(np.einsum("ij,ij->", spread, spread))
        gram = _product(factor, factor, transposed=True)
        alone = np.diag(gram)
        sharp = sharpness * entropy / (persons.most * float(alone.max()))
        chains = Chains.of(
            alone * sharp, [2.0 * sharp * np.diagonal(gram, lag) for lag in lags], persons.most, persons.separation
        )
        longest = chains.logarithm / sharp
        weighed = np.diag(chains.alone)
        for lag, both in zip(lags, chains.pairs.T, strict=True):
            np.fill_diagonal(weighed[:, lag:], both[lag:])
            np.fill_diagonal(weighed[lag:], both[lag:])
        read = _product(spread, _product(inverse, spread.T).T, transposed=True)
        slope = 2.0 / longest * _product(factor, weighed) - 2.0 / error * read
        return math.log(error) + math.log(longest), slope[rows, columns]

    entries = start[rows, columns]
    for sharpness in SHARPNESSES:
        options = {"maxiter": STEPS, "maxcor": 10}
        entries = scipy.optimize.minimize(objective, entries, (sharpness,), jac=True, method="L-BFGS-B", options=options).x
    return of_factor(workload, factor_of(entries), Solve("persons in bands", "iteration limit", ()))


def _product(lower: Matrix, other: Matrix, *, transposed: bool = False) -> Matrix:
    """A lower triangular matrix, or its transpose, times another: half the work."""
    return np.asarray(scipy.linalg.blas.dtrmm(1.0, lower, other, lower=1, trans_a=int(transposed)))


@dataclass(frozen=True)
class Chains:
    """The sum of exp(what a chain has) over all chains of some steps, and the share of those that have a step, or two in sequence.

    Attributes:
        logarithm: of the sum.
        alone: the share of every step, (steps,).
        pairs: that of every step and the one ``separation``, ``separation`` + 1, ... steps before it, (steps, lags).
    """

    logarithm: float
    alone: Matrix
    pairs: Matrix

    @classmethod
    def of(cls, alone: Matrix, between: Sequence[Matrix], most: int, separation: int) -> Chains:
        """By dynamic programming over the number of steps, forward and backward.

        Args:
            alone: what a step adds by itself, (steps,).
            between: what two steps in sequence add together, (steps - lag,) for every lag from the separation on; none beyond.
            most: steps of a chain.
        """
        steps, count = alone.size, len(between)
        far = separation + count
        meeting = np.full((steps, count), NEVER)
        for place, values in enumerate(between):
            meeting[separation + place :, place] = values
        reached, shares = [alone], []
        for _ in range(most - 1):
            near = _before(reached[-1], separation, count) + meeting
            apart, total = np.full(steps, NEVER), np.logaddexp.accumulate(reached[-1])
            apart[far:] = total[: max(0, steps - far)]
            every = np.column_stack([near, apart])
            top = np.maximum(every.max(axis=1), NEVER)
            weights = np.exp(every - top[:, None])
            sums = weights.sum(axis=1)
            real = top > NEVER / 2
            shares.append((np.where(real[:, None], weights / sums[:, None], 0.0), total))
            reached.append(np.where(real, top + np.log(sums) + alone, NEVER))
        logarithm = float(scipy.special.logsumexp(np.concatenate(reached)))
        single, pairs, share = np.zeros(steps), np.zeros((steps, count)), np.exp(reached[-1] - logarithm)
        for before, (weights, total) in zip(reached[-2::-1], shares[::-1], strict=True):
            single += share
            come = weights * share[:, None]
            pairs += come[:, :count]
            share = np.exp(before - logarithm)
            for place in range(min(count, max(0, steps - separation))):
                share[: steps - separation - place] += come[separation + place :, place]
            if far < steps:
                with np.errstate(divide="ignore"):
                    later = np.log(come[far:, count]) - total[: steps - far]
                share[: steps - far] += np.exp(before[: steps - far] + np.logaddexp.accumulate(later[::-1])[::-1])
        return cls(logarithm, single + share, pairs)


def _before(values: Matrix, separation: int, count: int) -> Matrix:
    """What stands ``separation``, ``separation`` + 1, ... places before each one, (values, count)."""
    padded = np.concatenate([np.full(separation + count - 1, NEVER), values])
    return (
        np.lib.stride_tricks.sliding_window_view(padded, count)[: values.size, ::-1] if count else np.zeros((values.size, 0))
    )
