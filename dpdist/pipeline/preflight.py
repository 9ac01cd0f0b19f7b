"""What is settled before a cluster or a flow server starts: refusals, finished releases, and whether one process is enough."""

from __future__ import annotations

import os
from contextlib import ExitStack

from dpdist.errors import StoreError
from dpdist.pipeline.release_run import Release, plan_unrefused, release
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.size_estimate import RECORD_BYTES, fits_one_process, plans_in_one_process
from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.process.durable_files import private_folder
from dpdist.publish import release_folder
from dpdist.runtime.context import Context, Progress, ignore_progress, open_context
from dpdist.runtime.extract_files import extract_folder
from dpdist.sources import file_digests, frames
from dpdist.sources.frames import Frame
from dpdist.sources.record_sources import check_columns
from dpdist.spec import Job
from dpdist.storage.home_folder import published_at, state_folder


def load_finished(context: Context, job: Job) -> Release | None:
    """A release that was published, read again in this process; None when there is something to do, or it may take long to plan."""
    return release(context, job) if _is_finished(context, job) and plans_in_one_process(job) else None


def plan_ahead(context: Context, job: Job) -> ReleasePlan | None:
    """The plan of a release; None where a strategy is optimised that takes long. Raises: what would refuse the release."""
    return plan_unrefused(context, job) if plans_in_one_process(job) else None


def _is_finished(context: Context, job: Job) -> bool:
    """Whether the ledger has committed a release and its files are there."""
    receipt = context.ledger.receipt(job.release)
    if receipt is None or receipt.state != "committed":
        return False
    try:
        with published_at(job.release, job.outputs.output.folder).local_copy() as folder:
            release_folder.certificate_of(folder)
    except StoreError:
        return False
    return True


def choose_engine(job: Job, address: str | None) -> str | None:
    """Where a release runs: where it was asked to, else in this process if it is small, else on processes of this machine.

    Raises: InvalidSpec when the records are not there, or few of them have other columns; of many that is reported when they are counted.
    """
    source = job.source
    if source.table is not None:
        return address  # how large it is shows when it is read
    size = file_digests.total_bytes(source.listed_files)
    if size <= RECORD_BYTES:
        check_columns(source.files, job.measured.domain)
    return address if _engine_is_chosen(address) or not fits_one_process(job, size) else "inline"


def choose_planning_engine(job: Job, address: str | None) -> str | None:
    """Where a release is planned, of which no record is looked at: as ``choose_engine``."""
    return address if _engine_is_chosen(address) or not plans_in_one_process(job) else "inline"


def _engine_is_chosen(address: str | None) -> bool:
    return bool(address or os.environ.get("DPDIST_ENGINE"))


def ensure_key() -> None:
    """Make a root key where this machine has none and nothing was charged here (``dpdist.privacy.keys.ensure``)."""
    home = state_folder()
    private_folder(home)

    def nothing_charged() -> bool:
        with open_ledger(home) as ledger:
            return not ledger.budgets()

    keys.ensure(home, nothing_charged)


def run(job: Job, records: Frame | None, *, engine: str | None, progress: Progress = ignore_progress) -> Release:
    """Publish a release, of the records of a table in memory or where the job says; with a new root key where there can be none yet.

    Raises: DpdistError of any kind; whatever can refuse refuses before the charge.
    """
    if records is not None:
        frames.check_frame(records)
    ensure_key()
    with ExitStack() as stack:
        local_context = stack.enter_context(open_context("inline", progress))
        if records is not None:
            extract_folder_path = stack.enter_context(extract_folder(local_context, job.release))
            columns = job.source.column_names(job.measured.domain)
            job = job.with_records(
                frames.write_records(records, columns, extract_folder_path, keys.load(local_context.home))
            )
        finished_release = load_finished(local_context, job)
        if finished_release is not None:
            return finished_release
        return release(stack.enter_context(open_context(choose_engine(job, engine), progress)), job)
