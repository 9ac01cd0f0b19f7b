"""The parts of a spec but its queries: records, attributes, budgets, output, post-processing."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from dpdist.domain import Attribute, even_edges
from dpdist.mechanisms.registry import AUTO, REGISTRY
from dpdist.privacy.accounting import Calibration, Cap, Loss, rho_for
from dpdist.records.sources import PersonType
from dpdist.sizes import SIZES, Sizes
from dpdist.spec.values import Exact, SpecPart, Text
from dpdist.strategies.needs import Limits


def _mechanism(name: Any) -> Any:
    """A registered mechanism's name. Raises: ValueError."""
    if name != AUTO and name not in REGISTRY:
        *others, last = (repr(each) for each in (AUTO, *REGISTRY))
        raise ValueError(f"the mechanism must be {', '.join(others)} or {last}")
    return name


Mechanism = Annotated[
    str, BeforeValidator(_mechanism), WithJsonSchema({"enum": [AUTO, *REGISTRY], "title": "Mechanism", "type": "string"})
]
"""``auto``, or a mechanism of the registry."""


class Person(SpecPart):
    """Who stands behind a record, and how many records of one person count."""

    column: str | None = Field(None, description="column that identifies the person; records beyond the bound are left out")
    most_records: int = Field(
        1,
        ge=1,
        le=10**6,
        description="records of one person that count; without a column: records that are protected together",
    )
    type: PersonType | None = Field(
        None,
        description="of the person column in all files: text as it is, or whole numbers; default: that of the first file",
    )


class Records(SpecPart):
    """Where the records are."""

    path: str = Field(description=".parquet, .csv or .csv.gz file, or a folder of them; relative to the spec file")
    columns: dict[str, str] = Field(default_factory=dict, description="attribute: column, where the names differ")
    header: tuple[str, ...] = Field((), description="column names of CSV files without a header row")
    empty: Literal["refuse", "allow"] = Field(
        "refuse", description="what happens when there is no record at all; 'allow' for periods in which nothing may happen"
    )
    person: Person = Field(
        default_factory=lambda: Person.model_validate({}),
        description="who stands behind a record; default: every record is protected by itself",
    )


WHOLE = 2**53
"""Whole numbers beyond are not exact as floating-point numbers."""


