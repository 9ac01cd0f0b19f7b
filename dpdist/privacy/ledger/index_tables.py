"""The tables beside the ledger's rows: what the rows came to, so that no step reads all of them. Loaded as a state, written after events.

They hold nothing that the rows do not say: ``verify`` compares them. No rule of the ledger stands here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dpdist.privacy.accounting import Loss
from dpdist.privacy.ledger import database as db
from dpdist.privacy.ledger.approvals import NO_APPROVERS, Approvers
from dpdist.privacy.ledger.charges import Charge
from dpdist.privacy.ledger.receipts import Publication, Receipt
from dpdist.privacy.ledger.rules import ledger_commands
from dpdist.privacy.ledger.rules.decision import SIGNERS
from dpdist.privacy.ledger.rules.ledger_state import (
    EMPTY_STREAM,
    UNUSED,
    Account,
    Approval,
    DataSet,
    LedgerRow,
    Standing,
    State,
)
from dpdist.privacy.ledger.serialization import cap_facts, cap_of, protection_of, reading, receipt_of

_T = TypeVar("_T")
BATCH_ROWS = 500
"""Rows that are looked up or written at once."""


def load(connection: Connection, command: ledger_commands.Request) -> State:
    """The part of the ledger's state that a command needs."""
    match command:
        case ledger_commands.Reserve(charge=charge):
            return _for_charge(connection, charge)
        case ledger_commands.BeginDrawing(release=release) | ledger_commands.Commit(release=release):
            return State(release=receipt(connection, release))
        case ledger_commands.Abort(release=release):
            release_receipt = receipt(connection, release)
            account = (
                UNUSED
                if release_receipt is None
                else account_of(connection, release_receipt.dataset, release_receipt.period)
            )
            return State(account=account, release=release_receipt)
        case ledger_commands.Approve(dataset=dataset, release=release):
            return State(dataset_of(connection, dataset), approvals=_approvals(connection, release))
        case ledger_commands.Publish(release=release):
            release_receipt, release_publications = receipt(connection, release), publications(connection, release)
            return State(release=release_receipt, signers=signers(connection), publications=release_publications)
        case _:
            return State(dataset_of(connection, command.dataset))


def _for_charge(connection: Connection, charge: Charge) -> State:
    release_receipt = receipt(connection, charge.release)
    if release_receipt is not None and release_receipt.state != "aborted":
        return State(release=release_receipt)  # all that asking again needs
    dataset, stream = dataset_of(connection, charge.dataset), EMPTY_STREAM
    for earlier in stream_receipts(connection, charge.dataset, charge.stream_part.stream) if charge.stream_part else []:
        stream = stream.add_release(earlier)
    signed = dataset is not None and dataset.approvers.required_count
    return State(
        dataset,
        account_of(connection, charge.dataset, charge.period),
        release_receipt,
        stream,
        _approvals(connection, charge.release) if signed else (),
        tuple(_standing(connection, charge)),
    )


def dataset_of(connection: Connection, dataset: str) -> DataSet | None:
    """What was promised for a data set, None before its cap was declared."""
    mine = sa.select(db.caps.c.facts).where(db.caps.c.dataset == dataset).order_by(db.caps.c.sequence.desc()).limit(1)
    cap = connection.execute(mine).scalar()
    if cap is None:
        return None
    named = sa.and_(db.entries.c.release == f"approvers of {dataset}", db.entries.c.event == "approvers")
    query = sa.select(db.entries.c.attempt, db.entries.c.facts).where(named)
    approvers_row = connection.execute(query.order_by(db.entries.c.attempt.desc()).limit(1)).first()
    with reading(f"the row of the approvers of {dataset!r}"):
        approvers, number = (
            (NO_APPROVERS, 0)
            if approvers_row is None
            else (Approvers.of(json.loads(approvers_row.facts)), approvers_row.attempt)
        )
    return replace(declared_by(dataset, cap), approvers=approvers, named=number)


def declared_by(dataset: str, text: str) -> DataSet:
    """The cap that a row of ``dpdist_caps`` keeps."""
    with reading(f"the cap of {dataset!r}"):
        facts = json.loads(text)
        return DataSet(cap_of(facts["cap"]), protection_of(facts["protection"]), facts["caps"], facts["run"])


def caps_text(declared_dataset: DataSet) -> str:
    """What ``dpdist_caps`` keeps."""
    facts = {
        "cap": cap_facts(declared_dataset.cap),
        "protection": declared_dataset.protection.facts(),
        "caps": declared_dataset.caps,
        "run": declared_dataset.run,
    }
    return json.dumps(facts, sort_keys=True)


def account_of(connection: Connection, dataset: str, period: str) -> Account:
    """The running sums of a data set in a period."""
    mine = sa.and_(db.accounts.c.dataset == dataset, db.accounts.c.period == period)
    row = connection.execute(sa.select(db.accounts).where(mine)).first()
    return UNUSED if row is None else account_in(row)


def account_in(row: Any) -> Account:
    """The running sums that a row of ``dpdist_accounts`` keeps."""
    with reading(f"the sums of {row.dataset!r}, {row.period}"):
        return Account(row.rule, Loss(*(Fraction(getattr(row, name)) for name in db.SUMS)), row.releases)


RECEIPTS = sa.select(db.releases, db.salts.c.salt).outerjoin(db.salts, db.salts.c.release == db.releases.c.release)


def receipt(connection: Connection, release: str) -> Receipt | None:
    """The newest attempt of a release, with the salt of one that runs; None if it was never charged."""
    row = connection.execute(RECEIPTS.where(db.releases.c.release == release)).first()
    return None if row is None else _receipt_in(row)


