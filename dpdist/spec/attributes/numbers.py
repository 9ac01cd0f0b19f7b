"""Whole numbers from one to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field, model_validator

from dpdist.domain import Attribute, even_edges
from dpdist.records.columns import Column
from dpdist.sizes import SIZES, Sizes
from dpdist.spec.attributes.base import Numeric, Values
from dpdist.spec.values import DayOrTime

WHOLE = 2**53
"""Whole numbers beyond are not exact as floating-point numbers."""
MOST_WHOLE = 200
"""Whole numbers that a public column is counted one by one."""


class Numbers(Numeric):
    """Whole numbers, each by itself or several in a bin."""

    to_declare: ClassVar[tuple[str, ...]] = ("from: SMALLEST           # whole numbers", "to: LARGEST")

    first: int = Field(
        alias="from",
        description="the smallest whole number. A fraction is counted at the whole number below it",
        examples=[0],
    )
    last: int = Field(alias="to", description="the largest whole number, included", examples=[99])
    width: int = Field(1, ge=1, description="with 'from' and 'to': how many whole numbers each bin holds", examples=[10])

    @classmethod
    def named(cls) -> str:
        return "'from' with 'to'"

    @classmethod
    def is_meant(cls, given: Mapping[str, Any]) -> bool:
        return "from" in given or "to" in given

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

    def bins(self, name: str, sizes: Sizes = SIZES, **others: Any) -> Attribute:
        edges = even_edges(self.first, self.width, self.count, sizes)
        return Attribute(name, edges=edges, labels=self.labels, **others)

    def words(self) -> str:
        span = f"whole numbers from {self.first} to {self.last}"
        return span if self.width == 1 else f"{span}, {self.width} in each bin"

    @classmethod
    def outline(cls, column: Column) -> Sequence[str]:
        if column.kind != "whole":
            return ()
        if column.values:
            low, high = column.values
            return (f"from: {low}", f"to: {high}") if high - low < MOST_WHOLE else ()
        return "from: SMALLEST", "to: LARGEST", "outside: clip            # values beyond count at the nearest one"

    def steps(self, outside: str, ends: str) -> str:
        how = "every number" if self.width == 1 else f"every {self.width} numbers from {self.first % self.width}"
        return f"{how}{ends}"

    def until(self, end: int | DayOrTime) -> Values:
        if not isinstance(end, int):
            return super().until(end)
        earlier = self.model_copy(update={"last": end})
        return earlier.model_copy(update={"labels": self.labels[: earlier.count]})

    @property
    def begin(self) -> int:
        return self.first
