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

from dpdist.arrays.array_workspace import MEMORY, Workspace
from dpdist.arrays.causal_filters import binomials, divided, multiplied, padded_coefficients
from dpdist.arrays.lazy_vector import Held
from dpdist.errors import InvalidInput
from dpdist.measurement.sensitivity.participation import columns_to_the_end, fitting, heaviest_chain, products_at
from dpdist.operators import Matrix
from dpdist.stability import ONE_RECORD, Distance
from dpdist.strategies.filter_strategies import answers_growing, coefficients_of, over_cells
from dpdist.strategies.representations import FilterStrategy
from dpdist.strategies.strategy import CLOSED_FORM, queries_of
from dpdist.workloads import Workload
from dpdist.workloads.workload_kind import is_long, line_of

ROUNDS, STEPS = 16, 30
"""Of cutting planes, and of L-BFGS in each: more gain less than one part in a thousand up to 1,024 steps."""
SHARPNESS = 64.0
"""The power by which the chains' lengths are averaged, which stands for the longest; it doubles when no new chain is found."""

Objective = Callable[[Matrix], tuple[float, Matrix]]
"""A function of coefficients, and its gradient."""


@dataclass(frozen=True)
class Visitors:
    """In which steps of a series of ``steps`` one person has records.

    Attributes:
        most: in up to so many, as many as fit.
        separation: any two of which are so many steps apart.
        meeting: whether the products of two steps may be below zero: no record lowers a count, there is one series, and none is replaced.
    """

    steps: int
    most: int
    separation: int
    meeting: bool

    @classmethod
    def of(cls, workload: Workload, moved: Distance) -> Visitors:
        """Of one filter of the past, for counts that one change moves by a distance."""
        axis, axes, (each,) = line_of(workload)
        series = math.prod(workload.domain.shape[a] for a in axes if a != axis)
        most = fitting(moved.participations or 1, moved.separation, each.n)
        return cls(each.n, most, moved.separation, series == 1 and not (moved.signed or moved.replaced))

    @property
    def widths(self) -> tuple[int, ...]:
        """How many coefficients are tried."""
        if self.most == 1:
            return (self.steps,)
        once = min(self.separation, self.steps)
        return (once, min(2 * once, self.steps)) if self.meeting else (once,)


def heaviest(listed: Matrix, persons: Visitors) -> tuple[float, list[int]]:
    """The largest squared length that a person adds, and the steps of one who does."""
    columns = columns_to_the_end(np.cumsum(listed**2), persons.steps)

    def between(lag: int) -> Matrix:
        return 2.0 * columns_to_the_end(products_at(listed, lag), persons.steps)[lag:]

    return heaviest_chain(columns, between, persons.most, persons.separation, listed.size)


@dataclass(frozen=True)
class Filtered:
    """What reads a filter from a measurement by coefficients: asked(x) / c(x) as a power series."""

    asked: Matrix

    def log_error(self, listed: Matrix) -> tuple[float, Matrix]:
        """log of the total variance of all steps for noise of deviation 1, and its gradient in the coefficients."""
        n = self.asked.size
        reciprocal = divided(_unit(n), np.pad(listed, (0, n - listed.size)))
        reading = multiplied(self.asked, reciprocal)[:n]
        weighed = (n - np.arange(n)) * reading
        error = float(weighed @ reading)
        moved = multiplied(reading, reciprocal)[:n]
        slope = multiplied(weighed, moved[::-1])[n - 1 : n - 1 + listed.size]
        return math.log(error), -2.0 * slope / error


def fitted(asked: Matrix, persons: Visitors, width: int, start: Matrix) -> Matrix:
    """Coefficients of least total error for a person, (width,).

    Args:
        asked: the filter's own coefficients, (steps,).
        start: coefficients to begin with.
    """
    reading = Filtered(asked)
    given = np.pad(start[:width], (0, max(0, width - start.size)))
    if width <= persons.separation or persons.most == 1:
        # in how many of a person's steps each coefficient is within the series, where these are as early as they can be
        ends = persons.steps - persons.separation * np.arange(persons.most)
        counts = (np.arange(width)[:, None] < ends).sum(axis=1).astype(np.float64)

        def alone(listed: Matrix) -> tuple[float, Matrix]:
            error, slope = reading.log_error(listed)
            square = float(counts @ listed**2)
            return error + math.log(square), slope + 2.0 * counts * listed / square

        return _least(alone, given, 8 * STEPS)
    return _by_planes(reading, persons, given)


