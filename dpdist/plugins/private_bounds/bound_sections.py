"""The sections ``selection`` of a spec: how a bound is chosen that is ``private``."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

from pydantic import Field

from dpdist.api.steps import Exact, PluginSection, RangeSelection, ShareSpec

MODULE = "dpdist.plugins.private_bounds.bound_selection"


class BoundSelectionSpec(ShareSpec, PluginSection):
    """How the bound of a person with ``most_records: private`` or ``most_groups: private`` is chosen."""

    about: ClassVar[str] = (
        "with 'most_records: private' or 'most_groups: private': how the bound is chosen, and by which part of the budget"
    )
    example: ClassVar[object] = {"share": 0.1, "most": 200}
    steps: ClassVar[tuple[str, ...]] = (f"{MODULE}:RecordsChoice", f"{MODULE}:GroupsChoice")

    most: int = Field(
        ge=2,
        le=10**4,
        description="the largest bound that is considered. A person with more records or groups counts for the choice with so many",
        examples=[200],
    )


class RangeSelectionSpec(ShareSpec, RangeSelection):
    """How the largest amount of a column with ``to: private`` is chosen, and the smallest one with ``from: private``."""

    about: ClassVar[str] = "with 'to: private': how the largest amount is chosen, and by which part of the budget"
    example: ClassVar[object] = {"share": 0.1, "most": 10000}
    steps: ClassVar[tuple[str, ...]] = (f"{MODULE}:RangeChoice",)

    least: Exact | None = Field(
        None,
        description="with 'from: private': the smallest amount that is considered, beneath zero. Smaller ones count as this one for the "
        "choice",
        examples=[-1000],
    )
    most: Exact = Field(
        description="the largest amount that is considered, a whole number of steps. Larger amounts count as this one for the choice",
        examples=[10000],
    )

    def check_ends(self, first: Fraction, last: Fraction, step: Fraction, *, total: bool) -> None:
        if first != (self.least or 0) or total:
            raise ValueError(
                "'to: private' chooses a range around zero, and goes without 'most_per_person': set 'from: 0', or 'from: private' where "
                "amounts may be negative"
            )
        if self.least is not None and (not first < 0 < last or any((end / step).denominator != 1 for end in (first, last))):
            raise ValueError(
                "'least' and 'most' are whole numbers of steps beneath and above zero: the noise of a sum is that of the end that is "
                "farther from zero, so that a lower end above zero would save none"
            )
