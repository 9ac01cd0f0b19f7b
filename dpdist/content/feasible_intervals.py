"""Where the true answers can lie at all, whatever the records: 95 % intervals are cut there.

A count is not negative. A cut interval holds the true answer whenever the uncut one does, so that it covers as often, and is shorter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpdist.operators import Matrix
from dpdist.privacy.noise_distributions import NORMAL_95
from dpdist.workloads import Block

Ends = tuple[float, float]
"""The least and the largest that the answers of a group can truly be."""
ANYWHERE: Ends = (-math.inf, math.inf)


@dataclass(frozen=True)
class CellConstraints:
    """What is known of the true counts of the cells.

    Attributes:
        non_negative: whether no cell can hold less than nothing.
        records: how many records all cells hold together, where that is public; None where it is not.
    """

    non_negative: bool = True
    records: float | None = None

    @staticmethod
    def of(certificate: Mapping[str, Any]) -> CellConstraints:
        """What a certificate says; nothing is known where it says nothing."""
        possible_facts = certificate.get("confidence", {}).get("possible")
        return CellConstraints(False) if possible_facts is None else CellConstraints(records=possible_facts["records"])

    def facts(self) -> dict[str, Any]:
        """What a certificate says."""
        return {"possible": {"least": 0, "records": self.records}} if self.non_negative else {}

    def ends(self, entries: tuple[float, float]) -> Ends:
        """The ends for queries whose entries lie in a range.

        >>> CellConstraints().ends((0.0, 1.0)), CellConstraints(records=50).ends((-1.0, 2.0)), CellConstraints().ends((-1.0, 2.0))
        ((0.0, inf), (-50.0, 100.0), (-inf, inf))
        """
        lowest, largest = entries
        if not self.non_negative:
            return ANYWHERE
        if self.records is not None:
            return self.records * lowest, self.records * largest
        return 0.0 if lowest >= 0 else -math.inf, 0.0 if largest <= 0 else math.inf

    def of_block(self, block: Block) -> Ends:
        """The ends for a group of queries."""
        return self.ends(block.entry_range) if self.non_negative else ANYWHERE


def interval(answers: Matrix | float, half: Matrix | float, ends: Sequence[float] = ANYWHERE) -> tuple[Matrix, Matrix]:
    """Both ends of 95 % intervals, cut at what is possible; NaN where none is known."""
    lowest, largest = ends
    low, high = (np.clip(answers + sign * half, lowest, largest) for sign in (-1, 1))
    return low, high


def half_width(answer: float, error: float, low: float | None, high: float | None) -> float:
    """The half width of an interval before it was cut; NaN where none is known, or the interval has no lower end. At most one side of a
    count's interval is cut where the number of records is not public, and the other one tells; an interval is never shorter than that of
    normal noise.

    >>> half_width(3.0, 4.0, 0.0, 10.84), half_width(3.0, 4.0, None, None), half_width(3.0, 4.0, -math.inf, 10.84)
    (7.84, nan, nan)
    """
    if low is None or high is None or not math.isfinite(high - low):
        return math.nan
    return max(high - answer, answer - low, NORMAL_95 * error)
