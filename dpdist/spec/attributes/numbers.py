"""Attributes of numbers: whole numbers, or bins by their edges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from dpdist.domain import Attribute, even_edges
from dpdist.size_limits import SIZES, Sizes
from dpdist.spec.attributes.attribute_kind import LISTED_VALUES, Numeric, Values
from dpdist.spec.sections.private_bounds import PRIVATE
from dpdist.spec.value_types import DayOrTime

WHOLE = 2**53
"""Whole numbers beyond are not exact as floating-point numbers."""


class Numbers(Numeric):
    """Whole numbers, each by itself or several in a bin."""

    first: int = Field(
        alias="from",
        description="the smallest whole number. A fraction is counted at the whole number below it",
        examples=[0],
    )
    last: int = Field(alias="to", description="the largest whole number, included", examples=[99])
    width: int = Field(1, ge=1, description="with 'from' and 'to': how many whole numbers each bin holds", examples=[10])

    @classmethod
    def label(cls) -> str:
        return "'from' with 'to'"

    @classmethod
    def is_meant(cls, content: Mapping[str, Any]) -> bool:
        return "from" in content or "to" in content

    @model_validator(mode="after")
    def _in_order(self) -> Numbers:
        if self.last < self.first:
            raise ValueError("'from' and 'to' must be given with from <= to")
        if any(abs(value) > WHOLE for value in (self.first, self.last, self.width)):
            raise ValueError(
                f"whole numbers lie between -{WHOLE:,} and {WHOLE:,}: larger ones are not exact as floating-point numbers"
            )
        return self

    @property
    def count(self) -> int:
        """Bins."""
        return -(-(self.last - self.first + 1) // self.width)

    def bins(self, name: str, sizes: Sizes = SIZES, **other_options: Any) -> Attribute:
        edges = even_edges(self.first, self.width, self.count, sizes)
        return Attribute(name, edges=edges, labels=self.labels, **other_options)

    def words(self) -> str:
        last_counted = self.first + self.width * self.count - 1  # the last bin is as wide as the others
        span = f"whole numbers from {self.first} to {last_counted}"
        return span if self.width == 1 else f"{span}, {self.width} in each bin"

    def steps(self, outside: str, ends: str) -> str:
        step_text = "every number" if self.width == 1 else f"every {self.width} numbers from {self.first % self.width}"
        return f"{step_text}{ends}"

    def with_end(self, end: int | DayOrTime) -> Values:
        if not isinstance(end, int):
            return super().with_end(end)
        earlier = self.model_copy(update={"last": end})
        return earlier.model_copy(update={"labels": self.labels[: earlier.count]})

    @property
    def begin(self) -> int:
        return self.first


class Edges(Numeric):
    """Numbers in bins with edges."""

    edges: tuple[float, ...] = Field(
        description="the edges of the bins of a numeric attribute. A bin holds its lower edge and not its upper edge. Or 'private': edges "
        "between which about as many records lie are chosen from the records, as 'selection' says",
        examples=[[0, 18, 35, 65, 100]],
    )

    @classmethod
    def is_meant(cls, content: Mapping[str, Any]) -> bool:
        return bool(content.get("edges", PRIVATE) != PRIVATE)

    def bins(self, name: str, sizes: Sizes = SIZES, **other_options: Any) -> Attribute:
        return Attribute(name, edges=self.edges, labels=self.labels, **other_options)

    def words(self) -> str:
        shown, count = ", ".join(f"{edge:g}" for edge in self.edges[: LISTED_VALUES + 1]), len(self.edges) - 1
        remainder_text = f" and {count - LISTED_VALUES:,} more" if count > LISTED_VALUES else ""
        return f"{count:,} bins with edges {shown}{remainder_text}; a bin holds its lower edge and not its upper one"

    def steps(self, outside: str, ends: str) -> str:
        return f"steps between {', '.join(f'{edge!r}' for edge in self.edges)}, {outside},"
