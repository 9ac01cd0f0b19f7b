"""A release from its spec to its files, in the order of the README's six steps: the one place where this order is written.

Law 1, no noise without a receipt, is ``measure`` below: reserve budget, derive the key, draw, write, commit. Every stage takes
references to stored arrays and returns some; each can be run again at any time and writes the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from dpdist.content.release_summary import summary_line
from dpdist.counting.record_cells import CountSummary
from dpdist.errors import InvalidInput, ReleaseConflict
from dpdist.operators import Matrix
from dpdist.pipeline.histogram import check_missing, count, digested_files, materialize_table
from dpdist.pipeline.measure import draw_once, prepare_integers, write_integers
from dpdist.pipeline.preprocess import run_budgeted_steps
from dpdist.pipeline.publish import publish
from dpdist.pipeline.query_answers import answer
from dpdist.pipeline.release_charge import BoundRecords, release_charge
from dpdist.pipeline.validation import find_refusals
from dpdist.pipeline.warehouse_delivery import deliver
from dpdist.planner.answer_rounding import answer_rounding
from dpdist.planner.release_joining import release_joining
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.release_plan import check_memory, plan, plan_as_charged
from dpdist.plugin_registry import plugin_objects
from dpdist.privacy import keys
from dpdist.privacy.ledger.receipts import OF_RECORDS, DatasetBudget
from dpdist.process.durable_files import private_files
from dpdist.publish import notebook_view, release_folder
from dpdist.query.published_release import PublishedRelease, QueryResult, load_published
from dpdist.reconstruction.answer_vectors import Answers
from dpdist.runtime.context import Context
from dpdist.runtime.extract_files import extract_folder, sweep
from dpdist.runtime.stored_vectors import StoreWorkspace
from dpdist.spec import Job
from dpdist.spec.job_source import Origin
from dpdist.storage import leases
from dpdist.storage.array_store import StoredArray
from dpdist.storage.documents import Documents
from dpdist.storage.home_folder import published_at
from dpdist.storage.objects import StorageLocation

_T = TypeVar("_T")


class StepRunner(Protocol):
    """Runs one named stage: the flow makes it a Prefect task, plain calls leave it alone."""

    def __call__(self, name: str, work: Callable[[], _T]) -> _T:
        """work(), watched and recorded under the name."""


def run_directly(name: str, work: Callable[[], _T]) -> _T:
    """The step runner that adds nothing."""
    return work()


@dataclass(frozen=True, repr=False)
class Release:
    """A published release.

    Attributes:
        location: where its files are.
        charged: whether this run charged the budget (False: it had been charged before).
        tally: how reading the records went: for the operator's eyes only.
        budget: the data set's, with the charges up to this release.
        certificate: what is guaranteed, to whom, and at what cost.
    """

    plan: ReleasePlan
    columns: Answers
    location: StorageLocation
    charged: bool
    tally: CountSummary
    budget: DatasetBudget
    certificate: Mapping[str, Any]

    @property
    def job(self) -> Job:
        """What was released."""
        return self.plan.job

    @property
    def folder(self) -> Path | str:
        """Where its files are: a folder, or an object store URL."""
        return self.location.path_or_url

    @cached_property
    def answers(self) -> notebook_view.Table:
        """The published answers, as Arrow, pandas, Polars or xarray. Raises: StoreError when a file was altered."""
        with self.location.local_copy() as folder:
            table, certificate = release_folder.load_release(folder)
        return notebook_view.Table(table, self.plan.workload, certificate)

    @cached_property
    def statistics(self) -> dict[str, notebook_view.StatisticsTable]:
        """The tables of "means", "variances" and "quantiles", where the release has some. Raises: StoreError."""
        with self.location.local_copy() as folder:
            tables = release_folder.load_statistics(folder, release_folder.certificate_of(folder))
        return {name: notebook_view.StatisticsTable(table) for name, table in tables.items()}

    def __getitem__(self, group: str) -> notebook_view.StatisticsTable:
        """The rows of one group that ``dpdist show`` prints: ``release["branch"].pandas()``, ``release["mean of fee by branch"]``.

        Raises: InvalidInput for a group that the release does not have.
        """
        if group in self.answers.group_names:
            return self.answers[group]
        group_names = self.answers.group_names
        for table in self.statistics.values():
            statistic_groups = list(dict.fromkeys(table.arrow["group"].to_pylist()))
            if group in statistic_groups:
                return table.rows_of(group)
            group_names = [*group_names, *statistic_groups]
        raise notebook_view.unknown_group(group, group_names)

    @property
    def means(self) -> notebook_view.StatisticsTable:
        """The means of amounts. Raises: InvalidInput where the release has none."""
        return self._statistics_of("means", "dp.means(...)")

    @property
    def variances(self) -> notebook_view.StatisticsTable:
        """The variances, standard deviations, covariances and correlations of amounts. Raises: InvalidInput where it has none."""
        return self._statistics_of("variances", "dp.variances(...)")

    @property
    def quantiles(self) -> notebook_view.StatisticsTable:
        """The quantiles of amounts. Raises: InvalidInput where the release has none."""
        return self._statistics_of("quantiles", "'quantiles' in the spec")

    def _statistics_of(self, name: str, question: str) -> notebook_view.StatisticsTable:
        if name not in self.statistics:
            raise InvalidInput(f"the release has no {name}; ask for some with {question}")
        return self.statistics[name]

    @property
    def page(self) -> str:
        """Where its page is, for a browser: a path, or a URL."""
        return (self.location / "index.html").location

    @cached_property
    def published(self) -> PublishedRelease:
        """The release open to further questions. Raises: InvalidInput when its measurement was not published."""
        return load_published(self.location)

    def ask(self, *questions: str) -> QueryResult:
        """Answers to further questions: see ``dpdist.query.published_release.PublishedRelease.ask``. Nothing is charged."""
        return self.published.ask(*questions)

    def covariance(self, questions: Sequence[str]) -> Matrix:
        """The exact covariance matrix of the answers to linear questions, in counts squared."""
        return self.published.covariance(questions)

    def __repr__(self) -> str:  # without the tally, which a notebook would publish
        charged = "charged by this run" if self.charged else "charged before"
        location_text = self.location.location.removeprefix(f"{Path.cwd()}/")
        return f"<release of {summary_line(self.certificate)}; {charged}; in {location_text}>"

    def _repr_html_(self) -> str:
        page = self.location / "index.html"
        text = bytes(page.read_bytes()).decode() if page.exists() else ""
        charts = [chart_images(text) for chart_images in plugin_objects("notebook_charts")]
        return "".join([notebook_view.notebook_html(self.certificate, self.answers.arrow), *charts])


def release(context: Context, job: Job, *, step: StepRunner = run_directly, planned: ReleasePlan | None = None) -> Release:
    """Publish a release.

    Running it again after it has finished, or after it was killed anywhere, publishes the same bytes for one charge.

    Args:
        planned: its plan, where ``plan_unrefused`` made it before, with another engine. Default: it is planned here.
    Raises: DpdistError of any kind; whatever can refuse refuses before the charge.
    """
    keys.load(context.home)  # no key, no release
    with private_files():
        context.store.sweep()
        if (context.home / "scratch").is_dir():  # records that killed runs were extracting there
            leases.sweep(Documents(context.home / "scratch"), None)
        sweep(context)
    with nullcontext() if job.source.table is None else extract_folder(context, job.release) as folder:
        with private_files():
            plan_here = plan_unrefused(context, job, step=step) if planned is None else _with_engine(planned, context, step)
            unpublished, measurements = _measure_and_answer(context, plan_here, step, folder)
        for check_release in plugin_objects("gates"):
            check_release(context, unpublished)
        publishing = partial(
            publish,
            context,
            unpublished.plan,
            measurements[0],
            unpublished.columns,
            unpublished.certificate,
            measurements[1],
        )
        location = step("publish", publishing)
        targets = job.outputs.output.to
        if targets:
            step("deliver", lambda: deliver(location, [target.kind for target in targets]))
    return replace(unpublished, location=location)


def _measure_and_answer(
    context: Context, planned: ReleasePlan, step: StepRunner, folder: Path | None
) -> tuple[Release, tuple[StoredArray, dict[str, str]]]:
    """The release before it is published, its measurement and the digests of all that it was made from.

    Args:
        folder: the folder for the records of its table.
    """
    declared_job = planned.job.declared_job
    for check_before_charge in plugin_objects("charge_gates"):
        check_before_charge(context, planned.job)
    if declared_job.measured.placeholders:
        planned = _plan_with_found(context, planned, step, folder)
    for warning in planned.warnings:
        context.progress("warning", warning)
    joining = release_joining(planned.job)
    companion_releases = () if joining is None else joining.companions(context, planned)
    companion_plans = [companion for companion, _ in companion_releases]
    rounding = answer_rounding(planned.job)
    round_answers = None if rounding is None else rounding.prepare(context, planned, companion_plans)
    planned = replace(planned, job=_extract_records(context, planned.job, step, folder))
    job = planned.job
    counts, tally = step("count", lambda: count(context, job.source, job.measured, planned.layout))
    if not declared_job.measured.placeholders:
        check_missing(context, job, job.release, tally)
    with _explain_changed_rows(declared_job, job):
        measured, charged = step("measure", lambda: measure(context, planned, job.source, counts))
    answers = step("answer", lambda: answer(context, planned, measured, companion_releases, round_answers))
    # the budget has the charges up to this one: the same whenever it is asked for
    name, budget = context.ledger.name(), context.ledger.budget_after(job.release)
    certificate = planned.certificate(budget, answers.effect, ledger=name, rounding=answers.rounding)
    if joining is not None and (revised := joining.revised_groups(context, planned, companion_plans, answers)):
        certificate["revises"] = revised
    location = published_at(job.release, job.outputs.output.folder)
    measurements = {
        job.release: measured.digest,
        **{companion.job.release: stored.digest for companion, stored in companion_releases},
    }
    return Release(planned, answers, location, charged, tally, budget, certificate), (measured, measurements)


def plan_unrefused(context: Context, job: Job, *, step: StepRunner = run_directly) -> ReleasePlan:
    """The plan of a release as it was charged, where it was. Raises: what would refuse the release."""
    planned = step("plan", lambda: plan_as_charged(context, job))
    for refusal in find_refusals(context, planned):
        raise refusal
    return planned


def _with_engine(planned: ReleasePlan, context: Context, step: StepRunner) -> ReleasePlan:
    """The plan, which fits the engine that runs it. Raises: OutOfMemory."""

    def check_fit() -> ReleasePlan:
        check_memory(planned, context.engine)
        return planned

    return step("plan", check_fit)


def _plan_with_found(context: Context, planned: ReleasePlan, step: StepRunner, folder: Path | None) -> ReleasePlan:
    """The plan of a release with what parts of its budget find. It is planned anew only where that takes the place of placeholders.

    Whatever refuses the release was asked of the plan with placeholders, which asks for no less.
    """
    declared_job = planned.job.declared_job
    read_job = _extract_records(context, declared_job, step, folder)
    with _explain_changed_rows(declared_job, read_job):
        is_planned = not planned.job.has_placeholders or all(each.is_independent for each in read_job.steps_to_find)
        job = step("select", lambda: run_budgeted_steps(context, read_job, planned.layout if is_planned else None))
    if is_planned:
        return replace(planned, job=job)
    return step("plan", lambda: plan_as_charged(context, job))


def _extract_records(context: Context, job: Job, step: StepRunner, folder: Path | None) -> Job:
    """The release of records that are in files: those of a table are read once."""
    return job if job.source.table is None else step("extract", lambda: materialize_table(context, job, folder))


@contextmanager
def _explain_changed_rows(declared_job: Job, read_job: Job) -> Iterator[None]:
    """A refusal of other records than a release had says of a query or table that its rows have changed. What was read is removed."""
    try:
        yield
    except ReleaseConflict as conflict:
        if declared_job.source.table is None or conflict.conflict not in OF_RECORDS:
            raise
        Path(read_job.source.path).unlink(missing_ok=True)
        raise ReleaseConflict(conflict.release, "state of its query or table, whose rows have changed") from None


def measure(context: Context, planned: ReleasePlan, source: Origin, counts: StoredArray) -> tuple[StoredArray, bool]:
    """The noisy measurement: reserve, draw, write, commit (law 1). Returns it, and whether this call charged the budget.

    Raises: BudgetExceeded, ReleaseConflict, KeyUnavailable: before anything is drawn.
    """
    root, digest = keys.load(context.home), counts.content_digest
    with StoreWorkspace(context.store, context.engine).scratch() as work:
        charge = release_charge(context.ledger, planned, BoundRecords(root, digested_files(context, source), digest))
        exact = prepare_integers(context, work, planned, source, charge, counts)
        write = partial(write_integers, context, planned, charge, counts, exact)
        return draw_once(context, charge, root, digest, write, *planned.arrays_for_later(counts).values())


def count_only(context: Context, job: Job, *, step: StepRunner = run_directly) -> StoredArray:
    """The counts of a release, made ahead of it; counting the same records again does nothing."""
    planned = step("plan", lambda: plan(context, job))
    with nullcontext() if job.source.table is None else extract_folder(context, job.release, finishes=False) as folder:
        read_job = _extract_records(context, planned.job, step, folder)
        counts, _ = step("count", lambda: count(context, read_job.source, read_job.measured, planned.layout))
    return counts