def _receipt_in(row: Any) -> Receipt:
    """The receipt that a row of ``RECEIPTS`` keeps."""
    with reading(f"the row of release {row.release!r}"):
        reserved = receipt_of(row.release, row.dataset, row.attempt, row.sequence, row.binding, json.loads(row.facts))
    salt = None if row.salt is None else bytes(row.salt)
    return replace(reserved, state=row.state, measurement_digest=row.measurement_digest, salt=salt)


def stream_receipts(connection: Connection, dataset: str, stream: str) -> list[Receipt]:
    """The releases of a stream that were not given back, in the order of their charges, which is that of their steps."""
    condition = sa.and_(db.releases.c.dataset == dataset, db.releases.c.stream == stream, db.releases.c.state != "aborted")
    return [_receipt_in(row) for row in connection.execute(RECEIPTS.where(condition).order_by(db.releases.c.sequence))]


def _approvals(connection: Connection, release: str) -> tuple[Approval, ...]:
    mine = sa.and_(db.entries.c.release == release, db.entries.c.event == "approved")
    rows = connection.execute(sa.select(db.entries).where(mine).order_by(db.entries.c.sequence))
    with reading(f"the approvals of release {release!r}"):
        facts = ((row.dataset, json.loads(row.facts)) for row in rows)
        return tuple(Approval(dataset, approval_facts["spec"], approval_facts["key"]) for dataset, approval_facts in facts)


def signers(connection: Connection) -> tuple[str, ...]:
    """The public keys that sign certificates, oldest first."""
    with reading("a row that names a signer"):
        return tuple(facts["key"] for facts in _facts_of(connection, SIGNERS, "signer"))


def publications(connection: Connection, release: str) -> tuple[Publication, ...]:
    """How a release was published, oldest first."""
    with reading(f"a row of release {release!r}"):
        return tuple(Publication.of(facts) for facts in _facts_of(connection, release, "published"))


def _facts_of(connection: Connection, release: str, event: str) -> list[Any]:
    mine = sa.and_(db.entries.c.release == release, db.entries.c.event == event)
    rows = connection.execute(sa.select(db.entries.c.facts).where(mine).order_by(db.entries.c.sequence))
    return [json.loads(facts) for facts in rows.scalars()]


def _standing(connection: Connection, charge: Charge) -> Iterator[Standing]:
    """Where the records of a charge are charged: one release of each data set and period, whether or not that may be."""
    if charge.counted is None or charge.allows_shared_records:
        return  # nothing to look for, or nothing that could matter
    records, releases = db.records.c, db.releases.c
    first_match = sa.func.min(records.commitment + "\n" + records.release)
    query = sa.select(releases.dataset, releases.period, first_match).join(db.records, records.release == releases.release)
    query = query.group_by(releases.dataset, releases.period).order_by(releases.dataset, releases.period)
    counted_records = charge.counted.records
    content = [] if counted_records.content is None else [[counted_records.content]]
    for batch in (
        *in_batches(list(counted_records.files)),
        *content,
    ):  # a file by its name before counts that may be stored anyhow
        for dataset, period, match_text in connection.execute(query.where(records.commitment.in_(batch))):
            commitment, _, release = match_text.partition("\n")
            yield Standing(dataset, period, release, commitment)


def write_state(connection: Connection, state: State, written: LedgerRow) -> None:
    """Write what a row led to: the state after it."""
    event = written.event
    if event.kind in ("declared", "capped"):
        assert state.dataset is not None
        cap_row = {"dataset": event.dataset, "sequence": written.sequence, "facts": caps_text(state.dataset)}
        connection.execute(db.caps.insert().values(**cap_row))
    if state.release is None:
        return
    if event.kind == "reserved":
        connection.execute(db.releases.delete().where(db.releases.c.release == event.release))
        columns = ("release", "dataset", "period", "attempt", "state", "sequence", "binding", "stream")
        values = {name: getattr(state.release, name) for name in columns}
        connection.execute(db.releases.insert().values(**values, facts=json.dumps(event.facts, sort_keys=True)))
    elif event.kind in ("drawing", "committed", "aborted"):
        mine = db.releases.c.release == event.release
        connection.execute(db.releases.update().where(mine).values(state=event.kind, **event.facts))
    if event.kind in ("committed", "aborted"):
        connection.execute(db.salts.delete().where(db.salts.c.release == event.release))
    if event.kind == "aborted":
        connection.execute(db.records.delete().where(db.records.c.release == event.release))
    if event.kind in ("reserved", "aborted"):
        _keep_account(connection, event.dataset, state.release.period, state.account, written.sequence)


def _keep_account(connection: Connection, dataset: str, period: str, account: Account, sequence: int) -> None:
    mine = sa.and_(db.accounts.c.dataset == dataset, db.accounts.c.period == period)
    values = {"releases": account.releases, **sums(account.spent)}
    if connection.execute(db.accounts.update().where(mine).values(**values)).rowcount == 0:
        values |= {"dataset": dataset, "period": period, "sequence": sequence, "rule": account.rule}
        connection.execute(db.accounts.insert().values(**values))


def keep_secrets(connection: Connection, release: str, salt: bytes, commitments: Iterable[str]) -> None:
    """Write the salt of a new attempt, and the records that stand in its name."""
    connection.execute(db.salts.insert().values(release=release, salt=salt))
    for batch in in_batches(list(commitments)):
        connection.execute(db.records.insert(), [{"release": release, "commitment": commitment} for commitment in batch])


def sums(loss: Loss) -> dict[str, str]:
    """A loss as an account keeps it."""
    return {name: str(getattr(loss, name)) for name in db.SUMS}


def in_batches(values: list[_T]) -> Iterator[list[_T]]:
    """What is looked up or written, some at a time."""
    return (values[i : i + BATCH_ROWS] for i in range(0, len(values), BATCH_ROWS))
