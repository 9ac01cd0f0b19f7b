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

from dpdist.api.mechanisms import DenseStrategy, Distance, Matrix, Solve, Workload, lapack
from dpdist.api.pages import Toeplitz
from dpdist.plugins.streams.banded_toeplitz import StreamParticipation, banded
from dpdist.plugins.streams.step_chains import number_of_chains
from dpdist.plugins.streams.triangular_factor import single_series_workload, triangular_strategy

SHARPNESSES, STEPS = (20.0, 100.0, 500.0), 60
"""How much larger the largest weighs than the number of chains, in turn; and steps of L-BFGS for each."""
FEWEST, WORK = 24, 2**30
"""Steps of L-BFGS for each at least, and the steps of the series, cubed, times those of L-BFGS: all up to 256 steps of the series."""
STARTS = (-40.0, 0.0)
"""Logits of p with which the search begins: nothing in common beyond two separations, and half of the most."""
NO_CHAIN = -1e300
"""The logarithm of no chain at all."""


def banded_person_strategy(workload: Workload, moved: Distance) -> DenseStrategy:
    """A lower triangular strategy of small total error for persons in several steps, whose products are one number from two separations on.

    Args:
        workload: one filter of the past, of whose series each is measured so.
        moved: in how many steps one person has records, and how far apart.
    Returns: the factor, of unit columns at most. Its cost is that of one step.
    """
    series_workload, persons = single_series_workload(workload), StreamParticipation.of(workload, moved)
    (member,) = series_workload.kind.filters
    search = _RowSearch(member, persons)
    band_coefficients = banded(workload, moved=moved).coefficients.real_values
    start = scipy.linalg.toeplitz(
        np.pad(band_coefficients, (0, persons.steps - band_coefficients.size)), np.zeros(persons.steps)
    )
    logits = STARTS if persons.meeting else STARTS[:1]
    first_results = [
        search.minimise(np.append(start[search.entry_indices], logit), SHARPNESSES[0], fixed=True) for logit in logits
    ]
    _, entries = min(first_results, key=lambda member: member[0])
    for sharpness in SHARPNESSES[1:]:
        _, entries = search.minimise(entries, sharpness, fixed=entries[-1] == STARTS[0])
    return triangular_strategy(
        workload, search.build_rows(entries).precision, Solve("persons in bands", "iteration limit", ())
    )


@dataclass(frozen=True)
class _TrialRows:
    """One strategy that is tried: with B = L'L and c = p / 1'B^-1 1 it is positive definite for every p below one.

    Attributes:
        factor: L, (steps, steps).
        fraction: p.
    """

    factor: Matrix
    fraction: float

    @cached_property
    def banded_gram(self) -> Matrix:
        """B."""
        return _product(self.factor, self.factor, transposed=True)

    @cached_property
    def inverse(self) -> Matrix:
        """L^-1."""
        return np.asarray(lapack.solve_triangular(self.factor, np.eye(len(self.factor)), lower=True))

    @cached_property
    def solved_ones(self) -> Matrix:
        """B^-1 1."""
        return np.asarray(self.inverse @ self.inverse.sum(axis=0))

    @property
    def far_product(self) -> float:
        """c."""
        return self.fraction / float(self.solved_ones.sum())

    @property
    def precision(self) -> Matrix:
        """X."""
        return self.banded_gram - self.far_product


