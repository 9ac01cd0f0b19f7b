"""One release, stage by stage, in this process: watched by observers, and without what Prefect needs.

A run that no flow server keeps is this alone; the flow (``release``) shows each stage as a task of Prefect beside it.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

from dpdist import engine
from dpdist.errors import DpdistError, EngineError
from dpdist.pipeline import release_run
from dpdist.pipeline.release_run import Release, StepRunner
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.privacy.ledger.budget_ledger import Ledger
from dpdist.runtime import context
from dpdist.runtime.context import Progress
from dpdist.spec import Job
from dpdist.storage import home_folder
from flows.observability.notifications import notify
from flows.observability.observers import watching

_T = TypeVar("_T")
REPEATED = ("plan", "count", "answer", "publish", "deliver")
"""Stages that are tried again when the cluster went away. A run of ``measure`` is finished by the next run, not by a retry."""
TRIES = 3
AGAIN_SECONDS = 5


def run_repeatable(name: str, work: Callable[[], _T]) -> _T:
    """work(), begun again where the cluster went away and the stage may be repeated: the step runner of a process by itself."""
    tries = TRIES if name in REPEATED else 1
    while True:
        tries -= 1
        try:
            return work()
        except EngineError:
            if not tries:
                raise
            time.sleep(AGAIN_SECONDS)


@contextmanager
def without_data(*harmless: type[Exception]) -> Iterator[None]:
    """Errors of the block as others may keep them: those of dpdist and the harmless ones as they are, TaskFailed for all others.

    The text of any other error may quote a record. With ``--debug`` its traceback goes to the terminal.
    """
    try:
        yield
        return
    except Exception as error:
        if isinstance(error, (DpdistError, *harmless)):
            raise
        if os.environ.get("DPDIST_DEBUG"):
            traceback.print_exc()
        failure = engine.failure_of(error)
    raise failure from None


def publish_release(
    job: Job,
    engine_address: str | None,
    home: Path | None,
    progress: Progress,
    step: StepRunner = run_repeatable,
    *,
    planned: ReleasePlan | None = None,
    period_length: str | None = None,
    needs_records: bool = True,
    around: AbstractContextManager[object] | None = None,
    after: Callable[[Release, Ledger], None] | None = None,
    harmless: tuple[type[Exception], ...] = (),
) -> Release:
    """The release of a job, watched by observers, and its webhook told of it.

    Args:
        step: runs a stage.
        planned: its plan, where that was made before (``preflight.plan_ahead``).
        period_length: how long the periods of its schedule are, for observers.
        needs_records: whether it is a failure if there are no records.
        around: what all stages run inside of.
        after: what else is done with the release while the ledger is open.
        harmless: errors that quote no record (``without_data``).
    """
    folder = home_folder.state_folder(home)
    with (
        watching(job, folder, progress, period_length=period_length, needs_records=needs_records) as watch,
        without_data(*harmless),
        around or nullcontext(),
        context.open_context(engine_address, progress, home=folder) as here,
    ):
        release = release_run.release(here, job, step=watch.stepping(step, here.engine), planned=planned)
        if after is not None:
            after(release, here.ledger)
    watch.published(release)
    notify({"release": job.release, "state": "published", "where": str(release.folder), "charged": release.charged})
    return release
