"""ReleaseSpec: one release as a data team writes it."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from dpdist.spec.attributes import AttributeSpec
from dpdist.spec.queries import QuerySpec
from dpdist.spec.sections.amount_columns import SumSpec
from dpdist.spec.sections.budgets import LedgerSpec, ReleaseBudgetSpec
from dpdist.spec.sections.calendar_steps import StreamSpec
from dpdist.spec.sections.optimizer import LimitsSpec, Mechanism, SeparationSpec
from dpdist.spec.sections.output import AboutSpec, Language, OutputSpec, PostprocessSpec
from dpdist.spec.sections.plugin_sections import AppearanceSection, PluginSection, SectionKey
from dpdist.spec.sections.records import RecordsSpec
from dpdist.spec.sections.thresholded_cells import ThresholdedSpec
from dpdist.spec.value_types import SpecPart
from dpdist.stability import Neighbours


class ReleaseSpec(SpecPart):
    """One release: records, domain, queries, mechanism, budget."""

    release: str = Field(
        min_length=1,
        max_length=150,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="the id of the release. The ledger charges each id once",
        examples=["visitors-2026-11"],
    )
    title: str | None = Field(
        None, description="the heading of the page. Default: the id", examples=["Visitors of the library, 2026"]
    )
    language: Language = Field(
        "en",
        description="the language of the page and, of the latest release, of the site: labels, sentences, numbers and dates. Titles, "
        "values and what 'about' says are as you write them; tables and certificate stay the same in every language",
        examples=["de"],
    )
    period: datetime.date | None = Field(
        None,
        description="the day that the release stands for, YYYY-MM-DD. A cap per day, week or month needs it. "
        "A spec for many periods writes '{period}'",
        examples=["2026-11-16"],
    )
    records: RecordsSpec = Field(
        default_factory=lambda: RecordsSpec.model_validate({}),
        description="where the records are, and which person stands behind each. Only records that dp.run is given need no place",
    )
    domain: dict[str, AttributeSpec] = Field(
        min_length=1,
        description="the attributes by name, each with all values that it can have. You declare them from public knowledge: "
        "dpdist never reads them from the records",
        examples=[{"age": {"from": 0, "to": 99}}],
    )
    sums: dict[str, SumSpec] = Field(
        default_factory=dict,
        description="columns of amounts, such as money or time, whose sums and means are asked for. They are no attributes: nothing is "
        "grouped by them",
        examples=[{"amount": {"from": 0, "to": 500, "step": 0.01}}],
    )
    left_out: Annotated[PluginSection | None, SectionKey("left_out")] = None
    quantiles: Annotated[PluginSection | None, SectionKey("quantiles")] = None
    thresholded: ThresholdedSpec | None = Field(
        None,
        description="publishes, from a part of the budget, a thresholded histogram: the rows of all combinations of keys, up to 2^62, "
        "whose noisy counts reach a threshold, each with a 95 % interval. Time and memory are those of the records",
        examples=[
            {
                "of": {"country": {"codes": ["DE", "FR"]}, "page": {"integers": {"from": 1, "to": 125_000_000}}},
                "at_least": 90,
                "cells_per_person": 10,
            }
        ],
    )
    assume: Annotated[PluginSection | None, SectionKey("assume")] = None
    neighbours: Neighbours = Field(
        "add-remove",
        description="which data sets are neighbours, that is, must be hard to tell apart: one unit is added or removed, or one "
        "unit may also be replaced by another. The unit is a record, or with a person column a person with all their records",
        examples=["replace-one"],
    )
    workload: tuple[QuerySpec, ...] = Field(min_length=1, description="the queries to publish, in groups")
    mechanism: Mechanism = Field(
        "auto",
        description="how the noise is spread over the queries. 'auto' compares the mechanisms that can answer the workload and takes "
        "the one with the least predicted error",
        examples=["coa"],
    )
    stream: StreamSpec | None = Field(None, description="makes this release the next part of a growing series")
    objective: Literal["total", "worst"] = Field(
        "total",
        description="what is minimised: the sum of the squared errors of all answers ('total'), or the largest error of any answer "
        "('worst'). 'worst' needs Gaussian noise and a workload that mechanism 'marginals', 'kronecker' or 'coa' can answer",
        examples=["worst"],
    )
    eigen: SeparationSpec = Field(
        default_factory=lambda: SeparationSpec.model_validate({}),
        description="how mechanism 'eigen' simplifies a problem with many cells",
    )
    limits: LimitsSpec = Field(
        default_factory=lambda: LimitsSpec.model_validate({}), description="how much memory and time the optimiser may use"
    )
    tolerance: float = Field(
        1e-6,
        gt=0,
        lt=1,
        description="the optimiser stops when its certified distance from the optimum, relative to the optimum, is at most this",
        examples=[1e-4],
    )
    budget: ReleaseBudgetSpec = Field(description="the privacy budget that this release spends")
    noise: Literal["gaussian", "laplace", "auto"] = Field(
        "auto",
        description="the kind of noise for a budget of epsilon and delta. 'laplace' leaves the delta unspent and takes more of the cap. "
        "'auto' keeps the kind that the data set began with; of its first release it takes the kind with the least predicted error where "
        "all releases ('ledger: cap: releases') have an equal share of the cap. A budget of epsilon alone always means Laplace noise",
        examples=["gaussian"],
    )
    ledger: LedgerSpec = Field(description="the data set that is charged, and the cap on all its releases")
    postprocess: PostprocessSpec = Field(
        default_factory=lambda: PostprocessSpec.model_validate({}),
        description="what is done to the noisy answers afterwards, at no charge",
    )
    about: AboutSpec | None = Field(
        None,
        description="what the publisher says of the data product: the release then carries deployment.yaml and CITATION.cff, too",
    )
    site: Annotated[AppearanceSection | None, SectionKey("spec.site")] = None
    gate: Annotated[PluginSection | None, SectionKey("gate")] = None
    output: OutputSpec = Field(
        default_factory=lambda: OutputSpec.model_validate({}), description="where the published files go"
    )

    @property
    def plugin_sections(self) -> list[PluginSection]:
        """What it asks plugins for."""
        selections = (self.records.person.selection, *(column.selection for column in self.sums.values()))
        sections = (*selections, *(getattr(self, name) for name in type(self).model_fields))
        return [section for section in sections if isinstance(section, PluginSection)]


def json_schema() -> dict[str, Any]:
    """The JSON schema of a spec, for editors."""
    return ReleaseSpec.model_json_schema(by_alias=True)
