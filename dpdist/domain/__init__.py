"""What can be counted: attributes with a public, declared set of values, and the cells they span."""

from dpdist.domain.attributes import (
    DROP,
    LEFT_OUT,
    NOWHERE,
    OUTSIDE,
    Attribute,
    Level,
    Line,
    Outside,
    amounts_attribute,
)
from dpdist.domain.derived_columns import cuts_of, greatest_numbers, line_attribute, line_name, line_of, numbers_of
from dpdist.domain.domain import Domain, Layout, sizes_of
from dpdist.domain.labels import BinLabels, EvenEdges, MadeLabels, TimeLabels, even_edges

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
    "Line",
    "MadeLabels",
    "Outside",
    "TimeLabels",
    "amounts_attribute",
    "cuts_of",
    "even_edges",
    "greatest_numbers",
    "line_attribute",
    "line_name",
    "line_of",
    "numbers_of",
    "sizes_of",
]
