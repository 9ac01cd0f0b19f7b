"""A release, compiled: five values, of which every stage takes those that it needs. Beyond this room nobody sees the spec."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from dpdist.digests import compute_digest
from dpdist.domain import Attribute, Domain
from dpdist.errors import InvalidInput
from dpdist.measurement.integer_measurement import Norm
from dpdist.mechanisms.mechanism import PlanSetting
from dpdist.mechanisms.mechanism_registry import AUTO, mechanism_of
from dpdist.privacy.accounting import Cap
from dpdist.privacy.noise_distributions import LAPLACE
from dpdist.privacy.privacy_unit import Protection
from dpdist.sources.source_labels import FRAME_LABEL
from dpdist.spec.budgeted_step import BudgetedStep
from dpdist.spec.job_histogram import CountedCells
from dpdist.spec.job_source import Origin
from dpdist.spec.job_workload import JobWorkload
from dpdist.spec.queries import QuerySpec
from dpdist.spec.queries.filter_kinds import FiltersSpec
from dpdist.spec.queries.filtered_series import summed_alone
from dpdist.spec.sections.budgets import LedgerSpec, ReleaseBudgetSpec
from dpdist.spec.sections.calendar_steps import StreamSpec, last_complete_step
from dpdist.spec.sections.output import AboutSpec, OutputSpec, PostprocessSpec
from dpdist.spec.sections.plugin_sections import PluginSection
from dpdist.spec.sections.records import Person
from dpdist.stability import Distance, Neighbours
from dpdist.statistics.statistic import ReleaseTraits
from dpdist.workloads import Block, Workload, filtered, predicates, union
from dpdist.workloads.product_queries import listed_marginals

_T = TypeVar("_T")


@dataclass(frozen=True)
class SingleRelease:
    """A release by itself: all its queries are measured at once."""

    grows: ClassVar[bool] = False
    horizons: ClassVar[tuple[Workload, ...]] = ()
    former_job: ClassVar[None] = None

    def published_queries(self, queries: Workload) -> Workload:
        """The queries that are published: all."""
        return queries

    def facts(self, cells: int) -> dict[str, Any] | None:
        """What a certificate says of the series: there is none."""
        return None

    def promised_steps(self, columns: Mapping[str, str]) -> str | None:
        """The steps that a promise of participations is about: none are told apart."""
        return None


@dataclass(frozen=True)
class GrowingSeries:
    """The next part of a growing series: the steps since the last one are measured.

    Attributes:
        entry: the filter of the past that is asked at every step.
        former_job: the release over the horizon before it was last extended, None where it never was.
    """

    stream: StreamSpec
    entry: QuerySpec
    measured: CountedCells
    former_job: Job | None = None

    grows: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The name of the series."""
        return self.stream.name

    @property
    def filters(self) -> FiltersSpec:
        """The filter, and of which attribute. Raises: InvalidInput where none is asked for."""
        return self.entry.kind.series

    @property
    def series(self) -> Attribute:
        """The attribute whose steps are filtered."""
        return self.measured.domain.attribute(self.filters.of)

    @property
    def steps(self) -> int:
        """Steps that are complete."""
        return int(
            np.searchsorted(np.asarray(self.series.edges), last_complete_step(self.stream, self.series), side="right")
        )

    @property
    def horizons(self) -> tuple[Workload, ...]:
        """The queries over every horizon that the series had before this one, oldest first."""
        if self.former_job is None:
            return ()
        return (*self.former_job.guarantee.release_mode.horizons, self.former_job.workload.queries)

    def check_longer(self, queries: Workload) -> None:
        """Accept queries over a horizon that is longer than every former one. Raises: InvalidInput."""
        sizes = [horizon.shape[1] for horizon in (*self.horizons, queries)]
        if sorted(set(sizes)) != sizes:
            raise InvalidInput(
                "every extension adds steps: 'extended_from' lists the former ends, oldest first, all before the domain's end"
            )

    def published_queries(self, queries: Workload) -> Workload:
        """The queries of the steps so far."""
        return self.queries_of_steps(self.steps)

    def queries_of_steps(self, steps: int) -> Workload:
        """The queries of the first steps."""
        domain, series = self.measured.domain, self.series
        axis = domain.axis(series.name)
        shortened = Attribute(series.name, edges=series.edges[: steps + 1], labels=series.labels[:steps], named=series.named)
        whole = domain.attributes
        domain = Domain((*whole[:axis], shortened, *whole[axis + 1 :]), self.measured.sizes)
        (time_filter,) = (
            time_filter.kind.build_filter(series.values, self.measured.folder, self.measured.sizes)
            for time_filter in self.filters.apply
        )
        counts = filtered(domain.grouped, shortened.name, [time_filter], self.filters.by)
        return union(summed_alone(self.entry.statistic, counts, domain), weights=(self.entry.importance.factor,))

    def facts(self, cells: int) -> dict[str, Any] | None:
        """What a certificate says of the series.

        Args:
            cells: of the whole horizon.
        """
        return {"name": self.name, "steps": self.steps, "of": cells}

    def promised_steps(self, columns: Mapping[str, str]) -> str | None:
        """The steps that a promise of participations is about, whatever the horizon."""
        if self.former_job is not None:
            return self.former_job.guarantee.release_mode.promised_steps(columns)
        attribute_name = self.filters.of
        return f"{self.measured.attributes[attribute_name].steps} of column {columns.get(attribute_name, attribute_name)!r}"


