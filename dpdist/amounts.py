"""Amounts: numbers of a column whose sums are asked for, clamped to a declared range and put on a declared grid.

A record is divided between the two ends of the range so that its mean is its amount: at v steps above the lower end of U, it is
U - v shares of a record at the lower end and v shares at the upper one. So counts, sums and means are linear in one table of
whole numbers, of which every record is U shares wherever they lie (docs/stability.md).

Where the total of a person's amounts is bounded, the ends of the column lie closer together than those of the range: at the average
that a record has at most, or still lower on the other side of zero. An amount beyond an end is divided between the two just the same,
with a negative number of shares at the other end (docs/decisions/0015).
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


FEW = 3
"""Where the bounded total is less than one part in so many of all that k records could have, counts and sums are best measured nearly
apart: the lower end then lies half as far below zero as the upper one lies above it."""


@dataclass(frozen=True)
class Bound:
    """What counting leaves of a person: so many records, and amounts of so many times the range in all."""

    records: int
    times: int


@dataclass(frozen=True)
class Amounts:
    """The range and the grid of a column of amounts.

    Attributes:
        first: the lower end.
        step: between two values of the grid.
        steps: U, from the lower end to the upper one.
        low: steps from the lower end to the smallest amount.
        high: steps from the lower end to the largest amount; None: to the upper end.
        bound: on the total of each person.

    >>> Amounts(Fraction(0), Fraction("0.01"), 500).steps_of(np.array([0.29, -1.0, 7.0, float("nan")])).tolist()
    [29, 0, 500, -1]
    """

    first: Fraction
    step: Fraction
    steps: int
    low: int = 0
    high: int | None = None
    bound: Bound | None = None

    @staticmethod
    def of_persons(step: Fraction, steps: int, bound: Bound) -> Amounts:
        """Amounts from zero to so many steps, of which no person has more in all than the bound allows.

        >>> Amounts.of_persons(Fraction(1), 100, Bound(records=4, times=2)).ends
        (0.0, 50.0)
        >>> Amounts.of_persons(Fraction(1), 100, Bound(records=10, times=1)).ends
        (-5.0, 10.0)
        """
        end = -(-steps * bound.times // bound.records)
        below = -(-end // 2) if FEW * bound.times < bound.records else 0
        return Amounts(-below * step, step, end + below, below, below + steps, bound)

    def __post_init__(self) -> None:
        if self.step <= 0 or not 1 <= max(self.steps, self.width) <= MOST_STEPS:
            raise InvalidInput(
                f"a range of amounts has 1 to {MOST_STEPS:,} steps, found {self.steps:,} steps of {float(self.step):g}; take a larger "
                "step or a smaller range"
            )
        if self.bound is not None and not 1 <= self.bound.times < self.bound.records < 2**20:
            raise InvalidInput(
                f"the total of a person is bounded by less than what {self.bound.records:,} records can have, found {self.bound.times:,} "
                "times the largest amount; raise 'most_records' (below 1,048,576), or leave 'most_per_person' out"
            )

    @property
    def last(self) -> Fraction:
        """The upper end."""
        return self.first + self.step * self.steps

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends: what the sum of a record at each is."""
        return float(self.first), float(self.last)

    @property
    def width(self) -> int:
        """Steps from the smallest amount to the largest."""
        return (self.steps if self.high is None else self.high) - self.low

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest amount."""
        return float(self.first + self.step * self.low), float(self.first + self.step * (self.low + self.width))

    @property
    def reach(self) -> int:
        """The most shares that a record has at both ends, whatever their signs."""
        return max(self.steps, 2 * (self.low + self.width) - self.steps)

    @property
    def weighed_as(self) -> float:
        """The amount whose error weighs as much as an error of one record: the largest one, or the largest average of a person."""
        return max(map(abs, self.ends))

    def steps_of(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """For every number how many steps above the smallest amount it is counted, int64; -1 where it is missing.

        The nearest step, of two the even one: a function of the number alone, whatever other numbers there are.

        Args:
            values: numbers, NaN where missing.
        """
        numbers = values.astype(np.float64)
        missing = np.isnan(numbers)
        low, high = self.range
        inside = np.clip(np.where(missing, low, numbers), low, high)
        steps = np.rint((inside - low) * self.step.denominator / self.step.numerator).astype(np.int64)
        return np.where(missing, -1, np.clip(steps, 0, self.width))
