"""ReleaseSpec: what a data team writes. YAML, parsed and validated once; every error names its line and a cure."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import scipy
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from dpdist.domain import Attribute, Domain, even_edges
from dpdist.errors import DpdistError, InvalidInput, InvalidSpec
from dpdist.identities import canonical, digest_of
from dpdist.operators import Saved
from dpdist.privacy.accounting import Calibration, Cap, Loss, rho_for
from dpdist.privacy.protection import Protection
from dpdist.records.counting import PersonType, Source, source_of
from dpdist.sizes import SIZES, Sizes
from dpdist.spec import yaml_text
from dpdist.spec.yaml_text import Lines, Place
from dpdist.stability import Neighbours
from dpdist.store import zarr_rows
from dpdist.strategies.convolution import has_square_root
from dpdist.strategies.dawa import dawa
from dpdist.strategies.marginals import is_marginals
from dpdist.strategies.planner import GAUSSIAN_ONLY, LAPLACE_ONLY, Limits, MechanismName
from dpdist.workloads import Block, Filter, Workload, dnf, explicit, filtered, predicates, relative, tall, union
from dpdist.workloads.filters import (
    baxter_king,
    coefficients,
    exponential,
    hodrick_prescott,
    polynomial,
    running_sum,
    window,
)
from dpdist.workloads.marginals import listed_marginals, marginals
from dpdist.workloads.ranges import boxes, cdf, range_marginals, ranges_of

Mechanism = Literal["auto", MechanismName]


def exact(value: Any) -> Fraction:
    """A number as it is written: 0.1 is one tenth. Raises: ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("a number is needed")
    if (isinstance(value, int) and value.bit_length() > 300) or not _NUMBER.fullmatch(text := str(value).strip()):
        raise ValueError("a number is needed, written with at most 90 digits and a power of ten from -99 to 99")
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError("a number is needed") from None


_NUMBER = re.compile(r"[-+]?[0-9_.]{1,92}([eE][-+]?[0-9]{1,2})?|[-+]?[0-9]{1,45}/[0-9]{1,45}")
"""Fraction would compute all digits of 1e-99999999."""


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Exact = Annotated[Fraction, BeforeValidator(exact), Field(json_schema_extra={"type": "number"})]
Text = Annotated[str, BeforeValidator(_text)]


