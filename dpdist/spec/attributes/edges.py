"""Numbers in bins."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from dpdist.domain import Attribute
from dpdist.records.columns import Column
from dpdist.sizes import SIZES, Sizes
from dpdist.spec.attributes.base import LISTED, Numeric
from dpdist.spec.chosen_bounds import PRIVATE

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
    def is_meant(cls, given: Mapping[str, Any]) -> bool:
        return bool(given.get("edges", PRIVATE) != PRIVATE)

    def bins(self, name: str, sizes: Sizes = SIZES, **others: Any) -> Attribute:
        return Attribute(name, edges=self.edges, labels=self.labels, **others)

    def words(self) -> str:
        shown, count = ", ".join(f"{edge:g}" for edge in self.edges[: LISTED + 1]), len(self.edges) - 1
        more = f" and {count - LISTED:,} more" if count > LISTED else ""
        return f"{count:,} bins with edges {shown}{more}; a bin holds its lower edge and not its upper one"

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
    first = math.floor(low / step)
    count = max(1, math.floor(high / step) - first + 1)
    edges = [round((first + k) * step, 12) for k in range(count + 1)]
    return [int(edge) for edge in edges] if all(float(edge).is_integer() for edge in edges) else edges
