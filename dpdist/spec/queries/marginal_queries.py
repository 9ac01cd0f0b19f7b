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

LISTED = 12
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
        asked = self.marginals
        if asked.of is not None:
            return listed_marginals(domain, asked.of)
        if asked.ranges:
            check_listable(domain)
            return union(*(range_marginals(domain, k, among=asked.among) for k in asked.ways or ()))
        return marginals(domain, asked.ways or (), among=asked.among)

    def question(self) -> str:
        asked = self.marginals
        what = "all intervals of values" if asked.ranges else "every combination of values"
        if asked.of is not None:
            tables = [" by ".join(names) for names in asked.of if names]
            whole = ["all records"] if () in asked.of else []
            listed = [f"{what} of {'; '.join(tables[:LISTED])}"] if tables else []
            return f"counts of {' and '.join(whole + listed)}" + (" and more" if len(tables) > LISTED else "")
        ways = " and ".join(map(str, asked.ways or ()))
        among = f" among {', '.join(asked.among)}" if asked.among else ""
        return f"counts of {what} of any {ways} attributes{among}"

    def asks_for(self, name: str, names: Sequence[str]) -> bool:
        asked = self.marginals
        if asked.of is not None:
            return all(name in table for table in asked.of)
        among = asked.among or tuple(names)
        return name in among and set(asked.ways or ()) == {len(among)}

    def names(self, declared: Sequence[str]) -> Collection[str]:
        asked = self.marginals
        return asked.among or declared if asked.of is None else {name for table in asked.of for name in table}

    def tables(self, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        asked = self.marginals
        if asked.of is not None:
            return asked.of
        among = asked.among or tuple(names)
        return (among,) if set(asked.ways or ()) == {len(among)} and not asked.ranges else ()