@dataclass(frozen=True)
class StepResult:
    """What the records decide, or placeholders for it, stands in the release.

    Attributes:
        declared_job: the release before it was found.
        is_placeholder: whether placeholders stand for it, because it is not found yet.
        published_numbers: the noisy numbers that it was chosen by, where they are published.
    """

    declared_job: Job
    is_placeholder: bool
    published_numbers: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Guarantee:
    """What is charged to whom: unit, neighbours, budget, noise, cap, and how releases of one series or selection are charged together.

    Attributes:
        release: the id that is charged.
        noise: as the spec says it, or "auto".
        ledger: the data set that is charged, and its cap.
        columns: of attributes whose column is called otherwise.
        counted: what the records are, where they were counted before.
        next_step: what a part of the budget finds next, None where nothing is left to be found.
        stated: everything else that a charge covers, in its canonical form.
        step_results: what parts of the budget found before, in order.
    """

    release: str
    period: datetime.date | None
    ledger: LedgerSpec
    neighbours: Neighbours
    person: Person
    columns: Mapping[str, str]
    counted: str | None
    budget: ReleaseBudgetSpec
    noise: str
    release_mode: SingleRelease | GrowingSeries
    next_step: BudgetedStep | None
    stated: Mapping[str, Any]
    step_results: tuple[StepResult, ...] = ()

    @property
    def dataset(self) -> str:
        """The data set that is charged."""
        return self.ledger.dataset

    @property
    def cap(self) -> Cap:
        """The most that all its releases may spend."""
        return self.ledger.cap.cap

    @cached_property
    def protection(self) -> Protection:
        """What the guarantee protects: unit, neighbouring relation and bound."""
        promised = self.person.participations and not self.person.column
        steps = self.release_mode.promised_steps(self.columns) if promised else None
        facts = {"neighbours": self.neighbours, "counted": self.counted, "steps": steps}
        return Protection.from_facts(facts | self.person.bounds)

    @property
    def day(self) -> str | None:
        """The day that the release stands for, as certificates write it."""
        return self.period.isoformat() if self.period else None


