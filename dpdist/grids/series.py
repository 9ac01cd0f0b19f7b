"""What every grid along one axis of a counted table has in common."""

from __future__ import annotations

import numpy as np

from dpdist.arrays.vector import Strided, Vector
from dpdist.grids.base import Grid
from dpdist.grids.coefficients import AlongAxis
from dpdist.operators import Matrix


class SeriesGrid(AlongAxis, Grid):
    """A grid over series: all measured values of a step lie side by side.

    Attributes:
        axes: the counted table's attributes.
    """

    axes: tuple[int, ...]

    @property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        """The attribute set whose table is counted."""
        return (self.axes,)

    def steps_of(self, exact: Vector, start: int, stop: int) -> Vector:
        """The measured values of some steps."""
        return Strided(exact, start * self.series, 1, (stop - start) * self.series)

    def counted(self, table: Matrix, stop: int) -> Matrix:
        """The counts of the first steps."""
        return np.take(table.reshape(self.shape), range(stop), axis=self.place)

    def shape_of(self, steps: int) -> tuple[int, ...]:
        """The sizes of the table of the first steps."""
        return tuple(steps if i == self.place else size for i, size in enumerate(self.shape))