def _by_planes(reading: Filtered, persons: Visitors, given: Matrix) -> Matrix:
    """Coefficients by cutting planes: the heaviest chains of steps are added until they are no news."""
    chains: list[list[int]] = []
    sharpness, best, least = SHARPNESS, given, math.inf
    for _ in range(ROUNDS):
        longest, chain = heaviest(given, persons)
        error = reading.log_error(given)[0] + math.log(longest)
        if error < least:
            best, least = given, error
        if chain in chains:
            sharpness *= 2.0
        else:
            chains.append(chain)
        given = _least(_together(reading, chains, sharpness, persons.steps), given, STEPS)
    return best


def _together(reading: Filtered, chains: Sequence[Sequence[int]], sharpness: float, steps: int) -> Objective:
    """The total error for a person in any of some chains of steps."""

    def objective(listed: Matrix) -> tuple[float, Matrix]:
        error, slope = reading.log_error(listed)
        squares, slopes = np.empty(len(chains)), np.empty((len(chains), listed.size))
        for number, chain in enumerate(chains):
            added = np.zeros(steps + listed.size)
            for step in chain:
                added[step : step + listed.size] += listed
            added[steps:] = 0.0
            squares[number] = added @ added
            slopes[number] = 2.0 * sum(added[step : step + listed.size] for step in chain)
        longest = squares.max()
        powers = (squares / longest) ** sharpness
        shares = (squares / longest) ** (sharpness - 1) / longest / powers.sum()
        return error + math.log(longest) + math.log(powers.sum()) / sharpness, slope + shares @ slopes

    return objective


def _least(objective: Objective, start: Matrix, steps: int) -> Matrix:
    """The coefficients at which L-BFGS stops."""
    found = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": steps, "maxcor": 20})
    return np.asarray(found.x)


def _unit(n: int) -> Matrix:
    unit = np.zeros(n)
    unit[0] = 1.0
    return unit


def answers_in_bands(workload: Workload) -> bool:
    """Whether ``banded`` answers a workload: one filter of the past whose present counts, held in memory."""
    return answers_growing(workload) and not is_long(workload)


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
    queries_of(workload)
    if not answers_in_bands(workload):
        raise InvalidInput(
            "mechanism 'banded' answers one filter of the past that is held in memory and whose coefficient for the present step is "
            "not zero; choose 'square-root' or 'auto'"
        )
    (each,), weight = line_of(workload)[2], workload.blocks[0].weight
    values, facts = work.kept(name) or (None, {}) if name else (None, {})
    if values is None:
        asked, persons = padded_coefficients(each, each.n), Visitors.of(workload, moved)
        listed = _best(asked, persons)
        length = math.sqrt(float(listed @ listed))
        errors = divided(asked, np.pad(listed, (0, each.n - listed.size))) ** 2
        cost = length**2 * float(errors @ (each.n - np.arange(each.n)))
        facts = {"cost": cost, "deviations": [length * math.sqrt(float(errors.sum()))]}
        values = work.write(Held(np.pad(listed / length, (0, each.n - listed.size))), name or None, facts)
    given = coefficients_of(workload, values, work, name, tuple(facts["deviations"]), circular=False)
    cost = weight**2 * given.series * facts["cost"]
    return FilterStrategy("banded", over_cells(given, workload), cost, None, CLOSED_FORM, coefficients=given)


def _best(asked: Matrix, persons: Visitors) -> Matrix:
    """The coefficients of least total error for a person, of all widths that are tried, each beginning with the last."""
    reading = Filtered(asked)

    def error(listed: Matrix) -> float:
        return reading.log_error(listed)[0] + math.log(heaviest(listed, persons)[0])

    starts = (binomials(0, persons.widths[0]), np.ones(1))
    with np.errstate(over="ignore", invalid="ignore"):
        found = [min((np.pad(s, (0, persons.widths[0] - s.size)) for s in starts), key=error)]
        for width in persons.widths:
            found.append(fitted(asked, persons, width, found[-1]))
    return min(found, key=error)
