"""Conditions, written as expressions."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from dpdist.domain import Domain
from dpdist.spec.queries.base import QueryKind, check_listable
from dpdist.workloads import Workload, predicates


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
