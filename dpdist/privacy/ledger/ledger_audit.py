"""``verify``: the rows of a ledger replayed, a page of them at a time, and the tables beside the rows compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dpdist.errors import DpdistError, LedgerError
from dpdist.privacy.ledger import database as db
from dpdist.privacy.ledger import index_tables
from dpdist.privacy.ledger.approvals import Approvers
from dpdist.privacy.ledger.charges import Charge, StreamPart, digest_of_commitments
from dpdist.privacy.ledger.receipts import RUNNING, Audit, Publication, Receipt, Stage
from dpdist.privacy.ledger.rules import apply, decide, ledger_commands
from dpdist.privacy.ledger.rules.ledger_state import (
    EMPTY_STREAM,
    UNUSED,
    Account,
    Approval,
    DataSet,
    LedgerEvent,
    LedgerRow,
    Standing,
    State,
    StreamState,
)
from dpdist.privacy.ledger.serialization import cap_of, loss_of, protection_of, receipt_of


@dataclass(frozen=True, slots=True)
class ReleaseState:
    """What is kept of a release for longer than a page of rows: what the tables must say of it, and the row that says the rest.

    Attributes:
        sequence: number of the row that reserved its newest attempt.
        salt_right: whether the salt that the table keeps is the one that the row names; None where the table keeps none.
        records_right: whether the records that the table keeps are those that the row names.
    """

    sequence: int
    period: str
    stream: str | None
    state: Stage
    measurement_digest: str | None
    salt_right: bool | None
    records_right: bool

    @property
    def runs(self) -> bool:
        """Whether it is charged and not finished."""
        return self.state in RUNNING


class ReplayedState:
    """Everything that the rows so far came to, in parts.

    Args:
        shared_commitments: the commitments to records that may stand in the names of several releases: no others need to be remembered.

    Attributes:
        receipts: of the releases that the rows in hand name.
        caps: what the table of caps must say, by data set and number of the row: certificates tell the cap that there was at their time.
        salts: of those that they reserve, as the table keeps them.
        records: of the same, the attempt and the commitments of the records that stand in its name.
    """

    def __init__(self, shared_commitments: Collection[str] = ()) -> None:
        self.shared_commitments = shared_commitments
        self.receipts: dict[str, Receipt] = {}
        self.salts: Mapping[str, bytes | None] = {}
        self.records: Mapping[str, tuple[int | None, Sequence[str]]] = {}
        self.datasets: dict[str, DataSet] = {}
        self.caps: dict[tuple[str, int], str] = {}
        self.accounts: dict[tuple[str, str], Account] = {}
        self.releases: dict[str, ReleaseState] = {}
        self.streams: dict[tuple[str, str | None], StreamState] = {}
        self.approvals: dict[str, tuple[Approval, ...]] = {}
        self.signers: tuple[str, ...] = ()
        self.publications: dict[str, tuple[Publication, ...]] = {}
        self.standing: dict[str, tuple[Standing, ...]] = {}
        self._periods: dict[str, str] = {}  # each is kept once, although every row has its own text of it

    def follows(self, row: db.StoredRow) -> bool:
        """Whether a row is what the ledger's rules lead to; it is taken then."""
        try:
            event = LedgerEvent(row.event, row.dataset, row.release, row.attempt, json.loads(row.facts))
            command, commitments = self._command(event), self._commitments_of(event)
            state = self._state_before(event, commitments or ())
            if command is None or decide(state, command) != (event,):
                return False
            written = LedgerRow(event, row.sequence, row.digest)
            self._take(written, apply(state, written), commitments)
        except (KeyError, TypeError, ValueError, AttributeError, DpdistError):
            return False
        return True

    def _command(self, event: LedgerEvent) -> ledger_commands.Command | None:
        """What was asked for when an event was written; None for no event of the ledger."""
        facts, receipt = event.facts, self.receipts.get(event.release)
        if event.kind == "reserved":
            return self._reserve(event)
        if event.kind in _COMMANDS:
            return _COMMANDS[event.kind](event)
        if receipt is None or event.kind not in ("drawing", "committed"):
            return None
        attempt = event.release, event.attempt, receipt.binding
        if event.kind == "drawing":
            return ledger_commands.BeginDrawing(*attempt)
        return ledger_commands.Commit(*attempt, facts["measurement_digest"])

    def _reserve(self, event: LedgerEvent) -> ledger_commands.Reserve | None:
        """The charge that a row reserves: under the cap that its data set had then."""
        facts, dataset = event.facts, self.datasets.get(event.dataset)
        if dataset is None:
            return None
        charge = Charge(
            event.release,
            event.dataset,
            loss_of(facts["own"]),
            dataset.cap,
            protection_of(facts["protection"]),
            facts["spec_digest"],
            facts["asked"],
            None,
            facts["period"],
            StreamPart.from_facts(facts["part"]) if "part" in facts else None,
            facts.get("shared", False),
        )
        return ledger_commands.Reserve(
            charge, facts["run"], "", facts["salt"], facts["histogram_commitment"], facts["records"]
        )

    def _state_before(self, event: LedgerEvent, commitments: Sequence[str]) -> State:
        receipt, facts = self.receipts.get(event.release), event.facts
        period, stream = facts.get("period", ""), facts.get("part", {}).get("stream")
        if receipt is not None and event.kind != "reserved":
            period, stream = receipt.period, receipt.stream
        return State(
            self.datasets.get(event.dataset),
            self.accounts.get((event.dataset, period), UNUSED),
            receipt,
            self.streams.get((event.dataset, stream), EMPTY_STREAM),
            self.approvals.get(event.release, ()),
            tuple(chain.from_iterable(self.standing.get(commitment, ()) for commitment in commitments)),
            self.signers,
            self.publications.get(event.release, ()),
        )

    def _commitments_of(self, event: LedgerEvent) -> Sequence[str] | None:
        """The records that an attempt is charged for; None where others are kept, as those of one that was given back are not."""
        if event.kind != "reserved":
            return ()
        attempt, commitments = self.records.get(event.release, (event.attempt, ()))
        matches = attempt == event.attempt and digest_of_commitments(commitments) == event.facts["records"]["digest"]
        return commitments if matches else None

    def _take(self, written: LedgerRow, state: State, commitments: Sequence[str] | None) -> None:
        event = written.event
        if state.dataset is not None:
            self.datasets[event.dataset] = state.dataset
        if state.dataset is not None and event.kind in ("declared", "capped"):
            self.caps[event.dataset, written.sequence] = index_tables.caps_text(state.dataset)
        if event.kind == "approved":
            self.approvals[event.release] = state.approvals
        if event.kind == "published":
            self.publications[event.release] = state.publications
        self.signers = state.signers
        if state.release is None or event.kind not in ("reserved", "drawing", "committed", "aborted"):
            return
        receipt = state.release
        self.receipts[event.release] = receipt
        self.releases[event.release] = (
            self._reserved(receipt, commitments) if event.kind == "reserved" else self._moved(receipt)
        )
        self.accounts[event.dataset, receipt.period] = state.account
        if receipt.stream_part:
            self.streams[event.dataset, receipt.stream] = state.stream
        for commitment in commitments or ():
            if commitment in self.shared_commitments:
                self._stand(commitment, receipt)

    def _reserved(self, receipt: Receipt, commitments: Sequence[str] | None) -> ReleaseState:
        salt = self.salts.get(receipt.release)
        salt_right = None if salt is None else db.salt_digest(salt) == receipt.salt_digest
        period = self._periods.setdefault(receipt.period, receipt.period)
        return ReleaseState(
            receipt.sequence, period, receipt.stream, receipt.state, None, salt_right, commitments is not None
        )

    def _moved(self, receipt: Receipt) -> ReleaseState:
        release_state = self.releases[receipt.release]
        return replace(release_state, state=receipt.state, measurement_digest=receipt.measurement_digest)

    def _stand(self, commitment: str, receipt: Receipt) -> None:
        """Let records stand in a release's name, unless another one has them in the same period of its data set."""
        standings, mine = self.standing.get(commitment, ()), (receipt.dataset, receipt.period)
        if mine not in [(standing.dataset, standing.period) for standing in standings]:
            self.standing[commitment] = (*standings, Standing(*mine, receipt.release, commitment))


