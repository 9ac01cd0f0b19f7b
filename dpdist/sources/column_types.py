"""What columns of files hold; a module of its own, so that whoever reads a spec needs no reader of files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

ColumnType = Literal["text", "whole", "number", "date", "time", "boolean"]
"""What the values of a column are converted to, each by itself."""
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
