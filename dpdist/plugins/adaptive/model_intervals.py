"""How far the tables of a model may be from the truth: bounds that hold for every data set, and intervals by simulation.

**Bounds.** In the last round the exponential mechanism chose a table c of all that were left. With probability 1 - b, its score was at most
ln(k / b) / rate below the highest of the k scores. So for each table r that was left, the L1 distance d_r between its true counts and
those of the model of that round is at most

    e_r + (importance_c (d_c - e_c) + ln(k / b) / rate) / importance_r,

e being what the scores leave out, which was public before the choice. d_c is not known, but c was measured next, with noise independent of
the choice: with m cells, their noisy distances add up to at least m g(d_c / m) - s sqrt(2 m ln(1 / b)) with probability 1 - b, where
g(u) is the mean of |u + noise| of deviation s. (The sum of g over cells is least where all are equal, because g is convex; the sum is
a function of the noise with a Lipschitz constant of sqrt(m).) What the model moved after that round is public, and is added.

**Intervals.** The bound of a table's sum does not say which of its cells are far from the truth. Half widths are twice the error that
redrawn noise makes in the model's answer, with the same tables, and a part of the table's bound: in proportion to the modelled count or to
its root, whichever gives more. They are no proven intervals; docs/decisions/0018-adaptive-rounds.md says how often they held the truth.

Source: McKenna, Mullins, Sheldon, Miklau 2022 (AIM), section 5, for the bounds; the sharper d_c is ours.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import scipy

from dpdist.api.mechanisms import Axes, Matrix, Noise
from dpdist.plugins.adaptive.junction_tree import TableModel, first_holding
from dpdist.plugins.adaptive.measured_tables import MeasuredTables, model_unbiased_tables
from dpdist.plugins.nonnegative_answers.posterior_tables import independent_table

MISS_PROBABILITY = 0.05
"""The probability with which bounds may miss, all of a release together; half of it for the choice, half for the noise after it."""
DRAWS = 10
"""Simulated measurements."""
MIN_MODELLED_COUNT = 0.25
"""The least modelled count of which the root is taken."""
BOUND_FRACTION = 1.5
"""Of a table's bound, spread over its cells: with 1 intervals held 0.92 of the counts of one drawn data set, 0.95 or more of others."""


def expected_distances(tables: Mapping[Axes, Matrix], axes_sets: Iterable[Axes], deviation: float) -> dict[Axes, int]:
    """The sums of errors that scores of some tables leave out: of each cell the mean of absolute noise.

    In a cell of a pair it is not more than the records that the tables of one attribute would have there if both were independent: noise
    hides no more there. In larger tables most cells hold single records, which no model foresees.

    Args:
        tables: unbiased, one of each attribute among them; others are not looked at.
        deviation: of the noise in a cell.
    """
    alone = {axes[0]: table for axes, table in tables.items() if len(axes) == 1}
    total, mean = max(float(np.mean([table.sum() for table in alone.values()])), 1.0), math.sqrt(2 / math.pi) * deviation
    positive = {axis: np.maximum(table, 0.0) for axis, table in alone.items()}
    ones = {axis: table * (total / max(float(table.sum()), 1.0)) for axis, table in positive.items()}

    def omitted_error(axes: Axes) -> float:
        if len(axes) > 2:
            return mean * math.prod(alone[axis].size for axis in axes)
        return float(np.minimum(independent_table([ones[axis] for axis in axes], total), mean).sum())

    return {axes: round(omitted_error(axes)) for axes in axes_sets}


def largest_distances(
    measured: MeasuredTables, importances: Mapping[Axes, int], model: TableModel, noise: Noise
) -> dict[Axes, float]:
    """Of each table that rounds could have chosen and that no measured one holds: a bound of the sum of the errors of all its answers.

    With a probability of 95 % all hold at once, whatever the data are.

    Args:
        importances: of the tables that rounds choose from.
        model: whose answers are published.
    """
    before, last_axes = measured.terms[:-1], measured.terms[-1].axes
    rows = sum(term.rows for term in before)
    previous_model = replace(measured, terms=before, values=measured.values[:rows]).selection_model(noise)
    candidates = [axes for axes in importances if axes not in {term.axes for term in before}]
    deviation = noise.deviation / measured.weights[last_axes]
    omitted_errors = expected_distances(measured.unbiased, candidates, deviation)
    distances = np.abs(measured.unbiased[last_axes] - np.rint(previous_model.table(last_axes)))
    last_bound = importances[last_axes] * (
        distance_bound(float(distances.sum()), distances.size, deviation) - omitted_errors[last_axes]
    )
    slack = math.log(2 * len(candidates) / MISS_PROBABILITY) * max(importances.values()) / max(float(measured.rate), 1e-300)
    bounds = {}
    for axes in candidates:
        if first_holding(measured.weights, axes) is None:
            previous_table = np.rint(previous_model.table(axes))
            table_bound = omitted_errors[axes] + (last_bound + slack) / importances[axes]
            bounds[axes] = table_bound + float(np.abs(previous_table - model.table(axes)).sum())
    return bounds


def distance_bound(noisy: float, cells: int, deviation: float) -> float:
    """The most by which cells are apart, if with noise of a deviation they seem to be so far apart together."""
    mean = (noisy + deviation * math.sqrt(2 * cells * math.log(2 / MISS_PROBABILITY))) / cells

    def lack(distance: float) -> float:
        near = math.sqrt(2 / math.pi) * deviation * math.exp(-((distance / deviation) ** 2) / 2)
        return near + distance * math.erf(distance / deviation / math.sqrt(2)) - mean

    return 0.0 if lack(0.0) >= 0 else cells * float(scipy.optimize.brentq(lack, 0.0, mean))


def half_widths(
    measured: MeasuredTables, bounds: Mapping[Axes, float], axes_sets: Iterable[Axes], model: TableModel, noise: Noise
) -> dict[Axes, Matrix]:
    """Half widths of the intervals of some tables of the model. The seed of the simulation is public: it follows from the measurement."""
    seed = hashlib.sha256(measured.values.astype("<i8").tobytes()).digest()[:4]
    state = np.random.RandomState(int.from_bytes(seed, "big"))  # NumPy keeps its streams the same for ever
    squares = {axes: np.zeros_like(model.table(axes)) for axes in axes_sets}
    for _ in range(DRAWS if squares else 0):
        drawn = {
            axes: model.table(axes) + noise.kind.simulated(state, table.shape) * (noise.deviation / measured.weights[axes])
            for axes, table in measured.unbiased.items()
        }
        redrawn_model = model_unbiased_tables(measured.shape, drawn, measured.weights, noise)
        for axes in squares:
            squares[axes] += (redrawn_model.table(axes) - model.table(axes)) ** 2 / DRAWS
    widths = {}
    for axes, square in squares.items():
        table = model.table(axes)
        root = np.sqrt(np.maximum(table, MIN_MODELLED_COUNT))
        bound_share = np.maximum(root / root.sum(), table / max(float(table.sum()), 1.0))
        widths[axes] = 2 * np.sqrt(square) + BOUND_FRACTION * bounds[axes] * bound_share
    return widths
