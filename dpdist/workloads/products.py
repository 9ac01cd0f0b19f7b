"""Products of queries of single attributes: every combination of what is asked of each attribute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from dpdist.domain import Attribute, Domain
from dpdist.errors import InvalidInput
from dpdist.operators import AllRanges, Dense, Operator, Prefix, Total
from dpdist.workloads.base import Block, Workload, along, values_of
from dpdist.workloads.predicates import predicates

AttributeQueries = Literal["identity", "total", "prefix", "ranges"] | Sequence[str]
"""Every value, all records, the records at or below each value, all intervals; or a list of expressions over the attribute."""

VALUES = "identity"
"""Asks every value of an attribute."""


def products(domain: Domain, asked: Mapping[str, AttributeQueries], *, name: str | None = None) -> Workload:
    """Every combination of one query of each attribute.

    Args:
        domain: the attributes.
        asked: queries of each attribute; attributes that are not named are summed over.
        name: of the group of queries; default: what is asked.
    """
    parts = sorted((domain.axis(attribute), queries) for attribute, queries in asked.items() if queries != "total")
    if not parts:
        return Workload(domain, (Block(name or "total", (0,), (Total(domain.shape[0]),), (("all",),)),))
    made = [_factor(domain.attributes[axis], queries) for axis, queries in parts]
    axes = tuple(axis for axis, _ in parts)
    title = name or " x ".join(_title(domain.attributes[axis], queries) for axis, queries in parts)
    return Workload(domain, (Block(title, axes, tuple(f for f, _ in made), tuple(labels for _, labels in made)),))


def _title(attribute: Attribute, queries: AttributeQueries) -> str:
    if queries == VALUES:
        return attribute.name
    if isinstance(queries, str):
        return f"{queries} of {attribute.name}"
    return queries[0] if len(queries) == 1 else f"{len(queries)} kinds of {attribute.name}"


def _factor(attribute: Attribute, queries: AttributeQueries) -> tuple[Operator, Sequence[str]]:
    """The rows over the attribute's values, with their names."""
    if queries == VALUES:
        return values_of(attribute), attribute.labels
    if isinstance(queries, str):
        ordered = along(attribute, Prefix(attribute.values) if queries == "prefix" else AllRanges(attribute.values))
        return ordered, tuple(ordered.row_names(0, ordered.shape[0], attribute.labels))
    alone = Domain((attribute,))
    found = predicates(alone, queries)
    if any(block.axes != (0,) for block in found.blocks):
        raise InvalidInput(f"the expressions of {attribute.name!r} in a product must be over {attribute.name!r}")
    rows = np.concatenate([block.factors[0].dense() for block in found.blocks]).astype(np.int64)
    return Dense(rows), tuple(queries)
