"""Count a period's records ahead of its release; the release then finds the histogram."""

from __future__ import annotations

import datetime
from functools import partial

from prefect import flow

from dpdist import spec
from dpdist.pipeline import release_run
from flows.prefect.release_flow import HARMLESS, as_task, running
from flows.public_facts import publicly


@flow(name="ingest", persist_result=False)
def ingest(
    spec_path: str, period: datetime.date | None = None, engine_address: str | None = None, home: str | None = None
) -> str:
    """Count the records of a spec into a histogram. Counting the same records again does nothing.

    Args:
        spec_path: the release spec, YAML.
        period: the period, where the spec is for many.
        engine_address: ``tls://host:port`` of a Dask scheduler; default: processes on this machine.
        home: state folder; default ``DPDIST_HOME`` or the platform's user data folder.
    Returns: the name of the histogram in the store.
    """

    def name() -> str:
        job = spec.load(spec_path, period=period)
        with running(engine_address, home) as context:
            return release_run.count_only(context, job, step=partial(as_task, release=job.release)).name

    return publicly(name, *HARMLESS)
