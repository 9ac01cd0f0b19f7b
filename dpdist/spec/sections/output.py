"""What is published besides the noisy answers themselves, where it goes, and what is done to the answers first."""

from __future__ import annotations

import datetime
import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from dpdist.language import LANGUAGES
from dpdist.plugin_registry import require_plugin
from dpdist.spec.tagged_unions import UnionPart
from dpdist.spec.value_types import PathText, SpecPart, Text
from dpdist.spec.warehouse_target import TARGETS, TargetKind

TableFormat = Literal["parquet", "csv", "zarr"]


def _language(code: Any) -> Any:
    """The code of a language that pages are written in. Raises: ValueError."""
    if code not in LANGUAGES:
        raise ValueError(f"pages are written in {', '.join(LANGUAGES[:-1])} or {LANGUAGES[-1]}")
    if code != LANGUAGES[0]:
        require_plugin("language")
    return code


Language = Annotated[str, BeforeValidator(_language), WithJsonSchema({"enum": list(LANGUAGES), "type": "string"})]
"""The code of a language that has a table (``dpdist/plugins/languages``)."""


class TargetSpec(UnionPart):
    """A table of a warehouse that gets the published answers, too. It is named, never its credentials: specs are public."""

    kind: Annotated[TargetKind, TARGETS]


class AboutSpec(SpecPart):
    """What the publisher says of the data product: for catalogues, citations and the public registry of deployments."""

    curator: Text = Field(description="who publishes the release", examples=["City library"])
    description: Text = Field(
        description="what the data product is, in a sentence or two, which stand below the title of the page",
        examples=["Visitors of the library by age"],
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
    contact: Text | None = Field(
        None,
        description="whom readers may ask: a mail address or a URL",
        examples=["statistics@example.org"],
    )
    address: Text | None = Field(
        None, description="the URL at which the release will be", examples=["https://example.org/visitors"]
    )


class OutputSpec(SpecPart):
    """Where the published files go."""

    folder: PathText | None = Field(
        None,
        description="a folder, or the URL of an object store (s3://bucket/prefix). Default: a folder named after the release, in "
        "DPDIST_OUTPUT if that is set, else in ./releases",
        examples=["published/2026-11"],
    )
    formats: tuple[TableFormat, ...] | None = Field(
        None,
        min_length=1,
        description="which tables are written. Default: Parquet up to 2^28 answers, CSV up to 5,000,000, and arrays of Zarr beyond that",
        examples=[["csv", "parquet"]],
    )
    measurement: bool = Field(
        True,
        description="also publishes the noisy measurement, as measurement.npz, if that takes at most 64 MiB. From it readers compute "
        "every answer that it determines, at no charge. The guarantee covers it as it covers the answers",
        examples=[False],
    )
    verifier: bool = Field(
        False,
        description="also publishes verify.py, a program of one file with which readers check every claim of the release from its files, "
        "with NumPy alone",
        examples=[True],
    )
    to: tuple[TargetSpec, ...] = Field(
        (),
        description="tables of warehouses into which the answers are written, too. A table holds each release once",
        examples=[[{"postgres": "public.answers"}]],
    )

    @model_validator(mode="after")
    def _can_be_written(self) -> OutputSpec:
        if self.verifier:
            require_plugin("output.verifier")
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
    text_match = _STANDARD_ERRORS.fullmatch(value.strip()) if isinstance(value, str) else None
    return text_match.group(1) if text_match else value


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
        description="fits counts of cells that are not negative, or tables of them where there are many cells, such that the answers are "
        "as close as possible to the unbiased ones. The total squared error of the answers does not rise, and the release says how far it "
        "falls. Small counts are biased upwards",
        examples=[True],
    )
    integer: bool | Literal["nearest", "unbiased"] = Field(
        False,
        description="rounds answers to whole numbers. Those of tables, levels and ranges that share attributes are rounded together: "
        "totals are the sums of their parts, also those that are known, and what is 0 stays 0. 'true' and 'nearest' keep the squared error "
        "small; 'unbiased' keeps the mean of every answer",
        examples=[True, "unbiased"],
    )
    zeros: Literal["structural"] = Field(
        "structural",
        description="which cells stay 0 when answers become whole numbers: those whose noisy answers are 0, such as what a public "
        "count of 0 rules out. Cells that happen to hold no record are not kept: an exact 0 would tell whether somebody is there",
        examples=["structural"],
    )
    consistent_with: tuple[PathText, ...] = Field(
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

    @field_validator("zeros", mode="before")
    @classmethod
    def _keeps_no_sampling_zeros(cls, value: Any) -> Any:
        if value == "kept":
            raise ValueError(
                "'zeros: kept' would publish an exact 0 for every cell without a record and noise for all others: whoever knows all "
                "others sees whether one person is there, whatever epsilon is. Write 'zeros: structural', and name what cannot occur by "
                "'known' counts of 0"
            )
        return value

    @model_validator(mode="after")
    def _plugins_are_there(self) -> PostprocessSpec:
        if self.non_negative:
            require_plugin("postprocess.non_negative")
        if self.rounding is not None:
            require_plugin("postprocess.integer")
        if self.consistent_with:
            require_plugin("postprocess.consistent_with")
        return self

    @model_validator(mode="after")
    def _known_counts_can_be_rounded(self) -> PostprocessSpec:
        fraction = next((known for known in self.known if not known.count.is_integer()), None)
        if self.rounding is not None and fraction is not None:
            raise ValueError(
                f"the known count {fraction.count:g} of {fraction.where or 'all records'} is no whole number, so that whole answers cannot "
                "add up to it: correct it, or leave 'integer' out"
            )
        return self

    @property
    def rounding(self) -> Literal["nearest", "unbiased"] | None:
        """How answers become whole numbers; None where they do not."""
        return ("nearest" if self.integer else None) if isinstance(self.integer, bool) else self.integer
