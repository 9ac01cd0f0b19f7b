"""Attributes of numbers: whole numbers, or bins by their edges."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field, model_validator

from dpdist.domain import Attribute, even_edges
from dpdist.size_limits import SIZES, Sizes
from dpdist.sources.column_types import Column
from dpdist.spec.attributes.attribute_kind import LISTED_VALUES, Numeric, Values
from dpdist.spec.sections.private_bounds import PRIVATE
from dpdist.spec.value_types import DayOrTime

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

    @classmethod
    def outline(cls, column: Column) -> Sequence[str]:
        if column.kind != "whole":
            return ()
        if column.values:
            low, high = column.values
            return (f"from: {low}", f"to: {high}") if high - low < MOST_WHOLE else ()
        return "from: SMALLEST", "to: LARGEST", "outside: clip            # values beyond count at the nearest one"

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


NICE = (1, 2, 5, 10)
"""Widths of bins, times a power of ten."""
BINS = 10
EXAMPLES = {"money": "[0, 20, 50, 100]", "number": "[0, 20000, 40000, 80000]"}


class Edges(Numeric):
    """Numbers in bins with edges."""

    to_declare: ClassVar[tuple[str, ...]] = (
        f"edges: EDGES             # other numbers, by the edges of their bins: {EXAMPLES['number']}",
    )

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

    @classmethod
    def outline(cls, column: Column) -> Sequence[str]:
        if column.values and column.kind in ("whole", "number", "money"):
            low, high = map(float, column.values)
            return f"edges: {json.dumps(_round_edges(low, high))}", "outside: clip"
        if column.kind not in EXAMPLES:
            return ()
        return (
            f"edges: EDGES             # of the bins: {EXAMPLES[column.kind]}",
            "outside: clip            # values beyond count in the first or last bin",
        )

    def steps(self, outside: str, ends: str) -> str:
        return f"steps between {', '.join(f'{edge!r}' for edge in self.edges)}, {outside},"


def _round_edges(low: float, high: float) -> list[float]:
    """About ten even bins with round edges that hold both values."""
    width = max(high - low, abs(high) * 1e-6, 1e-9) / BINS
    power = 10.0 ** math.floor(math.log10(width))
    step = next(nice * power for nice in NICE if nice * power >= width * (1 - 1e-9))
    first_step = math.floor(low / step)
    count = max(1, math.floor(high / step) - first_step + 1)
    edges = [round((first_step + k) * step, 12) for k in range(count + 1)]
    return [int(edge) for edge in edges] if all(float(edge).is_integer() for edge in edges) else edges
