"""Tables measured in rounds, each chosen by what was measured before (after AIM: McKenna, Mullins, Sheldon, Miklau 2022).

First all tables of one attribute are measured. Then each round chooses, of all tables within those that are asked for, the one that the
model of everything measured so far (``junction_tree.TableModel``) explains worst, by the exponential mechanism
(``dpdist.privacy.selection.exponential_mechanism``), and
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

from dpdist.api.mechanisms import (
    GAUSSIAN,
    MEMORY_COPIES,
    RATE_BITS,
    AnswerRequest,
    Answers,
    ArrayVector,
    Axes,
    Counts,
    IdentityFactor,
    IntegerMeasurement,
    Layout,
    Loss,
    Matrix,
    Neighbours,
    Noise,
    ProgressCallback,
    Secret,
    SelectedTable,
    SpaceTerm,
    StageBytes,
    Vector,
    Workload,
    Workspace,
    choose,
    rate_for,
    to_array,
)
from dpdist.plugins.adaptive.junction_tree import TableModel, first_holding
from dpdist.plugins.adaptive.measured_tables import MeasuredTables, model_unbiased_tables
from dpdist.plugins.adaptive.model_intervals import expected_distances, half_widths, largest_distances
from dpdist.plugins.nonnegative_answers.nonnegative_cells import covering_half_widths
from dpdist.plugins.nonnegative_answers.posterior_tables import margin
from dpdist.plugins.nonnegative_answers.table_fitting import query_groups

CHOICE_FRACTION = Fraction(1, 10)
"""Of rho, for choosing. This and the next three were picked on Adult at epsilon 0.1, 1 and 10 (benchmarks/adaptive_tables.py)."""
ONE_WAY_FRACTION = Fraction(2, 5)
"""Of the squared weights, for the tables of one attribute."""
SQUARED_WEIGHTS_SUM = 2**40
"""The sum of the squared weights, at most: of z for up to 2^32 records 52 bits are used."""
GROWTH, ROUND_DIVISOR = 0.75, 24.0
"""Rounds: (records times the root of rho)^0.75 / 24."""
IMPORTANCES = 64
"""Of the group of queries of largest weight, in whole numbers."""
COPIES = 6
"""Of all candidates' cells, while a model of them is made."""
POSTPROCESSING_TEXT = (
    "answers are those of the non-negative tables that agree with each other and are expected, given all measured ones, and "
    "where no table that holds them was measured, of a model (attributes are independent given those between them): the "
    "latter have no standard error, and their intervals are no proven ones, but made of simulated noise and of a bound of "
    "all errors of their table together, which is proven; standard errors of the others are those of the unbiased estimate "
    "from the first table that holds them, and each interval holds that of the unbiased answer, cut at what is possible"
)


