"""What the bounds of a release leave out, as whole numbers with exact noise: persons and records beyond them, amounts outside a range.

A person adds one to the persons with or without records beyond, the share of their bound that they use, and two times the share of one
rung of a ladder that they are beyond; each record that counts adds so to one of its column of amounts. So a person is bounded whatever
they did (docs/stability.md), and what lies beyond is added up and not only counted by bins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.api import InvalidInput
from dpdist.api.steps import GAUSSIAN, Loss, Neighbours, Noise, noise_for

UNIT = 2**24
"""A person: the integer grid then adds less than 1e-7 of rho to a Gaussian (``gaussian_slack``)."""
MOST_RECORDS = 2**12
"""Records of one person that count, where amounts are bounded: each is then at least so many units."""
FINEST, LARGEST = 16, 2**11
"""Amounts outside are told in sixteenths of their range, up to 128 times of it."""
HEAD = 3
"""Numbers before a ladder: persons without and with records beyond and records that count; or amounts inside, above and below."""

Counts = NDArray[np.int64]


def size_bin_ends(largest_size: int) -> Counts:
    """Ends of the rungs: 1, 2, 4, ... and the most.

    >>> size_bin_ends(10).tolist()
    [1, 2, 4, 8, 10]
    """
    return np.append(2 ** np.arange((largest_size - 1).bit_length()), largest_size).astype(np.int64)


@dataclass(frozen=True)
class NoisyBoundLoss:
    """How what lies beyond the bounds is added up.

    Attributes:
        most_lost_records: records beyond the bounds that are told of one person; None where no persons are distinguished.
        records: of one person that count at most.
        columns: of amounts.
        noise: in units.
        loss: what it reveals of one change.
    """

    most_lost_records: int | None
    records: int
    columns: tuple[str, ...]
    noise: Noise
    loss: Loss

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many numbers there are of persons, if they are told apart, and of each column."""
        persons = [] if self.most_lost_records is None else [HEAD + size_bin_ends(self.most_lost_records).size]
        return (*persons, *[HEAD + 2 * size_bin_ends(LARGEST).size] * len(self.columns))

    @property
    def record(self) -> int:
        """The units of one record of a column of amounts."""
        return UNIT // self.records

    @property
    def squared(self) -> int:
        """What one person moves at most, squared."""
        return (0 if self.most_lost_records is None else 6 * UNIT**2) + len(self.columns) * 5 * (
            self.records * self.record
        ) ** 2

    @property
    def absolute(self) -> int:
        """What one person moves at most, all numbers together."""
        return (0 if self.most_lost_records is None else 4 * UNIT) + len(self.columns) * 3 * self.records * self.record

    def person_totals(self, counted: Counts, lost: Counts) -> Counts:
        """Numbers of persons.

        Args:
            counted: records of each person that count.
            lost: records of each person beyond the bounds.
        """
        assert self.most_lost_records is not None
        is_beyond_bound, used_units = lost > 0, UNIT * counted // self.records
        head = [UNIT * int((~is_beyond_bound).sum()), UNIT * int(is_beyond_bound.sum()), int(used_units.sum())]
        ends, size = size_bin_ends(self.most_lost_records), np.minimum(lost[is_beyond_bound], self.most_lost_records)
        return np.append(head, _add_by_bin(ends, size, lambda end: 2 * UNIT * size // end)).astype(np.int64)

    def amount_totals(self, excess: NDArray[np.float64]) -> Counts:
        """Numbers of one column.

        Args:
            excess: of every record that counts and has an amount, in ``FINEST`` parts of the range: 0 within it, below it negative.
        """
        head = [self.record * int(mask.sum()) for mask in (excess == 0, excess > 0, excess < 0)]
        sides = [np.minimum(side_excess[side_excess > 0], LARGEST) for side_excess in (excess, -excess)]
        rungs = [_add_by_bin(size_bin_ends(LARGEST), size, partial(self._units_in_bin, size)) for size in sides]
        return np.concatenate([head, *rungs]).astype(np.int64)

    def _units_in_bin(self, size: NDArray[np.float64], end: Counts) -> Counts:
        return np.minimum(np.floor(2 * self.record * size / end), 2 * self.record).astype(np.int64)

    def noisy(self, values: Counts, draw: Callable[[int], Counts]) -> Counts:
        """The numbers with noise, in units.

        Args:
            draw: so many samples of the noise.
        """
        return values + draw(values.size)


def _add_by_bin(ends: Counts, size: NDArray[Any], units_in_bin: Callable[[Counts], Counts]) -> Counts:
    """Parts of the rungs that sizes lie on, added up by rung."""
    rung, totals = np.searchsorted(ends, size), np.zeros(ends.size, dtype=np.int64)
    np.add.at(totals, rung, units_in_bin(ends[rung]))
    return totals


def calibrate_bound_loss(
    most_lost_records: int | None, records: int, columns: tuple[str, ...], budget: Loss, neighbours: Neighbours
) -> NoisyBoundLoss:
    """What lies beyond the bounds, with the noise that a budget buys.

    Args:
        budget: a rho (Gaussian noise) or a pure epsilon (Laplace noise).
    Raises: InvalidInput when the noise would be too large, or a person has too many records for amounts.
    """
    if columns and records > MOST_RECORDS:
        raise InvalidInput(
            f"'left_out' of amounts knows persons with up to {MOST_RECORDS:,} records that count, found {records:,}: leave it out"
        )
    uncalibrated = NoisyBoundLoss(most_lost_records, records, columns, Noise(GAUSSIAN, 1), budget)
    times = 2 if neighbours == "replace-one" else 1
    noise, loss = noise_for(
        budget, times * uncalibrated.absolute, times * uncalibrated.squared, sum(uncalibrated.sizes), "'left_out'"
    )
    return NoisyBoundLoss(most_lost_records, records, columns, noise, loss)
