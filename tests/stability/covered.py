"""Whether the noise of a plan covers how far neighbouring files moved what is measured."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from dpdist.measurement.integer_measurement import Norm
from dpdist.planner.release_kinds import ReleasePlan


def squared_length(change: np.ndarray, norm: Norm) -> int:
    """The square of the length of a change of what is measured, (rows,) whole numbers of any size."""
    return int(np.abs(change).sum()) ** 2 if norm == "l1" else int((change**2).sum())


def covered(planned: ReleasePlan, squared: int) -> bool:
    """Whether a change of this squared length is no more than the grid declares, and the noise for that no more than is charged."""
    grid, noise, loss = planned.measurement, planned.noise, planned.loss
    if squared > grid.sensitivity_squared:
        return False
    if grid.norm == "l1":
        return Fraction(math.isqrt(grid.sensitivity_squared - 1) + 1, noise.scale) <= loss.pure
    return Fraction(grid.sensitivity_squared, 2 * noise.scale**2) <= loss.rho
