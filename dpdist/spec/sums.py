"""Sums and means: the columns of amounts that a spec declares, and the queries that ask for them in place of counts."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
from pydantic import Field, model_validator

from dpdist.amounts import MOST_STEPS, Amounts, Bound
from dpdist.domain import DROP, NOWHERE, Attribute, Domain, amounts_attribute
from dpdist.errors import InvalidInput
from dpdist.operators import Dense, Kronecker, Operator, Tall, Total
from dpdist.spec.values import Exact, SpecPart, Text
from dpdist.workloads.base import Block, Workload

SUM, COUNT = "sum", "count"
"""What the column of the amounts says of an answer."""


class SumSpec(SpecPart):
    """A column of amounts: every value is moved into a declared range, and to the nearest value of a declared grid."""

    first: Exact = Field(
        alias="from",
        description="the smallest amount. Smaller ones are counted as this one, and dpdist never says how many they were",
        examples=[0],
    )
    last: Exact = Field(
        alias="to",
        description="the largest amount. Larger ones are counted as this one. The noise of a sum grows with it: choose it from public "
        "knowledge, and rather too small than too large",
        examples=[500],
    )
    step: Exact = Field(
        Fraction(1),
        description="the distance between two amounts that are told apart, 0.01 for cents. 'from' and 'to' are a whole number of steps "
        f"apart, at most {MOST_STEPS:,}",
        examples=[0.01],
    )
    most_per_person: Exact | None = Field(
        None,
        description="the most that all amounts of one person add up to. The amounts of whoever has more are scaled down in proportion. "
        "The noise of a sum grows with it in place of 'most_records' times 'to'. It is 'to', or 2, 3, ... times as much, and less than "
        "'most_records' times as much; it needs 'from: 0' and a person column",
        examples=[1000],
    )
    missing: Text | None = Field(
        None,
        min_length=1,
        description="what happens to a record without an amount (null, NaN): 'drop' leaves it out of every sum and mean of this column and "
        "not out of counts. Default: the release is refused",
        examples=["drop"],
    )
    title: Text | None = Field(
        None, description="what the page calls the amounts; by default the name", examples=["Amount paid"]
    )
    unit: Text | None = Field(None, description="the unit of the amounts on the page", examples=["EUR"])

    @model_validator(mode="after")
    def _some_steps(self) -> SumSpec:
        if self.step <= 0 or self.last <= self.first:
            raise ValueError("'from' must be smaller than 'to', and 'step' positive")
        steps = (self.last - self.first) / self.step
        if steps.denominator != 1 or steps > MOST_STEPS:
            raise ValueError(
                f"'from' and 'to' must be a whole number of steps apart, from 1 to {MOST_STEPS:,}, found {float(steps):,.10g}; "
                "change 'step' or 'to'"
            )
        if self.most_per_person is not None:
            self._check_total(self.most_per_person)
        if self.missing not in (None, DROP):
            raise ValueError("'missing' of a sum is 'drop'; leave it out where every record has an amount")
        return self

    def _check_total(self, most: Fraction) -> None:
        if self.first != 0:
            raise ValueError(
                f"'most_per_person' bounds a total of amounts from zero on, found 'from: {float(self.first):g}'; set 'from: 0', or leave "
                "'most_per_person' out"
            )
        if most <= 0 or (most / self.last).denominator != 1:
            times = max(1, math.floor(most / self.last))
            found, last, lower, upper = (
                f"{float(each):,.10g}" for each in (most, self.last, times * self.last, (times + 1) * self.last)
            )
            raise ValueError(
                f"'most_per_person' is 'to' or a whole number of times as much, found {found} with 'to: {last}'; give {lower} or {upper}, "
                "or another 'to'"
            )

    @property
    def measured(self) -> SumSpec:
        """The same column without the words that only the page shows."""
        return self.model_copy(update={"title": None, "unit": None})

    def amounts(self, records: int) -> Amounts:
        """As the domain knows them, where a person has up to so many records."""
        steps = int((self.last - self.first) / self.step)
        if self.most_per_person is None:
            return Amounts(self.first, self.step, steps)
        return Amounts.of_persons(self.step, steps, Bound(records, int(self.most_per_person / self.last)))

    def attribute(self, name: str, *, everywhere: bool, records: int) -> Attribute:
        """The domain's attribute.

        Args:
            records: of a person that are counted at most.
            everywhere: whether every query asks for sums or means of the column: records without an amount then need no bin.
        """
        return amounts_attribute(
            name, self.amounts(records), NOWHERE if self.missing is not None and everywhere else self.missing
        )


def sums_of(counts: Workload, domain: Domain, name: str, *, mean: bool, scaled: bool) -> Workload:
    """The sums of a column of amounts over the records that queries count; for means also how many of them have an amount.

    Args:
        counts: the queries, over the domain without columns of amounts.
        scaled: whether an error as large as the largest amount, or the largest average of a person, weighs as much as one of a record.
    Raises: InvalidInput for a column that is not declared.
    """
    place = next(
        (axis for axis, each in enumerate(domain.attributes) if each.name == name and each.amounts is not None), None
    )
    if place is None:
        declared = ", ".join(each.name for each in domain.amounts) or "none"
        raise InvalidInput(f"there are no amounts {name!r} to add up; declared under 'sums' are {declared}")
    attribute = domain.attributes[place]
    assert attribute.amounts is not None
    ends = attribute.amounts.ends
    weight = 1.0 / attribute.amounts.weighed_as if scaled else 1.0
    blocks = []
    for block in counts.blocks:
        if mean:
            blocks.append(_lifted(block, place, attribute, (1.0, 1.0), COUNT))
        found = _lifted(block, place, attribute, ends, SUM)
        blocks.append(replace(found, weight=found.weight * weight))
    return Workload(domain, tuple(blocks))


def _lifted(block: Block, place: int, attribute: Attribute, ends: tuple[float, float], what: str) -> Block:
    """The queries of a block, each record times what it has at the two ends of the amounts."""
    row: Operator = Dense(np.array([[*ends, *([0.0] * (attribute.size - len(ends)))]]))
    if any(isinstance(factor, Tall) for factor in block.factors):
        raise InvalidInput("sums and means are not asked of rows in a .zarr file or of many rows; write them as .npy")
    if block.axes == (0,) and block.separable and isinstance(block.factors[0], Total):
        return Block(f"{what} of {attribute.name}", (place,), (row,), ((what,),), block.weight)
    single = block.labels[0] == (block.name,)  # one question that is called by its own words
    title = f"{what} of {attribute.name}{',' if single else ' by'} {block.name}"
    axes = (*block.axes, place)
    if not block.separable:
        whole = Kronecker([block.factors[0], row])
        told = tuple(f"{what} of {attribute.name}, {label}" for label in block.labels[0])
        return replace(block, name=title, axes=axes, factors=(whole,), labels=(told,))
    names = (*block.names, attribute.name) if block.names else ()
    scales = (*block.scales, None) if block.scales else ()
    factors, labels = (*block.factors, row), ((title,) if single else block.labels[0], *block.labels[1:], (what,))
    return replace(block, name=title, axes=axes, factors=factors, labels=labels, scales=scales, names=names)
