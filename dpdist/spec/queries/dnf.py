"""Formulas in disjunctive normal form."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from dpdist.domain import Domain
from dpdist.spec.queries.base import QueryKind, check_listable
from dpdist.spec.values import SpecPart
from dpdist.workloads import Workload, dnf


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
