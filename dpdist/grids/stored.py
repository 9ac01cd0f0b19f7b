"""Grids of stored strategies: whole coefficients of a filter, or whole weights of characters, that are too many for memory."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Literal, Self

from dpdist.arrays.passes import slab_bytes
from dpdist.domain import Layout
from dpdist.errors import OutOfMemory
from dpdist.grids.base import Grid, StageBytes, shard_bytes
from dpdist.operators import Matrix, Operator
from dpdist.sizes import SIZES
from dpdist.stability import Neighbours
from dpdist.workloads import Workload


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

    def __init__(self, coefficients: StoredCoefficients) -> None:
        self.long = coefficients
        self.shape = (coefficients.points * coefficients.series, coefficients.steps * coefficients.series)
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


@dataclass(frozen=True)
class LongGrid(Grid):
    """Whole coefficients of a filter, or whole weights of characters, that are too many for memory.

    Attributes:
        coefficients: the stored numbers.
        sensitivity_squared: exact.
    """

    coefficients: StoredCoefficients
    spacing: float
    sensitivity_squared: int
    norm: Literal["l2"] = "l2"

    @property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        """The attribute sets whose tables are needed."""
        return (self.coefficients.axes,)

    @property
    def rows(self) -> int:
        """Number of measured values."""
        return self.coefficients.points * self.coefficients.series

    @property
    def digest(self) -> str:
        """SHA-256 of the numbers and of how they are applied."""
        coefficients = self.coefficients
        facts = (
            coefficients.kind,
            coefficients.digest,
            coefficients.points,
            coefficients.shape,
            coefficients.place,
            coefficients.axes,
            self.spacing,
            self.sensitivity_squared,
        )
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def memory(self, workload: Workload, layout: Layout, worker_bytes: int) -> StageBytes:
        return StageBytes(shard_bytes(max(layout.size, self.rows)), slab_bytes(worker_bytes))

    @classmethod
    def made(cls, coefficients: StoredCoefficients, *, neighbours: Neighbours, most_records: int) -> Self:
        """The grid of stored numbers. A record that moves, of which more is not known, leaves and enters: twice the length."""
        apart = 0 if coefficients.series == 1 else 2 * coefficients.square  # from one series to another
        moved = (
            4 * coefficients.square
            if coefficients.farthest is None
            else max(coefficients.square, coefficients.farthest, apart)
        )
        distance = coefficients.square if neighbours == "add-remove" else moved
        return cls(coefficients, coefficients.spacing, distance * most_records**2)