def _declare(event: LedgerEvent) -> ledger_commands.Command:
    facts = event.facts
    return ledger_commands.Declare(
        event.dataset, cap_of(facts["cap"]), protection_of(facts["protection"]), facts["run"], facts["ledger"]
    )


def _change_cap(event: LedgerEvent) -> ledger_commands.Command:
    facts = event.facts
    return ledger_commands.ChangeCap(event.dataset, cap_of(facts["cap"]), facts["why"], facts["who"], facts["run"])


def _name_approvers(event: LedgerEvent) -> ledger_commands.Command:
    facts = event.facts
    return ledger_commands.NameApprovers(event.dataset, Approvers.of(facts), facts["why"], facts["who"])


def _approve(event: LedgerEvent) -> ledger_commands.Command:
    facts = event.facts
    return ledger_commands.Approve(event.dataset, event.release, facts["spec"], facts["key"], facts["signature"])


_COMMANDS: Mapping[str, Callable[[LedgerEvent], ledger_commands.Command]] = {
    "declared": _declare,
    "capped": _change_cap,
    "approvers": _name_approvers,
    "approved": _approve,
    "aborted": lambda event: ledger_commands.Abort(event.release),
    "signer": lambda event: ledger_commands.NameSigner(event.facts["key"]),
    "published": lambda event: ledger_commands.Publish(event.release, Publication.of(event.facts)),
}
"""What was asked for when an event was written, where the event alone tells."""