@dataclass(frozen=True)
class Outputs:
    """What is done to the answers, which files are written, and where they go.

    Attributes:
        theme: what the publisher gives of its own to the page (``AppearanceSection.theme``), None where that is nothing.
        boundaries: where values lie on a map, by attribute.
        companions: the releases that this one is made consistent with.
        gate: what is done where answers are very unlikely beside those of earlier periods.
    """

    title: str
    language: str
    measured: CountedCells
    output: OutputSpec
    postprocess: PostprocessSpec
    about: AboutSpec | None
    theme: Any
    boundaries: Mapping[str, Any]
    companions: tuple[Job, ...]
    gate: PluginSection | None = None

    @cached_property
    def known_blocks(self) -> tuple[Block, ...]:
        """The queries whose counts are public."""
        domain = self.measured.domain.grouped  # columns of amounts come after these: axes keep their numbers
        everyone = listed_marginals(domain, [()])
        workloads = [
            everyone if known_count.where is None else predicates(domain, [known_count.where])
            for known_count in self.postprocess.known
        ]
        return tuple(workload.blocks[0] for workload in workloads)

    @property
    def fits_estimate(self) -> bool:
        """Whether one estimate of all cells is fitted."""
        options = self.postprocess
        return bool(options.known or options.non_negative or options.consistent_with)


