"""The lines of a draft that declare the values of an attribute."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dpdist.api.planning import yaml_text

ColumnKind = Literal["text", "whole", "number", "date", "time", "boolean", "money", "unknown", "other"]
"""What a column may hold where its file says little of it: the kinds of drafts of a spec."""


@dataclass(frozen=True)
class Column:
    """A column of a file.

    Attributes:
        kind: by its type, and for money by its name, too; unknown in CSV, whose columns have no type.
        values: of a public file all different texts (None: too many), or the smallest and the largest value.
        zoned: whether its times carry a zone.
    """

    name: str
    kind: ColumnKind
    values: tuple[Any, ...] | None = field(default=None, repr=False)
    zoned: bool = False


MOST_WHOLE = 200
"""Whole numbers that a public column is counted one by one."""
NICE = (1, 2, 5, 10)
"""Widths of bins, times a power of ten."""
BINS = 10
EXAMPLES = {"money": "[0, 20, 50, 100]", "number": "[0, 20000, 40000, 80000]"}
BEYOND_EDGES = "outside: clip            # values beyond count in the first or last bin"
TO_DECLARE = (
    "categories: CATEGORIES   # texts: [Centre, North, Harbour]",
    "from: SMALLEST           # whole numbers",
    "to: LARGEST",
    f"edges: EDGES             # other numbers, by the edges of their bins: {EXAMPLES['number']}",
    "dates: {from: DAY, to: DAY, every: day}",
)
"""What may be declared where nothing is known of a column."""
OUTLINES: dict[ColumnKind, tuple[str, ...]] = {
    "unknown": tuple(f"# {line}" for line in TO_DECLARE),
    "boolean": ("categories: ['false', 'true']",),
    "text": (
        "categories: CATEGORIES   # all of them: [Centre, North, Harbour]",
        "other: other             # the label of records with any other text",
    ),
    "whole": ("from: SMALLEST", "to: LARGEST", "outside: clip            # values beyond count at the nearest one"),
    "date": (
        "dates: {from: DAY, to: DAY, every: day}   # or week, month, quarter, year",
        "outside: drop            # records of other days are left out, and texts in another form than 2026-09-01",
    ),
    "time": (
        "dates: {from: DAY, to: DAY, every: day}   # or hour, week, month; 'zone: Europe/Berlin' if the times carry a zone",
        "outside: drop            # records of other times are left out, and texts in another form than 2026-09-01T14:30",
    ),
    "money": (f"edges: EDGES             # of the bins: {EXAMPLES['money']}", BEYOND_EDGES),
    "number": (f"edges: EDGES             # of the bins: {EXAMPLES['number']}", BEYOND_EDGES),
}
"""What is declared of a column whose values nobody has looked at, by what it holds."""


def value_lines(column: Column) -> Sequence[str]:
    """The lines that say which values an attribute has."""
    if not column.values or column.kind == "boolean":
        return OUTLINES[column.kind]
    if column.kind == "text":
        return f"categories: [{', '.join(map(yaml_text.quoted, column.values))}]", "other: other"
    low, high = column.values
    if column.kind in ("date", "time"):
        return f"dates: {{from: {low}, to: {high}, every: day{', zone: UTC' if column.zoned else ''}}}", "outside: drop"
    if column.kind == "whole" and high - low < MOST_WHOLE:
        return f"from: {low}", f"to: {high}"
    return f"edges: {json.dumps(_round_edges(float(low), float(high)))}", "outside: clip"


def _round_edges(low: float, high: float) -> list[float]:
    """About ten even bins with round edges that hold both values."""
    width = max(high - low, abs(high) * 1e-6, 1e-9) / BINS
    power = 10.0 ** math.floor(math.log10(width))
    step = next(nice * power for nice in NICE if nice * power >= width * (1 - 1e-9))
    first_step = math.floor(low / step)
    count = max(1, math.floor(high / step) - first_step + 1)
    edges = [round((first_step + k) * step, 12) for k in range(count + 1)]
    return [int(edge) for edge in edges] if all(float(edge).is_integer() for edge in edges) else edges
