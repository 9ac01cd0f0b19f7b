"""What every grid along one axis of a counted table has in common."""

from __future__ import annotations

import math
from abc import abstractmethod
from fractions import Fraction
from typing import Self

import numpy as np

from dpdist.arrays.vector import Strided, Vector
from dpdist.grids.base import Grid
from dpdist.grids.coefficients import AlongAxis
from dpdist.grids.participations import Crossing, fitting
from dpdist.grids.product_space import Cells, Factor, OpenTerm, ProductSpace
from dpdist.operators import Matrix
from dpdist.privacy.accounting import Loss, gaussian_slack
from dpdist.privacy.noise import Noise
from dpdist.stability import Distance


class SeriesGrid(AlongAxis, Grid):
    """A grid over series: all measured values of a step lie side by side.

    Attributes:
        axes: the counted table's attributes.
        first_steps, first_squared: of a stream that was extended, the steps of its first horizon and their sensitivity, which decided
            the noise.
    """

    axes: tuple[int, ...]
    first_steps: int | None
    first_squared: int | None

    @property
    @abstractmethod
    def signs(self) -> bool:
        """Whether measured values have coefficients of both signs."""

    @abstractmethod
    def begun(self, steps: int) -> Self:
        """The grid of the first steps."""

    @abstractmethod
    def with_squares(self, whole: int, first: int | None) -> Self:
        """The same integers with the noise of other sensitivities."""

    def participating(self, distance: Distance) -> Self:
        """The same integers with the noise for one person in several steps."""
        first = None if self.first_steps is None else self.begun(self.first_steps).joint_distance(distance, signs=self.signs)
        return self.with_squares(self.joint_distance(distance, signs=self.signs), first)

    def noise(self, budget: Loss) -> Noise:
        """That of the first horizon: what was measured stays as it is."""
        first = self if self.first_squared is None else self.with_squares(self.first_squared, None)
        return Grid.noise(first, budget)

    def loss(self, budget: Loss, noise: Noise) -> Loss:
        """What the whole stream reveals: after an extension more than its first horizon, whose loss ``budget`` is."""
        if self.first_squared is None:
            return super().loss(budget, noise)
        rho = rounded_up(budget.rho * Fraction(self.sensitivity_squared, self.first_squared))
        return Loss.gaussian(rho, gaussian_slack(self.sensitivity_squared, noise.scale, self.rows))

    @property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        """The attribute set whose table is counted."""
        return (self.axes,)

    @abstractmethod
    def joint_squared(self, participations: int, separation: int, crossing: Crossing) -> int:
        """At most what one record in each of up to so many steps, so far apart, moves the measured values, squared."""

    def joint_distance(self, distance: Distance, *, signs: bool) -> int:
        """The squared sensitivity to one person in several steps, with up to ``distance.records`` in each.

        Args:
            signs: whether measured values have coefficients of both signs. Else what two persons add does not cancel, and one who is
                replaced by another moves z by no more than both lengths, squared and added.
        """
        assert distance.participations is not None
        most = fitting(distance.participations, distance.separation, self.steps)
        sides = (4 if signs else 2) if distance.replaced else 1
        crossing = Crossing.ABSOLUTE if distance.signed else Crossing.AS_IT_IS if self.series == 1 else Crossing.POSITIVE
        return sides * distance.records**2 * self.joint_squared(most, distance.separation, crossing)

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


def rounded_up(amount: Fraction) -> Fraction:
    """An amount in decimals of nine digits or more, no less than it: the same wherever it is computed.

    >>> rounded_up(Fraction(1, 3))
    Fraction(166666667, 500000000)
    """
    scale = 1
    while amount * scale < 10**8:
        scale *= 10
    return Fraction(math.ceil(amount * scale), scale)
