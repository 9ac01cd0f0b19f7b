"""Queries by conditions: expressions, products of them, and formulas."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from dpdist.domain import Domain
from dpdist.spec.queries.query_kind import QueryKind, check_listable, check_ordered
from dpdist.spec.value_types import SpecPart
from dpdist.workloads import Workload, dnf, predicates, products

_QUERY_TEXTS = {
    "identity": "the values",
    "prefix": "the sums up to each value",
    "ranges": "all intervals",
    "total": "all values",
}
"""What is asked of an attribute, in words."""


class ProductQuery(QueryKind):
    """Combinations of queries, one for each attribute."""

    product: dict[str, Literal["identity", "total", "prefix", "ranges"] | tuple[str, ...]] = Field(
        description="counts for every combination of queries, one for each attribute. The queries of an attribute are: 'identity', each "
        "value; 'prefix', all records at or below each value; 'ranges', all intervals; 'total', all records; or a list of expressions. "
        "Attributes that are not named are summed over",
        examples=[{"branch": "identity", "age": ["age < 18", "age >= 65"]}],
    )

    def counts(self, domain: Domain, folder: Path) -> Workload:
        check_listable(domain)
        for name, queries in self.product.items():
            if queries in ("prefix", "ranges"):
                check_ordered(domain, name)
        return products(domain, self.product)

    def names(self, declared: Sequence[str]) -> Collection[str]:
        return self.product

    def question(self) -> str:
        attribute_texts = ", ".join(_attribute_text(*entry) for entry in self.product.items())
        return f"counts for every combination of {attribute_texts}" if attribute_texts else "the count of all records"


def _attribute_text(name: str, queries: str | tuple[str, ...]) -> str:
    """What is asked of one attribute, in words."""
    if isinstance(queries, str):
        return f"{_QUERY_TEXTS[queries]} of {name}"
    return f"{len(queries):,} listed conditions on {name}" if len(queries) > 1 else f"the condition {queries[0]}"


class PredicatesQuery(QueryKind):
    """Records that satisfy expressions."""

    predicates: tuple[str, ...] = Field(
        description="counts of the records that satisfy an expression over the attributes",
        examples=[["age >= 18 and branch == 'North'"]],
    )

    def counts(self, domain: Domain, folder: Path) -> Workload:
        check_listable(domain)
        return predicates(domain, self.predicates)

    def question(self) -> str:
        count = len(self.predicates)
        return f"counts of records that satisfy {'an expression' if count == 1 else f'each of {count:,} expressions'}"


class DnfSpec(SpecPart):
    """Counts of the records that satisfy a formula over attributes with two values, for every way to negate those attributes."""

    terms: tuple[tuple[str, ...], ...] = Field(
        min_length=1,
        description="the terms of the formula. Attributes in a term are joined by 'and', terms by 'or'",
        examples=[[["smokes", "drinks"], ["diabetic"]]],
    )


class DnfQuery(QueryKind):
    """A formula and all its negations."""

    names_itself: ClassVar[bool] = False

    dnf: DnfSpec = Field(description="counts of the records that satisfy a formula over attributes with two values")

    def counts(self, domain: Domain, folder: Path) -> Workload:
        check_listable(domain)
        return dnf(domain, self.dnf.terms)

    def question(self) -> str:
        return "counts of a formula over binary attributes, for every way to negate them"
