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
from dpdist.privacy.ledger.approvals import NOBODY, Approvers
from dpdist.privacy.ledger.charges import Charge
from dpdist.privacy.ledger.receipts import Publication, Receipt
from dpdist.privacy.ledger.rules import ledger_commands
from dpdist.privacy.ledger.rules.decision import SIGNERS
from dpdist.privacy.ledger.rules.ledger_state import (
    NOT_BEGUN,
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
PART_ROWS = 500
"""Rows that are looked up or written at once."""


def load(connection: Connection, command: ledger_commands.Command) -> State:
    """The part of the ledger's state that a command needs."""
    match command:
        case ledger_commands.Reserve(charge=charge):
            return _for_charge(connection, charge)
        case ledger_commands.BeginDrawing(release=release) | ledger_commands.Commit(release=release):
            return State(release=receipt(connection, release))
        case ledger_commands.Abort(release=release):
            known = receipt(connection, release)
            account = UNUSED if known is None else account_of(connection, known.dataset, known.period)
            return State(account=account, release=known)
        case ledger_commands.Approve(dataset=dataset, release=release):
            return State(dataset_of(connection, dataset), approvals=_approvals(connection, release))
        case ledger_commands.Publish(release=release):
            known, found = receipt(connection, release), publications(connection, release)
            return State(release=known, signers=signers(connection), publications=found)
        case _:
            return _for_names(connection, command)


def _for_names(
    connection: Connection,
    command: ledger_commands.NameSigner
    | ledger_commands.Declare
    | ledger_commands.ChangeCap
    | ledger_commands.NameApprovers,
) -> State:
    if isinstance(command, ledger_commands.NameSigner):
        return State(signers=signers(connection))
    return State(dataset_of(connection, command.dataset))


def _for_charge(connection: Connection, charge: Charge) -> State:
    known = receipt(connection, charge.release)
    if known is not None and known.state != "aborted":
        return State(release=known)  # all that asking again needs
    dataset, stream = dataset_of(connection, charge.dataset), NOT_BEGUN
    for earlier in parts_of(connection, charge.dataset, charge.part.stream) if charge.part else []:
        stream = stream.then(earlier)
    signed = dataset is not None and dataset.approvers.needed
    return State(
        dataset,
        account_of(connection, charge.dataset, charge.period),
        known,
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
    found = connection.execute(query.order_by(db.entries.c.attempt.desc()).limit(1)).first()
    with reading(f"the row of the approvers of {dataset!r}"):
        approvers, number = (NOBODY, 0) if found is None else (Approvers.of(json.loads(found.facts)), found.attempt)
    return replace(declared_by(dataset, cap), approvers=approvers, named=number)


def declared_by(dataset: str, text: str) -> DataSet:
    """The cap that a row of ``dpdist_caps`` keeps."""
    with reading(f"the cap of {dataset!r}"):
        facts = json.loads(text)
        return DataSet(cap_of(facts["cap"]), protection_of(facts["protection"]), facts["caps"], facts["run"])


def caps_text(known: DataSet) -> str:
    """What ``dpdist_caps`` keeps."""
    facts = {"cap": cap_facts(known.cap), "protection": known.protection.facts(), "caps": known.caps, "run": known.run}
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
    return None if row is None else receipt_in(row)


def receipt_in(row: Any) -> Receipt:
    """The receipt that a row of ``RECEIPTS`` keeps."""
    with reading(f"the row of release {row.release!r}"):
        reserved = receipt_of(row.release, row.dataset, row.attempt, row.sequence, row.binding, json.loads(row.facts))
    salt = None if row.salt is None else bytes(row.salt)
    return replace(reserved, state=row.state, measurement_digest=row.measurement_digest, salt=salt)


def parts_of(connection: Connection, dataset: str, stream: str) -> list[Receipt]:
    """The releases of a stream that were not given back, in the order of their charges, which is that of their steps."""
    found = sa.and_(db.releases.c.dataset == dataset, db.releases.c.stream == stream, db.releases.c.state != "aborted")
    return [receipt_in(row) for row in connection.execute(RECEIPTS.where(found).order_by(db.releases.c.sequence))]


def _approvals(connection: Connection, release: str) -> tuple[Approval, ...]:
    mine = sa.and_(db.entries.c.release == release, db.entries.c.event == "approved")
    found = connection.execute(sa.select(db.entries).where(mine).order_by(db.entries.c.sequence))
    with reading(f"the approvals of release {release!r}"):
        facts = ((row.dataset, json.loads(row.facts)) for row in found)
        return tuple(Approval(dataset, each["spec"], each["key"]) for dataset, each in facts)


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
    found = connection.execute(sa.select(db.entries.c.facts).where(mine).order_by(db.entries.c.sequence))
    return [json.loads(facts) for facts in found.scalars()]


def _standing(connection: Connection, charge: Charge) -> Iterator[Standing]:
    """Where the records of a charge are charged: one release of each data set and period, whether or not that may be."""
    if charge.counted is None or charge.shared:
        return  # nothing to look for, or nothing that could matter
    records, releases = db.records.c, db.releases.c
    one = sa.func.min(records.commitment + "\n" + records.release)
    query = sa.select(releases.dataset, releases.period, one).join(db.records, records.release == releases.release)
    query = query.group_by(releases.dataset, releases.period).order_by(releases.dataset, releases.period)
    known = charge.counted.records
    content = [] if known.content is None else [[known.content]]
    for part in (*in_parts(list(known.files)), *content):  # a file by its name before counts that may be stored anyhow
        for dataset, period, found in connection.execute(query.where(records.commitment.in_(part))):
            commitment, _, release = found.partition("\n")
            yield Standing(dataset, period, release, commitment)


def keep(connection: Connection, state: State, written: LedgerRow) -> None:
    """Write what a row led to: the state after it."""
    event = written.event
    if event.kind in ("declared", "capped"):
        assert state.dataset is not None
        kept = {"dataset": event.dataset, "sequence": written.sequence, "facts": caps_text(state.dataset)}
        connection.execute(db.caps.insert().values(**kept))
    if state.release is None:
        return
    if event.kind == "reserved":
        connection.execute(db.releases.delete().where(db.releases.c.release == event.release))
        own = ("release", "dataset", "period", "attempt", "state", "sequence", "binding", "stream")
        values = {name: getattr(state.release, name) for name in own}
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


def keep_secrets(connection: Connection, release: str, salt: bytes, seen: Iterable[str]) -> None:
    """Write the salt of a new attempt, and the records that stand in its name."""
    connection.execute(db.salts.insert().values(release=release, salt=salt))
    for part in in_parts(list(seen)):
        connection.execute(db.records.insert(), [{"release": release, "commitment": commitment} for commitment in part])


def sums(loss: Loss) -> dict[str, str]:
    """A loss as an account keeps it."""
    return {name: str(getattr(loss, name)) for name in db.SUMS}


def in_parts(seen: list[_T]) -> Iterator[list[_T]]:
    """What is looked up or written, some at a time."""
    return (seen[i : i + PART_ROWS] for i in range(0, len(seen), PART_ROWS))
