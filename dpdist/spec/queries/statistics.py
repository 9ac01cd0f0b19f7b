"""What is asked of the records that each query counts: their number, or a statistic of columns of amounts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from pydantic import Field, model_validator

from dpdist.domain import Domain
from dpdist.domain.amounts import AMOUNT, DEVIATION, PRESENT, SQUARE, STATISTICS
from dpdist.errors import InvalidInput
from dpdist.operators import Dense, Kronecker, Matrix, Operator, Tall, Total
from dpdist.spec.kinds import Family, Kind
from dpdist.workloads.base import Block, Workload

SUM, COUNT, DEVIATIONS, SQUARES, PRODUCTS = "sum", "count", "deviations", "squares", "products"
"""What the columns of the amounts say of an answer; deviations are those from the middle of the range."""
_SAID = {PRESENT: COUNT, AMOUNT: SUM, DEVIATION: DEVIATIONS, SQUARE: SQUARES}


class Statistic(Kind):
    """What is asked of the records that a query counts. This one: their number."""

    plural: ClassVar[str] = ""
    """What is published of it, in words."""
    made: ClassVar[bool] = False
    """Whether it is made of several measured sums, and published beside them with an interval of its own."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of amounts that it is of."""
        given = getattr(self, self.key(), ())
        return (given,) if isinstance(given, str) else given

    def adds_up(self, name: str, *, squares: bool = False) -> bool:
        """Whether a column of amounts is added up, or its squares are."""
        return name in self.columns and (not squares or any(SQUARE in each for each in STATISTICS[self.key()]))

    def of(self, counts: Workload, domain: Domain, *, scaled: bool) -> Workload:
        """What is added up over the records that queries count.

        Args:
            counts: the queries, over the domain without columns of amounts.
            scaled: whether an error as large as the largest amount, or the largest average of a person, weighs as much as one of a
                record.
        Raises: InvalidInput for a column that is not declared.
        """
        if self.columns:
            return sums_of(counts, domain, STATISTICS[self.key()], self.columns, scaled=scaled)
        return Workload(domain, counts.blocks) if domain.amounts else counts

    def words(self, question: str) -> str:
        """What is asked, where ``question`` says which records the queries count."""
        if not self.columns:
            return question
        what = f"{self.plural} of {' and '.join(self.columns)}"
        if question == "the count of all records":
            return f"{what} over all records"
        told = question.removeprefix("counts ")
        return f"{what} over {told.removeprefix('of ')}" if told.startswith("of ") else f"{what} {told}"


class SumOf(Statistic):
    """The sum of a column."""

    plural: ClassVar[str] = "sums"

    sum: str = Field(
        description="asks for the sum of these amounts (a name under 'sums') over the records that each query counts, in place of their "
        "number",
        examples=["amount"],
    )


class MeanOf(Statistic):
    """The mean of a column."""

    plural: ClassVar[str] = "sums, counts and means"
    made: ClassVar[bool] = True

    mean: str = Field(
        description="asks for the sum of these amounts and for the number of records that have one, and publishes the mean with its "
        "interval, too",
        examples=["amount"],
    )


class VarianceOf(Statistic):
    """The variance of a column."""

    plural: ClassVar[str] = "counts, deviations, squares, variances and standard deviations"
    made: ClassVar[bool] = True

    variance: str = Field(
        description="asks for the variance and the standard deviation of these amounts over the records that each query counts, each with "
        "its interval, and for the number, deviations and squares that they are made of",
        examples=["amount"],
    )


class OfTwo(Statistic):
    """A statistic of two columns."""

    made: ClassVar[bool] = True

    @model_validator(mode="after")
    def _two_columns(self) -> OfTwo:
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"a {self.key()} is that of two columns; ask for the variance of one")
        return self


class CovarianceOf(OfTwo):
    """The covariance of two columns."""

    plural: ClassVar[str] = "counts, deviations, products and covariances"

    covariance: tuple[str, str] = Field(
        description="asks for the covariance of two columns of amounts over the records that each query counts and that have both",
        examples=[["amount", "tip"]],
    )


