"""The parts of a spec but its queries: records, attributes, budgets, output, post-processing."""

from __future__ import annotations

import datetime
import re
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from dpdist.domain import DROP, NOWHERE, Attribute, BinLabels, TimeLabels, even_edges
from dpdist.errors import InvalidInput
from dpdist.grids.base import Norm
from dpdist.mechanisms.registry import AUTO, REGISTRY
from dpdist.privacy.accounting import Calibration, Cap, Loss, rho_for
from dpdist.records.sources import PersonType
from dpdist.sizes import SIZES, Sizes
from dpdist.spec.levels import level_of, levels_of_file
from dpdist.spec.values import DayOrTime, Exact, SpecPart, Text
from dpdist.strategies.needs import Limits
from dpdist.times import Every, Times, is_zone, steps_between


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
    """Which person stands behind a record, and how many records of one person count."""

    column: str | None = Field(
        None,
        description="the column that identifies the person. Of each person only the first 'most_records' records count. Default: no "
        "column, and every record is protected by itself",
        examples=["person_id"],
    )
    most_records: int = Field(
        1,
        ge=1,
        le=10**6,
        description="how many records of one person count. Without a person column: how many records, whoever they belong to, are "
        "protected together; nobody checks that a person has no more",
        examples=[5],
    )
    most_groups: int | None = Field(
        None,
        ge=1,
        le=10**6,
        description="in how many groups one person counts, with up to 'most_records' records in each. A group is a combination of values "
        "of all attributes. Gaussian noise grows only with the square root of this number, Laplace noise in proportion to it. Every cell "
        "is measured by itself (mechanism 'identity')",
        examples=[4],
    )
    type: PersonType | None = Field(
        None,
        description="how values of the person column are compared in all files: as text, or as whole numbers. Default: the type "
        "that the column has in the first file",
        examples=["integer"],
    )


class CountsSpec(SpecPart):
    """What a table counts whose rows each stand for several records.

    The guarantee is for adding or removing one of the things that are counted. Each must be counted in one number only, once.
    Nobody can check that.
    """

    column: str | None = Field(
        None,
        description="the column that says how many records a row stands for: whole numbers, 0 or more. Leave it out for arrays",
        examples=["visits"],
    )
    of: Text = Field(
        min_length=1,
        description="what is counted, in the plural. It is the unit of protection: each must be counted in one number only, once. Numbers "
        "that were rounded, thresholded, weighted or made noisy are not allowed. All releases of a data set must count the same thing",
        examples=["visits"],
    )


