"""What can be counted: attributes with a public, declared set of values, and the cells they span."""

from dpdist.domain.attributes import (
    DROP,
    EXCLUDE_RECORD,
    EXCLUDED,
    OUTSIDE,
    Attribute,
    Level,
    LinearCombination,
    Outside,
    amounts_attribute,
)
from dpdist.domain.derived_columns import (
    combination_attribute,
    combination_name,
    combine_attributes,
    cuts_of,
    greatest_numbers,
    numbers_of,
)
from dpdist.domain.domain import Domain, Layout, sizes_of
from dpdist.domain.labels import BinLabels, EvenEdges, LazyLabels, TimeLabels, even_edges

__all__ = [
    "DROP",
    "EXCLUDED",
    "EXCLUDE_RECORD",
    "OUTSIDE",
    "Attribute",
    "BinLabels",
    "Domain",
    "EvenEdges",
    "Layout",
    "LazyLabels",
    "Level",
    "LinearCombination",
    "Outside",
    "TimeLabels",
    "amounts_attribute",
    "combination_attribute",
    "combination_name",
    "combine_attributes",
    "cuts_of",
    "even_edges",
    "greatest_numbers",
    "numbers_of",
    "sizes_of",
]
