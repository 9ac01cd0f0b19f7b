"""Relations between two attributes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from dpdist.domain import Domain, line_name
from dpdist.spec.queries.base import BY, OverLine, check_listable, for_each
from dpdist.spec.values import SpecPart
from dpdist.workloads import Workload
from dpdist.workloads.relations import relations

Bound = Annotated[int, Field(ge=-(2**53), le=2**53)]
"""A number that is exact as a floating-point number."""
LISTED = 12
"""Bounds that a sentence lists."""


class RelationSpec(SpecPart):
    """Counts of the records for which a x + b y, of the values x and y of two attributes, is at most c, or its absolute value is.

    Values are whole numbers (``from`` and ``to`` without a ``width``), or dates in steps of one calendar, of which there is the
    difference. A value with a fraction counts as the whole number below it. Records that have one of both values missing, or
    another one than is declared, are in none of the counts.
    """

    of: dict[str, int] = Field(
        description="two attributes, each with its coefficient: a whole number other than 0. 'start: 1' with 'end: -1' is start - end",
        examples=[{"age": 1, "tenure": -1}],
    )
    at_most: tuple[Bound, ...] | None = Field(
        None,
        description="the bounds c, whole numbers: of start - end the bound -1 asks for start < end. Default: every number that occurs, "
        "unless 'within' is given",
        examples=[[-1, 5]],
    )
    within: tuple[Bound, ...] | None = Field(
        None, description="in place of 'at_most': the bounds c of the absolute value, |a x + b y| <= c", examples=[[0, 7]]
    )
    by: tuple[str, ...] = Field((), description=BY, examples=[["branch"]])

    @model_validator(mode="after")
    def _one_form(self) -> RelationSpec:
        if len(self.of) != 2 or 0 in self.of.values():
            raise ValueError("'of' takes two attributes, each with a coefficient other than 0, such as {start: 1, end: -1}")
        if self.at_most is not None and self.within is not None:
            raise ValueError("give either 'at_most' or 'within', and the other one in a group of its own")
        bounds = self.bounds
        if bounds is not None and (not bounds or len(set(bounds)) < len(bounds)):
            raise ValueError("'at_most' and 'within' list at least one bound, and each once")
        return self

    @property
    def bounds(self) -> tuple[int, ...] | None:
        """The bounds that are listed; None for every number."""
        return self.at_most if self.within is None else self.within


class RelationQuery(OverLine):
    """A relation of two attributes, for each combination of others."""

    relation: RelationSpec = Field(
        description="counts of the records whose values of two attributes stand in a relation, such as 'age - tenure <= 5'"
    )

    def counts(self, domain: Domain, folder: Path) -> Workload:
        check_listable(domain)
        asked = self.relation
        return relations(domain, line_name(asked.of), asked.by, at_most=asked.at_most, within=asked.within)

    def question(self) -> str:
        asked, name = self.relation, line_name(self.relation.of)
        what = name if asked.within is None else f"the absolute value of {name}"
        if asked.bounds is None:
            return f"counts with {what} at most each number{for_each(asked.by)}"
        bounds = ", ".join(map(str, asked.bounds[:LISTED])) + (" and more" if len(asked.bounds) > LISTED else "")
        return f"counts with {what} at most {bounds}{for_each(asked.by)}"

    @property
    def along(self) -> tuple[str, ...]:
        return (line_name(self.relation.of),)

    @property
    def line(self) -> dict[str, int]:
        return self.relation.of

    @property
    def cuts(self) -> tuple[int, ...] | None:
        asked = self.relation
        return asked.at_most if asked.within is None else (*(-bound - 1 for bound in asked.within), *asked.within)