class Records(SpecPart):
    """Where the records are: in files, or in a table that is read once for each release."""

    path: str | None = Field(
        None,
        description="a .parquet, .arrow, .feather, .csv or .csv.gz file, or a folder of such files, or the URL of either at s3://, gs:// "
        "or az://, or of a file at https://. With 'counts' also an array with an axis for each attribute: a .npy file or .zarr folder. "
        "Folders may name columns (year=2026/branch=North). A relative path starts at the folder of the spec file. Credentials come from "
        "the environment of the process and of the workers",
        examples=["visitors.csv"],
    )
    sql: str | None = Field(
        None,
        description="in place of 'path', one SELECT whose rows are the records. DuckDB runs it in the database of 'connection', or without "
        "one over files that it names, relative to the spec's folder. dpdist orders the rows by a digest of each row",
        examples=["SELECT age, branch FROM 'visits/*.parquet' JOIN 'branches.csv' USING (id)"],
    )
    connection: str | None = Field(
        None,
        description="the environment variable that holds the address of the database, as $NAME. The address is postgresql://..., or the "
        "path of a DuckDB database. The variable NAME_FILE may name a file that holds the address instead. Specs are public, so the "
        "address, with its password, must not stand in one",
        examples=["$SHOP_DATABASE"],
    )
    delta: str | None = Field(
        None, description="in place of 'path', the folder or URL of a Delta table", examples=["s3://bucket/visits"]
    )
    iceberg: str | None = Field(
        None,
        description="in place of 'path', an Iceberg table, catalog.namespace.table; the configuration of PyIceberg says where it is",
        examples=["lake.shop.visits"],
    )
    snapshot: int | None = Field(
        None,
        ge=0,
        description="the version of the Delta table, or the id of the Iceberg table's snapshot. Default: the newest one when the release "
        "first reads the table. The charge is bound to the snapshot, too",
        examples=[42],
    )
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="the column of an attribute, where its name differs from the attribute's",
        examples=[{"age": "AGE_YEARS"}],
    )
    header: tuple[str, ...] = Field(
        (), description="the column names of CSV files that have no header row", examples=[["age", "branch"]]
    )
    called: Text = Field(
        "records", description="what the page calls the records, in the plural", examples=["people", "rentals"]
    )
    empty: Literal["refuse", "allow"] = Field(
        "refuse",
        description="what happens when there is no record at all. 'allow' publishes noisy zeros, and suits schedules in which a "
        "period may have no records",
        examples=["allow"],
    )
    person: Person = Field(
        default_factory=lambda: Person.model_validate({}),
        description="which person stands behind a record. Default: every record is protected by itself",
    )
    count: Literal["records", "persons"] = Field(
        "records",
        description="what is counted in each group: records, or the different persons who have records there. To count persons, give "
        "'person' a 'column' and 'most_groups', and ask for one table of all attributes. A person in two groups counts in both, so the sum "
        "of the counts of groups is not a number of persons",
        examples=["persons"],
    )
    counts: CountsSpec | None = Field(
        None,
        description="for tables that hold counts of records instead of records: a column says how many records a row stands for, or an "
        "array holds the counts. Default: every row is a record",
        examples=[{"column": "visits", "of": "visits"}],
    )

    @model_validator(mode="after")
    def _one_place(self) -> Records:
        if sum(each is not None for each in (self.path, self.sql, self.delta, self.iceberg)) != 1:
            raise ValueError("give exactly one of 'path', 'sql', 'delta' and 'iceberg'")
        if self.connection is not None and self.sql is None:
            raise ValueError("'connection' belongs to 'sql'; leave it out")
        if self.connection is not None and not re.fullmatch(r"\$[A-Za-z_][A-Za-z0-9_]*", self.connection):
            raise ValueError(  # of the whole part, so that what was found is not quoted: it may be a password
                "specs are public: 'connection' is $NAME of an environment variable that holds the database's address"
            )
        if self.snapshot is not None and self.delta is None and self.iceberg is None:
            raise ValueError("'snapshot' belongs to 'delta' or 'iceberg'; leave it out")
        if self.header and self.path is None:
            raise ValueError("'header' belongs to CSV files; leave it out")
        return self

    @property
    def place(self) -> str:
        """Where the records are, for messages: a path, a table's name, or that it is a query."""
        return self.path or self.delta or self.iceberg or "the query's result"

    @property
    def named(self) -> str:
        """What readers are told that the records are."""
        if self.count == "persons" and "called" not in self.model_fields_set:
            return "persons"
        return self.called if self.counts is None or "called" in self.model_fields_set else self.counts.of


WHOLE = 2**53
"""Whole numbers beyond are not exact as floating-point numbers."""


class TimeSpec(SpecPart):
    """The times that the whole numbers of an attribute stand for."""

    start: datetime.datetime = Field(
        description="the time that the attribute's smallest number stands for", examples=["2011-01-01T00:00"]
    )
    step: Literal["second", "minute", "hour", "day", "week", "month", "quarter", "year"] = Field(
        description="how much time one unit of the attribute is", examples=["hour"]
    )


