"""What can be counted: attributes with a public, declared set of values, and the cells they span."""

from dpdist.domain.attributes import (
    DROP,
    LEFT_OUT,
    NOWHERE,
    OUTSIDE,
    Attribute,
    Level,
    Outside,
    amounts_attribute,
)
from dpdist.domain.domain import Domain, sizes_of
from dpdist.domain.labels import BinLabels, EvenEdges, MadeLabels, TimeLabels, even_edges
from dpdist.domain.layout import Layout

__all__ = [
    "DROP",
    "LEFT_OUT",
    "NOWHERE",
    "OUTSIDE",
    "Attribute",
    "BinLabels",
    "Domain",
    "EvenEdges",
    "Layout",
    "Level",
    "MadeLabels",
    "Outside",
    "TimeLabels",
    "amounts_attribute",
    "even_edges",
    "sizes_of",
]