@dataclass(frozen=True)
class AimMeasurement(IntegerMeasurement):
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
    spacing: float = 1.0 / math.isqrt(SQUARED_WEIGHTS_SUM)

    @property
    def postprocessing(self) -> str:
        return POSTPROCESSING_TEXT

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the domain's attributes."""
        return self.queries.domain.shape

    @cached_property
    def one_way_tables(self) -> tuple[Axes, ...]:
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
        return sum(map(self.size, (*self.one_way_tables, *self.importances)))

    @property
    def tables(self) -> tuple[Axes, ...]:
        axes_sets = sorted({block.asked_axes for block in self.queries.blocks})
        return tuple(axes for axes in axes_sets if axes and not any(set(axes) < set(other_axes) for other_axes in axes_sets))

    @property
    def digest(self) -> str:
        """SHA-256 of everything that decides what is measured."""
        facts = ("rounds", self.shape, sorted(self.importances.items()), self.distance, self.sensitivity_squared)
        rules = (
            str(CHOICE_FRACTION),
            str(ONE_WAY_FRACTION),
            SQUARED_WEIGHTS_SUM,
            GROWTH,
            ROUND_DIVISOR,
            "tree",
            "rare pairs",
        )
        return hashlib.sha256(repr((facts, rules)).encode()).hexdigest()

    def noise(self, budget: Loss) -> Noise:
        """Gaussian noise of what is left of rho beside choosing."""
        return Noise(GAUSSIAN, GAUSSIAN.scale(self.sensitivity_squared, Loss.gaussian(budget.rho * (1 - CHOICE_FRACTION))))

    def memory(self, workload: Workload, layout: Layout, worker_bytes: int) -> StageBytes:
        model_bytes = 8 * COPIES * self.rows
        return StageBytes(8 * MEMORY_COPIES * layout.size + model_bytes, model_bytes + 8 * MEMORY_COPIES * workload.shape[0])

    def exact_values(self, counts: Counts, work: Workspace, report_progress: ProgressCallback | None = None) -> Vector:
        """The counted tables themselves: what is measured of them depends on noise."""
        count_tables = [counts.table(axes).ravel() for axes in self.tables]
        largest = max(int(count_table.sum()) for count_table in count_tables)
        counts.check_limit(largest)
        return ArrayVector(np.concatenate(count_tables))

    def add_noise(self, exact: Vector, key: Secret, noise: Noise, budget: Loss) -> Vector:
        counted = Layout(self.shape, self.tables)
        return ArrayVector(Rounds(self, to_array(exact), counted, noise, budget.rho, key.reveal()).values())

    def selected_tables(self, measured: Vector, noise: Noise) -> Sequence[SelectedTable]:
        weights = self.read_tables(to_array(measured)).weights
        return [SelectedTable(axes, noise.deviation / weight) for axes, weight in weights.items() if len(axes) > 1]

    def answers(self, workload: Workload, z: Vector, noise: Noise, answer_request: AnswerRequest) -> Answers:
        needed_bytes = 8 * COPIES * self.rows
        columns, bounds = answer_request.work.largest(self.columns, workload, to_array(z), noise, needed_bytes=needed_bytes)
        if bounds:
            answer_request.work.write(
                ArrayVector(np.array([*bounds.values()])), answer_request.bounds, {"tables": [list(axes) for axes in bounds]}
            )
        return replace(answer_request.write(*columns), modelled=bounds)

    def columns(
        self, workload: Workload, measured: Matrix, noise: Noise
    ) -> tuple[tuple[Matrix, Matrix, Matrix], dict[Axes, float]]:
        """Answers, standard errors and half widths; and the bounds of the tables that come from the model."""
        measured_tables = self.read_tables(measured)
        model = measured_tables.model(noise)
        bounds = largest_distances(measured_tables, self.importances, model, noise)
        query_axes = [group.axes for group in query_groups(workload)]
        modelled_axes = sorted({*query_axes} & {*bounds})
        widths = half_widths(measured_tables, bounds, modelled_axes, model, noise)
        answers, errors, half = zip(
            *(_table_columns(axes, measured_tables, model, noise, widths) for axes in query_axes), strict=True
        )
        columns = np.concatenate(answers), np.concatenate(errors), np.concatenate(half)
        return columns, {axes: bounds[axes] for axes in modelled_axes}

    def measured_space(self, measured: Vector, shape: tuple[int, ...], most_bytes: int) -> MeasuredTables:
        return self.read_tables(to_array(measured))

    def read_tables(self, measured: Matrix) -> MeasuredTables:
        """The tables of what ``Rounds.values`` wrote."""
        rounds, candidates = int(measured[0]), tuple(self.importances)
        selected = [candidates[int(index)] for index in measured[2 : 2 + rounds]]
        weights = dict.fromkeys(self.one_way_tables, one_way_weight(self)) | dict.fromkeys(
            selected, weight_of_rounds(self, rounds)
        )
        terms = tuple(
            SpaceTerm(axes, tuple(IdentityFactor(self.shape[axis]) for axis in axes), weight)
            for axes, weight in weights.items()
        )
        rate = Fraction(int(measured[1]), 2**RATE_BITS)
        return MeasuredTables(terms, self.shape, measured[2 + rounds :], rate=rate, rounds=rounds)


def importances(queries: Workload) -> dict[Axes, int]:
    """Of each table of two or more attributes within those that are asked for: how many attributes it shares with each of these, times its
    weight, added up."""
    largest = max(block.weight for block in queries.blocks)
    weighted_axes = [(block.asked_axes, max(1, round(IMPORTANCES * block.weight / largest))) for block in queries.blocks]
    inside = {subset for axes, _ in weighted_axes for k in range(2, len(axes) + 1) for subset in combinations(axes, k)}
    return {subset: sum(weight * len({*subset} & {*axes}) for axes, weight in weighted_axes) for subset in sorted(inside)}


def aim_measurement(workload: Workload, neighbours: Neighbours, most_records: int) -> AimMeasurement:
    """The measurement of rounds: of k records in one cell a squared distance of k^2, of replaced ones k^2 in each of two cells."""
    cells = 1 if neighbours == "add-remove" else 2
    return AimMeasurement(workload, cells * most_records, cells * most_records**2 * SQUARED_WEIGHTS_SUM)


