"""Amounts: numbers of a column whose sums are asked for, clamped to a declared range and put on a declared grid.

A record is divided between the two ends of the range so that its mean is its amount: at v steps above the lower end of U, it is
U - v shares of a record at the lower end and v shares at the upper one. So counts, sums and means are linear in one table of
whole numbers, of which every record is U shares wherever they lie (docs/stability.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import InvalidInput

MOST_STEPS = 2**20
"""Steps of a range: with more of them too few bits are left for the strategy."""
ENDS = 2
"""Bins of a column of amounts: the ends of its range."""


@dataclass(frozen=True)
class Amounts:
    """The range and the grid of a column of amounts.

    Attributes:
        first: the lower end.
        step: between two values of the grid.
        steps: U, from the lower end to the upper one.

    >>> Amounts(Fraction(0), Fraction("0.01"), 500).steps_of(np.array([0.29, -1.0, 7.0, float("nan")])).tolist()
    [29, 0, 500, -1]
    """

    first: Fraction
    step: Fraction
    steps: int

    def __post_init__(self) -> None:
        if self.step <= 0 or not 1 <= self.steps <= MOST_STEPS:
            raise InvalidInput(
                f"a range of amounts has 1 to {MOST_STEPS:,} steps, found {self.steps:,} steps of {float(self.step):g}; take a larger "
                "step or a smaller range"
            )

    @property
    def last(self) -> Fraction:
        """The upper end."""
        return self.first + self.step * self.steps

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends: what the sum of a record at each is."""
        return float(self.first), float(self.last)

    def steps_of(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """For every number how many steps above the lower end it is counted, int64; -1 where it is missing.

        The nearest step, of two the even one: a function of the number alone, whatever other numbers there are.

        Args:
            values: numbers, NaN where missing.
        """
        numbers = values.astype(np.float64)
        missing = np.isnan(numbers)
        low, high = self.ends
        inside = np.clip(np.where(missing, low, numbers), low, high)
        steps = np.rint((inside - low) * self.step.denominator / self.step.numerator).astype(np.int64)
        return np.where(missing, -1, np.clip(steps, 0, self.steps))
