"""Tables measured in rounds, each chosen by what was measured before (after AIM: McKenna, Mullins, Sheldon, Miklau 2022).

First all tables of one attribute are measured. Then each round chooses, of all tables within those that are asked for, the one that the
model of everything measured so far (``table_model``) explains worst, by the exponential mechanism (``dpdist.privacy.exponential_mechanism``), and
measures it. A table's score is its importance times the sum of absolute differences between its true and its modelled counts, less the
errors that measuring it would leave: those of noise, and in pairs not more than there are records in cells of rare values
(``expected_distances``). Scores are whole, because the modelled counts are rounded; one change moves them by at most the largest
importance times its L1 distance. A table is measured once at most, with fresh noise: its unbiased answers and their intervals are exact
whatever was chosen before and after. Importances are public, and what scores leave out follows from the noisy tables of one attribute.

Everything is measured in whole numbers, tables times a weight, with one noise. The squares of the weights add up to at most ``SQUARES``;
weights and the number of rounds follow from the noisy tables of one attribute. docs/noise.md says why the rounds compose like one vector.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import Literal

import numpy as np

from dpdist.arrays.array_workspace import OnDone, Workspace
from dpdist.arrays.lazy_vector import Held, Vector, held
from dpdist.domain import Layout
from dpdist.measurement.adaptive.model_intervals import expected_distances, half_widths, largest_distances
from dpdist.measurement.consistency.table_fitting import parts_of
from dpdist.measurement.integer_measurement import HELD_COPIES, Chosen, Counts, Grid, StageBytes
from dpdist.operators import Matrix
from dpdist.privacy.accounting import Loss
from dpdist.privacy.exponential_mechanism import RATE_BITS, choose, rate_for
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN
from dpdist.reconstruction.answer_vectors import Answers, Wanted, stored_answers
from dpdist.reconstruction.junction_tree import TableModel, first_holding, margin
from dpdist.reconstruction.measured_tables import MeasuredTables, nearest_of
from dpdist.reconstruction.nonnegative_cells import covering
from dpdist.reconstruction.nonnegative_tables import Axes
from dpdist.reconstruction.product_space import Cells, OpenTerm
from dpdist.stability import Neighbours
from dpdist.workloads import Workload

CHOOSING = Fraction(1, 10)
"""Of rho, for choosing. This and the next three were picked on Adult at epsilon 0.1, 1 and 10 (benchmarks/adaptive.py)."""
ALONE = Fraction(2, 5)
"""Of the squared weights, for the tables of one attribute."""
SQUARES = 2**40
"""The sum of the squared weights, at most: of z for up to 2^32 records 52 bits are used."""
GROWTH, EACH = 0.75, 24.0
"""Rounds: (records times the root of rho)^0.75 / 24."""
IMPORTANCES = 64
"""Of the group of queries of largest weight, in whole numbers."""
COPIES = 6
"""Of all candidates' cells, while a model of them is made."""
DONE = (
    "answers are those of the non-negative tables that agree with each other and are expected, given all measured ones, and "
    "where no table that holds them was measured, of a model (attributes are independent given those between them): the "
    "latter have no standard error, and their intervals are no proven ones, but made of simulated noise and of a bound of "
    "all errors of their table together, which is proven; standard errors of the others are those of the unbiased estimate "
    "from the first table that holds them, and each interval holds that of the unbiased answer, cut at what is possible"
)


