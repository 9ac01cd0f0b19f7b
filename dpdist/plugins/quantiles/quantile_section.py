"""The section ``quantiles`` of a spec."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar

from pydantic import Field, model_validator

from dpdist.api.steps import SHARE_DESCRIPTION, ColumnSpec, Exact, PluginSection, ShareSpec

LARGEST_DENOMINATOR = 1000
"""The largest denominator of a quantile's share."""


class QuantilesSpec(ShareSpec, PluginSection):
    """Quantiles and medians of columns of amounts, by group: a part of the budget chooses each from all values of its range."""

    about: ClassVar[str] = (
        "publishes, from a part of the budget, quantiles of columns by group with 95 % intervals: chosen from all values of a "
        "declared range by the exponential mechanism, without bins. The queries of 'workload' are answered with the rest"
    )
    example: ClassVar[object] = {"of": {"age": {"from": 0, "to": 120}}, "by": ["region"], "at": [0.5]}
    steps: ClassVar[tuple[str, ...]] = ("dpdist.plugins.quantiles.quantile_step:QuantileChoice",)

    share: Exact = Field(Fraction(1, 2), description=SHARE_DESCRIPTION, examples=[0.5])
    of: dict[str, ColumnSpec] = Field(
        min_length=1,
        description="the columns, each with its range as under `sums`. The error hardly grows with the range: it may be far too wide",
        examples=[{"age": {"from": 0, "to": 120}}],
    )
    by: tuple[str, ...] = Field(
        (), description="the quantiles of each combination of these attributes' values", examples=[["region"]]
    )
    at: tuple[Exact, ...] = Field(
        (Fraction(1, 2),),
        min_length=1,
        max_length=99,
        description="which quantiles, in rising order: at 0.9 the smallest value up to which nine tenths of the group's records lie",
        examples=[[0.25, 0.5, 0.75]],
    )

    @model_validator(mode="after")
    def _in_order(self) -> QuantilesSpec:
        if not all(0 < probability < 1 and probability.denominator <= LARGEST_DENOMINATOR for probability in self.at):
            raise ValueError(f"'at' holds shares between 0 and 1, of denominators up to {LARGEST_DENOMINATOR:,}")
        if list(self.at) != sorted(set(self.at)):
            raise ValueError("'at' holds different shares in rising order")
        if len(set(self.by)) < len(self.by):
            raise ValueError("'by' names an attribute twice: name each once")
        return self

    @property
    def uncounted_columns(self) -> Mapping[str, ColumnSpec]:
        return self.of
