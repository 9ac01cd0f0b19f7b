"""Filters of the past that end within a person's separation, or within two: what one person adds then meets in pairs at most.

A filter of b coefficients adds what a record does to b measured steps. Steps of a person that are b or more apart never meet in one, so
that a person in k of them is k columns long, squared. With up to 2 b coefficients only consecutive steps meet, and where their products
are below zero a person is shorter still. The coefficients are those of least total error: a smooth function of their sum of squares and
of the power series that reads them, by L-BFGS; the chains of steps that are the heaviest for them are added one by one (cutting planes).

Source: bands of one separation, Choquette-Choo et al. 2023 ("(Amplified) banded matrix factorization"); of two: docs/mathematics.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from dpdist.api import InvalidInput
from dpdist.api.mechanisms import (
    MEMORY,
    ONE_RECORD,
    ArrayVector,
    Distance,
    FilterStrategy,
    Matrix,
    Workload,
    Workspace,
    answers_growing,
    binomials,
    check_workload,
    coefficients_of,
    columns_to_the_end,
    divide_series,
    filter_strategy,
    fitting_participations,
    heaviest_chain,
    lag_products,
    multiply_series,
    padded_coefficients,
)

ROUNDS, STEPS = 16, 30
"""Of cutting planes, and of L-BFGS in each: more gain less than one part in a thousand up to 1,024 steps."""
SHARPNESS = 64.0
"""The power by which the chains' lengths are averaged, which stands for the longest; it doubles when no new chain is found."""

Objective = Callable[[Matrix], tuple[float, Matrix]]
"""A function of coefficients, and its gradient."""


@dataclass(frozen=True)
class StreamParticipation:
    """In which steps of a series of ``steps`` one person has records.

    Attributes:
        max_participations: in up to so many, as many as fit.
        separation: any two of which are so many steps apart.
        meeting: whether the products of two steps may be below zero: no record lowers a count, there is one series, and none is replaced.
    """

    steps: int
    max_participations: int
    separation: int
    meeting: bool

    @classmethod
    def of(cls, workload: Workload, moved: Distance) -> StreamParticipation:
        """Of one filter of the past, for counts that one change moves by a distance."""
        axis, axes, (stream_filter,) = workload.kind.filters_along_axis
        series = math.prod(workload.domain.shape[table_axis] for table_axis in axes if table_axis != axis)
        max_participations = fitting_participations(moved.participations or 1, moved.separation, stream_filter.n)
        return cls(
            stream_filter.n, max_participations, moved.separation, series == 1 and not (moved.signed or moved.replaced)
        )

    @property
    def widths(self) -> tuple[int, ...]:
        """How many coefficients are tried."""
        if self.max_participations == 1:
            return (self.steps,)
        once = min(self.separation, self.steps)
        return (once, min(2 * once, self.steps)) if self.meeting else (once,)


def heaviest_participation(band: Matrix, persons: StreamParticipation) -> tuple[float, list[int]]:
    """The largest squared length that a person adds, and the steps of one who does."""
    columns = columns_to_the_end(np.cumsum(band**2), persons.steps)

    def pair_products(lag: int) -> Matrix:
        return 2.0 * columns_to_the_end(lag_products(band, lag), persons.steps)[lag:]

    return heaviest_chain(columns, pair_products, persons.max_participations, persons.separation, band.size)


@dataclass(frozen=True)
class FilterReader:
    """What reads a filter from a measurement by coefficients: asked(x) / c(x) as a power series."""

    query_coefficients: Matrix

    def log_error(self, band: Matrix) -> tuple[float, Matrix]:
        """log of the total variance of all steps for noise of deviation 1, and its gradient in the coefficients."""
        n = self.query_coefficients.size
        reciprocal = divide_series(_unit(n), np.pad(band, (0, n - band.size)))
        reading = multiply_series(self.query_coefficients, reciprocal)[:n]
        weighed = (n - np.arange(n)) * reading
        error = float(weighed @ reading)
        moved = multiply_series(reading, reciprocal)[:n]
        slope = multiply_series(weighed, moved[::-1])[n - 1 : n - 1 + band.size]
        return math.log(error), -2.0 * slope / error


def fit_band(query_coefficients: Matrix, persons: StreamParticipation, width: int, start: Matrix) -> Matrix:
    """Coefficients of least total error for a person, (width,).

    Args:
        query_coefficients: the filter's own coefficients, (steps,).
        start: coefficients to begin with.
    """
    reading = FilterReader(query_coefficients)
    initial = np.pad(start[:width], (0, max(0, width - start.size)))
    if width <= persons.separation or persons.max_participations == 1:
        # in how many of a person's steps each coefficient is within the series, where these are as early as they can be
        ends = persons.steps - persons.separation * np.arange(persons.max_participations)
        counts = (np.arange(width)[:, None] < ends).sum(axis=1).astype(np.float64)

        def alone(band: Matrix) -> tuple[float, Matrix]:
            error, slope = reading.log_error(band)
            square = float(counts @ band**2)
            return error + math.log(square), slope + 2.0 * counts * band / square

        return _minimise(alone, initial, 8 * STEPS)
    return _fit_by_planes(reading, persons, initial)