_K = TypeVar("_K")
_PAGE_ROWS = 1000
"""Rows that are held at once, with the receipts, salts and records of the releases that they name."""


def verify(connection: Connection, head: str | None) -> Audit:
    """What was found, after the last row; see ``Ledger.verify``."""
    replayed, last_digest, rows = ReplayedState(shared_commitments=_shared_commitments(connection)), "", 0
    stored = sa.select(*(db.entries.c[name] for name in db.StoredRow._fields)).order_by(db.entries.c.sequence)
    for partition in connection.execute(stored.execution_options(yield_per=_PAGE_ROWS)).partitions():
        page = list(map(db.StoredRow._make, partition))
        _load_page(connection, page, replayed)
        for row in page:
            if row.sequence != rows + 1 or row.previous != last_digest or row.digest != db.digest_of(row[:-1]):
                raise LedgerError(
                    f"ledger row {row.sequence} does not continue the chain: rows were altered; restore a backup"
                )
            rows, last_digest = row.sequence, row.digest
            head = None if row.digest == head else head
            if not replayed.follows(row):
                raise LedgerError(
                    f"ledger row {row.sequence}: {row.event!r} of {row.release!r} breaks the ledger's rules; it was not written by "
                    "dpdist: restore a backup"
                )
    if head is not None:
        raise LedgerError(f"no ledger row has the digest {head}: rows were removed or replaced; restore a backup")
    _compare_salts(connection, replayed)
    _compare_releases(connection, replayed)
    _compare_accounts(connection, replayed)
    _compare_caps(connection, replayed)
    _compare_records(connection, replayed)
    return Audit(rows, last_digest, len(replayed.releases), sum(release.runs for release in replayed.releases.values()))


def _shared_commitments(connection: Connection) -> set[str]:
    """The commitments to records that stand in the names of several releases."""
    query = sa.select(db.records.c.commitment).group_by(db.records.c.commitment).having(sa.func.count() > 1)
    return set(connection.execute(query).scalars())


def _load_page(connection: Connection, page: Sequence[db.StoredRow], replayed: ReplayedState) -> None:
    """Let the receipts, salts and records be those of the releases that a page of rows names."""
    salts: dict[str, bytes | None] = {}
    records: dict[str, tuple[int, list[str]]] = {}
    for release, attempt, salt, commitment in connection.execute(_stored_state_query(page[0].sequence, page[-1].sequence)):
        salts[release] = None if salt is None else bytes(salt)
        if commitment is not None:
            records.setdefault(release, (attempt, []))[1].append(commitment)
    replayed.salts, replayed.records = salts, records
    named = {row.release for row in page} & replayed.releases.keys()
    replayed.receipts = {release: receipt for release, receipt in replayed.receipts.items() if release in named}
    replayed.receipts |= _receipts(
        connection, {release: replayed.releases[release] for release in named - replayed.receipts.keys()}
    )


def _stored_state_query(first_sequence: int, last_sequence: int) -> sa.Select[Any]:
    """What the tables keep of the attempts that rows reserve: the salt, and of the newest attempt each commitment."""
    row, stored, salt, record = db.entries.c, db.releases.c, db.salts.c, db.records.c
    newest = sa.and_(stored.release == row.release, stored.attempt == row.attempt)
    query = sa.select(row.release, stored.attempt, salt.salt, record.commitment)
    joined = db.entries.outerjoin(db.salts, salt.release == row.release).outerjoin(db.releases, newest)
    joined = joined.outerjoin(db.records, record.release == stored.release)
    return query.select_from(joined).where(row.event == "reserved", row.sequence.between(first_sequence, last_sequence))


