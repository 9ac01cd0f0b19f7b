"""ReleaseSpec: one release as a data team writes it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, PrivateAttr

from dpdist.domain import Attribute, Domain
from dpdist.grids.base import Norm
from dpdist.identities import canonical, digest_of
from dpdist.machine.objects import place_at
from dpdist.mechanisms.registry import AUTO, REGISTRY, mechanism_of
from dpdist.privacy.distributions import GAUSSIAN, LAPLACE
from dpdist.privacy.protection import Protection
from dpdist.quantities.base import Beside, Quantity
from dpdist.quantities.registry import quantity_of
from dpdist.records.extracts import Table
from dpdist.records.sources import Hashing, Participations, Source, hashed_here, source_of
from dpdist.records.used import Use, uses_of
from dpdist.records.wording import Called
from dpdist.sizes import SIZES, Sizes
from dpdist.spec.attributes import AttributeSpec, SelectionSpec
from dpdist.spec.attributes.private import Private
from dpdist.spec.budgets import LedgerSpec, ReleaseBudgetSpec
from dpdist.spec.dates import StreamSpec, through_of
from dpdist.spec.output import AboutSpec, OutputSpec, PostprocessSpec
from dpdist.spec.planning import LimitsSpec, Mechanism, SeparationSpec
from dpdist.spec.queries import QuerySpec
from dpdist.spec.queries.filters import summed_alone
from dpdist.spec.queries.series import FiltersSpec
from dpdist.spec.records import RecordsSpec
from dpdist.spec.sources import InFiles
from dpdist.spec.sums import SumSpec
from dpdist.spec.values import SpecPart
from dpdist.stability import Neighbours
from dpdist.workloads import Block, Workload, filtered, predicates, union
from dpdist.workloads.kinds import is_long
from dpdist.workloads.marginals import listed_marginals

CELL_BY_CELL = "identity"
"""The mechanism that measures every cell by itself, so that what a person adds to several cells is orthogonal."""


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
        "gaussian",
        description="the kind of noise for a budget of epsilon and delta. 'laplace' leaves the delta unspent and takes more of the cap. "
        "'auto' takes the kind with the least predicted error that the cap allows. A budget of epsilon alone always means Laplace noise",
        examples=["auto"],
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
    output: OutputSpec = Field(
        default_factory=lambda: OutputSpec.model_validate({}), description="where the published files go"
    )
    _folder: Path = PrivateAttr(default_factory=Path.cwd)
    _sizes: Sizes = PrivateAttr(default=SIZES)
    _snapshot: str = PrivateAttr(default="")
    _called: Called | None = PrivateAttr(default=None)
    _companions: tuple[ReleaseSpec, ...] = PrivateAttr(default=())
    _declared: ReleaseSpec | None = PrivateAttr(default=None)
    _placeholders: bool = PrivateAttr(default=False)

    @cached_property
    def attributes(self) -> Domain:
        """The declared domain."""
        names, asked = tuple(self.domain), self.workload
        return Domain(
            tuple(
                spec.attribute(
                    name,
                    self._sizes,
                    folder=self._folder,
                    everywhere=all(entry.kind.asks_for(name, names) for entry in asked),
                    ordered=all(entry.kind.ordered_by(name) for entry in asked),
                )
                for name, spec in self.domain.items()
            )
            + tuple(
                part.attribute(
                    name,
                    everywhere=all(entry.statistic.adds_up(name) for entry in asked),
                    squares=any(entry.statistic.adds_up(name, squares=True) for entry in asked),
                    alone=any(entry.kind.over_time and entry.statistic.columns for entry in asked),
                    records=self.records.person.records,
                )
                for name, part in self.sums.items()
            ),
            self._sizes,
        )

    @cached_property
    def queries(self) -> Workload:
        """The workload."""
        parts = (entry.workload(self.attributes, self._folder) for entry in self.workload)
        return union(*parts, weights=tuple(entry.importance.factor for entry in self.workload))

    @property
    def quantity(self) -> Quantity:
        """What is measured of every cell."""
        return quantity_of(self.attributes, centre=self.around, persons=self.records.count == "persons")

    @property
    def beside(self) -> Beside:
        """What else is asked for, as far as quantities can be against it."""
        person, options = self.records.person, self.postprocess
        asked = [entry.statistic for entry in self.workload]
        return Beside(
            attributes=tuple(self.domain),
            tables=tuple(entry.kind.tables for entry in self.workload),
            levels=any(part.levels for part in self.attributes.attributes),
            columns=tuple(self.sums),
            statistics=tuple((each.key(), each.columns) if each.columns else None for each in asked),
            series=any(entry.kind.over_time for entry in self.workload),
            apart=person.column is not None,
            in_groups=person.most_groups is not None and person.most_records == 1,
            bounded=next((name for name, part in self.sums.items() if part.most_per_person is not None), None),
            known=bool(options.known),
            non_negative=options.non_negative,
        )

    @property
    def counted(self) -> tuple[bool, ...]:
        """Of each block of the queries whether its answers are numbers of records."""
        domain, folder = self.attributes, self._folder
        found = (entry.kind.counted(entry.statistic, domain, folder) for entry in self.workload)
        return tuple(counts for each in found for counts in each)

    @cached_property
    def known(self) -> tuple[Block, ...]:
        """The queries whose counts are public."""
        domain = self.attributes.grouped  # columns of amounts come after these: axes keep their numbers
        everyone = listed_marginals(domain, [()])
        given = [everyone if k.where is None else predicates(domain, [k.where]) for k in self.postprocess.known]
        return tuple(workload.blocks[0] for workload in given)

    @property
    def folder(self) -> Path:
        """The spec's folder: what its relative paths start at."""
        return self._folder

    @property
    def selecting(self) -> tuple[str, SelectionSpec] | None:
        """The attribute whose names are not selected yet, and how they are to be; None where all values are known."""
        found = ((name, part.values) for name, part in self.domain.items())
        return next(((name, values.selection) for name, values in found if isinstance(values, Private)), None)

    @property
    def totals(self) -> bool:
        """Whether the total of a person's amounts is bounded."""
        return self.beside.bounded is not None

    @property
    def declared(self) -> ReleaseSpec:
        """The spec as it was written: before names were selected."""
        return self._declared or self

    @property
    def unselected(self) -> bool:
        """Whether placeholders stand for names that are not selected yet."""
        return self.selecting is not None or self._placeholders

    def with_names(self, names: Sequence[str] | None) -> ReleaseSpec:
        """The same release over selected names, with the part of its budget that the selection leaves; None: over placeholders."""
        found = self.selecting
        assert found is not None
        attribute, selection = found
        part = self.domain[attribute].with_names(selection.placeholders if names is None else names)
        rho = self.budget.rho_beside(selection.delta) * (1 - selection.share)
        budget = ReleaseBudgetSpec.model_construct(rho=rho, epsilon=None, delta=None, calibration=self.budget.calibration)
        copy = self.model_copy(update={"domain": {**self.domain, attribute: part}, "budget": budget})
        for name in ("attributes", "queries", "known", "norms", "digest"):
            copy.__dict__.pop(name, None)
        copy._declared, copy._placeholders = self, names is None
        return copy

    @property
    def protection(self) -> Protection:
        """What the guarantee protects: unit, neighbouring relation and bound."""
        person, counts = self.records.person, self.records.counts
        of = None if counts is None else counts.of
        apart = person.participations, person.separation
        steps = None if person.column is not None else self._steps_of_persons
        bounds = person.most_records, person.column, of, person.most_groups
        return Protection(self.neighbours, *bounds, *apart, steps, type=None if person.column is None else person.type)

    @property
    def _steps_of_persons(self) -> str | None:
        """The steps that a promise of participations is about, whatever the horizon; None where there is no such promise."""
        if self.records.person.participations is None:
            return None
        of = self.series.of
        return f"{self.horizons[0].domain[of].steps} of column {self.records.columns.get(of, of)!r}"

    @property
    def chosen(self) -> Mechanism:
        """The mechanism asked for; ``auto`` of a stream is always the first that measures steps one after the other."""
        if self.stream is None or self.mechanism != AUTO:
            return self.mechanism
        return next(name for name, each in REGISTRY.items() if each.streams)

    @cached_property
    def norms(self) -> tuple[Norm, ...]:
        """The kinds of noise that are compared, Gaussian first: decided by the spec alone.

        'auto' compares what the mechanism, the objective and the data set's cap allow. A budget in rho always buys less error as
        Gaussian noise: at the same rho, Laplace noise has at least twice its variance for every strategy (L1 >= L2).
        """
        if self.budget.pure or self.noise == LAPLACE:
            return ("l1",)
        only_gaussian = (
            self.budget.rho is not None or self.stream is not None or self.objective == "worst" or is_long(self.queries)
        )
        if self.noise == GAUSSIAN or only_gaussian:
            return ("l2",)
        every: tuple[Norm, ...] = ("l2", "l1")
        if self.mechanism != AUTO:
            every = tuple(norm for norm in every if norm in mechanism_of(self.mechanism).noises)
        cap = self.ledger.cap.cap
        return tuple(norm for norm in every if cap.allows(self.budget.loss_with(norm))) or every[:1]

    @cached_property
    def formerly(self) -> ReleaseSpec | None:
        """The spec of the stream before its horizon was last extended, None where it never was."""
        if self.stream is None or not self.stream.extended_from:
            return None
        *before, end = self.stream.extended_from
        of = self.series.of
        part = self.domain[of].until(end)
        stream = self.stream.model_copy(update={"extended_from": tuple(before), "through": part.values.begin})
        copy = self.model_copy(update={"domain": {**self.domain, of: part}, "stream": stream})
        for name in ("attributes", "queries", "known", "norms", "digest", "formerly"):
            copy.__dict__.pop(name, None)
        return copy

    @property
    def horizons(self) -> tuple[ReleaseSpec, ...]:
        """The specs of the stream over every horizon that it had, this one last."""
        return (*(() if self.formerly is None else self.formerly.horizons), self)

    @property
    def series(self) -> FiltersSpec:
        """The series that the first group of queries asks for. Raises: InvalidInput where it asks for none."""
        return self.workload[0].kind.series

    @property
    def steps(self) -> int:
        """Steps of the stream that are complete."""
        assert self.stream is not None
        attribute = self.attributes.attribute(self.series.of)
        return int(np.searchsorted(np.asarray(attribute.edges), through_of(self.stream, attribute), side="right"))

    def queries_of_steps(self, steps: int) -> Workload:
        """The stream's queries for its first steps."""
        asked, whole = self.series, self.attributes.attributes
        place = self.attributes.axis(asked.of)
        series = whole[place]
        begun = Attribute(series.name, edges=series.edges[: steps + 1], labels=series.labels[:steps], named=series.named)
        domain = Domain((*whole[:place], begun, *whole[place + 1 :]), self._sizes)
        (each,) = (each.kind.made(series.values, self._folder, self._sizes) for each in asked.apply)
        counts = filtered(domain.grouped, begun.name, [each], asked.by)
        entry = self.workload[0]
        return union(summed_alone(entry.statistic, counts, domain), weights=(entry.importance.factor,))

    @property
    def around(self) -> int | None:
        """The public count whose distance is filtered instead of the counts themselves."""
        return self.workload[0].kind.centre

    @property
    def companions(self) -> tuple[ReleaseSpec, ...]:
        """The specs of the releases that this one is made consistent with; ``reading`` has read them."""
        return self._companions

    @property
    def records_path(self) -> str:
        """The records: a URL, or a path, resolved against the spec's folder if it is relative."""
        return place_at(self._files.path, below=self._folder).location

    @property
    def _files(self) -> InFiles:
        """The files of the records: those of a table are extracted first."""
        assert isinstance(self.records.location, InFiles)
        return self.records.location

    @property
    def records_called(self) -> Called:
        """What messages call the place of the records, whatever file they were written to: by the spec's own text."""
        return self._called or Called(self.records.location.called)

    @property
    def table(self) -> Table | None:
        """The table that holds the records; None where files do."""
        return self.records.location.table(self._folder, self.records.types)

    @property
    def uses(self) -> dict[str, Use]:
        """What each column is counted as. Raises: InvalidSpec for one that is to be two things."""
        given = self.records
        counts = None if given.counts is None else given.counts.column
        return uses_of(self.attributes, given.columns, given.person.column, given.person.type, counts)

    def with_records(self, path: Path, snapshot: str = "", *, called: str = "the table of records") -> ReleaseSpec:
        """The same spec over the records of a file, which messages call so."""
        records = self.records.model_copy(update={"location": InFiles.model_validate({"path": str(path)})})
        copy = self.model_copy(update={"records": records})
        copy.__dict__.pop("source", None)
        copy._snapshot, copy._called = snapshot, Called(called)
        return copy

    @cached_property
    def source(self) -> Source:
        """The files of the records, each hashed once. Raises: InvalidSpec when there are none."""
        return self._source(hashed_here)

    def source_by(self, hashing: Hashing) -> Source:
        """The same, with files that are not hashed yet hashed in another way."""
        if "source" not in self.__dict__:
            self.__dict__["source"] = self._source(hashing)
        return self.source

    @property
    def _participations(self) -> Participations | None:
        """The steps in which records of one person are counted; None where no person column tells whose they are."""
        person = self.records.person
        if person.participations is None or person.column is None:
            return None
        return Participations(self.series.of, person.participations, person.separation)

    def _source(self, hashing: Hashing) -> Source:
        person = self.records.person
        source = source_of(
            self.records_path,
            hashing=hashing,
            columns=self.records.columns,
            header=self._files.header,
            person=person.column,
            most_records=person.most_records,
            most_groups=person.most_groups,
            participations=self._participations,
            person_type=person.type,
            counts=None if self.records.counts is None else self.records.counts.column,
            grammar=self._files.grammar,
            attributes=self.domain,
            called=self.records_called,
            types=self.records.types,
        )
        return replace(source, snapshot=self._snapshot)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that decides what is measured. Paths, titles, output folders and post-processing do not enter."""
        left_out = {"title", "output", "records", "ledger", "postprocess", "domain", "about", "sums"}
        facts = {
            "spec": {name: part for name, part in canonical(self).items() if name not in left_out},
            "domain": [(name, part.measured) for name, part in self.domain.items()],  # in order: it numbers the cells
            "person": self.records.person,
            "columns": self.records.columns,
            **({"types": sorted(self.records.types.items())} if self.records.types else {}),
            **({} if self.records.count == "records" else {"count": self.records.count}),
            "queries": self.queries.fingerprint,
            **({} if self.records.counts is None else {"counts": self.records.counts}),
            **({"sums": [(name, part.measured) for name, part in self.sums.items()]} if self.sums else {}),
        }
        return digest_of("spec", facts)


def json_schema() -> dict[str, Any]:
    """The JSON schema of a spec, for editors."""
    return ReleaseSpec.model_json_schema(by_alias=True)
