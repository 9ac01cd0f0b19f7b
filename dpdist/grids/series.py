"""What every grid along one axis of a counted table has in common."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from dpdist.arrays.vector import Strided, Vector
from dpdist.grids.base import Grid
from dpdist.grids.coefficients import AlongAxis
from dpdist.grids.participations import fitting
from dpdist.grids.product_space import Cells, Factor, OpenTerm, ProductSpace
from dpdist.operators import Matrix
from dpdist.stability import Distance


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

    @abstractmethod
    def joint_squared(self, participations: int, separation: int) -> int:
        """At most what one record in each of so many steps, so far apart, moves the measured values, squared."""

    def joint_distance(self, distance: Distance, *, signs: bool) -> int:
        """The squared sensitivity to one person in several steps, with up to ``distance.records`` in each.

        Args:
            signs: whether measured values have coefficients of both signs. Else what two persons add does not cancel, and one who is
                replaced by another moves z by no more than both lengths, squared and added.
        """
        assert distance.participations is not None
        most = fitting(distance.participations, distance.separation, self.steps)
        sides = (4 if signs else 2) if distance.replaced else 1
        return sides * distance.records**2 * self.joint_squared(most, distance.separation)

    def steps_of(self, exact: Vector, start: int, stop: int) -> Vector:
        """The measured values of some steps."""
        return Strided(exact, start * self.series, 1, (stop - start) * self.series)

    def counted(self, table: Matrix, stop: int) -> Matrix:
        """The counts of the first steps."""
        return np.take(table.reshape(self.shape), range(stop), axis=self.place)

    def shape_of(self, steps: int) -> tuple[int, ...]:
        """The sizes of the table of the first steps."""
        return tuple(steps if i == self.place else size for i, size in enumerate(self.shape))

    def space_of(self, factor: Factor, values: Matrix, shape: tuple[int, ...]) -> ProductSpace:
        """The measurement of every series by one factor.

        Args:
            values: (measured values of a series, series), or of one series each, (series, values), as a table with the steps' axis
                in its place.
        """
        factors = tuple(factor if i == self.place else Cells(size) for i, size in enumerate(self.shape))
        return ProductSpace((OpenTerm(self.axes, factors),), shape, np.ascontiguousarray(values).ravel())

    def steps_first(self, values: Matrix) -> Matrix:
        """Values whose series lie side by side as a table with the steps' axis in its place."""
        others = tuple(size for i, size in enumerate(self.shape) if i != self.place)
        return np.moveaxis(values.reshape(-1, *others), 0, self.place)
