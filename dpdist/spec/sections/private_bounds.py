"""Bounds that a part of the budget chooses: ``private`` in place of a number, and how."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from pydantic import Field, model_validator

from dpdist.spec.value_types import Exact, SpecPart

PRIVATE = "private"
"""In place of what a part of the budget finds: a bound, a list of names or of edges."""
SHARE_DESCRIPTION = "the share of the release's budget that this spends, between 0 and 1"


class ShareSpec(SpecPart):
    """What a part of the budget finds."""

    share: Exact = Field(Fraction(1, 10), description=SHARE_DESCRIPTION, examples=[0.1])

    @model_validator(mode="after")
    def _check_share(self) -> ShareSpec:
        if not 0 < self.share < 1:
            raise ValueError("'share' lies between 0 and 1")
        return self


class BoundSelectionSpec(ShareSpec):
    """How the bound of a person with ``most_records: private`` or ``most_groups: private`` is chosen."""

    most: int = Field(
        ge=2,
        le=10**4,
        description="the largest bound that is considered. A person with more records or groups counts for the choice with so many",
        examples=[200],
    )


class RangeSelectionSpec(ShareSpec):
    """How the largest amount of a column with ``to: private`` is chosen, and the smallest one with ``from: private``."""

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


def with_largest_bound(content: Any, key: str, *, example: str) -> Any:
    """A part of a spec in which the largest bound stands in place of ``private`` until one is chosen. Raises: ValueError."""
    private = isinstance(content, dict) and content.get(key) == PRIVATE
    if not private:
        if isinstance(content, dict) and content.get("selection") is not None:
            raise ValueError(f"'selection' chooses a bound: set '{key}: private', or leave it out")
        return content
    if not isinstance(content.get("selection"), dict) or "most" not in content["selection"]:
        raise ValueError(f"'{key}: private' chooses a bound by a part of the budget: add 'selection: {example}'")
    return {**content, key: content["selection"]["most"]}
