"""Strategies that are one filter along an attribute."""

from __future__ import annotations

from dataclasses import dataclass, field

from dpdist.errors import OutOfMemory
from dpdist.operators import Matrix, Operator


@dataclass(frozen=True)
class Kernel:
    """A strategy that is one filter.

    Attributes:
        values: its taps, (points,) around a circle or (steps,) of the past.
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


LONG_STEPS = 2**22
"""Series with more steps are filtered through the store."""


@dataclass(frozen=True)
class LongKernel:
    """A strategy that is one filter around a circle too long for memory: its whole taps are in the store.

    Attributes:
        name, digest: of the stored taps, (points,) int64; the strategy's taps are ``spacing`` times these.
        square: their sum of squares, exact.
        deviations: standard error of every filter asked for, at noise multiplier 1.
    """

    name: str
    digest: str
    points: int
    spacing: float
    square: int
    steps: int
    axis: int
    deviations: tuple[float, ...]


class StoredRing(Operator):
    """The rows of a ``LongKernel``, by name: they are applied by ``long_series`` alone."""

    def __init__(self, kernel: LongKernel) -> None:
        self.long = kernel
        self.shape = (kernel.points, kernel.steps)
        self.integral = False

    def matvec(self, x: Matrix) -> Matrix:
        raise self._too_long()

    def rmatvec(self, y: Matrix) -> Matrix:
        raise self._too_long()

    def _too_long(self) -> OutOfMemory:
        return OutOfMemory("a filter of a long series", 8 * self.long.points, 8 * LONG_STEPS, "use dpdist.long_series")

    def description(self) -> tuple[object, ...]:
        return ("stored ring", self.long.digest, self.long.spacing, self.long.steps)