def one_way_weight(measurement: AimMeasurement) -> int:
    """The weight of each table of one attribute."""
    return math.isqrt(math.floor(SQUARED_WEIGHTS_SUM * ONE_WAY_FRACTION / len(measurement.one_way_tables)))


def weight_of_rounds(measurement: AimMeasurement, rounds: int) -> int:
    """The weight of each table that a round measures."""
    return math.isqrt((SQUARED_WEIGHTS_SUM - len(measurement.one_way_tables) * one_way_weight(measurement) ** 2) // rounds)


@dataclass(frozen=True)
class Rounds:
    """The rounds of one release. It holds the key: never pickled.

    Attributes:
        counts: private, those of ``layout``.
        rho: of the release.
    """

    measurement: AimMeasurement
    counts: Matrix = field(repr=False)
    layout: Layout
    noise: Noise
    rho: Fraction
    key: bytes = field(repr=False)

    def values(self) -> Matrix:
        """All that is measured: the number of rounds, the rate of choosing in 2^-40, the place of each chosen table, the noisy values."""
        measurement, noisy_tables, drawn = self.measurement, list[Matrix](), 0
        tables, weights = dict[Axes, Matrix](), dict[Axes, int]()

        def measure(axes: Axes, weight: int) -> None:
            nonlocal drawn
            noisy = weight * self.layout.table(self.counts, axes).ravel()
            noisy = noisy + self.noise.draw(self.key, start=drawn, count=noisy.size)
            drawn += noisy.size  # no position is read twice
            noisy_tables.append(noisy)
            tables[axes], weights[axes] = noisy.reshape([measurement.shape[axis] for axis in axes]) / weight, weight

        for axes in measurement.one_way_tables:
            measure(axes, one_way_weight(measurement))
        records = max(float(np.mean([table.sum() for table in tables.values()])), 1.0)
        rounds = number_of_rounds(measurement, records, self.rho)
        weight = weight_of_rounds(measurement, rounds)
        rate = rate_for(self.rho * CHOICE_FRACTION / rounds, measurement.distance)
        candidates, selected = tuple(measurement.importances), list[int]()
        omitted_errors = expected_distances(tables, candidates, self.noise.deviation / weight)
        for number in range(rounds):
            remaining = [axes for axes in candidates if axes not in tables]
            scores = self.scores(
                remaining, model_unbiased_tables(measurement.shape, tables, weights, self.noise), omitted_errors
            )
            picked = remaining[choose(scores, rate / max(measurement.importances.values()), self.key, number)]
            selected.append(candidates.index(picked))
            measure(picked, weight)
        head = [rounds, int(rate * 2**RATE_BITS), *selected]
        return np.concatenate([np.array(head, dtype=np.int64), *noisy_tables]).astype(np.int64)

    def scores(self, remaining: Sequence[Axes], model: TableModel, omitted_errors: Mapping[Axes, int]) -> list[int]:
        """How badly a model explains each of some tables, beyond what is known before and left aside: private, and whole.

        One change of the data moves a score by at most its importance times ``measurement.distance``.
        """
        scores = list[int]()
        for axes in remaining:
            differences = np.abs(self.layout.table(self.counts, axes) - np.rint(model.table(axes)).astype(np.int64))
            scores.append(self.measurement.importances[axes] * (int(differences.sum()) - omitted_errors[axes]))
        return scores


def number_of_rounds(measurement: AimMeasurement, records: float, rho: Fraction) -> int:
    """More rounds, with more noise each, where there are more records or there is more budget; enough for a tree of all attributes."""
    desired_rounds = math.ceil(math.pow(records * math.sqrt(rho) / measurement.distance, GROWTH) / ROUND_DIVISOR)
    return min(max(desired_rounds, len(measurement.one_way_tables) - 1), len(measurement.importances))


def _table_columns(
    axes: Axes, measured_tables: MeasuredTables, model: TableModel, noise: Noise, widths: Mapping[Axes, Matrix]
) -> tuple[Matrix, Matrix, Matrix]:
    """Of the queries of a table. Which table they are read from, unbiased, was settled before its noise was drawn: the first."""
    answers, table_axes = model.table(axes).ravel(), first_holding(measured_tables.weights, axes)
    if table_axes is None:
        return answers, np.full(answers.size, np.nan), widths[axes].ravel()
    table = measured_tables.unbiased[table_axes]
    unbiased = margin(table, table_axes, axes).ravel()
    error = np.full(
        answers.size, noise.deviation / measured_tables.weights[table_axes] * math.sqrt(table.size / answers.size)
    )
    return answers, error, covering_half_widths(answers, unbiased, noise.half_width_95(0.0) * error, 0.0)