class AttributeSpec(SpecPart):
    """The public, declared values of one attribute: ``categories``, ``edges``, or whole numbers ``from``..``to``."""

    categories: tuple[Text, ...] | None = Field(None, description="all values there are, without an order")
    edges: tuple[float, ...] | None = Field(None, description="bins [edge, next edge)")
    first: int | None = Field(None, alias="from", description="smallest whole number")
    last: int | None = Field(None, alias="to", description="largest whole number, included")
    width: int = Field(1, ge=1, description="whole numbers a bin")
    outside: Literal["clip", "drop", "error"] = Field("error", description="what happens to values outside the domain")
    labels: tuple[Text, ...] = Field((), description="how values or bins are called on the page")

    @model_validator(mode="after")
    def _one_form(self) -> AttributeSpec:
        forms = [self.categories is not None, self.edges is not None, self.first is not None or self.last is not None]
        if sum(forms) != 1:
            raise ValueError("give exactly one of 'categories', 'edges', or 'from' with 'to'")
        if forms[2] and (self.first is None or self.last is None or self.last < self.first):
            raise ValueError("'from' and 'to' must both be given, with from <= to")
        if any(abs(value) > WHOLE for value in (self.first or 0, self.last or 0, self.width)):
            raise ValueError(
                f"whole numbers lie between -{WHOLE:,} and {WHOLE:,}: beyond, neighbours look alike to a computer"
            )
        return self

    def attribute(self, name: str, sizes: Sizes = SIZES) -> Attribute:
        """The domain's attribute."""
        if self.categories is not None:
            return Attribute(name, categories=self.categories, outside=self.outside, labels=self.labels)
        if self.edges is not None:
            return Attribute(name, edges=self.edges, outside=self.outside, labels=self.labels)
        assert self.first is not None
        assert self.last is not None
        bins = -(-(self.last - self.first + 1) // self.width)
        return Attribute(
            name, edges=even_edges(self.first, self.width, bins, sizes), outside=self.outside, labels=self.labels
        )


class BudgetSpec(SpecPart):
    """What the release may reveal: rho (zCDP), epsilon with delta (Gaussian noise), or epsilon alone (Laplace noise)."""

    rho: Exact | None = Field(None, description="zCDP; instead of epsilon")
    epsilon: Exact | None = Field(None, description="with delta: Gaussian noise; alone: Laplace noise")
    delta: Exact | None = Field(None, description="leave it out for pure epsilon: Laplace noise")

    @model_validator(mode="after")
    def _one_form(self) -> BudgetSpec:
        if (self.rho is None) == (self.epsilon is None) or (self.epsilon is None and self.delta is not None):
            raise ValueError("give either 'rho', or 'epsilon' and 'delta', or 'epsilon' alone (pure, Laplace noise)")
        for name in ("rho", "epsilon", "delta"):
            amount = getattr(self, name)
            if amount is not None and amount <= 0:
                raise ValueError(
                    f"{name} must be positive, found {float(amount):g}; a release without budget reveals nothing"
                )
        if self.delta is not None and self.delta >= 1:
            raise ValueError(f"delta lies in (0, 1), found {float(self.delta):g}; take less than 1 / number of persons")
        return self


class ReleaseBudgetSpec(BudgetSpec):
    """The budget of this release."""

    calibration: Calibration = Field(
        "analytic",
        description="how much noise epsilon and delta buy: analytic Gaussian (the least), tight zCDP, or the papers' formula",
    )

    @property
    def pure(self) -> bool:
        """Whether no delta is spent: Laplace noise."""
        return self.rho is None and self.delta is None

    @cached_property
    def loss(self) -> Loss:
        """The exact amount that is charged."""
        if self.rho is not None:
            return Loss.gaussian(self.rho)
        assert self.epsilon is not None
        if self.delta is None:
            return Loss.laplace(self.epsilon)
        return Loss.gaussian(rho_for(float(self.epsilon), float(self.delta), self.calibration))


class CapSpec(BudgetSpec):
    """The most that all releases of the data set may reveal, in total or per day, week or month."""

    per: Literal["total", "day", "week", "month"] = Field(
        "total", description="'total' for all releases together; else each day, week or month has the whole cap"
    )

    @property
    def cap(self) -> Cap:
        """As the ledger knows it."""
        return Cap(rho=self.rho, epsilon=self.epsilon, delta=self.delta or Fraction(0), per=self.per)


class LedgerSpec(SpecPart):
    """The data set whose budget is charged."""

    dataset: str = Field(
        min_length=1,
        max_length=150,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="its name in the ledger: all releases of the same persons are charged under one name",
    )
    cap: CapSpec = Field(description="the most that its releases may reveal; every spec of the data set writes the same")
    shared_records: bool = Field(
        False,
        description="these records may also be charged under another data set's name, or in another period of a cap per period; "
        "otherwise the ledger refuses records that it has seen there",
    )


TableFormat = Literal["parquet", "csv", "zarr"]


class OutputSpec(SpecPart):
    """Where results go."""

    folder: str | None = Field(
        None,
        description="a folder, or an object store URL (s3://bucket/prefix); default: <release id> in DPDIST_OUTPUT, or in releases here",
    )
    formats: tuple[TableFormat, ...] | None = Field(
        None, min_length=1, description="tables to write; default: all, CSV up to 5,000,000 answers, Parquet up to 2^28"
    )


class KnownSpec(SpecPart):
    """A count that is public anyway."""

    where: str | None = Field(None, description="a predicate over the attributes; left out: all records")
    count: float = Field(ge=0, allow_inf_nan=False, description="the public count, exact")


class PostprocessSpec(SpecPart):
    """What is done to the noisy answers; it costs no budget."""

    known: tuple[KnownSpec, ...] = Field((), description="public counts, as equality constraints: smaller, exact errors")
    non_negative: bool = Field(False, description="the closest non-negative cells; biased upwards where counts are small")
    integer: bool = Field(False, description="answers rounded to whole numbers; totals may differ from their parts")
    consistent_with: tuple[str, ...] = Field(
        (), description="specs of earlier releases of the same records: one estimate from all measurements, smaller errors"
    )

    @model_validator(mode="after")
    def _one_fit(self) -> PostprocessSpec:
        if self.known and self.non_negative:
            raise ValueError("'known' and 'non_negative' are two different fits; choose one")
        return self


class SeparationSpec(SpecPart):
    """How mechanism 'eigen' is made for many cells; by default every eigen-query gets a weight of its own."""

    group_size: int | None = Field(None, ge=2, description="eigen-queries a group; n^(1/3) is a good size")
    principal: int | None = Field(
        None, ge=1, description="leading eigen-queries with weights of their own, the rest share one"
    )

    @model_validator(mode="after")
    def _one_way(self) -> SeparationSpec:
        if self.group_size is not None and self.principal is not None:
            raise ValueError("give either 'group_size' or 'principal'")
        return self


class LimitsSpec(SpecPart):
    """What optimising the strategy may take; mechanisms that need more are left out."""

    memory_gib: float | None = Field(None, gt=0, allow_inf_nan=False, description="of the worker that optimises")
    minutes: float | None = Field(None, gt=0, allow_inf_nan=False, description="on a nominal processor of 20 GFlop/s")

    @property
    def limits(self) -> Limits:
        """As the planner knows them."""
        memory = None if self.memory_gib is None else int(self.memory_gib * 2**30)
        return Limits(memory, None if self.minutes is None else 60.0 * self.minutes)


class StreamSpec(SpecPart):
    """A series that grows: each release measures the steps since the last one, all together are charged once."""

    name: str = Field(
        min_length=1,
        max_length=150,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="the same in all releases of the series, whose ids differ",
    )
    through: int = Field(
        description="last value of the filter's attribute that is complete; the domain declares all there will be"
    )
