"""Amounts: numbers of a column whose sums are asked for, clamped to a declared range (clipping) and put on a declared grid.

A record is divided between the two ends of the range so that its mean is its amount: at v steps above the lower end of U, it is
U - v shares of a record at the lower end and v shares at the upper one. So counts, sums and means are linear in one table of
whole numbers, of which every record is as many shares wherever they lie (docs/stability.md).

Where squares are asked for, too, a record is divided among six bins, by the quadratic B-splines of four pieces of equal length. They
are never negative, add up to one, and give every polynomial of degree two back from its six values, so that sums of squares are
linear in the table as well (docs/mathematics.md, section 10).

Where the total of a person's amounts is bounded, the ends of the column lie closer together than those of the range: at the average
that a record has at most, or still lower on the other side of zero. An amount beyond an end is divided between the two just the same,
with a negative number of shares at the other end (docs/decisions/0012-amounts.md).

Where filters ask for sums, these are all that a release asks for. Then the column has one bin, in which a record counts as often as it
has steps above zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import InvalidInput

MOST_STEPS = 2**20
"""Steps of a range: with more of them too few bits are left for the strategy."""
ENDS = 2
"""Bins of a column of amounts whose squares nobody asks for: the ends of its range."""
SPLINE_PIECES = 4
"""Pieces of a range whose squares are added up: with more of them the noise falls by less than 0.3 % (docs/mathematics.md)."""
PRESENCE, AMOUNT, DEVIATION, SQUARE = "present", "amount", "deviation", "square"
"""What can be added up of every record: one, its amount, its deviation from the middle of the range, and the square of that."""

FEW = 3
"""Where the bounded total is less than one part in so many of all that k records could have, counts and sums are best measured nearly
apart: the lower end then lies half as far below zero as the upper one lies above it."""


def in_bins(name: str) -> str:
    """What the bins of a column that is added up are called, and how that is said in a spec and in Python: for refusals."""
    return (
        f"'{name}_in_bins', and say under 'records' which column they are of, columns: {{{name}_in_bins: {name}}} (in Python "
        f"plan(..., records={{'columns': {{'{name}_in_bins': '{name}'}}}}))"
    )


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
        squares: whether sums of squares are measured, too.
        alone: whether sums alone are measured, and no numbers of records.

    >>> Amounts(Fraction(0), Fraction("0.01"), 500).steps_of(np.array([0.29, -1.0, 7.0, float("nan")])).tolist()
    [29, 0, 500, -1]
    """

    first: Fraction
    step: Fraction
    steps: int
    low: int = 0
    high: int | None = None
    bound: Bound | None = None
    squares: bool = False
    alone: bool = False

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
        if self.bound is not None and (self.squares or self.alone):
            refusal = "squares are not known" if self.squares else "series of sums are not known"
            raise InvalidInput(
                f"where the total of a person is bounded, {refusal}: leave 'most_per_person' out, or ask for them in a release of its own"
            )
        if self.alone and (self.first < 0 or (self.first / self.step).denominator != 1):
            raise InvalidInput(
                f"where filters add up amounts, 'from' is 0 or a whole number of steps above it, found {float(self.first):g}; change "
                "'from', or count negative amounts as a column of their own"
            )
        if self.squares and self.shares_per_record > MOST_STEPS:
            most_steps = SPLINE_PIECES * math.isqrt(MOST_STEPS // 2)
            raise InvalidInput(
                f"a column whose variance, covariance or correlation is asked for has at most {most_steps:,} steps where "
                f"{SPLINE_PIECES} divides "
                f"their number, half as many where 2 does, else a quarter; found {self.steps:,}: take a larger step"
            )

    @property
    def _units_per_piece(self) -> int:
        """Parts that a piece has, of which every step is a whole number."""
        return self.steps // math.gcd(self.steps, SPLINE_PIECES)

    @property
    def shares_per_record(self) -> int:
        """Into how many shares a record is divided."""
        if self.alone:
            return int(self.upper_end / self.step)
        return 2 * self._units_per_piece**2 if self.squares else self.steps

    @property
    def scale(self) -> float:
        """How many shares are one in an answer: a record's, or where sums alone are measured those of an amount of one."""
        return float(1 / self.step) if self.alone else self.shares_per_record

    @property
    def bins(self) -> int:
        """Among how many bins records are divided."""
        return 1 if self.alone else SPLINE_PIECES + 2 if self.squares else ENDS

    @property
    def upper_end(self) -> Fraction:
        """The upper end."""
        return self.first + self.step * self.steps

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends: what the sum of a record at each is."""
        return float(self.first), float(self.upper_end)

    @property
    def width(self) -> int:
        """Steps from the smallest amount to the largest."""
        return (self.steps if self.high is None else self.high) - self.low

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest amount."""
        return float(self.first + self.step * self.low), float(self.first + self.step * (self.low + self.width))

    @property
    def max_abs_shares(self) -> int:
        """The most shares that a record has at both ends, whatever their signs."""
        return self.shares_per_record if self.bound is None else max(self.steps, 2 * (self.low + self.width) - self.steps)

    def values(self, summand: str) -> NDArray[np.float64]:
        """What a whole record in each bin adds to a sum: the control points of a function of the amount.

        Args:
            summand: ``PRESENCE``, ``AMOUNT``, ``DEVIATION`` or ``SQUARE``.
        """
        if summand == PRESENCE or self.alone:
            return np.ones(self.bins)
        low, high = self.first, self.upper_end
        if not self.squares:
            ends, middle = (low, high), (low + high) / 2
            return np.array([float(end if summand == AMOUNT else end - middle) for end in ends])
        knots = [low + (high - low) * k / SPLINE_PIECES for k in range(SPLINE_PIECES + 1)]
        pairs = list(zip([low, *knots[:-1], high], [low, *knots[1:], high], strict=True))
        if summand == AMOUNT:
            return np.array([float((low_knot + high_knot) / 2) for low_knot, high_knot in pairs])
        middle = (low + high) / 2
        if summand == DEVIATION:
            return np.array([float((low_knot + high_knot) / 2 - middle) for low_knot, high_knot in pairs])
        return np.array([float((low_knot - middle) * (high_knot - middle)) for low_knot, high_knot in pairs])

    def divide_records(self, steps: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first bin that records have shares in, and the shares in this and the following bins, (bins, records).

        Args:
            steps: of every record above the smallest amount.

        >>> [each.tolist() for each in Amounts(Fraction(0), Fraction(1), 8, squares=True).divide_records(np.array([0, 3, 8]))]
        [[0, 1, 3], [[8, 1, 0], [0, 6, 0], [0, 1, 8]]]
        """
        if self.alone:
            return np.zeros(steps.size, dtype=np.int64), int(self.first / self.step) + steps[None, :]
        if not self.squares:
            upper = self.low + steps
            return np.zeros(steps.size, dtype=np.int64), np.array([self.steps - upper, upper])
        whole = self._units_per_piece
        piece_index, offset = np.divmod(steps * (SPLINE_PIECES * whole // self.steps), whole)
        piece_index, offset = (
            np.where(piece_index == SPLINE_PIECES, SPLINE_PIECES - 1, piece_index),
            np.where(piece_index == SPLINE_PIECES, whole, offset),
        )
        rest = whole - offset
        lower_shares = rest**2 * np.where(piece_index == 0, 2, 1)
        upper_shares = offset**2 * np.where(piece_index == SPLINE_PIECES - 1, 2, 1)
        return piece_index, np.array([lower_shares, self.shares_per_record - lower_shares - upper_shares, upper_shares])

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
