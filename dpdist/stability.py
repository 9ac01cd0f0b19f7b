"""How far a change of the files can move what is computed from them, step by step (docs/stability.md).

Every step between the files and the integers that are measured declares how far its output can move, given how far its input
can move: ``privacy.privacy_unit.Protection.distance`` (files to counts) and ``statistics.statistic.Quantity.stability`` (counts to what
is made of them). The measurement turns the last distance into an exact squared sensitivity, which decides
the noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Neighbours = Literal["add-remove", "replace-one"]


@dataclass(frozen=True)
class Distance:
    """How far apart two tables of counts may be.

    Attributes:
        records: so many records enter or leave cells, one count up or down by one each.
        replaced: whether each of them may also leave one cell and enter another.
        groups: in up to so many different cells up to ``records`` records each.
        participations, separation: or in up to so many steps of a series, any two of which are so many steps apart, up to ``records``
            records each; None: all of them may lie in one step.
        signed: whether what a record adds may also lower a count, as the sum of an amount below zero does.

    >>> Distance(2, replaced=True).length
    4
    >>> Distance(1, replaced=False, groups=3).length
    3
    >>> Distance(1, replaced=True, participations=4, separation=7).length
    8
    """

    records: int
    replaced: bool
    groups: int = 1
    participations: int | None = None
    separation: int = 1
    signed: bool = False

    @property
    def length(self) -> int:
        """The largest sum of absolute differences between the counts."""
        return self.groups * (self.participations or 1) * self.records * (2 if self.replaced else 1)

    @property
    def neighbours(self) -> Neighbours:
        """The relation of histograms for which a grid knows its sensitivity."""
        return "replace-one" if self.replaced else "add-remove"


ONE_RECORD = Distance(1, replaced=False)
"""One record enters or leaves."""
