"""The ledger and the store belong together: what one says of a release must agree with the other."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from dpdist.errors import LedgerError, StoreError
from dpdist.operators import Matrix
from dpdist.privacy.ledger.budget_ledger import Checkpoint, Ledger, Receipt
from dpdist.storage.array_store import Store, StoredArray
from dpdist.storage.documents import check_form

FORMAT = 1
"""Of the store: its names, arrays and documents."""
_CHECKPOINT_DOCUMENT = "ledger.json"
MEASUREMENTS = "measurements"


def measurement_name(release: str) -> str:
    """Where a release's measurement is kept."""
    return f"{MEASUREMENTS}/{release}"


def write_checkpoint(store: Store, ledger: Ledger) -> None:
    """Write into the store its form, which ledger it belongs to, and how far that has come."""
    store.write_document(_CHECKPOINT_DOCUMENT, {"format": FORMAT, **asdict(ledger.checkpoint())})


def begin_store(store: Store, ledger: Ledger) -> None:
    """Let a new store go on with a ledger that has published from another one. Raises: LedgerError for a store that is not new."""
    if ledger.checkpoint() == Checkpoint():
        raise LedgerError("the ledger is empty: its first release needs no preparation of the store")
    if store.has_document(_CHECKPOINT_DOCUMENT) or store.folders(MEASUREMENTS):
        raise LedgerError(
            f"the store {store.location} is not new: it has measurements, or belongs to a ledger; name an empty place (DPDIST_STORE)"
        )
    write_checkpoint(store, ledger)


def check_pair(store: Store, ledger: Ledger) -> None:
    """Whether this ledger has charged what the store holds, and the store is the ledger's. A new ledger belongs to a new store.

    Raises: LedgerError for a ledger that was emptied, lost, or restored from before the newest charge that the store knows, and for
        a store that was emptied or exchanged, which could not tell; StoreError for a store of another format.
    """
    if not store.has_document(_CHECKPOINT_DOCUMENT):
        for release in store.folders(MEASUREMENTS):
            if store.exists(measurement_name(release)) and ledger.receipt(release) is None:
                raise LedgerError(_unknown(store, release))
        committed = ledger.committed()
        if committed and not store.exists(measurement_name(committed[-1])):
            raise LedgerError(
                f"the store {store.location} knows nothing of this ledger, which has finished {committed[-1]!r}: the store was emptied "
                "or exchanged, so it cannot tell whether the ledger is an older backup. Restore the store or correct DPDIST_STORE; or, "
                "if it is meant to be new and the ledger is the newest, run 'dpdist ledger new-store'"
            )
        return
    recorded_checkpoint = store.read_document(_CHECKPOINT_DOCUMENT)
    check_form(recorded_checkpoint.get("format"), f"the store {store.location}", FORMAT)
    if recorded_checkpoint.get("format") != FORMAT:
        raise StoreError(
            f"the store {store.location} has format {recorded_checkpoint.get('format')!r}, and this version of dpdist reads {FORMAT}: use "
            "the version that wrote it, or name an empty place (DPDIST_STORE)"
        )
    if ledger.digest_of(1) != recorded_checkpoint["first"]:
        raise LedgerError(
            f"the store {store.location} holds measurements of releases that were charged to another ledger: this one was emptied or "
            f"lost, or is another. {_RESTORE}"
        )
    if ledger.digest_of(recorded_checkpoint["sequence"]) != recorded_checkpoint["head"]:
        raise LedgerError(
            f"the ledger is older than the store {store.location}, or was changed: the store knows a row {recorded_checkpoint['sequence']} "
            f"that the ledger does not have. {_RESTORE}"
        )


_RESTORE = (
    "Restore the newest backup of the ledger ('dpdist ledger verify --store' says what it lacks). If there is none, what was spent is "
    "known from the published certificates only: begin a new store (DPDIST_STORE, 'dpdist ledger new-store'), and lower the cap by "
    "that ('dpdist ledger cap')"
)


def _unknown(store: Store, release: str) -> str:
    return (
        f"the store {store.location} holds a measurement of {release!r} that this ledger has not charged: the ledger was emptied, lost, "
        f"or restored from an older backup. {_RESTORE}"
    )


