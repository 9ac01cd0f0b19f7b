"""Strategies that are one filter along an attribute."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from dpdist.errors import OutOfMemory
from dpdist.operators import Matrix, Operator
from dpdist.sizes import SIZES


@dataclass(frozen=True)
class Coefficients:
    """A strategy that is one filter.

    Attributes:
        values: (points,) around a circle or (steps,) of the past.
        axes: the attributes of the counted table, ascending; the filter runs along ``axis``.
    """

    values: Matrix = field(repr=False)
    circular: bool
    steps: int
    axis: int
    axes: tuple[int, ...]

    @property
    def points(self) -> int:
        """Length of the circle, or number of steps."""
        return int(self.values.size)


@dataclass(frozen=True)
class StoredCoefficients:
    """A strategy whose whole-numbered coefficients, or weights of characters, are too many for memory: they are in the store.

    Attributes:
        kind: "filter": coefficients around a circle of ``points`` steps. "past": coefficients of steps so far, ``points`` of them.
            "characters": weights of the 2^d rows of the Hadamard matrix.
        name, digest: of the stored numbers, (points,) int64; the strategy's are ``spacing`` times these.
        square: their sum of squares, exact: the squared length of every column.
        farthest: the largest squared distance of two columns, or of one from nothing, exact; None where it was not asked for.
        axes, shape: attributes of the counted table and their sizes; a filter runs along the ``place``-th of them, and every
            combination of the others is a series of its own.
        deviations: standard error of the queries of every block, at noise multiplier 1.
    """

    kind: Literal["filter", "past", "characters"]
    name: str
    digest: str
    points: int
    spacing: float
    square: int
    farthest: int | None
    axes: tuple[int, ...]
    shape: tuple[int, ...]
    place: int
    deviations: tuple[float, ...]

    @property
    def steps(self) -> int:
        """Steps of a series."""
        return math.prod(self.shape) if self.kind == "characters" else self.shape[self.place]

    @property
    def series(self) -> int:
        """How many series there are."""
        return math.prod(self.shape) // self.steps


class StoredRows(Operator):
    """The rows of a ``StoredCoefficients``, by name: they are applied through the store alone."""

    def __init__(self, stored: StoredCoefficients) -> None:
        self.long = stored
        self.shape = (stored.points * stored.series, stored.steps * stored.series)
        self.integral = False

    def matvec(self, x: Matrix) -> Matrix:
        raise self._too_long()

    def rmatvec(self, y: Matrix) -> Matrix:
        raise self._too_long()

    def _too_long(self) -> OutOfMemory:
        cure = "measure and read it through the store (dpdist.long_series, dpdist.long_formulas)"
        return OutOfMemory("a strategy in the store", 8 * self.long.points, 8 * SIZES.long_steps, cure)

    def description(self) -> tuple[object, ...]:
        return ("stored rows", self.long.kind, self.long.digest, self.long.spacing, self.long.shape, self.long.place)


def circle_of_past(steps: int) -> int:
    """Steps of the circle on which a filter of the past does not see its own end: a power of two."""
    return 1 << (2 * steps - 1).bit_length()
