"""What every integer grid has: an exact sensitivity, and the noise and the charge that follow from it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from dpdist.operators import Matrix
from dpdist.privacy.accounting import Loss, gaussian_scale, gaussian_slack, laplace_scale
from dpdist.privacy.noise import Noise
from dpdist.strategies.base import Norm

GRID_BITS = 30
"""A strategy of unit sensitivity has columns of at most 2^30 on the grid: z fits int64 for up to 2^32 records."""
MOST_RECORDS = 2**32


class Grid(ABC):
    """Integers that are measured.

    Attributes:
        spacing: grid unit.
        sensitivity_squared: exact bound of the squared distance (L2, or L1 for Laplace noise) between the integers of
            neighbouring histograms: what the grid makes of the ``Distance`` that it was built for.
        norm: "l2" or "l1", the distance that the noise has to hide.
    """

    spacing: float
    sensitivity_squared: int
    norm: Norm

    @property
    @abstractmethod
    def rows(self) -> int:
        """p, the number of measured values."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """SHA-256 of everything that is measured: the noise key is bound to it."""

    @property
    def sensitivity(self) -> float:
        """The sensitivity in grid units, for reports; the exact one is its square."""
        return math.sqrt(self.sensitivity_squared)

    def noise(self, budget: Loss) -> Noise:
        """The least whole-scale noise that keeps a release within a budget of the right kind."""
        if self.norm == "l1":
            return Noise("laplace", laplace_scale(math.isqrt(self.sensitivity_squared), budget.pure))
        return Noise("gaussian", gaussian_scale(self.sensitivity_squared, budget.rho))

    def loss(self, budget: Loss, noise: Noise) -> Loss:
        """What the release is charged: its budget, and for Gaussian noise the slack of this grid."""
        if self.norm == "l1":
            return budget
        return Loss.gaussian(budget.rho, gaussian_slack(self.sensitivity_squared, noise.scale, self.rows))


class TableGrid(Grid):
    """Integers measured from one marginal table.

    Attributes:
        axes: the table's attributes, ascending.
    """

    axes: tuple[int, ...]

    @property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        """The attribute sets whose tables are needed."""
        return (self.axes,)

    @abstractmethod
    def measure(self, table: Matrix) -> Matrix:
        """z for an integer table, (rows,) int64, exact."""
