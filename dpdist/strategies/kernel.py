"""Strategies that are one filter along an attribute."""

from __future__ import annotations

from dataclasses import dataclass, field

from dpdist.operators import Matrix


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
