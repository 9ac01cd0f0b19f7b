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

from dpdist.operators import Matrix

Axes = tuple[int, ...]
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
    def _shared(self) -> list[list[Axes]]:
        """Of each table the attribute sets, small ones first, that other tables contain, too."""
        inside = [list(_inside(axes)) for axes in self.axes]
        times: dict[Axes, int] = {}
        for each in inside:
            for s in each:
                times[s] = times.get(s, 0) + 1
        return [[s for s in each if times[s] > 1] for each in inside]

    def total(self, tables: Sequence[Matrix]) -> float:
        """The number of records as all tables give it together."""
        shares = [weight / table.size for weight, table in zip(self.weights, tables, strict=True)]
        return float(sum(share * table.sum() for share, table in zip(shares, tables, strict=True)) / sum(shares))

    @cached_property
    def _precisions(self) -> dict[Axes, float]:
        """Of every attribute set within a table: the inverse variance of its residual as all tables give it, before it is centred."""
        out: dict[Axes, float] = {}
        for axes, weight in zip(self.axes, self.weights, strict=True):
            for s in _inside(axes):
                out[s] = out.get(s, 0.0) + weight * self.size(s) / self.size(axes)
        return out

    def variance(self, axes: Axes, cells: Matrix | float = 1.0) -> Matrix:
        """The variance of a cell of the closest tables that come from one set of residuals, where weights are inverse variances.

        Args:
            axes: within a table.
            cells: of a table of one attribute: of sums of so many cells instead.
        """
        out = np.zeros_like(np.asarray(cells, dtype=np.float64))
        for s in _inside(axes):
            centred = math.prod(1.0 - cells / self.shape[axis] for axis in s)
            out = out + (cells if s else cells**2) * (self.size(s) / self.size(axes)) ** 2 * centred / self._precisions[s]
        return out

    def consistent(self, tables: Sequence[Matrix]) -> list[Matrix]:
        """The closest tables that come from one set of residuals."""
        sums: dict[Axes, Matrix] = {}
        shares: dict[Axes, float] = {}
        own = []
        for axes, weight, table, shared in zip(self.axes, self.weights, tables, self._shared, strict=True):
            residuals = dict(_residuals(axes, table, shared))
            own.append(residuals)
            for s, residual in residuals.items():
                share = weight * self.size(s) / table.size
                sums[s] = sums.get(s, 0.0) + share * residual
                shares[s] = shares.get(s, 0.0) + share
        means = {s: sums[s] / shares[s] for s in sums}
        given = zip(self.axes, tables, own, strict=True)
        return [table + self._spread(axes, {s: means[s] - found[s] for s in found}) for axes, table, found in given]

    def _spread(self, axes: Axes, residuals: dict[Axes, Matrix]) -> Matrix:
        """The table of some residuals, each spread evenly over the attributes that it lacks; the small ones are added up first."""
        parts: dict[Axes, Matrix] = {}
        for s, residual in residuals.items():
            part = residual / (self.size(axes) / self.size(s))
            for smaller in [each for each in parts if set(each) < set(s)]:
                part = part + within(parts.pop(smaller), smaller, s)
            parts[s] = part
        out = np.zeros([self.shape[axis] for axis in axes])
        for s, part in parts.items():
            out += within(part, s, axes)
        return out


def _inside(axes: Axes) -> Iterator[Axes]:
    """The attribute sets within one, small ones first."""
    return (s for k in range(len(axes) + 1) for s in combinations(axes, k))


def within(table: Matrix, axes: Axes, wider: Axes) -> Matrix:
    """A table as one of more attributes, along which it is constant."""
    sizes = dict(zip(axes, table.shape, strict=True))
    return table.reshape([sizes.get(axis, 1) for axis in wider])


def _residuals(axes: Axes, table: Matrix, wanted: Sequence[Axes]) -> Iterator[tuple[Axes, Matrix]]:
    """What a table says of some attribute sets beyond their subsets: summed over the others, centred along its own; small ones first."""
    margins = {axes: table}
    for s in reversed(wanted):
        if s not in margins:
            source = min((each for each in margins if set(s) < set(each)), key=lambda each: margins[each].size)
            margins[s] = margins[source].sum(axis=tuple(place for place, axis in enumerate(source) if axis not in s))
    for s in wanted:
        residual = margins[s]
        for place in range(len(s)):
            residual = residual - residual.mean(axis=place, keepdims=True)
        yield s, residual


def threshold(values: Matrix, total: float, start: float | None = None) -> float:
    """The number c for which the sum of max(values - c, 0) is the total: the closest values >= 0 with that sum are max(values - c, 0).

    Args:
        total: positive.
        start: where Newton's method begins; the sum is convex and falls, so that it comes from below after one step.
    """
    found = (float(values.sum()) - total) / values.size if start is None else start
    for _ in range(THRESHOLD_STEPS):
        above = values[values > found]
        step = float(values.max()) - total if above.size == 0 else (float(above.sum()) - total) / above.size
        if abs(step - found) <= 1e-12 * (abs(step) + 1.0):
            return step
        found = step
    return found


@dataclass(frozen=True)
class Nearest:
    """What was found.

    Attributes:
        tables: not negative, and of the given total each.
        distance: how far any of their cells is from tables that agree with each other exactly, at most.
    """

    tables: list[Matrix]
    distance: float
    rounds: int


def nearest(family: TableFamily, tables: Sequence[Matrix], total: float, tolerance: float) -> Nearest:
    """The non-negative tables of a total that agree with each other and are closest to given ones.

    Args:
        tables: float64, whether they agree or not.
        total: of each; 0 or less makes all cells 0.
        tolerance: the distance (``Nearest.distance``) at which rounds end.
    """
    if total <= 0:
        return Nearest([np.zeros_like(table) for table in tables], 0.0, 0)
    first = family.consistent(tables)
    held, agreed = [np.zeros_like(table) for table in tables], first
    ahead, reached = held, first
    cuts: list[float | None] = [None] * len(tables)
    momentum, distance, positive = 1.0, math.inf, first
    for round_ in range(1, MOST_ROUNDS + 1):
        wanted = [one + other for one, other in zip(ahead, reached, strict=True)]
        cuts = [threshold(table.ravel(), total, cut) for table, cut in zip(wanted, cuts, strict=True)]
        positive = [np.maximum(table - cut, 0.0) for table, cut in zip(wanted, cuts, strict=True)]
        before, held = held, [table - found for table, found in zip(wanted, positive, strict=True)]
        former, agreed = agreed, family.consistent([given - less for given, less in zip(tables, held, strict=True)])
        distance = max(float(np.abs(one - other).max()) for one, other in zip(agreed, positive, strict=True))
        if distance <= tolerance:
            return Nearest(positive, distance, round_)
        if _uphill(family.weights, ahead, held, before):
            momentum, ahead, reached = 1.0, held, agreed
            continue
        larger = (1.0 + math.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        share, momentum = (momentum - 1.0) / larger, larger
        ahead = [now + share * (now - then) for now, then in zip(held, before, strict=True)]
        reached = [now + share * (now - then) for now, then in zip(agreed, former, strict=True)]
    return Nearest(positive, distance, MOST_ROUNDS)


def _uphill(weights: Sequence[float], ahead: list[Matrix], now: list[Matrix], before: list[Matrix]) -> bool:
    """Whether the last step led away from where momentum pointed."""
    given = zip(weights, ahead, now, before, strict=True)
    return sum(weight * float(np.vdot(a - n, n - b)) for weight, a, n, b in given) > 0
