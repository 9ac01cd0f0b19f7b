"""Bounds that a part of the budget chooses: ``private`` in place of a number, and how."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from typing import Any

from pydantic import Field, model_validator

from dpdist.plugin_registry import require_plugin
from dpdist.spec.sections.plugin_sections import PluginSection
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


class RangeSelection(PluginSection):
    """How the range of a column with ``to: private`` is chosen."""

    @abstractmethod
    def check_ends(self, first: Fraction, last: Fraction, step: Fraction, *, total: bool) -> None:
        """Raises: ValueError for a column whose range it cannot choose.

        Args:
            first, last: the widest range.
            total: whether the total of a person is bounded.
        """


def with_largest_bound(content: Any, key: str, *, example: str) -> Any:
    """A part of a spec in which the largest bound stands in place of ``private`` until one is chosen. Raises: ValueError."""
    private = isinstance(content, dict) and content.get(key) == PRIVATE
    if not private:
        if isinstance(content, dict) and content.get("selection") is not None:
            raise ValueError(f"'selection' chooses a bound: set '{key}: private', or leave it out")
        return content
    require_plugin("bounds.private")
    if not isinstance(content.get("selection"), dict) or "most" not in content["selection"]:
        raise ValueError(f"'{key}: private' chooses a bound by a part of the budget: add 'selection: {example}'")
    return {**content, key: content["selection"]["most"]}
