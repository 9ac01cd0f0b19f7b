"""A release from its spec to its files, in the order of the README's six steps: the one place where this order is written.

Law 1, no noise without a receipt, is ``measure`` below: reserve budget, derive the key, draw, write, commit. Every stage takes
references to stored arrays and returns some; each can be run again at any time and writes the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol, TypeVar

from dpdist.content.certificate_fields import Claims
from dpdist.content.release_summary import summary
from dpdist.counting.record_cells import CountSummary
from dpdist.errors import ReleaseConflict
from dpdist.operators import Matrix
from dpdist.pipeline.continual_release import BoundRecords, charge_of, course_of
from dpdist.pipeline.extract_files import held, sweep
from dpdist.pipeline.histogram import as_read, check_missing, count, files_of
from dpdist.pipeline.measure import checked_integers, drawn_once, write_integers
from dpdist.pipeline.preprocess import selected
from dpdist.pipeline.publish import publish
from dpdist.pipeline.query_answers import answer, companions
from dpdist.pipeline.validation import refused_by
from dpdist.pipeline.warehouse_delivery import deliver
from dpdist.planner.release_plan import Plan, plan
from dpdist.privacy import keys
from dpdist.privacy.ledger.receipts import OF_RECORDS, DatasetBudget
from dpdist.process.durable_files import private_files
from dpdist.publish import notebook_view, release_folder
from dpdist.query.published_release import Asked, Published, published
from dpdist.query.synthetic_records import Synthetic, Tables, tables_of
from dpdist.reconstruction.answer_vectors import Answers
from dpdist.runtime.context import Context
from dpdist.runtime.stored_vectors import StoreWorkspace
from dpdist.spec import Job
from dpdist.spec.job_source import Origin
from dpdist.storage import leases
from dpdist.storage.array_store import StoredArray
from dpdist.storage.documents import Documents
from dpdist.storage.home_folder import published_at
from dpdist.storage.objects import Place

_T = TypeVar("_T")


class StepRunner(Protocol):
    """Runs one named stage: the flow makes it a Prefect task, plain calls leave it alone."""

    def __call__(self, name: str, work: Callable[[], _T]) -> _T:
        """work(), watched and recorded under the name."""


def plainly(name: str, work: Callable[[], _T]) -> _T:
    """The step runner that adds nothing."""
    return work()


@dataclass(frozen=True, repr=False)
class Release:
    """A published release.

    Attributes:
        place: where its files are.
        charged: whether this run charged the budget (False: it had been charged before).
        tally: how reading the records went: for the operator's eyes only.
        budget: the data set's, with the charges up to this release.
        certificate: what is guaranteed, to whom, and at what cost.
    """

    plan: Plan
    columns: Answers
    place: Place
    charged: bool
    tally: CountSummary
    budget: DatasetBudget
    certificate: Claims

    @property
    def job(self) -> Job:
        """What was released."""
        return self.plan.job

    @property
    def folder(self) -> Path | str:
        """Where its files are: a folder, or an object store URL."""
        return self.place.given

    @cached_property
    def answers(self) -> notebook_view.Table:
        """The published answers, as Arrow, pandas, Polars or xarray. Raises: StoreError when a file was altered."""
        with self.place.copied() as folder:
            table, certificate = release_folder.load(folder)
        return notebook_view.Table(table, self.plan.workload, certificate)

    def __getitem__(self, group: str) -> notebook_view.Table:
        """The answers of one group of queries, such as ``release["branch"].pandas()``. Raises: InvalidInput."""
        return self.answers[group]

    @property
    def page(self) -> str:
        """Where its page is, for a browser: a path, or a URL."""
        return (self.place / "index.html").location

    @cached_property
    def published(self) -> Published:
        """The release open to further questions. Raises: InvalidInput when its measurement was not published."""
        return published(self.place)

    def ask(self, *asked: str) -> Asked:
        """Answers to further questions: see ``dpdist.query.published_release.Published.ask``. Nothing is charged."""
        return self.published.ask(*asked)

    def synthetic(self, records: int | None = None, copy: int = 0, redrawn: int = 0) -> Synthetic:
        """Synthetic records whose tables are those of the release: see ``dpdist.query.synthetic_records``. Nothing is charged.

        Args:
            records: how many. Default: as many as the release estimates.
            copy: another number gives other records of the same tables.
            redrawn: other numbers than 0 give sets whose differences say how uncertain a number is (``dpdist.query.rubin_rules``).
        """
        return self._tables.model(redrawn).made(records, copy)

    @cached_property
    def _tables(self) -> Tables:
        return tables_of(self.published)

    def covariance(self, asked: Sequence[str]) -> Matrix:
        """The exact covariance matrix of the answers to linear questions, in counts squared."""
        return self.published.covariance(asked)

    def __repr__(self) -> str:  # without the tally, which a notebook would publish
        charged = "charged by this run" if self.charged else "charged before"
        where = self.place.location.removeprefix(f"{Path.cwd()}/")
        return f"<release of {summary(self.certificate)}; {charged}; in {where}>"

    def _repr_html_(self) -> str:
        page = self.place / "index.html"
        charts = notebook_view.pictures(bytes(page.read()).decode()) if page.exists() else ""
        return notebook_view.notebook(self.certificate, self.answers.arrow) + charts


def release(context: Context, job: Job, *, step: StepRunner = plainly) -> Release:
    """Publish a release.

    Running it again after it has finished, or after it was killed anywhere, publishes the same bytes for one charge.

    Raises: DpdistError of any kind; whatever can refuse refuses before the charge.
    """
    keys.load(context.home)  # no key, no release
    with private_files():
        context.store.sweep()
        if (context.home / "scratch").is_dir():  # records that killed runs were extracting there
            leases.sweep(Documents(context.home / "scratch"), None)
        sweep(context)
    with nullcontext() if job.source.table is None else held(context, job.release) as kept:
        with private_files():
            done, measurements = _answered(context, job, step, kept)
        publishing = partial(publish, context, done.plan, measurements[0], done.columns, done.certificate, measurements[1])
        place = step("publish", publishing)
        targets = job.outputs.output.to
        if targets:
            step("deliver", lambda: deliver(place, [target.kind for target in targets]))
    return replace(done, place=place)


def _answered(
    context: Context, written: Job, step: StepRunner, kept: Path | None
) -> tuple[Release, tuple[StoredArray, dict[str, str]]]:
    """The release before it is published, its measurement and the digests of all that it was made from.

    Args:
        kept: the folder for the records of its table.
    """
    job = written
    if job.measured.placeholders:
        for refusal in refused_by(context, step("plan", partial(plan, context, job))):
            raise refusal
        job = _read(context, job, step, kept)
        with _of_changed_rows(written, job):
            job = step("select", partial(selected, context, job))
    planned = course_of(step("plan", lambda: plan(context, job))).as_charged(context)
    for refusal in refused_by(context, planned):
        raise refusal
    for warning in planned.warnings:
        context.progress("warning", warning)
    others = companions(context, planned)
    job = _read(context, job, step, kept)
    planned = replace(planned, job=job)
    counts, tally = step("count", lambda: count(context, job.source, job.measured, planned.layout))
    if not written.measured.placeholders:
        check_missing(context, job, job.release, tally)
    with _of_changed_rows(written, job):
        measured, charged = step("measure", lambda: measure(context, planned, job.source, counts))
    answers = step("answer", lambda: answer(context, planned, measured, others))
    # the budget has the charges up to this one: the same whenever it is asked for
    name, budget = context.ledger.name(), context.ledger.budget_after(job.release)
    certificate = planned.certificate(budget, answers.effect, ledger=name)
    place = published_at(job.release, job.outputs.output.folder)
    measurements = {job.release: measured.digest, **{other.job.release: stored.digest for other, stored in others}}
    return Release(planned, answers, place, charged, tally, budget, certificate), (measured, measurements)


def _read(context: Context, job: Job, step: StepRunner, kept: Path | None) -> Job:
    """The release of records that are in files: those of a table are read once."""
    return job if job.source.table is None else step("extract", lambda: as_read(context, job, kept))


@contextmanager
def _of_changed_rows(written: Job, read: Job) -> Iterator[None]:
    """A refusal of other records than a release had says of a query or table that its rows have changed. What was read is removed."""
    try:
        yield
    except ReleaseConflict as conflict:
        if written.source.table is None or conflict.what not in OF_RECORDS:
            raise
        Path(read.source.path).unlink(missing_ok=True)
        raise ReleaseConflict(conflict.release, "state of its query or table, whose rows have changed") from None


def measure(context: Context, planned: Plan, source: Origin, counts: StoredArray) -> tuple[StoredArray, bool]:
    """The noisy measurement: reserve, draw, write, commit (law 1). Returns it, and whether this call charged the budget.

    Raises: BudgetExceeded, ReleaseConflict, KeyUnavailable: before anything is drawn.
    """
    root, digest = keys.load(context.home), counts.content_digest
    with StoreWorkspace(context.store, context.engine).scratch() as work:
        charge = charge_of(context.ledger, planned, BoundRecords(root, files_of(context, source), digest))
        exact = checked_integers(context, work, planned, source, charge, counts)
        write = partial(write_integers, context, planned, charge, counts, exact)
        also = course_of(planned).needed_later(counts).values()
        return drawn_once(context, charge, root, digest, write, *also)


def counted(context: Context, job: Job, *, step: StepRunner = plainly) -> StoredArray:
    """The counts of a release, made ahead of it; counting the same records again does nothing."""
    planned = step("plan", lambda: plan(context, job))
    with nullcontext() if job.source.table is None else held(context, job.release, finishes=False) as kept:
        read = _read(context, planned.job, step, kept)
        counts, _ = step("count", lambda: count(context, read.source, read.measured, planned.layout))
    return counts
