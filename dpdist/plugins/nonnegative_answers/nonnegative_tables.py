"""The non-negative tables with a given total that agree with each other and lie closest to given ones; no cell of a domain is held.

Two convex sets meet in them: tables that hold nothing negative and the total each (a threshold a table: linear time), and tables that come
from one set of residuals (a weighted mean of every residual over the tables that contain it: linear time). Dykstra's projection onto both
is the proximal gradient method on the dual; with Nesterov's momentum, given up whenever it points uphill, it takes a tenth of the rounds.

Source: Boyle & Dykstra 1986; Beck & Teboulle 2009 (momentum); O'Donoghue & Candes 2015 (restarts); Michelot 1986 (the threshold).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from dpdist.api.mechanisms import Axes, Matrix

MOST_ROUNDS = 5000
"""Rounds after which what is found is returned, with its distance; 30 to 100 are usual."""
THRESHOLD_STEPS = 200
"""Newton steps for a threshold; from that of the last round one or two are usual."""


@dataclass(frozen=True)
class TableFamily:
    """Tables of the same records.

    Attributes:
        axes: the attributes of each table, in the order of its axes.
        shape: sizes of the attributes.
        weights: of each table, by which its squared distances count.
    """

    axes: tuple[Axes, ...]
    shape: tuple[int, ...]
    weights: tuple[float, ...]

    def size(self, axes: Axes) -> int:
        """Cells of a table."""
        return math.prod(self.shape[axis] for axis in axes)

    @cached_property
    def _shared_axes(self) -> list[list[Axes]]:
        """Of each table the attribute sets, small ones first, that other tables contain, too."""
        inside = [list(_inside(axes)) for axes in self.axes]
        times: dict[Axes, int] = {}
        for subsets in inside:
            for s in subsets:
                times[s] = times.get(s, 0) + 1
        return [[s for s in subsets if times[s] > 1] for subsets in inside]

    def total(self, tables: Sequence[Matrix]) -> float:
        """The number of records as all tables give it together."""
        precisions = [weight / table.size for weight, table in zip(self.weights, tables, strict=True)]
        return float(
            sum(precision * table.sum() for precision, table in zip(precisions, tables, strict=True)) / sum(precisions)
        )

    @cached_property
    def _precisions(self) -> dict[Axes, float]:
        """Of every attribute set within a table: the inverse variance of its residual as all tables give it, before it is centred."""
        precisions: dict[Axes, float] = {}
        for axes, weight in zip(self.axes, self.weights, strict=True):
            for s in _inside(axes):
                precisions[s] = precisions.get(s, 0.0) + weight * self.size(s) / self.size(axes)
        return precisions

    def variance(self, axes: Axes, cells: Matrix | float = 1.0) -> Matrix:
        """The variance of a cell of the closest tables that come from one set of residuals, where weights are inverse variances.

        Args:
            axes: within a table.
            cells: of a table of one attribute: of sums of so many cells instead.
        """
        total = np.zeros_like(np.asarray(cells, dtype=np.float64))
        for s in _inside(axes):
            centred = math.prod(1.0 - cells / self.shape[axis] for axis in s)
            total = (
                total + (cells if s else cells**2) * (self.size(s) / self.size(axes)) ** 2 * centred / self._precisions[s]
            )
        return total

    def consistent(self, tables: Sequence[Matrix]) -> list[Matrix]:
        """The closest tables that come from one set of residuals."""
        sums: dict[Axes, Matrix] = {}
        precisions: dict[Axes, float] = {}
        table_residuals = []
        for axes, weight, table, shared_axes in zip(self.axes, self.weights, tables, self._shared_axes, strict=True):
            residuals = dict(_residuals(axes, table, shared_axes))
            table_residuals.append(residuals)
            for s, residual in residuals.items():
                precision = weight * self.size(s) / table.size
                sums[s] = sums.get(s, 0.0) + precision * residual
                precisions[s] = precisions.get(s, 0.0) + precision
        means = {s: sums[s] / precisions[s] for s in sums}
        entries = zip(self.axes, tables, table_residuals, strict=True)
        return [
            table + self._expand_residuals(axes, {s: means[s] - own_residuals[s] for s in own_residuals})
            for axes, table, own_residuals in entries
        ]

    def _expand_residuals(self, axes: Axes, residuals: dict[Axes, Matrix]) -> Matrix:
        """The table of some residuals, each spread evenly over the attributes that it lacks; the small ones are added up first."""
        partial_tables: dict[Axes, Matrix] = {}
        for s, residual in residuals.items():
            partial_table = residual / (self.size(axes) / self.size(s))
            for smaller in [subset for subset in partial_tables if set(subset) < set(s)]:
                partial_table = partial_table + broadcast_table(partial_tables.pop(smaller), smaller, s)
            partial_tables[s] = partial_table
        table = np.zeros([self.shape[axis] for axis in axes])
        for s, partial_table in partial_tables.items():
            table += broadcast_table(partial_table, s, axes)
        return table


def _inside(axes: Axes) -> Iterator[Axes]:
    """The attribute sets within one, small ones first."""
    return (s for k in range(len(axes) + 1) for s in combinations(axes, k))


def broadcast_table(table: Matrix, axes: Axes, wider: Axes) -> Matrix:
    """A table as one of more attributes, along which it is constant."""
    sizes = dict(zip(axes, table.shape, strict=True))
    return table.reshape([sizes.get(axis, 1) for axis in wider])


def _residuals(axes: Axes, table: Matrix, axes_sets: Sequence[Axes]) -> Iterator[tuple[Axes, Matrix]]:
    """What a table says of some attribute sets beyond their subsets: summed over the others, centred along its own; small ones first."""
    margins = {axes: table}
    for s in reversed(axes_sets):
        if s not in margins:
            source = min(
                (margin_axes for margin_axes in margins if set(s) < set(margin_axes)),
                key=lambda margin_axes: margins[margin_axes].size,
            )
            margins[s] = margins[source].sum(axis=tuple(position for position, axis in enumerate(source) if axis not in s))
    for s in axes_sets:
        residual = margins[s]
        for position in range(len(s)):
            residual = residual - residual.mean(axis=position, keepdims=True)
        yield s, residual


def threshold(values: Matrix, total: float, start: float | None = None) -> float:
    """The number c for which the sum of max(values - c, 0) is the total: the closest values >= 0 with that sum are max(values - c, 0).

    Args:
        total: positive.
        start: where Newton's method begins; the sum is convex and falls, so that it comes from below after one step.
    """
    cut = (float(values.sum()) - total) / values.size if start is None else start
    for _ in range(THRESHOLD_STEPS):
        above = values[values > cut]
        step = float(values.max()) - total if above.size == 0 else (float(above.sum()) - total) / above.size
        if abs(step - cut) <= 1e-12 * (abs(step) + 1.0):
            return step
        cut = step
    return cut


@dataclass(frozen=True)
class FittedTables:
    """What was found.

    Attributes:
        tables: not negative, and of the given total each.
        distance: how far any of their cells is from tables that agree with each other exactly, at most.
    """

    tables: list[Matrix]
    distance: float
    rounds: int


def fit_tables(family: TableFamily, tables: Sequence[Matrix], total: float, tolerance: float) -> FittedTables:
    """The non-negative tables of a total that agree with each other and are closest to given ones.

    Args:
        tables: float64, whether they agree or not.
        total: of each; 0 or less makes all cells 0.
        tolerance: the distance (``FittedTables.distance``) at which rounds end.
    """
    if total <= 0:
        return FittedTables([np.zeros_like(table) for table in tables], 0.0, 0)
    initial = family.consistent(tables)
    corrections, agreed = [np.zeros_like(table) for table in tables], initial
    ahead, reached = corrections, initial
    cuts: list[float | None] = [None] * len(tables)
    momentum, distance, positive = 1.0, math.inf, initial
    for round_ in range(1, MOST_ROUNDS + 1):
        shifted = [first_table + second_table for first_table, second_table in zip(ahead, reached, strict=True)]
        cuts = [threshold(table.ravel(), total, cut) for table, cut in zip(shifted, cuts, strict=True)]
        positive = [np.maximum(table - cut, 0.0) for table, cut in zip(shifted, cuts, strict=True)]
        before = corrections
        corrections = [table - positive_table for table, positive_table in zip(shifted, positive, strict=True)]
        previous_agreed = agreed
        agreed = family.consistent(
            [input_table - correction for input_table, correction in zip(tables, corrections, strict=True)]
        )
        distance = max(
            float(np.abs(first_table - second_table).max())
            for first_table, second_table in zip(agreed, positive, strict=True)
        )
        if distance <= tolerance:
            return FittedTables(positive, distance, round_)
        if _moved_uphill(family.weights, ahead, corrections, before):
            momentum, ahead, reached = 1.0, corrections, agreed
            continue
        larger = (1.0 + math.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        extrapolation, momentum = (momentum - 1.0) / larger, larger
        ahead = [now + extrapolation * (now - then) for now, then in zip(corrections, before, strict=True)]
        reached = [now + extrapolation * (now - then) for now, then in zip(agreed, previous_agreed, strict=True)]
    return FittedTables(positive, distance, MOST_ROUNDS)


def _moved_uphill(weights: Sequence[float], ahead: list[Matrix], now: list[Matrix], before: list[Matrix]) -> bool:
    """Whether the last step led away from where momentum pointed."""
    entries = zip(weights, ahead, now, before, strict=True)
    return (
        sum(
            weight * float(np.vdot(ahead_table - now_table, now_table - before_table))
            for weight, ahead_table, now_table, before_table in entries
        )
        > 0
    )
