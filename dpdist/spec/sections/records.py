"""Where the records of a release are, who stands behind one, and what is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema, model_validator

from dpdist.sources.column_types import ColumnType
from dpdist.sources.formats.array_files import ArrayFormat
from dpdist.sources.record_sources import PersonMissing, PersonType
from dpdist.spec.sections.plugin_sections import PluginSection, SectionKey
from dpdist.spec.sections.private_bounds import PRIVATE, with_largest_bound
from dpdist.spec.sections.sources import LOCATIONS, Location
from dpdist.spec.tagged_unions import UnionPart
from dpdist.spec.value_types import Share, SpecPart, Text

BOUND_SCHEMA: dict[str, Any] = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 10**6}, {"const": PRIVATE}]}
GROUPS_SCHEMA = {"anyOf": [*BOUND_SCHEMA["anyOf"], {"type": "null"}]}


class Person(SpecPart):
    """Which person stands behind a record, and how many records of one person count."""

    column: str | None = Field(
        None,
        description="the column that identifies the person. Of each person only the first 'most_records' records count. Default: no "
        "column, and every record is protected by itself",
        examples=["person_id"],
    )
    most_records: Annotated[int, WithJsonSchema(BOUND_SCHEMA)] = Field(
        1,
        ge=1,
        le=10**6,
        description="how many records of one person count. 'private' has a part of the budget choose the number of least predicted error, "
        "from noisy numbers of persons by their number of records: see 'selection'. Without a person column: how many records, whoever "
        "they belong to, are "
        "protected together; nobody checks that a person has no more. With 'participations': how many in each step",
        examples=[5],
    )
    participations: int | None = Field(
        None,
        ge=1,
        le=10**6,
        description="of a stream: in how many of its steps one person has records that count, with up to 'most_records' in each. With a "
        "person column dpdist counts a person's earliest step and each next one that is 'separation' steps later; without one it is "
        "your promise, which nobody checks. Default: 'most_records' records in all, whatever their steps",
        examples=[12],
    )
    separation: int = Field(
        1,
        ge=1,
        le=10**6,
        description="with 'participations': how many steps lie between two steps of one person, at least. The further apart, the less "
        "noise is needed",
        examples=[7],
    )
    most_groups: Annotated[int | None, WithJsonSchema(GROUPS_SCHEMA)] = Field(
        None,
        ge=1,
        le=10**6,
        description="in how many groups one person counts, with up to 'most_records' records in each. A group is a combination of values "
        "of all attributes. Where every cell is measured by itself (mechanism 'identity'), Gaussian noise grows only with the square root "
        "of this number; elsewhere, and with Laplace noise, in proportion to it. 'private' has a part of the budget choose the number of "
        "least predicted error, from noisy numbers of persons by their number of groups: see 'selection'",
        examples=[4],
    )
    type: PersonType = Field(
        "text",
        description="how values of the person column are compared, in all files: as text, in which whole numbers are written in one way, "
        "or as whole numbers, so that 01 is 1 and whatever is no whole number refuses the release",
        examples=["integer"],
    )

    missing: PersonMissing | None = Field(
        None,
        description="what becomes of a record without a person (null or empty; with 'type: integer' also what is no whole number). 'drop' "
        "leaves it out. 'each' counts it as a person of its own, so that each of several such records of one person is protected by "
        "itself. Default: the release is refused",
        examples=["drop"],
    )

    selection: Annotated[PluginSection | None, SectionKey("records.person.selection")] = None

    @model_validator(mode="before")
    @classmethod
    def _check_selection(cls, content: Any) -> Any:
        """With a ``private`` bound the largest one stands in its place until one is chosen."""
        bounds = content if isinstance(content, dict) else {}
        if bounds.get("most_records") == PRIVATE and bounds.get("most_groups") is not None:
            raise ValueError(
                "'most_records: private' goes without 'most_groups': what a bound on the records in each group leaves out depends on which "
                "groups count; give a number"
            )
        bound_key = "most_records" if bounds.get("most_groups") is None else "most_groups"
        return with_largest_bound(content, bound_key, example="{share: 0.1, most: 200}")

    @model_validator(mode="after")
    def _of_persons(self) -> Person:
        if self.missing is not None and self.column is None:
            raise ValueError(
                "'missing' says what becomes of records without a person: name the 'column' that identifies persons"
            )
        if self.most_groups is not None and self.column is None:
            raise ValueError(
                "'most_groups' bounds the groups of a person: name the 'column' that identifies persons, or leave it out"
            )
        if self.selection is not None and self.column is None:
            raise ValueError(f"'{self.selected_bound}: private' is about persons: name the 'column' that identifies them")
        if self.participations is None and self.separation != 1:
            raise ValueError("'separation' lies between the steps of one person: say in how many, with 'participations'")
        return self

    @property
    def selected_bound(self) -> str:
        """Which bound a ``selection`` chooses."""
        return "most_groups" if self.most_groups is not None else "most_records"

    def with_bound(self, bound: int | None) -> Person:
        """With the bound that was chosen, or with the largest one, which stands there (None)."""
        return self.model_copy(update={"selection": None, self.selected_bound: bound or getattr(self, self.selected_bound)})

    @property
    def bounds(self) -> dict[str, str | int | None]:
        """The bounds, as a protection has them."""
        return {
            "most_records": self.most_records,
            "person": self.column,
            "type": self.type if self.column else None,
            "missing": self.missing if self.missing == "each" else None,
            "most_groups": self.most_groups,
            "participations": self.participations,
            "separation": self.separation if self.participations else None,
        }

    @property
    def records(self) -> int:
        """How many records of one person count in all, where steps do not bound them."""
        return self.most_records * (self.most_groups or 1)


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


class RecordsSpec(UnionPart):
    """Where the records are: in files, or in a table that is read once for each release."""

    location: Annotated[Location, LOCATIONS]
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="the column of an attribute, where its name differs from the attribute's",
        examples=[{"age": "AGE_YEARS"}],
    )
    types: dict[str, ColumnType] = Field(
        default_factory=dict,
        description="the types of columns by their names, in all files and in the result of a query: 'text', 'whole', 'number', 'date', "
        "'time' or 'boolean'. Each value is converted by itself, and one that does not convert is missing, so that no record decides how "
        "others are read. A query finds in files the columns that are counted, and those declared here. Default: what the attribute needs",
        examples=[{"age": "whole", "branch": "text"}],
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
    most_missing: Share = Field(
        "10%",
        validate_default=True,
        description="the largest share of the records that may be missing or outside the domain, so that they count nowhere. Where it is "
        "more, a file is usually read in another way than it is written, and the release stops before anything is charged. How many there "
        "are is told to the operator alone; 'dpdist run --accept-missing' releases them all the same",
        examples=["25%"],
    )
    person: Person = Field(
        default_factory=lambda: Person.model_validate({}),
        description="which person stands behind a record. Default: every record is protected by itself",
    )
    count: Literal["records", "persons"] = Field(
        "records",
        description="what is counted in each group: records, or the different persons who have records there. To count persons, give "
        "'person' a 'column' and 'most_groups', and ask for the table of all attributes; tables with levels in place of attributes may "
        "stand beside it, and a person counts once in each of their groups, too. A person in two groups counts in both, so the sum of the "
        "counts of groups is not a number of persons",
        examples=["persons"],
    )
    counts: CountsSpec | None = Field(
        None,
        description="for tables that hold counts of records instead of records: a column says how many records a row stands for, or an "
        "array holds the counts. Default: every row is a record",
        examples=[{"column": "visits", "of": "visits"}],
    )

    @model_validator(mode="after")
    def _counts_of_something(self) -> RecordsSpec:
        """Records that were counted before belong to nobody any more."""
        counts, array = self.counts, isinstance(self.location.format, ArrayFormat)
        if counts is None:
            if array:
                name = Path(self.location.source_label).name
                raise ValueError(f"{name} holds counts, not records: say what it counts, counts: {{of: ...}}")
            return self
        if counts.column is None and not array:
            raise ValueError("name the column that says how many records a row stands for: counts: {column: ..., of: ...}")
        if self.person.column is not None:
            raise ValueError(
                "a row of counts stands for records of several persons, whose contributions cannot be bounded any more: leave "
                "'person.column' out and say with 'most_records' how many one person has at most, or give the records themselves"
            )
        return self

    @property
    def csv_record(self) -> str | None:
        """What is one record where the records are CSV, for readers; None where they are not, or stand for several each."""
        return self.location.csv_record if self.counts is None else None

    @property
    def named(self) -> str:
        """What readers see that the records are."""
        if self.count == "persons" and "called" not in self.model_fields_set:
            return "persons"
        return self.called if self.counts is None or "called" in self.model_fields_set else self.counts.of