def _fit_by_planes(reading: FilterReader, persons: StreamParticipation, band: Matrix) -> Matrix:
    """Coefficients by cutting planes: the heaviest chains of steps are added until they are no news."""
    chains: list[list[int]] = []
    sharpness, best, lowest_error = SHARPNESS, band, math.inf
    for _ in range(ROUNDS):
        longest, chain = heaviest_participation(band, persons)
        error = reading.log_error(band)[0] + math.log(longest)
        if error < lowest_error:
            best, lowest_error = band, error
        if chain in chains:
            sharpness *= 2.0
        else:
            chains.append(chain)
        band = _minimise(_chain_objective(reading, chains, sharpness, persons.steps), band, STEPS)
    return best


def _chain_objective(reading: FilterReader, chains: Sequence[Sequence[int]], sharpness: float, steps: int) -> Objective:
    """The total error for a person in any of some chains of steps."""

    def objective(band: Matrix) -> tuple[float, Matrix]:
        error, slope = reading.log_error(band)
        squares, slopes = np.empty(len(chains)), np.empty((len(chains), band.size))
        for number, chain in enumerate(chains):
            added = np.zeros(steps + band.size)
            for step in chain:
                added[step : step + band.size] += band
            added[steps:] = 0.0
            squares[number] = added @ added
            slopes[number] = 2.0 * sum(added[step : step + band.size] for step in chain)
        longest = squares.max()
        powers = (squares / longest) ** sharpness
        chain_weights = (squares / longest) ** (sharpness - 1) / longest / powers.sum()
        return error + math.log(longest) + math.log(powers.sum()) / sharpness, slope + chain_weights @ slopes

    return objective


def _minimise(objective: Objective, start: Matrix, steps: int) -> Matrix:
    """The coefficients at which L-BFGS stops."""
    result = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": steps, "maxcor": 20})
    return np.asarray(result.x)


def _unit(n: int) -> Matrix:
    unit = np.zeros(n)
    unit[0] = 1.0
    return unit


def answers_in_bands(workload: Workload) -> bool:
    """Whether ``banded`` answers a workload: one filter of the past whose present counts, held in memory."""
    return answers_growing(workload) and not workload.kind.is_long


def banded(workload: Workload, work: Workspace = MEMORY, name: str = "", *, moved: Distance = ONE_RECORD) -> FilterStrategy:
    """A banded filter of the past for persons who have records in several steps.

    Args:
        workload: one filter of the past of each series, (m, n), whose present counts.
        work: where it is kept.
        name: under which the coefficients are kept; the first ones stay.
        moved: in how many steps one person has records, and how far apart.
    Returns: a strategy with ``coefficients``; every step is measured from itself and earlier ones. Its cost is that of one step.
    Raises: InvalidInput for other workloads.
    """
    check_workload(workload)
    if not answers_in_bands(workload):
        raise InvalidInput(
            "mechanism 'banded' answers one filter of the past that is held in memory and whose coefficient for the present step is "
            "not zero; choose 'square-root' or 'auto'"
        )
    (stream_filter,), weight = workload.kind.filters, workload.blocks[0].weight
    values, facts = work.find_vector(name) or (None, {}) if name else (None, {})
    if values is None:
        query_coefficients = padded_coefficients(stream_filter, stream_filter.n)
        persons = StreamParticipation.of(workload, moved)
        band = _best_band(query_coefficients, persons)
        length = math.sqrt(float(band @ band))
        errors = divide_series(query_coefficients, np.pad(band, (0, stream_filter.n - band.size))) ** 2
        cost = length**2 * float(errors @ (stream_filter.n - np.arange(stream_filter.n)))
        facts = {"cost": cost, "deviations": [length * math.sqrt(float(errors.sum()))]}
        values = work.write(ArrayVector(np.pad(band / length, (0, stream_filter.n - band.size))), name or None, facts)
    filter_coefficients = coefficients_of(workload, values, work, name, tuple(facts["deviations"]), circular=False)
    cost = weight**2 * filter_coefficients.series * facts["cost"]
    return filter_strategy("banded", workload, filter_coefficients, cost)


def _best_band(query_coefficients: Matrix, persons: StreamParticipation) -> Matrix:
    """The coefficients of least total error for a person, of all widths that are tried, each beginning with the last."""
    reading = FilterReader(query_coefficients)

    def error(band: Matrix) -> float:
        return reading.log_error(band)[0] + math.log(heaviest_participation(band, persons)[0])

    starts = (binomials(0, persons.widths[0]), np.ones(1))
    with np.errstate(over="ignore", invalid="ignore"):
        candidates = [min((np.pad(s, (0, persons.widths[0] - s.size)) for s in starts), key=error)]
        for width in persons.widths:
            candidates.append(fit_band(query_coefficients, persons, width, candidates[-1]))
    return min(candidates, key=error)