def check_measured(store: Store, receipt: Receipt | None, release: str) -> None:
    """A measurement without its charge, or a committed charge without its measurement, must not be papered over.

    Raises: LedgerError, StoreError.
    """
    state, whole = None if receipt is None else receipt.state, store.exists(measurement_name(release))
    if whole and state not in ("drawing", "committed"):
        raise LedgerError(_unknown(store, release))
    if state == "committed" and not whole:
        raise StoreError(f"the measurement is not in the store {store.location}. {_lost_measurement_text(release)}")


def committed_measurement(store: Store, receipt: Receipt) -> StoredArray:
    """The measurement of a committed release. Raises: StoreError when it is missing, or not the one the ledger knows."""
    name = measurement_name(receipt.release)
    try:
        stored = store.open(name)
    except StoreError as error:
        raise StoreError(f"{error}. {_lost_measurement_text(receipt.release)}") from None
    if stored.digest != receipt.measurement_digest:
        raise StoreError(f"{name!r} in the store is not what the ledger knows. {_lost_measurement_text(receipt.release)}")
    return stored


def _lost_measurement_text(release: str) -> str:
    """What to do without the measurement of a committed release."""
    return (
        f"Release {release!r} is committed: its noise cannot be drawn again and its charge stays. Restore 'measurements/{release}' "
        "from the store's backup, or choose a new release id (it is a new charge)"
    )


def charge_facts(receipt: Receipt) -> dict[str, Any]:
    """What a measurement says of the charge that it was drawn for."""
    return {"attempt": receipt.attempt, "charge": receipt.binding}


def check_charge_facts(stored: StoredArray, receipt: Receipt) -> None:
    """A whole measurement is that of this attempt. Raises: LedgerError when it is another's."""
    if stored.facts.get("charge") != receipt.binding:
        raise LedgerError(
            f"the store holds a measurement of {receipt.release!r} that was drawn for another charge of the same id: nothing is "
            "published; restore the backup of the ledger that charged it, or choose a new release id"
        )


def abort_reserved(store: Store, ledger: Ledger, release: str) -> None:
    """Abort a reserved release. Raises: LedgerError when the store holds its measurement, or more than this ledger has charged."""
    check_pair(store, ledger)
    receipt = ledger.receipt(release)
    if receipt is not None and receipt.state == "reserved" and store.exists(measurement_name(release)):
        raise LedgerError(
            f"the store {store.location} holds a measurement of {release!r}: it was drawn, perhaps published, and its charge stays. The "
            f"ledger says 'reserved': it was restored from an older backup. {_RESTORE}"
        )
    ledger.abort(release)


def differences(store: Store, ledger: Ledger) -> list[str]:
    """Where ledger and store disagree, one sentence each; empty when they agree. Every block of every measurement is read."""
    disagreements = []
    try:
        check_pair(store, ledger)
    except LedgerError as error:
        disagreements.append(str(error))
    for release in releases_of(store, ledger):
        try:
            check_release(store, ledger.receipt(release), release)
        except (LedgerError, StoreError) as error:
            disagreements.append(str(error))
    return disagreements


def releases_of(store: Store, ledger: Ledger) -> list[str]:
    """All releases that the ledger ever charged, and all that the store has something of."""
    charged = {entry["release"] for entry in ledger.entries() if entry["event"] == "reserved"}
    return sorted(charged | set(store.folders(MEASUREMENTS)))


def check_release(store: Store, receipt: Receipt | None, release: str) -> None:
    """Compare what ledger and store have of a release, and read every block of its measurement. Raises: LedgerError, StoreError."""
    check_measured(store, receipt, release)
    if receipt is not None and receipt.state == "committed":
        store.check(committed_measurement(store, receipt))
    elif store.exists(measurement_name(release)):
        store.check(store.open(measurement_name(release)))


def integers_of(store: Store, ledger: Ledger, receipt: Receipt) -> Matrix:
    """The noisy integers of a committed release; of a part of a stream those of all its steps so far."""
    stream_receipts = (
        [receipt] if receipt.stream_part is None else ledger.stream(receipt.dataset, receipt.stream_part.stream)
    )
    receipts_so_far = [stream_receipt for stream_receipt in stream_receipts if stream_receipt.sequence <= receipt.sequence]
    return np.concatenate(
        [store.read_array(committed_measurement(store, stream_receipt)) for stream_receipt in receipts_so_far]
    )