@dataclass(frozen=True)
class RoundsGrid(Grid):
    """What rounds measure, as far as it is known before they are drawn.

    Attributes:
        queries: tables of some attributes each.
        distance: the L1 distance by which one change moves the counts of a table.
        sensitivity_squared: the squared L2 distance by which it does, times ``SQUARES``.
    """

    queries: Workload = field(repr=False)
    distance: int
    sensitivity_squared: int
    norm: Literal["l2"] = "l2"
    spacing: float = 1.0 / math.isqrt(SQUARES)

    @property
    def done(self) -> str:
        return DONE

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the domain's attributes."""
        return self.queries.domain.shape

    @cached_property
    def alone(self) -> tuple[Axes, ...]:
        """The tables of one attribute, small ones first."""
        axes = {axis for block in self.queries.blocks for axis in block.asked_axes}
        return tuple((axis,) for axis in sorted(axes, key=lambda axis: (self.shape[axis], axis)))

    @cached_property
    def importances(self) -> dict[Axes, int]:
        """The tables that rounds choose from, with how many attributes they share with the queries, times the weights of these."""
        return importances(self.queries)

    def size(self, axes: Axes) -> int:
        """Cells of a table."""
        return math.prod(self.shape[axis] for axis in axes)

    @property
    def rows(self) -> int:
        """The most values that are measured: every table once."""
        return sum(map(self.size, (*self.alone, *self.importances)))

    @property
    def tables(self) -> tuple[Axes, ...]:
        asked = sorted({block.asked_axes for block in self.queries.blocks})
        return tuple(each for each in asked if each and not any(set(each) < set(other) for other in asked))

    @property
    def digest(self) -> str:
        """SHA-256 of everything that decides what is measured."""
        facts = ("rounds", self.shape, sorted(self.importances.items()), self.distance, self.sensitivity_squared)
        rules = (str(CHOOSING), str(ALONE), SQUARES, GROWTH, EACH, "tree", "rare pairs")
        return hashlib.sha256(repr((facts, rules)).encode()).hexdigest()

    def noise(self, budget: Loss) -> Noise:
        """Gaussian noise of what is left of rho beside choosing."""
        return Noise(GAUSSIAN, GAUSSIAN.scale(self.sensitivity_squared, Loss.gaussian(budget.rho * (1 - CHOOSING))))

    def memory(self, workload: Workload, layout: Layout, worker_bytes: int) -> StageBytes:
        every = 8 * COPIES * self.rows
        return StageBytes(8 * HELD_COPIES * layout.size + every, every + 8 * HELD_COPIES * workload.shape[0])

    def exact(self, counts: Counts, work: Workspace, on_done: OnDone | None = None) -> Vector:
        """The counted tables themselves: what is measured of them depends on noise."""
        parts = [counts.table(axes).ravel() for axes in self.tables]
        largest = max(int(part.sum()) for part in parts)
        counts.check_few(largest)
        return Held(np.concatenate(parts))

    def measured(self, exact: Vector, key: Secret, noise: Noise, budget: Loss) -> Vector:
        counted = Layout(self.shape, self.tables)
        return Held(Rounds(self, held(exact), counted, noise, budget.rho, key.reveal()).values())

    def chosen(self, measured: Vector, noise: Noise) -> Sequence[Chosen]:
        weights = self.found(held(measured)).weights
        return [Chosen(axes, noise.deviation / weight) for axes, weight in weights.items() if len(axes) > 1]

    def answers(
        self, workload: Workload, z: Vector, noise: Noise, wanted: Wanted, work: Workspace, on_done: OnDone | None = None
    ) -> Answers:
        needed = 8 * COPIES * self.rows
        columns, bounds = work.largest(self.columns, workload, held(z), noise, needed_bytes=needed)
        if bounds:
            work.write(Held(np.array([*bounds.values()])), wanted.bounds, {"tables": [list(axes) for axes in bounds]})
        return replace(stored_answers(*columns, wanted, work), modelled=bounds)

    def columns(
        self, workload: Workload, measured: Matrix, noise: Noise
    ) -> tuple[tuple[Matrix, Matrix, Matrix], dict[Axes, float]]:
        """Answers, standard errors and half widths; and the bounds of the tables that come from the model."""
        found = self.found(measured)
        model = found.model(noise)
        bounds = largest_distances(found, self.importances, model, noise)
        parts = [part.axes for part in parts_of(workload)]
        asked = sorted({*parts} & {*bounds})
        widths = half_widths(found, bounds, asked, model, noise)
        answers, errors, half = zip(*(_columns(axes, found, model, noise, widths) for axes in parts), strict=True)
        columns = np.concatenate(answers), np.concatenate(errors), np.concatenate(half)
        return columns, {axes: bounds[axes] for axes in asked}

    def space(self, measured: Vector, shape: tuple[int, ...], most_bytes: int) -> MeasuredTables:
        return self.found(held(measured))

    def found(self, measured: Matrix) -> MeasuredTables:
        """The tables of what ``Rounds.values`` wrote."""
        rounds, candidates = int(measured[0]), tuple(self.importances)
        chosen = [candidates[int(place)] for place in measured[2 : 2 + rounds]]
        weights = dict.fromkeys(self.alone, weight_alone(self)) | dict.fromkeys(chosen, weight_of_rounds(self, rounds))
        terms = tuple(
            OpenTerm(axes, tuple(Cells(self.shape[axis]) for axis in axes), weight) for axes, weight in weights.items()
        )
        rate = Fraction(int(measured[1]), 2**RATE_BITS)
        return MeasuredTables(terms, self.shape, measured[2 + rounds :], rate=rate, rounds=rounds)


def importances(queries: Workload) -> dict[Axes, int]:
    """Of each table of two or more attributes within those that are asked for: how many attributes it shares with each of these, times its
    weight, added up."""
    largest = max(block.weight for block in queries.blocks)
    asked = [(block.asked_axes, max(1, round(IMPORTANCES * block.weight / largest))) for block in queries.blocks]
    inside = {part for axes, _ in asked for k in range(2, len(axes) + 1) for part in combinations(axes, k)}
    return {part: sum(weight * len({*part} & {*axes}) for axes, weight in asked) for part in sorted(inside)}