class CorrelationOf(OfTwo):
    """The correlation of two columns."""

    plural: ClassVar[str] = "counts, deviations, squares, products, covariances and correlations"

    correlation: tuple[str, str] = Field(
        description="asks for the correlation of two columns of amounts, and for their covariance",
        examples=[["amount", "tip"]],
    )


ASKED = Family(SumOf, MeanOf, VarianceOf, CovarianceOf, CorrelationOf, default=Statistic())
"""The statistics that specs can ask for, and numbers of records where they ask for none."""


def sums_of(
    counts: Workload, domain: Domain, products: Sequence[Sequence[str]], names: Sequence[str], *, scaled: bool
) -> Workload:
    """The sums of products of columns of amounts over the records that queries count: what of each column is multiplied."""
    axes = [_place(domain, name) for name in names]
    blocks = []
    for block in counts.blocks:
        for of in products:
            values = {axis: _values(domain, axis, each) for axis, each in zip(axes, of, strict=True)}
            told = {name: _SAID[each] for name, each in zip(names, of, strict=True) if each != PRESENT}
            what = PRODUCTS if len(told) > 1 else next(iter(told.values()), COUNT)
            title = f"{what} of {' and '.join(told or names)}"
            said = {axis: (_SAID[each],) for axis, each in zip(axes, of, strict=True)}
            found = _lifted(block, title, dict(sorted(values.items())), said, domain)
            largest = float(np.prod([np.abs(each).max() for each in values.values()]))
            blocks.append(replace(found, weight=found.weight * (1.0 / largest)) if scaled else found)
    return Workload(domain, tuple(blocks))


def _place(domain: Domain, name: str) -> int:
    """The axis of a column of amounts. Raises: InvalidInput."""
    for axis, each in enumerate(domain.attributes):
        if each.name == name and each.amounts is not None:
            return axis
    declared = ", ".join(each.name for each in domain.amounts) or "none"
    raise InvalidInput(f"there are no amounts {name!r} to add up; declared under 'sums' are {declared}")


def _values(domain: Domain, axis: int, what: str) -> Matrix:
    """What a record in each bin of a column adds to a sum: nothing where it has no amount."""
    attribute = domain.attributes[axis]
    assert attribute.amounts is not None
    values = np.zeros(attribute.size)
    values[: attribute.amounts.bins] = attribute.amounts.values(what)
    return values


def _lifted(block: Block, title: str, values: dict[int, Matrix], said: dict[int, tuple[str]], domain: Domain) -> Block:
    """The queries of a block, each record times what it has in the bins of columns of amounts."""
    rows: list[Operator] = [Dense(each[None, :]) for each in values.values()]
    places, words = tuple(values), tuple(said[axis] for axis in values)
    if any(isinstance(factor, Tall) for factor in block.factors):
        raise InvalidInput("sums and means are not asked of rows in a .zarr file or of many rows; write them as .npy")
    if block.axes == (0,) and block.separable and isinstance(block.factors[0], Total):
        return Block(title, places, tuple(rows), words, block.weight)
    single = block.labels[0] == (block.name,)  # one question that is called by its own words
    whole_title = f"{title}{',' if single else ' by'} {block.name}"
    axes = (*block.axes, *places)
    if not block.separable:
        whole = Kronecker([block.factors[0], *rows])
        told = tuple(f"{title}, {label}" for label in block.labels[0])
        return replace(block, name=whole_title, axes=axes, factors=(whole,), labels=(told,))
    names = (*block.names, *(domain.names[axis] for axis in places)) if block.names else ()
    scales = (*block.scales, *(None for _ in places)) if block.scales else ()
    labels = ((whole_title,) if single else block.labels[0], *block.labels[1:], *words)
    return replace(
        block, name=whole_title, axes=axes, factors=(*block.factors, *rows), labels=labels, scales=scales, names=names
    )