class DatesSpec(SpecPart):
    """Consecutive hours, days, ISO weeks, calendar months, quarters or years.

    Columns hold dates, timestamps or ISO texts.
    """

    first: DayOrTime = Field(
        alias="from",
        description="a date or time in the first step. A spec for many periods may write '{period}'",
        examples=["2026-09-01"],
    )
    last: DayOrTime | None = Field(
        None,
        alias="to",
        description="a date or time in the last step; a date is meant with its whole day",
        examples=["2026-11-30"],
    )
    steps: int | None = Field(None, ge=1, le=2**40, description="how many steps there are, in place of 'to'", examples=[24])
    every: Every = Field(
        "day",
        description="how long a step is. Weeks begin on Monday, months and years are those of the calendar",
        examples=["week"],
    )
    zone: str | None = Field(
        None,
        description="the time zone in whose local time timestamps with a zone are counted. An hour that is repeated when clocks go back is "
        "one step. Default: timestamps without a zone are taken as they are written, and those with a zone are refused",
        examples=["Europe/Berlin"],
    )

    @model_validator(mode="after")
    def _some_steps(self) -> DatesSpec:
        if (self.last is None) == (self.steps is None):
            raise ValueError("give either 'to' or 'steps'")
        ends = [end for end in (self.first, self.last) if isinstance(end, datetime.datetime)]
        if any(end.tzinfo is not None for end in ends):
            raise ValueError(
                "'from' and 'to' are times of the zone's own clock: write them without an offset, and name the 'zone'"
            )
        if self.zone is not None and not is_zone(self.zone):
            raise ValueError("the time zone is not known; write its name in the time zone database, such as 'Europe/Berlin'")
        if self.last is not None and self._last < _moment(self.first):
            raise ValueError("'from' must not come after 'to'")
        return self

    @property
    def _last(self) -> datetime.datetime:
        assert self.last is not None
        whole = (
            datetime.timedelta(0)
            if isinstance(self.last, datetime.datetime)
            else datetime.timedelta(hours=23, minutes=59, seconds=59)
        )
        return _moment(self.last) + whole

    @property
    def times(self) -> Times:
        """As the domain knows them."""
        first = _moment(self.first)
        return Times(first, self.steps or steps_between(first, self._last, self.every), self.every, self.zone)


def _moment(day: datetime.date) -> datetime.datetime:
    return day if isinstance(day, datetime.datetime) else datetime.datetime(day.year, day.month, day.day)


class SelectionSpec(SpecPart):
    """How the names of an attribute with ``categories: private`` are selected."""

    share: Exact = Field(
        Fraction(1, 10),
        description="the share of the release's budget that the selection spends, between 0 and 1",
        examples=[0.1],
    )
    delta: Exact = Field(
        description="a bound on the probability that a name is published that only one person or record has. If the budget is in epsilon, "
        "this is a part of its delta; if it is in rho, this is added to the guarantee",
        examples=[1e-7],
    )
    most: int = Field(
        100,
        ge=1,
        le=10**5,
        description="the largest number of names that are selected. If more are frequent enough, those with the largest noisy counts are "
        "kept",
        examples=[200],
    )

    @model_validator(mode="after")
    def _parts_of_one(self) -> SelectionSpec:
        if not (0 < self.share < 1 and 0 < self.delta < 1):
            raise ValueError("'share' and 'delta' of a selection lie between 0 and 1")
        return self

    @property
    def placeholders(self) -> tuple[str, ...]:
        """Names that stand for those that are not selected yet: a release is planned for as many as there can be."""
        return tuple(f"name {number}" for number in range(1, self.most + 1))


PRIVATE = "private"
"""In place of a list of categories: the names are selected from the records, by a part of the budget."""
OTHER_NAMES = "other"
"""The bin of names that are not selected, unless the spec calls it something else."""
_CATEGORIES: dict[str, Any] = {
    "anyOf": [{"items": {"type": "string"}, "type": "array"}, {"const": PRIVATE, "type": "string"}, {"type": "null"}]
}