def _receipts(connection: Connection, releases: Mapping[str, ReleaseState]) -> dict[str, Receipt]:
    """The receipts that rows before led to: what reserved the releases, and what became of them."""
    receipts = {}
    for batch in index_tables.in_batches([release.sequence for release in releases.values()]):
        for row in connection.execute(sa.select(db.entries).where(db.entries.c.sequence.in_(batch))):
            receipt = receipt_of(row.release, row.dataset, row.attempt, row.sequence, row.digest, json.loads(row.facts))
            now = releases[row.release]
            receipts[row.release] = replace(receipt, state=now.state, measurement_digest=now.measurement_digest)
    return receipts


def _compare_salts(connection: Connection, replayed: ReplayedState) -> None:
    running = {
        release: release_state.salt_right for release, release_state in replayed.releases.items() if release_state.runs
    }
    lacking = {release for release, matches in running.items() if matches is None}
    wrong = lacking.union(release for release in _names(connection, db.salts) if release not in running)
    if wrong:
        raise LedgerError(
            f"release {min(wrong)!r}: its salt must be there exactly while it is reserved or drawing; the ledger was altered: restore "
            "a backup"
        )
    for release, matches in running.items():
        if not matches:
            raise LedgerError(f"release {release!r}: its salt was altered, so its noise cannot be drawn; restore a backup")


_AS_RESERVED = ("release", "dataset", "attempt", "facts")
_MOVED = ("sequence", "period", "stream", "state", "measurement_digest")
_moved = attrgetter(*_MOVED)


def _compare_releases(connection: Connection, replayed: ReplayedState) -> None:
    stored, row, row_count = db.releases.c, db.entries.c, 0
    is_same_row = sa.and_(
        row.event == "reserved", row.digest == stored.binding, *(row[name] == stored[name] for name in _AS_RESERVED)
    )
    query = sa.select(stored.release, is_same_row, *(stored[name] for name in _MOVED)).outerjoin(
        db.entries, row.sequence == stored.sequence
    )
    for release, reserved, *moved in connection.execute(query.execution_options(yield_per=_PAGE_ROWS)):
        receipt = replayed.releases.get(release)
        if receipt is None or not reserved or tuple(moved) != _moved(receipt):
            raise _difference_error("dpdist_releases", f"release {release!r}")
        row_count += 1
    if row_count < len(replayed.releases):
        missing = replayed.releases.keys() - _names(connection, db.releases)
        raise _difference_error("dpdist_releases", f"release {min(missing)!r}")


def _compare_accounts(connection: Connection, replayed: ReplayedState) -> None:
    stored = {(row.dataset, row.period): index_tables.account_in(row) for row in connection.execute(sa.select(db.accounts))}
    _compare("dpdist_accounts", stored, replayed.accounts, lambda key: f"the sums of {key[0]!r}, {key[1]}")


def _compare_caps(connection: Connection, replayed: ReplayedState) -> None:
    stored = {(row.dataset, row.sequence): row.facts for row in connection.execute(sa.select(db.caps))}
    _compare("dpdist_caps", stored, replayed.caps, lambda key: f"the cap of {key[0]!r} in row {key[1]}")


def _compare_records(connection: Connection, replayed: ReplayedState) -> None:
    charged = {
        release: release_state.records_right
        for release, release_state in replayed.releases.items()
        if release_state.state != "aborted"
    }
    strangers = (release for release in _names(connection, db.records) if release not in charged)
    for release in chain((release for release, matches in charged.items() if not matches), strangers):
        raise _difference_error("dpdist_records", f"the records of {release!r}")


def _names(connection: Connection, table: sa.Table) -> Iterator[str]:
    """The releases that a table names, one after another."""
    return iter(connection.execute(sa.select(table.c.release).distinct().execution_options(yield_per=_PAGE_ROWS)).scalars())


def _compare(table: str, stored: Mapping[_K, object], expected: Mapping[_K, object], describe: Callable[[_K], str]) -> None:
    """Accept a table that holds what the rows lead to. Raises: LedgerError with what differs."""
    for key in stored.keys() | expected.keys():
        if stored.get(key) != expected.get(key):
            raise _difference_error(table, describe(key))


def _difference_error(table: str, subject: str) -> LedgerError:
    return LedgerError(f"{subject}: table {table} does not say what the ledger's rows say; it was altered: restore a backup")
