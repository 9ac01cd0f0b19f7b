"""Cumulative distributions."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from dpdist.domain import Domain
from dpdist.spec.queries.base import BY, OverOrder, check_listable, for_each
from dpdist.spec.values import SpecPart
from dpdist.workloads import Workload
from dpdist.workloads.ranges import cdf


class CdfSpec(SpecPart):
    """Counts of the records at or below each value of an ordered attribute."""

    of: str = Field(
        description="an attribute with an order: one with 'edges', with 'from' and 'to', or with 'dates'", examples=["age"]
    )
    by: tuple[str, ...] = Field((), description=BY, examples=[["branch"]])


class CdfQuery(OverOrder):
    """A cumulative distribution of an attribute, for each combination of others."""

    cdf: CdfSpec = Field(description="counts of the records at or below each value: a cumulative distribution")

    def counts(self, domain: Domain, folder: Path) -> Workload:
        check_listable(domain)
        self.check(domain)
        return cdf(domain, self.cdf.of, self.cdf.by)

    def question(self) -> str:
        return f"counts at or below each value of {self.cdf.of}{for_each(self.cdf.by)}"