@dataclass(frozen=True)
class _RowSearch:
    """The total error for the longest person, as a function of L's entries and of the logit of p."""

    query_filter: Toeplitz
    persons: StreamParticipation

    @cached_property
    def entry_indices(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and columns of L's entries."""
        rows, columns = np.tril_indices(self.persons.steps)
        in_band = rows - columns < self.persons.widths[-1]
        return rows[in_band], columns[in_band]

    def build_rows(self, entries: Matrix) -> _TrialRows:
        factor = np.zeros((self.persons.steps, self.persons.steps))
        factor[self.entry_indices] = entries[:-1]
        return _TrialRows(factor, float(scipy.special.expit(entries[-1])) if self.persons.meeting else 0.0)

    def minimise(self, entries: Matrix, sharpness: float, *, fixed: bool) -> tuple[float, Matrix]:
        """Where L-BFGS stops, and its value there first; ``fixed`` leaves p as it is."""
        fixed_entries = entries[-1:] if fixed else entries[:0]

        def objective(free: Matrix) -> tuple[float, Matrix]:
            value, gradient = self.log_error(np.append(free, fixed_entries), sharpness)
            return value, gradient[: free.size]

        options = {"maxiter": max(FEWEST, min(STEPS, WORK // self.persons.steps**3)), "maxcor": 10}
        free = entries[: entries.size - fixed_entries.size]
        result = scipy.optimize.minimize(objective, free, jac=True, method="L-BFGS-B", options=options)
        return float(result.fun), np.append(result.x, fixed_entries)

    def log_error(self, entries: Matrix, sharpness: float) -> tuple[float, Matrix]:
        """Of the total error times the longest person's squared length, smoothed; and its gradient.

        With w = B^-1 1 the error tr(V X^-1) is tr(V B^-1) + c / (1 - p) w'V w.
        """
        rows = self.build_rows(entries)
        error_rows, query_response = self.query_filter.matvec(rows.inverse), self.query_filter.matvec(rows.solved_ones)
        whole = float(rows.solved_ones.sum())
        along = float(query_response @ query_response)
        times = rows.far_product / (1.0 - rows.fraction)
        error = float(np.einsum("ij,ij->", error_rows, error_rows)) + times * along
        longest, weighed, of_far = self._longest(rows, sharpness)
        slope = 2.0 / longest * _product(rows.factor, weighed)
        slope -= 2.0 / error * _product(error_rows, _product(rows.inverse, error_rows.T).T, transposed=True)
        turned, factor_response = rows.inverse @ (error_rows.T @ query_response), rows.factor @ rows.solved_ones
        weight_slope = (times * along / error + rows.far_product * of_far / longest) / whole
        slope += np.outer(factor_response, 2.0 * weight_slope * rows.solved_ones - 2.0 * times / error * turned)
        slope -= np.outer(rows.factor @ turned, 2.0 * times / error * rows.solved_ones)
        fraction_slope = (along / (error * (1.0 - rows.fraction) ** 2) + of_far / longest) / whole
        gradient = np.append(slope[self.entry_indices], fraction_slope * rows.fraction * (1.0 - rows.fraction))
        return math.log(error) + math.log(longest), gradient

    def _longest(self, rows: _TrialRows, sharpness: float) -> tuple[float, Matrix, float]:
        """The longest person's squared length, smoothed, and its slopes in B and in c."""
        persons, alone = self.persons, np.diag(rows.banded_gram)
        lags = range(persons.separation, persons.widths[-1])
        sharp = math.log(number_of_chains(persons.steps, persons.max_participations, persons.separation))
        sharp *= sharpness / (persons.max_participations * float(alone.mean()))
        pairs = (
            2.0 * np.arange(1, persons.max_participations + 1) - 1.0
        )  # of a step with itself, and either way with those before it
        chains = ChainSums.of(
            sharp * (alone - rows.far_product * pairs[:, None]),
            [2.0 * sharp * np.diagonal(rows.banded_gram, lag) for lag in lags],
            persons.separation,
        )
        weighed = np.diag(chains.alone.sum(axis=0))
        for lag, pair_weights in zip(lags, chains.pairs.T, strict=True):
            np.fill_diagonal(weighed[:, lag:], pair_weights[lag:])
            np.fill_diagonal(weighed[lag:], pair_weights[lag:])
        longest, of_far = chains.logarithm / sharp, -float(pairs @ chains.alone.sum(axis=1))
        mean = float(np.einsum("ij,ij->", weighed, rows.banded_gram)) + of_far * rows.far_product
        # the smoothing is relative to B
        weighed.ravel()[:: persons.steps + 1] += (longest - mean) / float(alone.sum())
        return longest, weighed, of_far


def _product(lower: Matrix, matrix: Matrix, *, transposed: bool = False) -> Matrix:
    """A lower triangular matrix, or its transpose, times another: half the work."""
    return np.asarray(scipy.linalg.blas.dtrmm(1.0, lower, matrix, lower=1, trans_a=int(transposed)))


@dataclass(frozen=True)
class ChainSums:
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
    def of(cls, alone: Matrix, pair_terms: Sequence[Matrix], separation: int) -> ChainSums:
        """By dynamic programming over the number of steps, forward and backward.

        Args:
            alone: what a step adds by itself as the first, second, ... of a chain, (most, steps).
            pair_terms: what two steps in sequence add together, (steps - lag,) for every lag from the separation on; none beyond.
        """
        (max_steps, steps), count = alone.shape, len(pair_terms)
        far = separation + count
        meeting = np.full((steps, count), NO_CHAIN)
        for lag_index, values in enumerate(pair_terms):
            meeting[separation + lag_index :, lag_index] = values
        reached, transition_weights = [alone[0]], []
        for step_terms in alone[1:]:
            near = _earlier_values(reached[-1], separation, count) + meeting
            far_terms, total = np.full(steps, NO_CHAIN), np.logaddexp.accumulate(reached[-1])
            far_terms[far:] = total[: max(0, steps - far)]
            all_terms = np.column_stack([near, far_terms])
            top = np.maximum(all_terms.max(axis=1), NO_CHAIN)
            weights = np.exp(all_terms - top[:, None])
            sums = weights.sum(axis=1)
            real = top > NO_CHAIN / 2
            transition_weights.append((np.where(real[:, None], weights / sums[:, None], 0.0), total))
            reached.append(np.where(real, top + np.log(sums) + step_terms, NO_CHAIN))
        logarithm = float(scipy.special.logsumexp(np.concatenate(reached)))
        single, pairs = np.exp(np.stack(reached) - logarithm), np.zeros((steps, count))
        for number in range(max_steps - 1, 0, -1):
            before, (weights, total) = reached[number - 1], transition_weights[number - 1]
            come = weights * single[number][:, None]
            pairs += come[:, :count]
            for lag_index in range(min(count, max(0, steps - separation))):
                single[number - 1, : steps - separation - lag_index] += come[separation + lag_index :, lag_index]
            if far < steps:
                with np.errstate(divide="ignore"):
                    later_logs = np.log(come[far:, count]) - total[: steps - far]
                single[number - 1, : steps - far] += np.exp(
                    before[: steps - far] + np.logaddexp.accumulate(later_logs[::-1])[::-1]
                )
        return cls(logarithm, single, pairs)


def _earlier_values(values: Matrix, separation: int, count: int) -> Matrix:
    """What stands ``separation``, ``separation`` + 1, ... places before each one, (values, count)."""
    padded = np.concatenate([np.full(separation + count - 1, NO_CHAIN), values])
    return (
        np.lib.stride_tricks.sliding_window_view(padded, count)[: values.size, ::-1] if count else np.zeros((values.size, 0))
    )
