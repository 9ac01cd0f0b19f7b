"""Count a period's records ahead of its release; the release then finds the histogram."""

from __future__ import annotations

import datetime
from contextlib import nullcontext

from prefect import flow

from dpdist import spec
from dpdist.release.count import as_read, count
from dpdist.release.held import held
from dpdist.release.plan import plan
from flows.release import as_task, running


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
    checked = spec.load(spec_path, period=period)
    with running(engine_address, home) as context:
        planned = as_task("plan", lambda: plan(context, checked), release=checked.release)
        with held(context.home, checked.release, finishes=False) if checked.table else nullcontext() as kept:
            read = as_task("extract", lambda: as_read(context, checked, kept), release=checked.release)
            counts, _ = as_task("count", lambda: count(context, read, planned.layout), release=checked.release)
    return counts.name
