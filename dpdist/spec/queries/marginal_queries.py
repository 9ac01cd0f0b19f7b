"""Marginals: tables of counts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from pydantic import Field, model_validator

from dpdist.domain import Domain
from dpdist.spec.queries.query_kind import QueryKind, check_listable
from dpdist.spec.value_types import SpecPart
from dpdist.workloads import Workload, union
from dpdist.workloads.product_queries import listed_marginals, marginals
from dpdist.workloads.range_workloads import range_marginals

LISTED_TABLES = 12
"""Tables that a sentence lists."""


class MarginalsSpec(SpecPart):
    """Counts for every combination of values. Give either 'ways' or 'of'."""

    ways: tuple[int, ...] | None = Field(
        None,
        description="asks for all tables of this many attributes: 1 counts each attribute by itself, 2 each pair of attributes",
        examples=[[1, 2]],
    )
    among: tuple[str, ...] = Field(
        (), description="the attributes that 'ways' combines. Default: all of them", examples=[["age", "branch"]]
    )
    of: tuple[tuple[str, ...], ...] | None = Field(
        None, description="the wanted tables, each as a list of attributes", examples=[[["branch"], ["age", "branch"]]]
    )
    ranges: bool = Field(
        False,
        description="with 'ways': asks for all intervals of ordered attributes instead of single values",
        examples=[True],
    )

    @model_validator(mode="after")
    def _one_form(self) -> MarginalsSpec:
        if (self.ways is None) == (self.of is None):
            raise ValueError("give either 'ways' (all marginals of so many attributes) or 'of' (a list of attribute lists)")
        if self.ranges and self.of is not None:
            raise ValueError("'ranges' goes with 'ways'; write a list of ranges as 'ranges' entries")
        return self


class MarginalsQuery(QueryKind):
    """Tables of several attributes: all of so many, or listed ones."""

    marginals: MarginalsSpec = Field(description="counts of every combination of values: contingency tables")

    def counts(self, domain: Domain, folder: Path) -> Workload:
        marginals_spec = self.marginals
        if marginals_spec.of is not None:
            return listed_marginals(domain, marginals_spec.of)
        if marginals_spec.ranges:
            check_listable(domain)
            return union(*(range_marginals(domain, k, among=marginals_spec.among) for k in marginals_spec.ways or ()))
        return marginals(domain, marginals_spec.ways or (), among=marginals_spec.among)

    def question(self) -> str:
        marginals_spec = self.marginals
        values_text = "all intervals of values" if marginals_spec.ranges else "every combination of values"
        if marginals_spec.of is not None:
            tables = [" by ".join(names) for names in marginals_spec.of if names]
            whole = ["all records"] if () in marginals_spec.of else []
            table_texts = [f"{values_text} of {'; '.join(tables[:LISTED_TABLES])}"] if tables else []
            return f"counts of {' and '.join(whole + table_texts)}" + (" and more" if len(tables) > LISTED_TABLES else "")
        ways_text = " and ".join(map(str, marginals_spec.ways or ()))
        among = f" among {', '.join(marginals_spec.among)}" if marginals_spec.among else ""
        return f"counts of {values_text} of any {ways_text} attributes{among}"

    def asks_for(self, name: str, names: Sequence[str]) -> bool:
        marginals_spec = self.marginals
        if marginals_spec.of is not None:
            return all(name in table for table in marginals_spec.of)
        among = marginals_spec.among or tuple(names)
        return name in among and set(marginals_spec.ways or ()) == {len(among)}

    def names(self, declared: Sequence[str]) -> Collection[str]:
        marginals_spec = self.marginals
        return (
            marginals_spec.among or declared
            if marginals_spec.of is None
            else {name for table in marginals_spec.of for name in table}
        )

    def tables(self, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        marginals_spec = self.marginals
        if marginals_spec.of is not None:
            return marginals_spec.of
        among = marginals_spec.among or tuple(names)
        return (among,) if set(marginals_spec.ways or ()) == {len(among)} and not marginals_spec.ranges else ()
