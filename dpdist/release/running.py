"""A release in this process, or by an engine that it starts: what ``dpdist.run`` and sessions do."""

from __future__ import annotations

from contextlib import ExitStack

from dpdist.privacy import keys
from dpdist.records import sources
from dpdist.records.sources import ArrowStream
from dpdist.release import ahead, story
from dpdist.release.context import Progress, running, silent
from dpdist.release.held import held
from dpdist.release.story import Release
from dpdist.spec import Job


def run(job: Job, records: ArrowStream | None, *, engine: str | None, progress: Progress = silent) -> Release:
    """Publish a release, of the records of a table in memory or where the job says.

    Raises: DpdistError of any kind; whatever can refuse refuses before the charge.
    """
    with ExitStack() as stack:
        here = stack.enter_context(running("inline", progress))
        if records is not None:
            kept = stack.enter_context(held(here, job.release))
            job = job.with_records(sources.write_records(records, kept, keys.load(here.home)))
        done = ahead.finished(here, job)
        if done is not None:
            return done
        return story.release(stack.enter_context(running(ahead.engine_for(job, engine), progress)), job)