class Part(BaseModel):
    """Base of all parts: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, populate_by_name=True)


class Person(Part):
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


class Records(Part):
    """Where the records are."""

    path: str = Field(description=".parquet, .csv or .csv.gz file, or a folder of them; relative to the spec file")
    columns: dict[str, str] = Field(default_factory=dict, description="attribute: column, where the names differ")
    header: tuple[str, ...] = Field((), description="column names of CSV files without a header row")
    empty: Literal["refuse", "allow"] = Field(
        "refuse", description="what happens when there is no record at all; 'allow' for periods in which nothing may happen"
    )
    person: Person = Field(default_factory=lambda: Person.model_validate({}))


WRITTEN_VALUES = 2**22
"""Values of an attribute that intervals and predicates write down."""
WHOLE = 2**53
"""Whole numbers beyond are not exact as floating-point numbers."""


class AttributeSpec(Part):
    """The public, declared values of one attribute: ``categories``, ``edges``, or whole numbers ``from``..``to``."""

    categories: tuple[Text, ...] | None = None
    edges: tuple[float, ...] | None = Field(None, description="bins [edge, next edge)")
    first: int | None = Field(None, alias="from", description="smallest whole number")
    last: int | None = Field(None, alias="to", description="largest whole number, included")
    width: int = Field(1, ge=1, description="whole numbers a bin")
    outside: Literal["clip", "drop", "error"] = Field("error", description="what happens to values outside the domain")
    labels: tuple[Text, ...] = ()

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


class MarginalsSpec(Part):
    """Counts for every combination of values."""

    ways: tuple[int, ...] | None = Field(None, description="all marginals of this many attributes")
    among: tuple[str, ...] = Field((), description="attributes that 'ways' combines; default all")
    of: tuple[tuple[str, ...], ...] | None = Field(None, description="listed marginals")
    ranges: bool = Field(False, description="with 'ways': all intervals of ordered attributes instead of single values")

    @model_validator(mode="after")
    def _one_form(self) -> MarginalsSpec:
        if (self.ways is None) == (self.of is None):
            raise ValueError("give either 'ways' (all marginals of so many attributes) or 'of' (a list of attribute lists)")
        if self.ranges and self.of is not None:
            raise ValueError("'ranges' goes with 'ways'; write a list of ranges as 'ranges' entries")
        return self


class CdfSpec(Part):
    """Counts at or below each value of an ordered attribute."""

    of: str
    by: tuple[str, ...] = ()


class RangesSpec(Part):
    """Counts of intervals: all of them, or listed ones (pairs of values, both included)."""

    of: tuple[str, ...]
    by: tuple[str, ...] = ()
    listed: tuple[tuple[float, float] | tuple[tuple[float, float], ...], ...] | None = Field(
        None, alias="list", description="intervals of the one attribute, or boxes: one interval an attribute"
    )
    lists: dict[str, tuple[tuple[float, float], ...]] = Field(
        default_factory=dict, description="intervals of each attribute, of which every combination is asked"
    )

    @model_validator(mode="after")
    def _one_form(self) -> RangesSpec:
        if self.listed is not None and self.lists:
            raise ValueError(
                "give either 'list' (intervals or boxes) or 'lists' (intervals of each attribute, all combinations)"
            )
        return self


class FilterSpec(Part):
    """One filter: exactly one of the kinds."""

    running_sum: Literal[True] | None = None
    window: int | None = Field(None, ge=1, description="sum of so many steps")
    mean: int | None = Field(None, ge=1, description="mean of so many steps")
    exponential: float | None = Field(None, gt=0, lt=1, description="weight of a step against the next one")
    polynomial: float | None = Field(None, gt=0, allow_inf_nan=False, description="(k + 1)^-power for a step k steps ago")
    trend: float | None = Field(None, gt=0, allow_inf_nan=False, description="Hodrick-Prescott trend, its lambda")
    cycle: float | None = Field(None, gt=0, allow_inf_nan=False, description="Hodrick-Prescott cycle, its lambda")
    band: tuple[float, float] | None = Field(None, description="Baxter-King: shortest and longest period, in steps")
    width: int = Field(12, ge=1, description="half width of a Baxter-King filter, in steps")
    file: str | None = Field(None, description=".npy of coefficients, the present first")

    @model_validator(mode="after")
    def _one_kind(self) -> FilterSpec:
        if sum(getattr(self, kind) is not None for kind in FILTER_KINDS) != 1:
            raise ValueError(f"give exactly one of {', '.join(FILTER_KINDS)}")
        if self.band is None and "width" in self.model_fields_set:
            raise ValueError("'width' belongs to 'band'")
        return self

    def made(self, steps: int, folder: Path, sizes: Sizes = SIZES) -> Filter:
        """The filter for a series of so many steps."""
        kind = next(kind for kind in FILTER_KINDS if getattr(self, kind) is not None)
        return _FILTERS[kind](self, steps, folder, sizes)


_FILTERS: dict[str, Callable[[Any, int, Path, Sizes], Filter]] = {
    "running_sum": lambda spec, steps, folder, sizes: running_sum(steps, sizes),
    "window": lambda spec, steps, folder, sizes: window(spec.window),
    "mean": lambda spec, steps, folder, sizes: window(spec.mean, mean=True),
    "exponential": lambda spec, steps, folder, sizes: exponential(spec.exponential, steps),
    "polynomial": lambda spec, steps, folder, sizes: polynomial(spec.polynomial, steps, sizes),
    "trend": lambda spec, steps, folder, sizes: hodrick_prescott(spec.trend, steps),
    "cycle": lambda spec, steps, folder, sizes: hodrick_prescott(spec.cycle, steps, part="cycle"),
    "band": lambda spec, steps, folder, sizes: baxter_king(spec.band[0], spec.band[1], spec.width),
    "file": lambda spec, steps, folder, sizes: coefficients(_rows_file(folder / spec.file), spec.file),
}
FILTER_KINDS = tuple(_FILTERS)


class FiltersSpec(Part):
    """A series of counts, filtered: every filter at every step."""

    of: str
    by: tuple[str, ...] = ()
    apply: tuple[FilterSpec, ...] = Field(min_length=1)
    circular: bool = Field(False, description="the step after the last is the first")
    around: int | None = Field(
        None, ge=0, description="filter every count's distance from this public count: volatility around a known mean"
    )


class DnfSpec(Part):
    """Records that satisfy a formula over binary attributes, for every way to negate them."""

    terms: tuple[tuple[str, ...], ...] = Field(
        min_length=1, description="attributes joined by 'and'; terms are joined by 'or'"
    )


class RowsSpec(Part):
    """Queries given as rows of a matrix of m x cells, cells in C order over the attributes.

    The file is .npy, .npz (SciPy sparse) or .zarr, a folder or a URL: an array, or a group of compressed sparse rows.
    """

    file: str
    names: tuple[str, ...] | None = None


class QuerySpec(Part):
    """One group of queries: exactly one of the kinds, with an optional weight."""

    marginals: MarginalsSpec | None = None
    cdf: CdfSpec | None = None
    ranges: RangesSpec | None = None
    predicates: tuple[str, ...] | None = None
    filters: FiltersSpec | None = None
    dnf: DnfSpec | None = None
    rows: RowsSpec | None = None
    weight: float = Field(1.0, gt=0, allow_inf_nan=False, description="a heavier group is answered more accurately")
    relative: bool = Field(
        False, description="weigh every query by 1 / its length: small relative instead of absolute errors"
    )

    @model_validator(mode="after")
    def _one_kind(self) -> QuerySpec:
        kinds = ("marginals", "cdf", "ranges", "predicates", "filters", "dnf", "rows")
        if sum(getattr(self, kind) is not None for kind in kinds) != 1:
            raise ValueError(f"give exactly one of {', '.join(kinds)}")
        return self


class BudgetSpec(Part):
    """What the release may reveal: rho (zCDP), epsilon with delta (Gaussian noise), or epsilon alone (Laplace noise)."""

    rho: Exact | None = None
    epsilon: Exact | None = None
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

    per: Literal["total", "day", "week", "month"] = "total"

    @property
    def cap(self) -> Cap:
        """As the ledger knows it."""
        return Cap(rho=self.rho, epsilon=self.epsilon, delta=self.delta or Fraction(0), per=self.per)


class LedgerSpec(Part):
    """The data set whose budget is charged."""

    dataset: str = Field(min_length=1, max_length=150, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    cap: CapSpec
    shared_records: bool = Field(
        False,
        description="these records may also be charged under another data set's name, or in another period of a cap per period; "
        "otherwise the ledger refuses records that it has seen there",
    )


TableFormat = Literal["parquet", "csv", "zarr"]


class OutputSpec(Part):
    """Where results go."""

    folder: str | None = Field(
        None,
        description="a folder, or an object store URL (s3://bucket/prefix); default: <release id> in DPDIST_OUTPUT, or in releases here",
    )
    formats: tuple[TableFormat, ...] | None = Field(
        None, min_length=1, description="tables to write; default: all, CSV up to 5,000,000 answers, Parquet up to 2^28"
    )


class KnownSpec(Part):
    """A count that is public anyway."""

    where: str | None = Field(None, description="a predicate over the attributes; left out: all records")
    count: float = Field(ge=0, allow_inf_nan=False)


class PostprocessSpec(Part):
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


class SeparationSpec(Part):
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


class LimitsSpec(Part):
    """What optimising the strategy may take; mechanisms that need more are left out."""

    memory_gib: float | None = Field(None, gt=0, allow_inf_nan=False)
    minutes: float | None = Field(None, gt=0, allow_inf_nan=False, description="on a nominal processor of 20 GFlop/s")

    @property
    def limits(self) -> Limits:
        """As the planner knows them."""
        memory = None if self.memory_gib is None else int(self.memory_gib * 2**30)
        return Limits(memory, None if self.minutes is None else 60.0 * self.minutes)


class StreamSpec(Part):
    """A series that grows: each release measures the steps since the last one, all together are charged once."""

    name: str = Field(min_length=1, max_length=150, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    through: int = Field(
        description="last value of the filter's attribute that is complete; the domain declares all there will be"
    )


class ReleaseSpec(Part):
    """One release: records, domain, queries, mechanism, budget."""

    release: str = Field(
        min_length=1, max_length=150, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="its id: one id, one charge"
    )
    title: str | None = None
    period: datetime.date | None = Field(None, description="the day the release stands for; needed for budgets per period")
    records: Records
    domain: dict[str, AttributeSpec] = Field(min_length=1)
    neighbours: Neighbours = Field(
        "add-remove",
        description="what happens to the unit that is protected, a record or (with a person column) a person with all their "
        "records: it is added or removed, or also replaced",
    )
    workload: tuple[QuerySpec, ...] = Field(min_length=1)
    mechanism: Mechanism = "auto"
    stream: StreamSpec | None = None
    objective: Literal["total", "worst"] = Field(
        "total", description="least sum of squared errors, or (marginals only) the least largest error of a count"
    )
    eigen: SeparationSpec = Field(default_factory=lambda: SeparationSpec.model_validate({}))
    limits: LimitsSpec = Field(default_factory=lambda: LimitsSpec.model_validate({}))
    tolerance: float = Field(1e-6, gt=0, lt=1, description="certified relative gap at which the optimiser stops")
    budget: ReleaseBudgetSpec
    ledger: LedgerSpec
    postprocess: PostprocessSpec = Field(default_factory=lambda: PostprocessSpec.model_validate({}))
    output: OutputSpec = Field(default_factory=lambda: OutputSpec.model_validate({}))
    _folder: Path = PrivateAttr(default_factory=Path.cwd)
    _sizes: Sizes = PrivateAttr(default=SIZES)

    @cached_property
    def attributes(self) -> Domain:
        """The declared domain."""
        return Domain(tuple(spec.attribute(name, self._sizes) for name, spec in self.domain.items()), self._sizes)

    @cached_property
    def queries(self) -> Workload:
        """The workload."""
        parts = (self._queries_of(entry) for entry in self.workload)
        weighed = (relative(part) if entry.relative else part for part, entry in zip(parts, self.workload, strict=True))
        return union(*weighed, weights=tuple(entry.weight for entry in self.workload))

    @cached_property
    def known(self) -> tuple[Block, ...]:
        """The queries whose counts are public."""
        everyone = listed_marginals(self.attributes, [()])
        given = [everyone if k.where is None else predicates(self.attributes, [k.where]) for k in self.postprocess.known]
        return tuple(workload.blocks[0] for workload in given)

    @property
    def protection(self) -> Protection:
        """What the guarantee protects: unit, neighbouring relation and bound."""
        person = self.records.person
        return Protection(self.neighbours, person.most_records, person.column)

    @property
    def chosen(self) -> Mechanism:
        """The mechanism asked for; streams have one: each step must be measured from earlier ones only."""
        return self.mechanism if self.stream is None else "square-root"

    @property
    def steps(self) -> int:
        """Steps of the stream that are complete."""
        entry = self.workload[0].filters
        assert self.stream is not None
        assert entry is not None
        attribute = self.attributes.attribute(entry.of)
        return int(np.searchsorted(np.asarray(attribute.edges), self.stream.through, side="right"))

    def queries_of_steps(self, steps: int) -> Workload:
        """The stream's queries for its first steps."""
        entry = self.workload[0]
        assert entry.filters is not None
        whole = self.attributes.attributes
        place = self.attributes.axis(entry.filters.of)
        begun = Attribute(entry.filters.of, edges=whole[place].edges[: steps + 1], labels=whole[place].labels[:steps])
        domain = Domain((*whole[:place], begun, *whole[place + 1 :]), self._sizes)
        (each,) = (each.made(whole[place].size, self._folder, self._sizes) for each in entry.filters.apply)
        return union(filtered(domain, begun.name, [each], entry.filters.by), weights=(entry.weight,))

    @property
    def around(self) -> int | None:
        """The public count whose distance is filtered instead of the counts themselves."""
        first = self.workload[0].filters
        return None if first is None else first.around

    @cached_property
    def companions(self) -> tuple[ReleaseSpec, ...]:
        """The specs of the releases that this one is made consistent with."""
        found = tuple(
            load(self._folder / path, follow=False, sizes=self._sizes) for path in self.postprocess.consistent_with
        )
        for other in found:
            if other.release == self.release or [o.release for o in found].count(other.release) > 1:
                raise InvalidInput(f"release {other.release!r} is named twice; name other, earlier releases")
            same = (other.attributes, other.ledger.dataset, other.budget.pure, other.around)
            if same != (self.attributes, self.ledger.dataset, self.budget.pure, self.around):
                raise InvalidInput(
                    f"release {other.release!r} cannot be combined: it needs the same domain, data set and kind of noise, and counts"
                )
        return found

    @property
    def records_path(self) -> Path:
        """The records, relative paths resolved against the spec's folder."""
        return self._folder / self.records.path

    def with_records(self, path: Path) -> ReleaseSpec:
        """The same spec over other records."""
        copy = self.model_copy(update={"records": self.records.model_copy(update={"path": str(path)})})
        copy.__dict__.pop("source", None)
        return copy

    @cached_property
    def source(self) -> Source:
        """The files of the records, each hashed once. Raises: InvalidSpec when there are none."""
        person = self.records.person
        return source_of(
            self.records_path,
            columns=self.records.columns,
            header=self.records.header,
            person=person.column,
            most_records=person.most_records,
            person_type=person.type,
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that decides what is measured. Paths, titles, output folders and post-processing do not enter."""
        left_out = {"title", "output", "records", "ledger", "postprocess", "domain"}
        facts = {
            "spec": {name: part for name, part in canonical(self).items() if name not in left_out},
            "domain": list(self.domain.items()),  # in order: it numbers the cells
            "person": self.records.person,
            "columns": self.records.columns,
            "queries": self.queries.fingerprint,
        }
        return digest_of("spec", facts)

    def _queries_of(self, entry: QuerySpec) -> Workload:
        domain = self.attributes
        if entry.filters is not None:
            return self._filters_of(entry.filters)
        if entry.marginals is None or entry.marginals.ranges:
            self._check_listable()
        if entry.marginals is not None:
            return self._marginals_of(entry.marginals)
        if entry.cdf is not None:
            self._ordered(entry.cdf.of)
            return cdf(domain, entry.cdf.of, entry.cdf.by)
        if entry.ranges is not None:
            return self._ranges_of(entry.ranges)
        if entry.dnf is not None:
            return dnf(domain, entry.dnf.terms)
        return self._rows_of(entry.rows) if entry.rows is not None else predicates(domain, entry.predicates or ())

    def _check_listable(self) -> None:
        """Raises: InvalidInput when an attribute has more values than can be written down, as these queries do."""
        for attribute in self.attributes.attributes:
            if attribute.size > WRITTEN_VALUES:
                raise InvalidInput(
                    f"{attribute.name!r} has {attribute.size:,} values; beyond {WRITTEN_VALUES:,} only marginals and filters are "
                    "answered: give its bins a 'width'"
                )

    def _rows_of(self, entry: RowsSpec) -> Workload:
        given: Any = {"names": entry.names, "title": entry.file}
        remote = "://" in entry.file
        path = self._folder / entry.file
        if entry.file.rstrip("/").endswith(".zarr"):
            return tall(zarr_rows(entry.file if remote else str(path.resolve())), self.attributes, **given)
        if not remote and path.suffix == ".npy" and path.is_file() and path.stat().st_size > self._sizes.mapped_bytes:
            return tall(Saved(str(path.resolve()), _rows_file(path, mapped=True).shape), self.attributes, **given)
        return explicit(_rows_file(path), self.attributes, **given)

    def _filters_of(self, entry: FiltersSpec) -> Workload:
        self._ordered(entry.of)
        steps = self.attributes.attribute(entry.of).size
        made = [each.made(steps, self._folder, self._sizes) for each in entry.apply]
        if entry.around is not None:
            made = [replace(each, name=f"{each.name}, of |count - {entry.around}|") for each in made]
        return filtered(self.attributes, entry.of, made, entry.by, circular=entry.circular)

    def _ranges_of(self, entry: RangesSpec) -> Workload:
        for name in entry.of:
            self._ordered(name)
        if entry.listed is None:
            lists = {name: [self._interval(name, *pair) for pair in pairs] for name, pairs in entry.lists.items()}
            return ranges_of(self.attributes, entry.of, entry.by, listed=lists)
        listed: list[list[tuple[int, int]]] = []
        for box in entry.listed:
            pairs: list[Any] = [pair for pair in box if isinstance(pair, tuple)] or [box]
            if len(pairs) != len(entry.of):
                raise InvalidInput(
                    f"a listed range over {list(entry.of)} needs {len(entry.of)} pairs of values, found {list(box)}"
                )
            listed.append([self._interval(name, *pair) for name, pair in zip(entry.of, pairs, strict=True)])
        if len(entry.of) == 1:
            return ranges_of(self.attributes, entry.of, entry.by, listed={entry.of[0]: [box[0] for box in listed]})
        if entry.by:
            raise InvalidInput("listed ranges over several attributes have no 'by'; write predicates instead")
        return boxes(self.attributes, entry.of, listed)

    def _marginals_of(self, entry: MarginalsSpec) -> Workload:
        if entry.of is not None:
            return listed_marginals(self.attributes, entry.of)
        if entry.ranges:
            return union(*(range_marginals(self.attributes, k, among=entry.among) for k in entry.ways or ()))
        return marginals(self.attributes, entry.ways or (), among=entry.among)

    def _ordered(self, name: str) -> None:
        if self.attributes.attribute(name).categories:
            raise InvalidInput(
                f"attribute {name!r} has categories, which have no order; ranges and cdf need edges or from/to"
            )

    def _interval(self, name: str, low: float, high: float) -> tuple[int, int]:
        """Bins that an interval of values covers; both ends must be values (whole-number bins) or edges."""
        attribute = self.attributes.attribute(name)
        edges = np.asarray(attribute.edges)
        first = np.flatnonzero(edges[:-1] == low)
        unit = bool((np.diff(edges) == 1).all())
        last = np.flatnonzero(edges[:-1] == high) if unit else np.flatnonzero(edges[1:] == high)
        if first.size == 0 or last.size == 0 or last[0] < first[0]:
            raise InvalidInput(
                f"range {low:g} to {high:g} of {name!r} does not fall on its bins; allowed ends are "
                f"{', '.join(f'{e:g}' for e in edges[:10])}{' ...' if edges.size > 10 else ''}"
            )
        return int(first[0]), int(last[0])


def load(
    source: ReleaseSpec | dict[str, Any] | str | Path,
    *,
    period: datetime.date | None = None,
    follow: bool = True,
    sizes: Sizes = SIZES,
) -> ReleaseSpec:
    """A checked spec from a YAML file, a dictionary, or a spec.

    Args:
        period: the day that the release stands for: it takes the place of ``{period}`` wherever the spec says so, and is part of
            the release's id in any case.
        follow: check the specs under ``consistent_with``, too.
        sizes: from which other paths are taken.
    Raises: InvalidSpec naming file, line, what was found and what to do.
    """
    if isinstance(source, ReleaseSpec):
        return source
    if isinstance(source, dict):
        return _checked(_dated(source, period, "spec"), {}, "spec", Path.cwd(), follow=follow, sizes=sizes)
    path = Path(source)
    content, lines = _mapping(path)
    return _checked(_dated(content, period, str(path)), lines, str(path), path.resolve().parent, follow=follow, sizes=sizes)


def _mapping(path: Path) -> tuple[dict[str, Any], Lines]:
    content, lines = yaml_text.read(path)
    if not isinstance(content, dict):
        raise InvalidSpec(f"{path}: a release spec is a mapping of keys, found {_short(content)}; write 'key: value' lines")
    return content, lines


def check_many_periods(path: Path) -> None:
    """Refuse a spec that reads the same records in every period: each release of them would be charged anew.

    Raises: InvalidSpec.
    """
    content, lines = _mapping(path)
    records = content.get("records")
    if isinstance(records, dict) and PERIOD not in str(records.get("path")):
        where = _where(("records", "path"), lines, str(path))
        raise InvalidSpec(
            f"{where}: every period would read and charge the same records; name each period's file with {PERIOD}, "
            f"for example 'path: records-{PERIOD}.parquet'"
        )


def _dated(content: dict[str, Any], period: datetime.date | None, name: str) -> dict[str, Any]:
    """The spec of one period. Raises: InvalidSpec when a period is missing, or fixed to another one."""
    if period is None:
        if PERIOD in json.dumps(content, default=str):
            raise InvalidSpec(f"{name}: the spec is for many periods ({PERIOD}); say which: --period YYYY-MM-DD")
        return content
    day = period.isoformat()
    if str(content.get("period", day)) not in (day, PERIOD):
        raise InvalidSpec(
            f"{name}: the spec is for the period {content['period']}, asked for {day}; write 'period: \"{PERIOD}\"'"
        )
    filled = _filled(content, day)
    release = str(content.get("release", ""))
    return {**filled, "period": day, "release": filled["release"] if PERIOD in release else f"{release}-{day}"}


PERIOD = "{period}"
"""Stands for the day of a release in specs of periodic ones."""


def _filled(item: Any, day: str) -> Any:
    if isinstance(item, dict):
        return {key: _filled(value, day) for key, value in item.items()}
    if isinstance(item, list | tuple):
        return [_filled(value, day) for value in item]
    return item.replace(PERIOD, day) if isinstance(item, str) else item


def json_schema() -> dict[str, Any]:
    """The JSON schema of a spec, for editors."""
    return ReleaseSpec.model_json_schema(by_alias=True)


def _checked(content: dict[str, Any], lines: Lines, name: str, folder: Path, *, follow: bool, sizes: Sizes) -> ReleaseSpec:
    try:
        spec = ReleaseSpec.model_validate(content)
    except ValidationError as error:
        raise InvalidSpec(_explained(error, lines, name)) from None
    spec._folder, spec._sizes = folder, sizes
    for attribute, part in spec.domain.items():
        _located(lambda part=part, attribute=attribute: part.attribute(attribute), ("domain", attribute), lines, name)
    unknown = sorted(set(spec.records.columns) - set(spec.domain))
    if unknown:
        where = _where(("records", "columns", unknown[0]), lines, name)
        raise InvalidSpec(f"{where}: column given for {unknown[0]!r}, which is not in the domain ({', '.join(spec.domain)})")
    person = spec.records.person.column
    counted = next((name for name in spec.domain if spec.records.columns.get(name, name) == person), None)
    if counted is not None:
        raise InvalidSpec(
            f"{_where(('records', 'person', 'column'), lines, name)}: {person!r} identifies persons and is the attribute {counted!r}, too; "
            "count other columns only"
        )
    for i, entry in enumerate(spec.workload):
        _located(lambda entry=entry: spec._queries_of(entry), ("workload", i), lines, name)
    _located(lambda: spec.known, ("postprocess", "known"), lines, name)
    if follow:
        _located(lambda: spec.companions, ("postprocess", "consistent_with"), lines, name)
    _located(lambda: _check_noise(spec), ("mechanism",), lines, name)
    _located(lambda: _check_around(spec), ("workload",), lines, name)
    _located(lambda: _check_stream(spec), ("stream",), lines, name)
    _located(lambda: _check_budget(spec), ("budget",), lines, name)
    if spec.ledger.cap.per != "total" and spec.period is None:
        where = _where(("ledger", "cap", "per"), lines, name)
        raise InvalidSpec(f"{where}: a budget per {spec.ledger.cap.per} needs the release's day; add 'period: YYYY-MM-DD'")
    return spec


def _check_around(spec: ReleaseSpec) -> None:
    """Distances from a public count are taken of the counted table before anything is measured: all queries must be of them."""
    centres = {None if entry.filters is None else entry.filters.around for entry in spec.workload}
    if centres == {None}:
        return
    asked = {name for entry in spec.workload if entry.filters is not None for name in (entry.filters.of, *entry.filters.by)}
    if len(centres) > 1 or asked != set(spec.domain):
        raise InvalidInput(
            "'around' filters distances from one public count: all entries of the workload must be filters around the same count, "
            "of all attributes of the domain"
        )
    if spec.neighbours != "add-remove":
        raise InvalidInput(
            "'around' needs 'neighbours: add-remove'; a replaced record is two changes: write 'most_records: 2' instead"
        )
    if spec.postprocess.known or spec.postprocess.non_negative or spec.postprocess.consistent_with:
        raise InvalidInput(
            "'around' publishes distances, not counts: leave 'known', 'non_negative' and 'consistent_with' out"
        )


def _check_stream(spec: ReleaseSpec) -> None:
    """A stream is one filter of the past, and every release of it measures whole steps."""
    if spec.stream is None:
        return
    entry = spec.workload[0].filters
    if (
        len(spec.workload) > 1
        or entry is None
        or not has_square_root(spec.queries)
        or spec.mechanism not in ("auto", "square-root")
    ):
        raise InvalidInput(
            "a stream publishes one filter of the past (running_sum, window, mean, exponential, polynomial or a file), with "
            "'mechanism: auto' or 'square-root'"
        )
    edges = spec.attributes.attribute(entry.of).edges
    if not edges[0] <= spec.stream.through < edges[-1]:
        raise InvalidInput(
            f"'through' is a value of {entry.of!r}, {edges[0]:g} to below {edges[-1]:g}, found {spec.stream.through}"
        )
    options = spec.postprocess
    if spec.budget.pure or entry.around is not None or options.known or options.non_negative or options.consistent_with:
        raise InvalidInput(
            "a stream uses Gaussian noise (give the budget a 'delta' or 'rho') and goes without 'around', 'known', 'non_negative' "
            "and 'consistent_with'"
        )


def _check_noise(spec: ReleaseSpec) -> None:
    """A mechanism that needs the other kind of noise than the budget allows, or cannot have the objective."""
    if spec.objective == "worst" and (
        spec.budget.pure or spec.mechanism not in ("auto", "marginals") or not is_marginals(spec.queries)
    ):
        raise InvalidInput(
            "'objective: worst' is for workloads of marginals under Gaussian noise, with 'mechanism: auto' or 'marginals'"
        )
    if spec.budget.pure and spec.mechanism in GAUSSIAN_ONLY:
        raise InvalidInput(f"mechanism {spec.mechanism!r} uses Gaussian noise: give the budget a 'delta', or choose another")
    if not spec.budget.pure and spec.mechanism in LAPLACE_ONLY:
        raise InvalidInput(
            f"mechanism {spec.mechanism!r} uses Laplace noise: give the budget an 'epsilon' alone, or choose another"
        )
    if spec.mechanism == "dawa":
        dawa(spec.queries)  # refuses domains that it cannot partition


def _check_budget(spec: ReleaseSpec) -> None:
    loss, cap = spec.budget.loss, spec.ledger.cap.cap
    if cap.pure and not spec.budget.pure:
        raise InvalidInput(
            "the data set's cap is a pure epsilon, which Gaussian noise can never keep: give the release an 'epsilon' without "
            "'delta', or the cap a 'delta'"
        )
    if not cap.allows(loss):
        amount, limit = float(cap.amount(loss)), float(cap.limit)
        raise InvalidInput(
            f"the release asks for {cap.unit}={amount:.6g}, the data set's whole cap is {cap.unit}={limit:.6g}; lower the budget"
        )


def _located(work: Any, place: Place, lines: Lines, name: str) -> None:
    try:
        work()
    except DpdistError as error:
        raise InvalidSpec(f"{_where(place, lines, name)}: {error}") from None
    except (MemoryError, OverflowError, RecursionError):
        where = _where(place, lines, name)
        raise InvalidSpec(
            f"{where}: this is too large or nested too deeply to be worked with; ask for less, or merge values"
        ) from None


SHOWN_PROBLEMS = 3


def _explained(error: ValidationError, lines: Lines, name: str) -> str:
    """The first problems in one line, and how many more there are."""
    problems = error.errors(include_url=False)
    told = [_explain(problem, lines, name) for problem in problems[:SHOWN_PROBLEMS]]
    more = len(problems) - len(told)
    return "; ".join(told) + (f"; and {more} more of this kind" if more else "")


def _explain(problem: Any, lines: Lines, name: str) -> str:
    place = tuple(problem["loc"])
    key = ".".join(str(part) for part in place)
    where = _where(place, lines, name)
    kind = problem["type"]
    if kind == "extra_forbidden":
        return f"{where}: unknown key {key!r}; allowed here are {', '.join(_allowed_keys(place[:-1]))}"
    if kind == "missing":
        return f"{where}: {key!r} is missing; add it"
    given = problem["input"]
    if kind == "string_type" and isinstance(given, bool | datetime.date):
        shown = "a date" if isinstance(given, datetime.date) else "yes or no"
        return f"{where}: {key}: text is needed, but YAML reads this value as {shown}; put it in quotes"
    if kind == "string_type" and isinstance(given, dict | list | None):
        shown = "nothing" if given is None else "a mapping" if isinstance(given, dict) else "a list"
        return f"{where}: {key}: text is needed, found {shown}; write one value"
    found = "" if isinstance(given, dict | list) else f" (found {_short(given)})"
    return f"{where}: {key}: {' '.join(problem['msg'].removeprefix('Value error, ').split())}{found}"


def _short(value: object) -> str:
    shown = " ".join(repr(value).split())
    return shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[:SHOWN_CHARACTERS]}..."


SHOWN_CHARACTERS = 60


def _allowed_keys(place: Place) -> list[str]:
    """Keys of the model at a place of the spec, found in its JSON schema."""
    schema = json_schema()
    node: dict[str, Any] = schema
    for part in place:
        node = _resolve(node, schema)
        if isinstance(part, int):
            node = node.get("items", {})
        elif part in node.get("properties", {}):
            node = node["properties"][part]
        else:
            extra = node.get("additionalProperties", {})
            node = extra if isinstance(extra, dict) else {}
    return sorted(_resolve(node, schema).get("properties", {}))


def _resolve(node: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node or "anyOf" in node:
        if "anyOf" in node:
            node = next((option for option in node["anyOf"] if option.get("type") != "null"), {})
        else:
            node = schema["$defs"][node["$ref"].rsplit("/", 1)[1]]
    return node


def _where(place: Place, lines: Lines, name: str) -> str:
    while place and place not in lines:
        place = place[:-1]
    return f"{name}, line {lines[place]}" if place in lines else name


def _rows_file(path: Path, *, mapped: bool = False) -> Any:
    """The matrix in a file, dense or SciPy sparse."""
    try:
        if path.suffix == ".npz":
            return scipy.sparse.csr_array(scipy.sparse.load_npz(path))
        return np.load(path, allow_pickle=False, mmap_mode="r" if mapped else None)
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInput(
            f"rows file {path.name!r} cannot be read ({error}); save a (queries, cells) array with numpy.save, "
            "scipy.sparse.save_npz or zarr"
        ) from None
