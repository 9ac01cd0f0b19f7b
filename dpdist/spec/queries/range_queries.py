"""Queries along an order: intervals, and everything up to each value."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from dpdist.domain import Domain, combination_name
from dpdist.errors import InvalidInput
from dpdist.spec.queries.query_kind import BY_DESCRIPTION, DerivedColumnQuery, OrderedQuery, check_listable, combination_text
from dpdist.spec.value_types import End, SpecPart
from dpdist.workloads import Workload
from dpdist.workloads.range_workloads import boxes, cdf, ranges_of, relations


class RangesSpec(SpecPart):
    """Counts of the records in intervals: in all of them, or in listed ones (pairs of values, both included)."""

    of: tuple[str, ...] = Field(
        min_length=1,
        description="one attribute with an order, or several. With several a query counts a box: one interval of each attribute",
        examples=[["age"]],
    )
    by: tuple[str, ...] = Field((), description=BY_DESCRIPTION, examples=[["branch"]])
    listed: tuple[tuple[End, End] | tuple[tuple[End, End], ...], ...] | None = Field(
        None,
        alias="list",
        description="the wanted intervals, both ends included, or the wanted boxes as one interval for each attribute. Default: all",
        examples=[[[0, 17], [18, 64]]],
    )
    lists: dict[str, tuple[tuple[End, End], ...]] = Field(
        default_factory=dict,
        description="the intervals of each attribute. Every combination of them is asked",
        examples=[{"age": [[0, 17], [18, 64]]}],
    )

    @model_validator(mode="after")
    def _one_form(self) -> RangesSpec:
        if self.listed is not None and self.lists:
            raise ValueError(
                "give either 'list' (intervals or boxes) or 'lists' (intervals of each attribute, all combinations)"
            )
        return self


class RangesQuery(OrderedQuery):
    """Intervals of an attribute, or boxes of several."""

    ranges: RangesSpec = Field(description="counts of the records in intervals or boxes")

    def counts(self, domain: Domain, folder: Path) -> Workload:
        ranges_spec = self.ranges
        check_listable(domain)
        self.check(domain)
        if ranges_spec.listed is None:
            lists = {name: [_interval(domain, name, *pair) for pair in pairs] for name, pairs in ranges_spec.lists.items()}
            return ranges_of(domain, ranges_spec.of, ranges_spec.by, intervals=lists)
        box_bins: list[list[tuple[int, int]]] = []
        for box in ranges_spec.listed:
            pairs: list[Any] = [pair for pair in box if isinstance(pair, tuple)] or [box]
            if len(pairs) != len(ranges_spec.of) or any(len(pair) != 2 for pair in pairs):
                raise InvalidInput(
                    f"a listed range over {list(ranges_spec.of)} needs {len(ranges_spec.of)} pairs of values, found {list(box)}"
                )
            box_bins.append([_interval(domain, name, *pair) for name, pair in zip(ranges_spec.of, pairs, strict=True)])
        if len(ranges_spec.of) == 1:
            return ranges_of(
                domain, ranges_spec.of, ranges_spec.by, intervals={ranges_spec.of[0]: [box[0] for box in box_bins]}
            )
        if ranges_spec.by:
            raise InvalidInput("listed ranges over several attributes have no 'by'; write predicates instead")
        return boxes(domain, ranges_spec.of, box_bins)

    def question(self) -> str:
        quantifier = "all" if self.ranges.listed is None and not self.ranges.lists else "listed"
        return f"counts of {quantifier} intervals of {' and '.join(self.ranges.of)}{combination_text(self.ranges.by)}"


def _interval(domain: Domain, name: str, low: float | str, high: float | str) -> tuple[int, int]:
    """Bins that an interval of values covers; both ends must be values (whole-number bins), times of steps, or edges."""
    attribute = domain.attribute(name)
    if attribute.times is not None:
        low, high = (attribute.times.number(f"{end:g}" if isinstance(end, float) else end) for end in (low, high))
    if isinstance(low, str) or isinstance(high, str):
        raise InvalidInput(
            f"range {low} to {high} of {name!r} needs numbers; only attributes with 'dates' have ranges of dates"
        )
    edges = np.asarray(attribute.edges)
    first_bin = np.flatnonzero(edges[:-1] == low)
    unit = bool((np.diff(edges) == 1).all())
    last_bin = np.flatnonzero(edges[:-1] == high) if unit else np.flatnonzero(edges[1:] == high)
    if first_bin.size == 0 or last_bin.size == 0 or last_bin[0] < first_bin[0]:
        raise InvalidInput(
            f"range {low:g} to {high:g} of {name!r} does not fall on its bins; allowed ends are "
            f"{', '.join(f'{e:g}' for e in edges[:10])}{' ...' if edges.size > 10 else ''}"
        )
    return int(first_bin[0]), int(last_bin[0])


class CdfSpec(SpecPart):
    """Counts of the records at or below each value of an ordered attribute."""

    of: str = Field(
        description="an attribute with an order: one with 'edges', with 'from' and 'to', or with 'dates'", examples=["age"]
    )
    by: tuple[str, ...] = Field((), description=BY_DESCRIPTION, examples=[["branch"]])


class CdfQuery(OrderedQuery):
    """A cumulative distribution of an attribute, for each combination of others."""

    cdf: CdfSpec = Field(description="counts of the records at or below each value: a cumulative distribution")

    def counts(self, domain: Domain, folder: Path) -> Workload:
        check_listable(domain)
        self.check(domain)
        return cdf(domain, self.cdf.of, self.cdf.by)

    def question(self) -> str:
        return f"counts at or below each value of {self.cdf.of}{combination_text(self.cdf.by)}"


Bound = Annotated[int, Field(ge=-(2**53), le=2**53)]
"""A number that is exact as a floating-point number."""
LISTED_BOUNDS = 12
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
    by: tuple[str, ...] = Field((), description=BY_DESCRIPTION, examples=[["branch"]])

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


class RelationQuery(DerivedColumnQuery):
    """A relation of two attributes, for each combination of others."""

    relation: RelationSpec = Field(
        description="counts of the records whose values of two attributes stand in a relation, such as 'age - tenure <= 5'"
    )

    def counts(self, domain: Domain, folder: Path) -> Workload:
        check_listable(domain)
        relation_spec = self.relation
        return relations(
            domain,
            combination_name(relation_spec.of),
            relation_spec.by,
            upper_bounds=relation_spec.at_most,
            absolute_bounds=relation_spec.within,
        )

    def question(self) -> str:
        relation_spec, name = self.relation, combination_name(self.relation.of)
        quantity_text = name if relation_spec.within is None else f"the absolute value of {name}"
        if relation_spec.bounds is None:
            return f"counts with {quantity_text} at most each number{combination_text(relation_spec.by)}"
        bounds = ", ".join(map(str, relation_spec.bounds[:LISTED_BOUNDS])) + (
            " and more" if len(relation_spec.bounds) > LISTED_BOUNDS else ""
        )
        return f"counts with {quantity_text} at most {bounds}{combination_text(relation_spec.by)}"

    @property
    def ordered_attributes(self) -> tuple[str, ...]:
        return (combination_name(self.relation.of),)

    @property
    def line_coefficients(self) -> dict[str, int]:
        return self.relation.of

    @property
    def cut_points(self) -> tuple[int, ...] | None:
        relation_spec = self.relation
        return (
            relation_spec.at_most
            if relation_spec.within is None
            else (*(-bound - 1 for bound in relation_spec.within), *relation_spec.within)
        )
