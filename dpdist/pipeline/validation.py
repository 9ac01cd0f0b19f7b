"""What would refuse a release, asked before anything is counted or charged."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial

from dpdist.content.release_content import PARQUET_ROWS, Format
from dpdist.content.table_rows import answer_columns
from dpdist.errors import DpdistError, InvalidInput, LedgerError, StoreError
from dpdist.pipeline.preprocess import check_steps
from dpdist.pipeline.release_charge import release_charge
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import Ledger, Receipt
from dpdist.publish import release_folder
from dpdist.runtime.context import Context
from dpdist.runtime.reconciliation import check_measured, check_pair
from dpdist.spec.warehouse_target import TargetKind, warehouse_columns
from dpdist.storage.array_store import Store
from dpdist.storage.home_folder import published_at
from dpdist.storage.objects import Denied, Folder, StorageLocation
from dpdist.workloads import Workload

CERTIFICATE_LIMIT = 64
"""Certificates that are read before a charge: the last ones by name, for names mostly follow the dates."""


def check_published(ledger: Ledger, location: StorageLocation) -> None:
    """Whether the ledger has committed each release that its name stands on, of those that lie beside a release's place.

    One listing, and at most ``MOST_READ`` certificates: folders with the name of a committed release are taken for that release.

    Raises: LedgerError for a ledger that was restored from before one of them; StoreError when the place cannot be listed.
    """
    name = ledger.name()
    if name is None:
        return  # an empty ledger is nobody's copy
    folders = _folders(location.parent)  # before the ledger is asked: what is published meanwhile was committed before
    committed = set(ledger.committed())
    unknown = sorted(set(folders) - committed, reverse=True)[:CERTIFICATE_LIMIT]
    for sibling, content in _certificates(location.parent, unknown):
        try:
            certificate = release_folder.read_certificate(content, sibling)
        except StoreError:
            continue
        budget = certificate.get("budget")
        if isinstance(budget, dict) and budget.get("ledger") == name and certificate["release"] not in committed:
            raise LedgerError(
                f"{sibling} holds {certificate['release']!r} of data set {certificate.get('dataset')!r}, published after this ledger "
                "committed it, and the ledger does not know that: it was restored from an older backup. Restore the newest backup. If "
                "there is none, lower the cap by what that certificate spent ('dpdist ledger cap') and move its folder elsewhere"
            )


def _folders(location: StorageLocation) -> list[str]:
    """The names of the folders at a place; none where they may not be listed."""
    try:
        return location.folders()
    except Denied:
        return []


def _certificates(location: StorageLocation, names: list[str]) -> Iterator[tuple[StorageLocation, bytes]]:
    """The certificates in folders of a place, where there are some."""
    for folder in (location / name for name in names):
        with suppress(Denied):  # a folder of somebody else
            if content := release_folder.published_certificate(folder):
                yield folder, content


def find_refusals(context: Context, planned: ReleasePlan) -> list[DpdistError]:
    """Why a planned release would be refused, as far as that can be known without its records. Nothing is changed.

    Args:
        planned: as it was charged, where it was (``ReleasePlan.as_charged``).
    """
    job, output, answers = planned.job, planned.job.outputs.output, planned.workload.shape[0]
    location = published_at(job.release, output.folder)
    return _collect_errors(
        (
            lambda: keys.load(context.home),
            lambda: check_store(context.store),
            lambda: _check_charge(context, planned),
            lambda: check_published(context.ledger, location),
            lambda: _check_formats(output.formats, answers),
            lambda: _check_output(location, job.release, lambda: context.ledger.receipt(job.release)),
            *(partial(_check_target, target.kind, planned.workload) for target in output.to),
        )
    )


def _check_target(target: TargetKind, workload: Workload) -> None:
    """Whether a warehouse is there, with a release's columns, and a release has rows for it. Raises: InvalidInput, StoreError."""
    answers = workload.shape[0]
    if answers > PARQUET_ROWS:
        raise InvalidInput(
            f"{answers:,} answers are too many for {target.table_label} (at most {PARQUET_ROWS:,}); leave it out of output.to"
        )
    target.require_columns(target.columns(), warehouse_columns(answer_columns(workload.domain.columns)))


