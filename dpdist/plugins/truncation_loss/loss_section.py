"""The section ``left_out`` of a spec."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

from pydantic import Field

from dpdist.api.steps import SHARE_DESCRIPTION, Exact, PluginSection, ShareSpec


class LeftOutSpec(ShareSpec, PluginSection):
    """How it is measured what the bounds of a release leave out."""

    about: ClassVar[str] = (
        "publishes, from a part of the budget, what the declared bounds leave out: the share of persons who have more records than count "
        "and of records that do not count, and of amounts outside their range, with 95 % intervals. {} takes the defaults. Without it the "
        "page says that it is not known"
    )
    example: ClassVar[object] = {"share": 0.05, "most": 1000}
    steps: ClassVar[tuple[str, ...]] = ("dpdist.plugins.truncation_loss.loss_step:TruncationLossMeasurement",)

    share: Exact = Field(Fraction(1, 20), description=SHARE_DESCRIPTION, examples=[0.05])
    most: int = Field(
        1000,
        ge=1,
        le=10**6,
        description="the largest number of records beyond the bounds that is measured. A person with more counts as one with so many. The "
        "upper end of the interval for all records grows with it",
        examples=[1000],
    )
