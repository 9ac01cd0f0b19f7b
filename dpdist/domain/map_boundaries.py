"""Where the values of an attribute lie on a map; a plugin reads the outlines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Ring = tuple[tuple[int, int], ...]
Names = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Boundaries:
    """The areas of an attribute.

    Attributes:
        areas: the rings of each value that is on the map, in steps of a grid, downwards.
        others: rings of areas that are no value.
        size: of the grid, across and down.
        names: what values are called, by the code of a language; by an empty text in all languages.
    """

    areas: tuple[tuple[str, tuple[Ring, ...]], ...]
    others: tuple[Ring, ...]
    size: tuple[int, int]
    names: Names = field(default_factory=dict, hash=False)