def rounds_grid(workload: Workload, neighbours: Neighbours, most_records: int) -> RoundsGrid:
    """The grid of rounds: of k records in one cell a squared distance of k^2, of replaced ones k^2 in each of two cells."""
    cells = 1 if neighbours == "add-remove" else 2
    return RoundsGrid(workload, cells * most_records, cells * most_records**2 * SQUARES)


def weight_alone(grid: RoundsGrid) -> int:
    """The weight of each table of one attribute."""
    return math.isqrt(math.floor(SQUARES * ALONE / len(grid.alone)))


def weight_of_rounds(grid: RoundsGrid, rounds: int) -> int:
    """The weight of each table that a round measures."""
    return math.isqrt((SQUARES - len(grid.alone) * weight_alone(grid) ** 2) // rounds)


@dataclass(frozen=True)
class Rounds:
    """The rounds of one release. It holds the key: never pickled.

    Attributes:
        counts: private, those of ``layout``.
        rho: of the release.
    """

    grid: RoundsGrid
    counts: Matrix = field(repr=False)
    layout: Layout
    noise: Noise
    rho: Fraction
    key: bytes = field(repr=False)

    def values(self) -> Matrix:
        """All that is measured: the number of rounds, the rate of choosing in 2^-40, the place of each chosen table, the noisy values."""
        grid, parts, drawn = self.grid, list[Matrix](), 0
        tables, weights = dict[Axes, Matrix](), dict[Axes, int]()

        def measure(axes: Axes, weight: int) -> None:
            nonlocal drawn
            noisy = weight * self.layout.table(self.counts, axes).ravel()
            noisy = noisy + self.noise.draw(self.key, start=drawn, count=noisy.size)
            drawn += noisy.size  # no position is read twice
            parts.append(noisy)
            tables[axes], weights[axes] = noisy.reshape([grid.shape[axis] for axis in axes]) / weight, weight

        for axes in grid.alone:
            measure(axes, weight_alone(grid))
        records = max(float(np.mean([table.sum() for table in tables.values()])), 1.0)
        rounds = number_of_rounds(grid, records, self.rho)
        weight, rate = weight_of_rounds(grid, rounds), rate_for(self.rho * CHOOSING / rounds, grid.distance)
        candidates, chosen = tuple(grid.importances), list[int]()
        aside = expected_distances(tables, candidates, self.noise.deviation / weight)
        for number in range(rounds):
            left = [axes for axes in candidates if axes not in tables]
            scores = self.scores(left, nearest_of(grid.shape, tables, weights, self.noise), aside)
            picked = left[choose(scores, rate / max(grid.importances.values()), self.key, number)]
            chosen.append(candidates.index(picked))
            measure(picked, weight)
        head = [rounds, int(rate * 2**RATE_BITS), *chosen]
        return np.concatenate([np.array(head, dtype=np.int64), *parts]).astype(np.int64)

    def scores(self, left: Sequence[Axes], model: TableModel, aside: Mapping[Axes, int]) -> list[int]:
        """How badly a model explains each of some tables, beyond what is known before and left aside: private, and whole.

        One change of the data moves a score by at most its importance times ``grid.distance``.
        """
        scores = list[int]()
        for axes in left:
            apart = np.abs(self.layout.table(self.counts, axes) - np.rint(model.table(axes)).astype(np.int64))
            scores.append(self.grid.importances[axes] * (int(apart.sum()) - aside[axes]))
        return scores


def number_of_rounds(grid: RoundsGrid, records: float, rho: Fraction) -> int:
    """More rounds, with more noise each, where there are more records or there is more budget; enough for a tree of all attributes."""
    wanted = math.ceil(math.pow(records * math.sqrt(rho) / grid.distance, GROWTH) / EACH)
    return min(max(wanted, len(grid.alone) - 1), len(grid.importances))


def _columns(
    axes: Axes, found: MeasuredTables, model: TableModel, noise: Noise, widths: Mapping[Axes, Matrix]
) -> tuple[Matrix, Matrix, Matrix]:
    """Of the queries of a table. Which table they are read from, unbiased, was settled before its noise was drawn: the first."""
    answers, first = model.table(axes).ravel(), first_holding(found.weights, axes)
    if first is None:
        return answers, np.full(answers.size, np.nan), widths[axes].ravel()
    table = found.unbiased[first]
    unbiased = margin(table, first, axes).ravel()
    error = np.full(answers.size, noise.deviation / found.weights[first] * math.sqrt(table.size / answers.size))
    return answers, error, covering(answers, unbiased, noise.half_width_95(0.0) * error, 0.0)
