"""Lower triangular strategies for persons in many steps, in which far steps have one product: a number below zero.

X = L'L - c J, where the rows of L end within two separations and J is the matrix of ones. Steps beyond them have the product -c, so that a
person is the shorter the more steps there are: in s steps u'Xu is the sum of a chain over consecutive steps, less c s^2, and its largest is
exact by dynamic programming. The mean of all chains with weights exp(sharpness u'Xu) is as well, with its gradient, and stands for the
largest while L and c are sought by L-BFGS from the best filter of the past. docs/mathematics.md, section 11.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import NDArray

from dpdist.arrays import lapack
from dpdist.measurement.sensitivity.participation import number_of_chains
from dpdist.operators import Matrix, Toeplitz
from dpdist.stability import Distance
from dpdist.strategies.representations import DenseStrategy
from dpdist.strategies.strategy import Solve
from dpdist.strategies.streams.banded_toeplitz import Visitors, banded
from dpdist.strategies.streams.triangular_factor import factored, of_one_series
from dpdist.workloads import Workload
from dpdist.workloads.workload_kind import line_of

SHARPNESSES, STEPS = (20.0, 100.0, 500.0), 60
"""How much larger the largest weighs than the number of chains, in turn; and steps of L-BFGS for each."""
FEWEST, WORK = 6, 2**30
"""Steps of L-BFGS for each at least, and the steps of the series, cubed, times those of L-BFGS: for 512 steps 8, for 256 all."""
STARTS = (-40.0, 0.0)
"""Logits of p with which the search begins: nothing in common beyond two separations, and half of the most."""
NEVER = -1e300
"""The logarithm of no chain at all."""


def persons_in_bands(workload: Workload, moved: Distance) -> DenseStrategy:
    """A lower triangular strategy of small total error for persons in several steps, whose products are one number from two separations on.

    Args:
        workload: one filter of the past, of whose series each is measured so.
        moved: in how many steps one person has records, and how far apart.
    Returns: the factor, of unit columns at most. Its cost is that of one step.
    """
    line, persons = of_one_series(workload), Visitors.of(workload, moved)
    (each,) = line_of(line)[2]
    search = _RowSearch(each, persons)
    given = banded(workload, moved=moved).coefficients.real
    start = scipy.linalg.toeplitz(np.pad(given, (0, persons.steps - given.size)), np.zeros(persons.steps))
    logits = STARTS if persons.meeting else STARTS[:1]
    begun = [search.least(np.append(start[search.places], logit), SHARPNESSES[0], fixed=True) for logit in logits]
    _, entries = min(begun, key=lambda each: each[0])
    for sharpness in SHARPNESSES[1:]:
        _, entries = search.least(entries, sharpness, fixed=entries[-1] == STARTS[0])
    return factored(workload, search.at(entries).precision, Solve("persons in bands", "iteration limit", ()))


@dataclass(frozen=True)
class _TriedRows:
    """One strategy that is tried: with B = L'L and c = p / 1'B^-1 1 it is positive definite for every p below one.

    Attributes:
        factor: L, (steps, steps).
        part: p.
    """

    factor: Matrix
    part: float

    @cached_property
    def near(self) -> Matrix:
        """B."""
        return _product(self.factor, self.factor, transposed=True)

    @cached_property
    def inverse(self) -> Matrix:
        """L^-1."""
        return np.asarray(lapack.solve_triangular(self.factor, np.eye(len(self.factor)), lower=True))

    @cached_property
    def solved(self) -> Matrix:
        """B^-1 1."""
        return np.asarray(self.inverse @ self.inverse.sum(axis=0))

    @property
    def far(self) -> float:
        """c."""
        return self.part / float(self.solved.sum())

    @property
    def precision(self) -> Matrix:
        """X."""
        return self.near - self.far


@dataclass(frozen=True)
class _RowSearch:
    """The total error for the longest person, as a function of L's entries and of the logit of p."""

    asked: Toeplitz
    persons: Visitors

    @cached_property
    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and columns of L's entries."""
        rows, columns = np.tril_indices(self.persons.steps)
        within = rows - columns < self.persons.widths[-1]
        return rows[within], columns[within]

    def at(self, entries: Matrix) -> _TriedRows:
        factor = np.zeros((self.persons.steps, self.persons.steps))
        factor[self.places] = entries[:-1]
        return _TriedRows(factor, float(scipy.special.expit(entries[-1])) if self.persons.meeting else 0.0)

    def least(self, entries: Matrix, sharpness: float, *, fixed: bool) -> tuple[float, Matrix]:
        """Where L-BFGS stops, and its value there first; ``fixed`` leaves p as it is."""
        beside = entries[-1:] if fixed else entries[:0]

        def objective(free: Matrix) -> tuple[float, Matrix]:
            value, gradient = self.logarithm(np.append(free, beside), sharpness)
            return value, gradient[: free.size]

        options = {"maxiter": max(FEWEST, min(STEPS, WORK // self.persons.steps**3)), "maxcor": 10}
        free = entries[: entries.size - beside.size]
        found = scipy.optimize.minimize(objective, free, jac=True, method="L-BFGS-B", options=options)
        return float(found.fun), np.append(found.x, beside)

    def logarithm(self, entries: Matrix, sharpness: float) -> tuple[float, Matrix]:
        """Of the total error times the longest person's squared length, smoothed; and its gradient.

        With w = B^-1 1 the error tr(V X^-1) is tr(V B^-1) + c / (1 - p) w'V w.
        """
        at = self.at(entries)
        spread, read = self.asked.matvec(at.inverse), self.asked.matvec(at.solved)
        whole, along, times = float(at.solved.sum()), float(read @ read), at.far / (1.0 - at.part)
        error = float(np.einsum("ij,ij->", spread, spread)) + times * along
        longest, weighed, of_far = self._longest(at, sharpness)
        slope = 2.0 / longest * _product(at.factor, weighed)
        slope -= 2.0 / error * _product(spread, _product(at.inverse, spread.T).T, transposed=True)
        turned, left = at.inverse @ (spread.T @ read), at.factor @ at.solved
        beside = (times * along / error + at.far * of_far / longest) / whole
        slope += np.outer(left, 2.0 * beside * at.solved - 2.0 * times / error * turned)
        slope -= np.outer(at.factor @ turned, 2.0 * times / error * at.solved)
        of_part = (along / (error * (1.0 - at.part) ** 2) + of_far / longest) / whole
        gradient = np.append(slope[self.places], of_part * at.part * (1.0 - at.part))
        return math.log(error) + math.log(longest), gradient

    def _longest(self, at: _TriedRows, sharpness: float) -> tuple[float, Matrix, float]:
        """The longest person's squared length, smoothed, and its slopes in B and in c."""
        persons, alone = self.persons, np.diag(at.near)
        lags = range(persons.separation, persons.widths[-1])
        sharp = math.log(number_of_chains(persons.steps, persons.most, persons.separation))
        sharp *= sharpness / (persons.most * float(alone.mean()))
        pairs = 2.0 * np.arange(1, persons.most + 1) - 1.0  # of a step with itself, and either way with those before it
        chains = Chains.of(
            sharp * (alone - at.far * pairs[:, None]),
            [2.0 * sharp * np.diagonal(at.near, lag) for lag in lags],
            persons.separation,
        )
        weighed = np.diag(chains.alone.sum(axis=0))
        for lag, both in zip(lags, chains.pairs.T, strict=True):
            np.fill_diagonal(weighed[:, lag:], both[lag:])
            np.fill_diagonal(weighed[lag:], both[lag:])
        longest, of_far = chains.logarithm / sharp, -float(pairs @ chains.alone.sum(axis=1))
        mean = float(np.einsum("ij,ij->", weighed, at.near)) + of_far * at.far
        # the smoothing is relative to B
        weighed.ravel()[:: persons.steps + 1] += (longest - mean) / float(alone.sum())
        return longest, weighed, of_far


def _product(lower: Matrix, other: Matrix, *, transposed: bool = False) -> Matrix:
    """A lower triangular matrix, or its transpose, times another: half the work."""
    return np.asarray(scipy.linalg.blas.dtrmm(1.0, lower, other, lower=1, trans_a=int(transposed)))


@dataclass(frozen=True)
class Chains:
    """The sum of exp(what a chain has) over all chains of some steps, and the share of those that have a step, or two in sequence.

    Attributes:
        logarithm: of the sum.
        alone: the share of every step as the first, second, ... of a chain, (most, steps).
        pairs: that of every step and the one ``separation``, ``separation`` + 1, ... steps before it, (steps, lags).
    """

    logarithm: float
    alone: Matrix
    pairs: Matrix

    @classmethod
    def of(cls, alone: Matrix, between: Sequence[Matrix], separation: int) -> Chains:
        """By dynamic programming over the number of steps, forward and backward.

        Args:
            alone: what a step adds by itself as the first, second, ... of a chain, (most, steps).
            between: what two steps in sequence add together, (steps - lag,) for every lag from the separation on; none beyond.
        """
        (most, steps), count = alone.shape, len(between)
        far = separation + count
        meeting = np.full((steps, count), NEVER)
        for place, values in enumerate(between):
            meeting[separation + place :, place] = values
        reached, shares = [alone[0]], []
        for own in alone[1:]:
            near = _before(reached[-1], separation, count) + meeting
            apart, total = np.full(steps, NEVER), np.logaddexp.accumulate(reached[-1])
            apart[far:] = total[: max(0, steps - far)]
            every = np.column_stack([near, apart])
            top = np.maximum(every.max(axis=1), NEVER)
            weights = np.exp(every - top[:, None])
            sums = weights.sum(axis=1)
            real = top > NEVER / 2
            shares.append((np.where(real[:, None], weights / sums[:, None], 0.0), total))
            reached.append(np.where(real, top + np.log(sums) + own, NEVER))
        logarithm = float(scipy.special.logsumexp(np.concatenate(reached)))
        single, pairs = np.exp(np.stack(reached) - logarithm), np.zeros((steps, count))
        for number in range(most - 1, 0, -1):
            before, (weights, total) = reached[number - 1], shares[number - 1]
            come = weights * single[number][:, None]
            pairs += come[:, :count]
            for place in range(min(count, max(0, steps - separation))):
                single[number - 1, : steps - separation - place] += come[separation + place :, place]
            if far < steps:
                with np.errstate(divide="ignore"):
                    later = np.log(come[far:, count]) - total[: steps - far]
                single[number - 1, : steps - far] += np.exp(
                    before[: steps - far] + np.logaddexp.accumulate(later[::-1])[::-1]
                )
        return cls(logarithm, single, pairs)


def _before(values: Matrix, separation: int, count: int) -> Matrix:
    """What stands ``separation``, ``separation`` + 1, ... places before each one, (values, count)."""
    padded = np.concatenate([np.full(separation + count - 1, NEVER), values])
    return (
        np.lib.stride_tricks.sliding_window_view(padded, count)[: values.size, ::-1] if count else np.zeros((values.size, 0))
    )