def _check_charge(context: Context, planned: ReleasePlan) -> None:
    """Ask the ledger whether it would charge the release, or has. Raises: LedgerError, InvalidInput, StoreError."""
    job, ledger = planned.job, context.ledger
    check_pair(context.store, ledger)
    check_measured(context.store, ledger.receipt(job.release), job.release)
    check_steps(context, job, release_charge(ledger, planned, None))


def _collect_errors(checks: Iterable[Callable[[], object]]) -> list[DpdistError]:
    """The errors of the checks that fail."""
    errors = []
    for check in checks:
        try:
            check()
        except DpdistError as error:
            errors.append(error)
    return errors


def check_store(store: Store) -> None:
    """Write a document twice and remove it: the second must not be written, or two runs could both draw a release's noise.

    Raises: StoreError when the store cannot be written, overwrites, or does not list what it holds.
    """
    folder = f"scratch/probe-{uuid.uuid4().hex[:16]}"
    name = f"{folder}/once.json"
    try:
        first_created, second_created = (store.create_document(name, {"written": number}) for number in (1, 2))
        listed = store.names(folder)
    finally:
        store.delete(folder)
    if not first_created or second_created:
        raise StoreError(
            f"the store {store.location} overwrites what must be written once (its server ignores If-None-Match); use a server with "
            "conditional writes, such as AWS S3 or Azure (moto's server for trials: pip install 'moto[server]'), or a folder"
        )
    if listed != [name]:
        raise StoreError(
            f"the store {store.location} does not list what was written before, so a run could leave out files; use a server that lists "
            "after writing, such as AWS S3, Azure or Google Cloud Storage, or a folder"
        )


def _check_output(output: StorageLocation, release: str, receipt: Callable[[], Receipt | None]) -> None:
    """Accept a place that can be written, or that holds this very release.

    Args:
        receipt: asks the ledger, after the place was looked at: a run that publishes meanwhile has committed before.
    Raises: StoreError.
    """
    content = release_folder.published_certificate(output)
    if content is not None or (isinstance(output, Folder) and not output.absent()):
        _check_holds(content, output, release, receipt())
        return
    existing_entry = next(output.entries(), None)
    if existing_entry is not None and ((known_receipt := receipt()) is None or known_receipt.state != "committed"):
        raise StoreError(
            f"{output} holds something else ({existing_entry.name}); move it away, or set another 'output.folder'"
        )
    output.check_writable()


def _check_holds(content: bytes | None, output: StorageLocation, release: str, receipt: Receipt | None) -> None:
    """Accept a certificate of the measurement that the ledger has committed. Raises: StoreError for another."""
    try:
        certificate = release_folder.read_certificate(content or b"", output)
    except StoreError:
        raise release_folder.incomplete_error(output) from None
    committed = receipt is not None and receipt.state == "committed"
    if not committed and certificate["release"] == release:
        raise StoreError(
            f"{output} holds a published {release!r} that this ledger has not released; use the ledger it was made with, move "
            "the folder away, or choose a new release id"
        )
    measured = receipt.measurement_digest if receipt is not None else None
    release_folder.check_same_release(certificate, {"release": release, "measurements": {release: measured}}, output)
    release_folder.verify_signature(output, content or b"")


def _check_formats(formats: tuple[Format, ...] | None, answers: int) -> None:
    """Refuse tables of more answers than have names. Raises: InvalidInput."""
    tables = [name for name in formats or () if name != "zarr"]
    if tables and answers > PARQUET_ROWS:
        raise InvalidInput(
            f"{answers:,} answers are not written as {' and '.join(tables)} (up to {PARQUET_ROWS:,} are); set 'output.formats' to [zarr]"
        )