@dataclass(frozen=True)
class Job:
    """A release, compiled from its spec.

    Attributes:
        source: the records.
        measured: the cells, and what a record adds to them.
        workload: the queries over them.
        guarantee: what is promised and charged.
        outputs: what readers get.
    """

    source: Origin
    measured: CountedCells
    workload: JobWorkload
    guarantee: Guarantee
    outputs: Outputs

    @property
    def release(self) -> str:
        """The id of the release."""
        return self.guarantee.release

    @property
    def declared_job(self) -> Job:
        """The release as it was written: before anything was found."""
        return self.guarantee.step_results[0].declared_job if self.guarantee.step_results else self

    @cached_property
    def next_step(self) -> BudgetedStep | None:
        """What a part of the budget finds next; None where nothing is left to be found."""
        step = self.guarantee.next_step
        return None if step is None else replace(step, job=self)

    @property
    def steps_to_find(self) -> list[BudgetedStep]:
        """What parts of the budget find for the release, in order, each with placeholders for what is found before it."""
        step = self.next_step
        return [] if step is None else [step, *self.with_placeholder.steps_to_find]

    @cached_property
    def with_placeholder(self) -> Job:
        """The release with a placeholder for what is found next: as many names as there can be, or the largest bound."""
        return self.with_step_result(None)

    @property
    def has_placeholders(self) -> bool:
        """Whether something that is planned for was not found yet."""
        return any(step_result.is_placeholder for step_result in self.guarantee.step_results)

    @property
    def found_steps(self) -> list[tuple[BudgetedStep, Mapping[str, Any] | None]]:
        """What the release was prepared with, in order, with the numbers of each that are published; None for placeholders."""
        results = self.guarantee.step_results
        steps = ((step_result.declared_job.next_step, step_result.published_numbers) for step_result in results)
        return [(step, published_numbers) for step, published_numbers in steps if step is not None]

    @property
    def without_extra_steps(self) -> Job:
        """The release without what is found beside it."""
        step = self.guarantee.next_step
        return self.with_step_result(True).without_extra_steps if step is not None and step.is_independent else self

    @property
    def moved(self) -> Distance:
        """How far one change of the files can move what the grid is applied to: the steps before it, one after the other.

        Where the total of a person is bounded (``dpdist.measurement.sensitivity.bounded_totals``) this is how far their shares can move
        without their signs.
        """
        return self.measured.quantity.stability(self.guarantee.protection.distance)

    @property
    def setting(self) -> PlanSetting:
        """What the release's strategy is for, beside the queries."""
        release_mode = self.guarantee.release_mode
        return PlanSetting(release_mode.grows, bool(release_mode.horizons), self.moved)

    @property
    def release_context(self) -> ReleaseTraits:
        """What else is asked for, as far as quantities can be against it."""
        measured, entries = self.measured, self.workload.entries
        person, options = self.guarantee.person, self.outputs.postprocess
        statistics = [entry.statistic for entry in entries]
        return ReleaseTraits(
            attributes=tuple(measured.attributes),
            tables=tuple(entry.kind.tables(tuple(measured.attributes)) for entry in entries),
            levels={level.name: attribute.name for attribute in measured.domain.attributes for level in attribute.levels},
            columns=tuple(measured.sums),
            statistics=tuple(
                (statistic.key(), statistic.columns) if statistic.columns else None for statistic in statistics
            ),
            series=any(entry.kind.over_time for entry in entries),
            identifies_persons=person.column is not None,
            in_groups=person.most_groups is not None and person.most_records == 1,
            bounded=measured.bounded_column,
            totals=len(measured.domain.person_tables) > 1
            or any(attribute_spec.most_groups for attribute_spec in measured.attributes.values()),
            has_public_counts=bool(options.known),
            non_negative=options.non_negative,
        )

    def accepting_missing(self) -> Job:
        """The same release, however many records are missing or outside the domain."""
        records = self.source.records.model_copy(update={"most_missing": Fraction(1)})
        return replace(self, source=replace(self.source, records=records))

    def with_records(self, path: Path, snapshot: str = "", *, source_label: str = FRAME_LABEL) -> Job:
        """The same release of records that were written to a file: see ``Origin.with_file``."""
        return replace(self, source=self.source.with_file(path, snapshot, source_label=source_label))

    def with_step_result(self, values: Any, numbers: Mapping[str, Any] | None = None) -> Job:
        """The same release with what a part of its budget found, and with the rest of the budget; None: placeholders.

        Args:
            numbers: noisy numbers that are published.
        """
        step, budget = self.guarantee.next_step, self.guarantee.budget
        assert step is not None
        _, rest = step.split_budget(budget)
        next_job: Job = step.make_job(values, budget.of_loss(rest))
        records = self.source.records.model_copy(update={"person": next_job.source.records.person})
        step_result = StepResult(self, values is None, numbers)
        guarantee = replace(next_job.guarantee, step_results=(*self.guarantee.step_results, step_result))
        return replace(next_job, source=replace(self.source, records=records), guarantee=guarantee)

    @cached_property
    def norms(self) -> tuple[Norm, ...]:
        """The kinds of noise that the spec leaves open, Gaussian first.

        'auto' leaves open what the mechanism, the objective and the data set's cap allow. A budget in rho always buys less error as
        Gaussian noise: at the same rho, Laplace noise has at least twice its variance for every strategy (L1 >= L2).
        """
        job_workload, guarantee = self.workload, self.guarantee
        budget = guarantee.budget
        if budget.pure or guarantee.noise == LAPLACE:
            return ("l1",)
        has_preprocessing = (
            guarantee.step_results or guarantee.next_step is not None
        )  # parts of the budget, which is then a rho
        gaussian = guarantee.noise != AUTO or budget.rho is not None or guarantee.release_mode.grows or has_preprocessing
        if gaussian or job_workload.objective == "worst" or job_workload.queries.kind.is_long:
            return ("l2",)
        allowed_norms: tuple[Norm, ...] = ("l2", "l1")
        if job_workload.mechanism != AUTO:
            allowed_norms = tuple(norm for norm in allowed_norms if norm in mechanism_of(job_workload.mechanism).noises)
        return tuple(norm for norm in allowed_norms if guarantee.cap.allows(budget.loss_with(norm))) or allowed_norms[:1]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that decides what is measured. Paths, titles, output folders and post-processing do not enter."""
        records, measured = self.source.records, self.measured
        levels = [
            attribute.levels_counted for attribute in measured.domain.attributes if attribute.apart
        ]  # a file may say them
        facts = {
            "spec": self.guarantee.stated,
            "domain": [
                (name, declaration.digest_form) for name, declaration in measured.attributes.items()
            ],  # in order: it numbers the cells
            "person": records.person,
            "columns": records.columns,
            **({"types": sorted(records.types.items())} if records.types else {}),
            **({} if records.count == "records" else {"count": records.count}),
            "queries": self.workload.queries.fingerprint,
            **({} if records.counts is None else {"counts": records.counts}),
            **(
                {"sums": [(name, declaration.digest_form) for name, declaration in measured.sums.items()]}
                if measured.sums
                else {}
            ),
            **({"levels": levels} if levels else {}),
        }
        return compute_digest("spec", facts)