class AttributeSpec(SpecPart):
    """The public, declared values of one attribute: ``categories``, ``edges``, ``dates``, or whole numbers ``from``..``to``."""

    categories: Annotated[tuple[Text, ...] | None, WithJsonSchema(_CATEGORIES)] = Field(
        None,
        description="all values of an attribute that has no order. Or 'private': frequent names are selected from the records, as "
        "'selection' says, and all other names are counted together",
        examples=[["Centre", "North", "Harbour"]],
    )
    selection: SelectionSpec | None = Field(
        None,
        description="with 'categories: private': how the names are selected, and by which part of the budget",
        examples=[{"share": 0.1, "delta": 1e-7, "most": 200}],
    )
    edges: tuple[float, ...] | None = Field(
        None,
        description="the edges of the bins of a numeric attribute. A bin holds its lower edge and not its upper edge",
        examples=[[0, 18, 35, 65, 100]],
    )
    first: int | None = Field(
        None,
        alias="from",
        description="the smallest whole number. A fraction is counted at the whole number below it",
        examples=[0],
    )
    last: int | None = Field(None, alias="to", description="the largest whole number, included", examples=[99])
    width: int = Field(1, ge=1, description="with 'from' and 'to': how many whole numbers each bin holds", examples=[10])
    dates: DatesSpec | None = Field(
        None,
        description="the steps of time of an attribute that holds dates or times",
        examples=[{"from": "2026-09-01", "to": "2026-11-30", "every": "day"}],
    )
    outside: Literal["clip", "drop", "error"] = Field(
        "error",
        description="what happens to a record whose value is outside the domain: it is counted in the nearest bin, it is left out, "
        "or the release is refused",
        examples=["clip"],
    )
    missing: Text | None = Field(
        None,
        min_length=1,
        description="records without a value (null, NaN, an empty text): the label of a bin of their own, or 'drop' to leave them out of "
        "every table and query that uses the attribute. Default: what 'outside' says; with 'outside: clip' they are left out of all "
        "answers",
        examples=["unknown"],
    )
    other: Text | None = Field(
        None,
        min_length=1,
        description="records with a value that is not declared: the label of a bin of their own, or 'drop' to leave them out of "
        "every table and query that uses the attribute. Give it in place of 'outside'",
        examples=["another branch"],
    )
    levels: dict[str, dict[Text, tuple[Text, ...]] | tuple[float, ...]] | str | None = Field(
        None,
        description="coarser levels of the attribute. For each level, its name and its groups: lists of categories, or the edges of wider "
        "bins. Or a CSV file with a header row, whose first column holds the values and whose other columns each hold a level. Marginals "
        "ask for a level by its name, as they do for an attribute",
        examples=[{"region": {"North": ["Centre", "Harbour"], "South": ["Airport"]}}],
    )
    labels: tuple[Text, ...] = Field(
        (), description="the names of the values or bins on the page, in their order", examples=[["young", "old"]]
    )
    title: Text | None = Field(
        None, description="what the page calls the attribute; by default its name", examples=["Age last birthday"]
    )
    unit: Text | None = Field(
        None, description="the unit of the attribute's numbers on the page, in the plural", examples=["years"]
    )
    time: TimeSpec | None = Field(
        None,
        description="the times that the attribute's numbers stand for: the page shows these times",
        examples=[{"start": "2011-01-01T00:00", "step": "hour"}],
    )

    @model_validator(mode="before")
    @classmethod
    def _private_names(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        private, selection = given.get("categories") == PRIVATE, given.get("selection")
        if not private:
            if selection is not None:
                raise ValueError("'selection' belongs to 'categories: private'; write that, or leave it out")
            return given
        if selection is None:
            raise ValueError(
                "'categories: private' selects names by a part of the budget: add 'selection: {share: 0.1, delta: 1e-7, most: 100}'"
            )
        return {
            **{name: value for name, value in given.items() if name != "categories"},
            "other": given.get("other", OTHER_NAMES),
        }

    @model_validator(mode="after")
    def _one_form(self) -> AttributeSpec:
        forms = [self.categories is not None, self.edges is not None, self.first is not None or self.last is not None]
        forms.append(self.selection is not None)
        if self.selection is not None and (
            self.labels or self.levels is not None or self.unit is not None or self.time is not None
        ):
            raise ValueError(
                "private categories have neither 'labels', 'levels', 'unit' nor 'time': nobody knows the names; leave them out"
            )
        forms.append(self.dates is not None)
        if self.categories is not None and not self.categories:
            raise ValueError("'categories' is empty; list every value that the attribute may have")
        if sum(forms) != 1:
            raise ValueError("give exactly one of 'categories', 'edges', 'dates', or 'from' with 'to'")
        if forms[2] and (self.first is None or self.last is None or self.last < self.first):
            raise ValueError("'from' and 'to' must both be given, with from <= to")
        if self.categories is not None and (self.unit is not None or self.time is not None):
            raise ValueError("categories have neither 'unit' nor 'time', which belong to numbers; leave them out")
        if self.other is not None and "outside" in self.model_fields_set:
            raise ValueError("'other' and 'outside' both say where values beyond the declared ones count; leave one out")
        if self.dates is not None and (self.unit is not None or self.time is not None or self.width != 1):
            raise ValueError("dates have neither 'unit', 'time' nor 'width'; leave them out, and say 'every' in 'dates'")
        if any(abs(value) > WHOLE for value in (self.first or 0, self.last or 0, self.width)):
            raise ValueError(
                f"whole numbers lie between -{WHOLE:,} and {WHOLE:,}: larger ones are not exact as floating-point numbers"
            )
        return self

    @property
    def measured(self) -> AttributeSpec:
        """The same attribute without the words that only the page shows: they change no digest."""
        return self.model_copy(update={"title": None, "unit": None, "time": None})

    def attribute(
        self, name: str, sizes: Sizes = SIZES, *, everywhere: bool = False, ordered: bool = False, folder: Path | None = None
    ) -> Attribute:
        """The domain's attribute, with its levels.

        Args:
            folder: from which a file of levels is taken.
            everywhere, ordered: as for ``bins``.
        """
        plain = self.bins(name, sizes, everywhere=everywhere, ordered=ordered)
        if self.levels is None:
            return plain
        given = levels_of_file(plain, (folder or Path()) / self.levels) if isinstance(self.levels, str) else self.levels
        labels = () if isinstance(plain.labels, BinLabels | TimeLabels) else plain.labels[: plain.values]
        return replace(plain, labels=labels, levels=tuple(level_of(plain, each, groups) for each, groups in given.items()))

    def bins(self, name: str, sizes: Sizes = SIZES, *, everywhere: bool = False, ordered: bool = False) -> Attribute:
        """The domain's attribute without levels.

        Args:
            everywhere: whether every query asks for the attribute: records that are dropped then need no bin.
            ordered: whether every query is over its order: no query counts other and missing values, which then need none either.
        """
        missing, other = (_bin_of(label, everywhere, ordered) for label in (self.missing, self.other))
        given: Any = {"outside": self.outside, "labels": self.labels, "missing": missing, "other": other}
        names = self.categories if self.selection is None else self.selection.placeholders
        if names is not None:
            return Attribute(name, categories=names, **given)
        if self.edges is not None:
            return Attribute(name, edges=self.edges, **given)
        if self.dates is not None:
            times = self.dates.times
            return Attribute(name, edges=even_edges(0, 1, times.steps, sizes), times=times, **given)
        assert self.first is not None
        assert self.last is not None
        bins = -(-(self.last - self.first + 1) // self.width)
        return Attribute(name, edges=even_edges(self.first, self.width, bins, sizes), **given)


def _bin_of(label: str | None, everywhere: bool, ordered: bool) -> str | None:
    """Where records go that have a label in place of a declared value, by the queries that could count them."""
    return NOWHERE if label is not None and (ordered or (everywhere and label == DROP)) else label


class BudgetSpec(SpecPart):
    """A privacy budget: rho (zCDP), epsilon with delta (Gaussian noise), or epsilon alone (Laplace noise)."""

    rho: Exact | None = Field(
        None, description="an amount of zero-concentrated differential privacy (zCDP), in place of epsilon", examples=[0.05]
    )
    epsilon: Exact | None = Field(
        None,
        description="with delta, the noise is Gaussian unless 'noise' says otherwise; without delta (pure epsilon) it is Laplace noise",
        examples=[1],
    )
    delta: Exact | None = Field(
        None,
        description="a small probability, well below 1 / number of persons. Leave it out for pure epsilon",
        examples=[1e-6],
    )

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
    """The privacy budget of this release."""

    calibration: Calibration = Field(
        "analytic",
        description="how epsilon and delta become an amount of Gaussian noise: exactly ('analytic', the least noise), through zCDP, or "
        "by the classic formula of the papers, which adds more noise than needed",
        examples=["zcdp"],
    )

    @property
    def pure(self) -> bool:
        """Whether no delta is spent: Laplace noise."""
        return self.rho is None and self.delta is None

    @cached_property
    def loss(self) -> Loss:
        """The exact amount that is charged, unless the spec asks for the other kind of noise."""
        return self.loss_with("l1" if self.pure else "l2")

    def loss_with(self, norm: Norm) -> Loss:
        """The exact amount that is charged with Gaussian ("l2") or with Laplace noise ("l1"), which leaves the delta unspent.

        Raises: InvalidInput when the budget does not buy that noise.
        """
        if norm == "l1":
            if self.epsilon is None:
                raise InvalidInput("Laplace noise needs an 'epsilon': replace 'rho', or set 'noise: gaussian'")
            return Loss.laplace(self.epsilon)
        if self.rho is not None:
            return Loss.gaussian(self.rho)
        if self.pure:
            raise InvalidInput("Gaussian noise needs a 'delta' or 'rho': add one, or leave 'noise' out")
        return self._gaussian

    def rho_beside(self, delta: Fraction) -> Fraction:
        """The rho of Gaussian noise that the budget buys beside a selection of names that fails with probability ``delta``.

        Raises: InvalidInput when it buys none.
        """
        if self.rho is not None:
            return self.rho
        if self.delta is None or self.epsilon is None:
            raise InvalidInput("a selection of names needs a 'delta' or 'rho', which a pure epsilon does not have: add one")
        if delta >= self.delta:
            raise InvalidInput(
                f"the selection's delta of {float(delta):g} leaves nothing of the budget's {float(self.delta):g}: take a part of it"
            )
        return rho_for(float(self.epsilon), float(self.delta - delta), self.calibration)

    @cached_property
    def _gaussian(self) -> Loss:
        assert self.epsilon is not None
        assert self.delta is not None
        return Loss.gaussian(rho_for(float(self.epsilon), float(self.delta), self.calibration))


class CapSpec(BudgetSpec):
    """The most that all releases of the data set may spend, in total or per day, week or month."""

    selection: Exact = Field(
        Fraction(0),
        description="the delta that is set aside for selections of names ('categories: private'). It is a part of the cap's delta. A cap "
        "in rho has no delta of its own, so there it is added to the guarantee",
        examples=[1e-7],
    )

    per: Literal["total", "day", "week", "month"] = Field(
        "total",
        description="what the cap covers: all releases of the data set together, or the releases of one day, week or month. Use a "
        "period only if each record belongs to one period",
        examples=["week"],
    )

    @property
    def cap(self) -> Cap:
        """As the ledger knows it."""
        return Cap(
            rho=self.rho, epsilon=self.epsilon, delta=self.delta or Fraction(0), per=self.per, selection=self.selection
        )


Name = Annotated[str, Field(min_length=1, max_length=150, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""What data sets and streams are called in the ledger."""


class LedgerSpec(SpecPart):
    """The data set that is charged."""

    dataset: Name = Field(
        description="the name of the data set in the ledger. Releases about the same persons must be charged under the same name",
        examples=["visitors"],
    )
    cap: CapSpec = Field(
        description="the most that all releases of the data set may spend together. Every spec of the data set states the same cap"
    )
    shared_records: bool = Field(
        False,
        description="allows these records to be charged under another data set's name too, or in another period. Without it the "
        "ledger refuses records that it has seen there",
        examples=[True],
    )


TableFormat = Literal["parquet", "csv", "zarr"]


class TargetSpec(SpecPart):
    """A table of a warehouse that gets the published answers, too. It is named, never its credentials: specs are public."""

    iceberg: str | None = Field(
        None,
        description="an Iceberg table, catalog.namespace.table; the configuration of PyIceberg says where it is",
        examples=["lake.privacy.answers"],
    )
    delta: str | None = Field(None, description="a Delta table: a folder or a URL", examples=["s3://bucket/answers"])
    postgres: str | None = Field(
        None,
        description="a table of PostgreSQL, schema.table, in the database whose URL DPDIST_WAREHOUSE gives",
        examples=["public.answers"],
    )

    @model_validator(mode="after")
    def _one(self) -> TargetSpec:
        if len([name for name in (self.iceberg, self.delta, self.postgres) if name is not None]) != 1:
            raise ValueError("a target has one kind and its table: iceberg, delta or postgres")
        return self

    @property
    def named(self) -> tuple[str, str]:
        """Kind and table."""
        ((kind, name),) = (
            (k, n) for k, n in (("iceberg", self.iceberg), ("delta", self.delta), ("postgres", self.postgres)) if n
        )
        return kind, name


class AboutSpec(SpecPart):
    """What the publisher says of the data product: for catalogues, citations and the public registry of deployments."""

    curator: Text = Field(description="who publishes the release", examples=["City library"])
    description: Text = Field(
        description="what the data product is, in a sentence or two", examples=["Visitors of the library by age"]
    )
    intended_use: Text = Field(description="what it is meant for", examples=["Planning opening hours"])
    region: Text = Field(description="the region that the records describe", examples=["Hamburg, Germany"])
    published: datetime.date | None = Field(
        None, description="the day of publication, YYYY-MM-DD. Default: the release's period", examples=["2026-12-01"]
    )
    sector: Literal["Technology", "Healthcare", "Education", "Government", "Energy", "Finance"] | None = Field(
        None, description="the sector, as the registry of deployments names it", examples=["Government"]
    )
    authors: tuple[Text, ...] = Field(
        (), description="who is cited. Default: the curator", examples=[["Library statistics team"]]
    )
    license: Text | None = Field(
        None, description="the licence of the answers, an SPDX name or a URL", examples=["CC-BY-4.0"]
    )
    address: Text | None = Field(
        None, description="the URL at which the release will be", examples=["https://example.org/visitors"]
    )


class OutputSpec(SpecPart):
    """Where the published files go."""

    folder: str | None = Field(
        None,
        description="a folder, or the URL of an object store (s3://bucket/prefix). Default: a folder named after the release, in "
        "DPDIST_OUTPUT if that is set, else in ./releases",
        examples=["published/2026-11"],
    )
    formats: tuple[TableFormat, ...] | None = Field(
        None,
        min_length=1,
        description="which tables are written. Default: all of them, but CSV only up to 5,000,000 answers and Parquet up to 2^28",
        examples=[["csv", "parquet"]],
    )
    measurement: bool = Field(
        True,
        description="also publishes the noisy measurement, as measurement.npz, if that takes at most 64 MiB. From it readers compute "
        "every answer that it determines, at no charge. The guarantee covers it as it covers the answers",
        examples=[False],
    )
    to: tuple[TargetSpec, ...] = Field(
        (),
        description="tables of warehouses into which the answers are written, too. A table holds each release once",
        examples=[[{"postgres": "public.answers"}]],
    )

    @model_validator(mode="after")
    def _has_rows(self) -> OutputSpec:
        if self.to and self.formats is not None and "parquet" not in self.formats:
            raise ValueError(
                "output.to takes its rows from the Parquet table: add parquet to output.formats, or leave formats out"
            )
        return self


class KnownSpec(SpecPart):
    """A count that is public anyway."""

    where: str | None = Field(
        None,
        description="which records are counted, as an expression over the attributes. Default: all records",
        examples=["branch == 'Centre'"],
    )
    count: float = Field(ge=0, allow_inf_nan=False, description="the exact public count", examples=[8000])


def _standard_errors(value: Any) -> Any:
    """A number of standard errors, which may be written out: '2 standard errors'."""
    found = _STANDARD_ERRORS.fullmatch(value.strip()) if isinstance(value, str) else None
    return found.group(1) if found else value


_STANDARD_ERRORS = re.compile(r"([0-9.]+) +standard +errors?")
StandardErrors = Annotated[
    float, BeforeValidator(_standard_errors), WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}]})
]


class SuppressSpec(SpecPart):
    """Which answers are shown: those clearly above a number."""

    below: float = Field(
        ge=0, allow_inf_nan=False, description="the number that an answer must lie clearly above", examples=[50]
    )
    at: StandardErrors = Field(
        2.0,
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="by how many standard errors an answer must exceed that number: a number, or a text such as '2 standard errors'",
        examples=["2 standard errors"],
    )


class PostprocessSpec(SpecPart):
    """What is done to the noisy answers afterwards. It spends no budget."""

    known: tuple[KnownSpec, ...] = Field(
        (),
        description="counts that are public anyway. All answers are made to agree with them, which makes the errors smaller",
        examples=[[{"count": 8000}]],
    )
    non_negative: bool = Field(
        False,
        description="fits counts of cells that are not negative, such that the answers are as close as possible to the unbiased ones. The "
        "total squared error of the answers never rises, and the release says how far it falls. Small counts are biased upwards",
        examples=[True],
    )
    integer: bool = Field(
        False,
        description="rounds answers to whole numbers. A total may then differ from the sum of its parts",
        examples=[True],
    )
    consistent_with: tuple[str, ...] = Field(
        (),
        description="the specs of earlier releases of the same records. All measurements are combined into one estimate, which makes "
        "the errors smaller",
        examples=[["first.yaml"]],
    )
    suppress: SuppressSpec | None = Field(
        None,
        description="leaves out answers that are not clearly above a number, judged by the noisy answers alone. This adds no protection: "
        "it spares readers rows that are mostly noise. The certificate predicts how often this decision is wrong",
        examples=[{"below": 50, "at": "2 standard errors"}],
    )

    @model_validator(mode="after")
    def _one_fit(self) -> PostprocessSpec:
        if self.known and self.non_negative:
            raise ValueError("'known' and 'non_negative' are two different fits; choose one")
        return self


class SeparationSpec(SpecPart):
    """How mechanism 'eigen' simplifies a problem with many cells. By default every eigenvector query gets a weight of its own."""

    group_size: int | None = Field(
        None,
        ge=2,
        description="how many eigenvector queries are optimised together as one group; the cube root of the number of cells is a good "
        "size",
        examples=[16],
    )
    principal: int | None = Field(
        None,
        ge=1,
        description="how many leading eigenvector queries get a weight of their own. The others share one weight",
        examples=[100],
    )

    @model_validator(mode="after")
    def _one_way(self) -> SeparationSpec:
        if self.group_size is not None and self.principal is not None:
            raise ValueError("give either 'group_size' or 'principal'")
        return self


class LimitsSpec(SpecPart):
    """How much memory and time the optimiser may use. Mechanisms that need more are not considered."""

    memory_gib: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="the memory that the optimiser may use, in GiB", examples=[4]
    )
    minutes: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="the minutes that the optimiser may take, predicted for a processor of 20 GFlop/s",
        examples=[10],
    )

    @property
    def limits(self) -> Limits:
        """As the planner knows them."""
        memory = None if self.memory_gib is None else int(self.memory_gib * 2**30)
        return Limits(memory, None if self.minutes is None else 60.0 * self.minutes)


class StreamSpec(SpecPart):
    """A series that grows. Each release measures the steps since the last one; all releases together are charged once."""

    name: Name = Field(
        description="the name of the series. All its releases state the same name; their ids differ",
        examples=["bikes"],
    )
    through: int | DayOrTime = Field(
        description="the last step that is complete, as a value of the attribute that is filtered, or a time in it. The domain declares "
        "all steps that there will ever be",
        examples=[503],
    )


def through_of(stream: StreamSpec, attribute: Attribute) -> int:
    """The last complete step of a stream, as a number of the attribute. Raises: InvalidInput when it is none of its steps."""
    through, times = stream.through, attribute.times
    if times is not None and not isinstance(through, int):
        return int(times.numbers(np.array([_moment(through)], dtype="datetime64[s]"))[0])
    if times is not None or not isinstance(through, int):
        shown = "a date" if times is not None else "a number"
        raise InvalidInput(f"'through' is {shown} of {attribute.name!r}, found {through}")
    return through
