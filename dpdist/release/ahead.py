"""What is settled before a cluster or a flow server starts: refusals, finished releases, and whether one process is enough."""

from __future__ import annotations

import os
from pathlib import Path

from dpdist.errors import StoreError
from dpdist.machine import engine
from dpdist.machine.state import published_at, store_of
from dpdist.page import report
from dpdist.records import digests, listing
from dpdist.records.sources import check_columns
from dpdist.release.context import Context, Progress, book
from dpdist.release.extent import RECORD_BYTES, fits_one_process, plans_in_one_process
from dpdist.release.plan import plan
from dpdist.release.refusals import refused_by
from dpdist.release.story import Release, release
from dpdist.spec import ReleaseSpec


def finished(spec: ReleaseSpec, home: Path, progress: Progress) -> Release | None:
    """A release that was published, read again in this process; None when there is something to do, or it may take long to plan."""
    context = Context(home, store_of(home), engine.inline(), progress)
    return release(context, spec) if plans_in_one_process(spec) and _is_finished(context, spec) else None


def check_refusals(spec: ReleaseSpec, home: Path, progress: Progress) -> None:
    """Raises: what would refuse the release, unless that is known only once a strategy is optimised that takes long."""
    if not plans_in_one_process(spec):
        return
    context = Context(home, store_of(home), engine.inline(), progress)
    for refusal in refused_by(context, plan(context, spec)):
        raise refusal


def _is_finished(context: Context, spec: ReleaseSpec) -> bool:
    """Whether the ledger has committed a release and its files are there."""
    with book(context) as ledger:
        receipt = ledger.receipt(spec.release)
    if receipt is None or receipt.state != "committed":
        return False
    try:
        with published_at(spec.release, spec.output.folder).copied() as folder:
            report.certificate_of(folder)
    except StoreError:
        return False
    return True


def engine_for(spec: ReleaseSpec, address: str | None) -> str | None:
    """Where a release runs: where it was asked to, else in this process if it is small, else on processes of this machine.

    Raises: InvalidSpec when the records are not there, or few of them have other columns; of many that is told when they are counted.
    """
    if spec.table is not None:
        return address  # how large it is shows when it is read
    size = digests.bytes_at(listing.listed(spec.records_path, spec.records_called))
    if size <= RECORD_BYTES:
        check_columns(spec.source, spec.attributes)
    return address if _is_asked_for(address) or not fits_one_process(spec, size) else "inline"


def engine_to_plan(spec: ReleaseSpec, address: str | None) -> str | None:
    """Where a release is planned, of which no record is looked at: as ``engine_for``."""
    return address if _is_asked_for(address) or not plans_in_one_process(spec) else "inline"


def _is_asked_for(address: str | None) -> bool:
    return bool(address or os.environ.get("DPDIST_ENGINE"))
