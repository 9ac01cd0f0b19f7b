"""What the bounds of a release leave out, estimated from noisy numbers (``dpdist.privacy.beyond``) with 95 % intervals.

What is beyond a bound is a sum over the rungs of a ladder, and its noise grows with their ends. It is added up to the last rung from
which on anybody is seen, and said of whoever is beyond by no more than that. What holds for the file is bounded from below by this sum
and from above by that over all rungs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpdist.operators import Matrix
from dpdist.quantities.intervals import fieller, interval_within
from dpdist.quantities.left_out import Share

SEEN = 4.0
"""Standard errors above zero from which on anybody is seen on a ladder. At 2, noise takes late rungs for occupied in one draw of ten, and
intervals of what it chose hold in 88 to 94 of 100 cases in place of 94 to 96 (docs/decisions/0042-left-out.md)."""
WIDEST = 1 / 3
"""An estimate for all records is said where its interval goes up by at most so much of the records that count."""


@dataclass(frozen=True)
class IntervalEstimate:
    """A number with a 95 % interval."""

    value: float
    low: float
    high: float

    def facts(self) -> dict[str, float]:
        """For a certificate."""
        return {"estimate": round(self.value, 4), "low_95": round(self.low, 4), "high_95": round(self.high, 4)}


@dataclass(frozen=True)
class Ladder:
    """Noisy sums of what lies on each rung.

    Attributes:
        ends: of the rungs.
        sums: noisy, in the unit of the ends.
        deviation: of the noise in the sum of a rung over its end: in units that lie on it.
    """

    ends: Matrix
    sums: Matrix
    deviation: float

    @cached_property
    def reached(self) -> int:
        """The last rung from which on anybody is seen."""
        beyond = np.cumsum((self.sums / self.ends)[::-1])[::-1]
        return int(np.flatnonzero(beyond > SEEN * self.deviation * np.sqrt(np.arange(beyond.size, 0, -1))).max(initial=0))

    @property
    def up_to(self) -> float:
        """The end of the last rung that is added up."""
        return float(self.ends[self.reached])

    @property
    def weights(self) -> Matrix:
        """Which sums are added up."""
        return (np.arange(self.ends.size) <= self.reached).astype(np.float64)

    def total(self, width: float, *, whole: bool = False) -> IntervalEstimate:
        """What is beyond, up to the last rung that is seen, or on the whole ladder."""
        weights = np.ones(self.ends.size) if whole else self.weights
        value, error = float(weights @ self.sums), float(np.linalg.norm(weights * self.ends)) * self.deviation
        return IntervalEstimate(value, value - width * error, value + width * error)


@dataclass(frozen=True)
class NoisyBeyond:
    """Noisy numbers of one block: three before its ladders, of which the last is a sum of parts of a bound, or a number of records.

    Attributes:
        head: in persons and records.
        deviations: of the noise in the head.
        ladders: what lies beyond; of amounts above the range and below it.
        width: half width of a 95 % interval, in standard errors.
    """

    head: Matrix
    deviations: Matrix
    ladders: tuple[Ladder, ...]
    width: float

    def share(self, *places: int, of: tuple[int, ...]) -> Share:
        """Some numbers of the head as a share of some."""
        rows = np.array([np.isin(np.arange(self.head.size), each) for each in (places, of)], dtype=np.float64)
        return _share(rows @ self.head, rows @ np.diag(self.deviations**2) @ rows.T, self.width)

    def persons(self) -> dict[str, Any]:
        """What is said of persons: who has more than counts, which share of records that is, and how many records there are in all."""
        (ladder,) = self.ladders
        lost, counted = ladder.total(self.width), float(self.head[2])
        errors = (ladder.weights * ladder.ends * ladder.deviation, self.deviations[2])
        above, below = float(errors[0] @ errors[0]), float(errors[1]) ** 2
        records = _share(
            np.array([lost.value, lost.value + counted]),
            np.array([[above, above], [above, above + below]]),
            self.width,
        )
        everything = self._all_records(counted)
        found = {"beyond": self.share(1, of=(0, 1)).facts(), "records": records.facts(), "up_to": int(ladder.up_to)}
        return found if everything is None else {**found, "all_records": everything.facts()}

    def _all_records(self, counted: float) -> IntervalEstimate | None:
        """The number of all records of the file, None where little is known of it."""
        (ladder,), own = self.ladders, self.width * float(self.deviations[2])
        seen, whole = ladder.total(self.width), ladder.total(self.width, whole=True)
        if (
            whole.high - whole.value > WIDEST * counted
        ):  # decided by what has little noise: else intervals would be chosen by theirs
            return None
        value = counted + seen.value
        low = value - math.hypot(seen.value - seen.low, own)
        return IntervalEstimate(value, low, max(value, counted + whole.value) + math.hypot(whole.high - whole.value, own))

    def amounts(self, unit: float) -> dict[str, Any]:
        """What is said of a column: the shares of amounts above and below its range, and what these add to the sum of all.

        Args:
            unit: of the ladders, in that of the amounts.
        """
        above, below = (side.total(self.width) for side in self.ladders)
        spread = math.hypot(above.high - above.value, below.high - below.value)
        value = above.value - below.value
        return {
            "outside": self.share(1, 2, of=(0, 1, 2)).facts(),
            "above": self.share(1, of=(0, 1, 2)).facts(),
            "below": self.share(2, of=(0, 1, 2)).facts(),
            "excess": IntervalEstimate(value * unit, (value - spread) * unit, (value + spread) * unit).facts(),
            "up_to": [self.ladders[0].up_to * unit, self.ladders[1].up_to * unit],
        }


def _share(values: Matrix, covariance: Matrix, width: float) -> Share:
    """A ratio of two estimates."""
    if values[1] <= 0.0:
        return Share(0.5, 0.0, 1.0)
    ratio, interval = float(values[0] / values[1]), fieller(values, covariance, width)
    if interval is None:
        return Share(min(max(ratio, 0.0), 1.0), 0.0, 1.0)
    return Share(*interval_within(ratio, interval, (0.0, 1.0)))


def of_block(
    values: Matrix, deviation: float, scales: tuple[float, float, float], ends: Matrix, ladder: float, width: float
) -> NoisyBeyond:
    """A block of noisy numbers in units, read.

    Args:
        deviation: of the noise, units.
        scales: units of each number of the head.
        ends: of the rungs of each ladder.
        ladder: units of one that lies on the end of a rung.
    """
    head, rest = values[: len(scales)] / np.array(scales), values[len(scales) :].reshape(-1, ends.size)
    ladders = tuple(Ladder(ends, each / ladder * ends, deviation / ladder) for each in rest)
    return NoisyBeyond(head, deviation / np.array(scales), ladders, width)
