"""Products of queries of single attributes: every combination of what is asked of each attribute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Literal

import numpy as np

from dpdist.domain import Attribute, Domain
from dpdist.errors import InvalidInput
from dpdist.operators import AllRanges, Dense, Operator, Prefix, Total
from dpdist.workloads.block import Block
from dpdist.workloads.predicates import predicates
from dpdist.workloads.workload import Workload, along, attribute_counts, factor_names, values_of

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
    axis_queries = sorted((domain.axis(attribute), queries) for attribute, queries in asked.items() if queries != "total")
    if not axis_queries:
        return Workload(domain, (Block(name or "total", (0,), (Total(domain.shape[0]),), (("all",),)),))
    labelled_factors = [_factor(domain.attributes[axis], queries) for axis, queries in axis_queries]
    axes = tuple(axis for axis, _ in axis_queries)
    title = name or " x ".join(_title(domain.attributes[axis], queries) for axis, queries in axis_queries)
    return Workload(
        domain, (Block(title, axes, tuple(f for f, _ in labelled_factors), tuple(labels for _, labels in labelled_factors)),)
    )


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
    workload = predicates(alone, queries)
    rows = np.concatenate([block.factors[0].dense() for block in workload.blocks]).astype(np.int64)
    return Dense(rows), tuple(queries)


def marginals(
    domain: Domain | tuple[int, ...], ways: int | Iterable[int] = (1, 2), *, among: tuple[str, ...] = ()
) -> Workload:
    """All k-way marginals for every k in ``ways``.

    Args:
        domain: a domain, or the sizes of an anonymous one.
        ways: k, or several values of k; 0 is the total count.
        among: the attributes to combine; all by default.
    """
    whole = domain if isinstance(domain, Domain) else Domain.of_shape(domain)
    names = among or whole.own_names
    orders = sorted({ways} if isinstance(ways, int) else set(ways))
    if not orders or orders[0] < 0 or orders[-1] > len(names):
        raise InvalidInput(
            f"marginals of {orders} attributes are not possible among {len(names)}: allowed is 0..{len(names)}"
        )
    return listed_marginals(whole, [subset for k in orders for subset in combinations(names, k)])


def listed_marginals(domain: Domain, subsets: Iterable[tuple[str, ...]]) -> Workload:
    """The marginals over the given attribute lists."""
    blocks = []
    for subset in subsets:
        if len(set(subset)) != len(subset):
            raise InvalidInput(f"a marginal names an attribute twice: {list(subset)}")
        columns = sorted(((*attribute_counts(domain, name), name) for name in subset), key=lambda column: column[0])
        axes = tuple(axis for axis, *_ in columns)
        if len(set(axes)) != len(axes):
            raise InvalidInput(
                f"a marginal names an attribute and a level of it, or two levels: {list(subset)}; ask for the finest one"
            )
        if not axes:
            total = Total(domain.shape[0])
            blocks.append(Block("total", (0,), (total,), (("all",),)))
            continue
        title, factors = " x ".join(name for *_, name in columns), tuple(factor for _, factor, _, _ in columns)
        names = factor_names(domain, [(axis, name) for axis, _, _, name in columns])
        blocks.append(Block(title, axes, factors, tuple(labels for _, _, labels, _ in columns), names=names))
    return Workload(domain, tuple(blocks))
