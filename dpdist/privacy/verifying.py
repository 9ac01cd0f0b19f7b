"""``verify``: the ledger's rules, asked again at every row from the first to the last, and the tables beside the rows compared."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dpdist.errors import DpdistError, LedgerError
from dpdist.privacy import database as db
from dpdist.privacy import tables
from dpdist.privacy.approvals import Approvers
from dpdist.privacy.charges import Charge, StreamPart, digest_of_seen
from dpdist.privacy.facts import cap_of, loss_of, protection_of
from dpdist.privacy.receipts import Audit, Publication, Receipt
from dpdist.privacy.rules import apply, commands, decide
from dpdist.privacy.rules.state import (
    NOT_BEGUN,
    UNUSED,
    Account,
    Approval,
    DataSet,
    LedgerEvent,
    LedgerRow,
    Standing,
    State,
    StreamSoFar,
)

_K = TypeVar("_K")
_COLUMNS = tuple(column.name for column in db.entries.columns)
_AT_ONCE = 1000
"""Rows that are held at once."""


def verify(connection: Connection, head: str | None) -> Audit:
    """What was found, after the last row; see ``Ledger.verify``."""
    known, last, rows = Known(_records(connection)), "", 0
    for row in connection.execute(
        sa.select(db.entries).order_by(db.entries.c.sequence).execution_options(yield_per=_AT_ONCE)
    ):
        content = dict(zip(_COLUMNS, row, strict=True))
        if row.sequence != rows + 1 or row.previous != last or row.digest != db.row_digest(content):
            raise LedgerError(f"ledger row {row.sequence} does not continue the chain: rows were altered; restore a backup")
        rows, last = row.sequence, row.digest
        head = None if row.digest == head else head
        if not known.follows(row):
            raise LedgerError(
                f"ledger row {row.sequence}: {row.event!r} of {row.release!r} breaks the ledger's rules; it was not written by "
                "dpdist: restore a backup"
            )
    if head is not None:
        raise LedgerError(f"no ledger row has the digest {head}: rows were removed or replaced; restore a backup")
    _compare_salts(connection, known)
    _compare_releases(connection, known)
    _compare_accounts(connection, known)
    _compare_caps(connection, known)
    _compare_records(known)
    return Audit(rows, last, len(known.releases), sum(receipt.runs for receipt in known.releases.values()))


class Known:
    """Everything that the rows so far came to, in parts.

    Args:
        records: of each release, the attempt and the commitments of the records that stand in its name.
    """

    def __init__(self, records: Mapping[str, tuple[int | None, list[str]]]) -> None:
        self.records = records
        self.datasets: dict[str, DataSet] = {}
        self.accounts: dict[tuple[str, str], Account] = {}
        self.releases: dict[str, Receipt] = {}
        self.streams: dict[tuple[str, str | None], StreamSoFar] = {}
        self.approvals: dict[str, tuple[Approval, ...]] = {}
        self.signers: tuple[str, ...] = ()
        self.publications: dict[str, tuple[Publication, ...]] = {}
        self.standing: dict[str, tuple[Standing, ...]] = {}

    def follows(self, row: Any) -> bool:
        """Whether a row is what the ledger's rules lead to; it is taken then."""
        try:
            event = LedgerEvent(row.event, row.dataset, row.release, row.attempt, json.loads(row.facts))
            command, seen = self._command(event), self._seen_by(event)
            part = self._part(event, seen)
            if command is None or decide(part, command) != (event,):
                return False
            self._take(event, apply(part, LedgerRow(event, row.sequence, row.digest)), seen)
        except (KeyError, TypeError, ValueError, AttributeError, DpdistError):
            return False
        return True

    def _command(self, event: LedgerEvent) -> commands.Command | None:
        """What was asked for when an event was written; None for no event of the ledger."""
        facts, known = event.facts, self.releases.get(event.release)
        if event.kind == "reserved":
            return self._reserve(event)
        if event.kind in _COMMANDS:
            return _COMMANDS[event.kind](event)
        if known is None or event.kind not in ("drawing", "committed"):
            return None
        attempt = event.release, event.attempt, known.binding
        if event.kind == "drawing":
            return commands.BeginDrawing(*attempt)
        return commands.Commit(*attempt, facts["measurement_digest"])

    def _reserve(self, event: LedgerEvent) -> commands.Reserve | None:
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
        return commands.Reserve(charge, facts["run"], "", facts["salt"], facts["histogram_commitment"], facts["records"])

    def _part(self, event: LedgerEvent, seen: Sequence[str]) -> State:
        known, facts = self.releases.get(event.release), event.facts
        period, stream = facts.get("period", ""), facts.get("part", {}).get("stream")
        if known is not None and event.kind != "reserved":
            period, stream = known.period, known.stream
        return State(
            self.datasets.get(event.dataset),
            self.accounts.get((event.dataset, period), UNUSED),
            known,
            self.streams.get((event.dataset, stream), NOT_BEGUN),
            self.approvals.get(event.release, ()),
            tuple(chain.from_iterable(self.standing.get(commitment, ()) for commitment in seen)),
            self.signers,
            self.publications.get(event.release, ()),
        )

    def _seen_by(self, event: LedgerEvent) -> Sequence[str]:
        """The records that an attempt is charged for; none where it was given back, as they are not kept then."""
        attempt, seen = self.records.get(event.release, (None, ())) if event.kind == "reserved" else (None, ())
        return seen if attempt == event.attempt and digest_of_seen(seen) == event.facts["records"]["digest"] else ()

    def _take(self, event: LedgerEvent, part: State, seen: Sequence[str]) -> None:
        if part.dataset is not None:
            self.datasets[event.dataset] = part.dataset
        if event.kind == "approved":
            self.approvals[event.release] = part.approvals
        if event.kind == "published":
            self.publications[event.release] = part.publications
        self.signers = part.signers
        if part.release is None or event.kind not in ("reserved", "drawing", "committed", "aborted"):
            return
        receipt = part.release
        self.releases[event.release] = receipt
        self.accounts[event.dataset, receipt.period] = part.account
        if receipt.part:
            self.streams[event.dataset, receipt.stream] = part.stream
        for commitment in seen:
            self._stand(commitment, receipt)

    def _stand(self, commitment: str, receipt: Receipt) -> None:
        """Let records stand in a release's name, unless another one has them in the same period of its data set."""
        others, mine = self.standing.get(commitment, ()), (receipt.dataset, receipt.period)
        if mine not in [(each.dataset, each.period) for each in others]:
            self.standing[commitment] = (*others, Standing(*mine, receipt.release, commitment))


def _declare(event: LedgerEvent) -> commands.Command:
    facts = event.facts
    return commands.Declare(
        event.dataset, cap_of(facts["cap"]), protection_of(facts["protection"]), facts["run"], facts["ledger"]
    )


def _change_cap(event: LedgerEvent) -> commands.Command:
    facts = event.facts
    return commands.ChangeCap(event.dataset, cap_of(facts["cap"]), facts["why"], facts["who"], facts["run"])


def _name_approvers(event: LedgerEvent) -> commands.Command:
    facts = event.facts
    return commands.NameApprovers(event.dataset, Approvers.of(facts), facts["why"], facts["who"])


def _approve(event: LedgerEvent) -> commands.Command:
    facts = event.facts
    return commands.Approve(event.dataset, event.release, facts["spec"], facts["key"], facts["signature"])


_COMMANDS: Mapping[str, Callable[[LedgerEvent], commands.Command]] = {
    "declared": _declare,
    "capped": _change_cap,
    "approvers": _name_approvers,
    "approved": _approve,
    "aborted": lambda event: commands.Abort(event.release),
    "signer": lambda event: commands.NameSigner(event.facts["key"]),
    "published": lambda event: commands.Publish(event.release, Publication.of(event.facts)),
}
"""What was asked for when an event was written, where the event alone tells."""


def _records(connection: Connection) -> dict[str, tuple[int | None, list[str]]]:
    """Of each release, its newest attempt and the commitments of the records that stand in its name."""
    out: dict[str, tuple[int | None, list[str]]] = {}
    query = sa.select(db.records.c.release, db.records.c.commitment, db.releases.c.attempt)
    query = query.outerjoin(db.releases, db.releases.c.release == db.records.c.release)
    for release, commitment, attempt in connection.execute(query):
        out.setdefault(release, (attempt, []))[1].append(commitment)
    return out


def _compare_salts(connection: Connection, known: Known) -> None:
    salts = {row.release: bytes(row.salt) for row in connection.execute(sa.select(db.salts))}
    running = {release for release, receipt in known.releases.items() if receipt.runs}
    if salts.keys() != running:
        wrong = sorted(salts.keys() ^ running)[0]
        raise LedgerError(
            f"release {wrong!r}: its salt must be there exactly while it is reserved or drawing; the ledger was altered: restore a backup"
        )
    for release, salt in salts.items():
        if known.releases[release].salt_digest != db.salt_digest(salt):
            raise LedgerError(f"release {release!r}: its salt was altered, so its noise cannot be drawn; restore a backup")


_COMPARED = ("release", "dataset", "period", "attempt", "state", "sequence", "binding", "measurement_digest", "stream")
_compared = attrgetter(*_COMPARED)


def _compare_releases(connection: Connection, known: Known) -> None:
    query, found = sa.select(*(db.releases.c[name] for name in _COMPARED)), set()
    for row in connection.execute(query.execution_options(yield_per=_AT_ONCE)):
        receipt = known.releases.get(row[0])
        if receipt is None or tuple(row) != _compared(receipt):
            raise _differs("dpdist_releases", f"release {row[0]!r}")
        found.add(row[0])
    facts = sa.select(db.releases.c.release).outerjoin(db.entries, db.entries.c.sequence == db.releases.c.sequence)
    other = connection.execute(facts.where(db.entries.c.facts.is_distinct_from(db.releases.c.facts)).limit(1)).scalars()
    for release in [*(known.releases.keys() - found), *other]:
        raise _differs("dpdist_releases", f"release {release!r}")


def _compare_accounts(connection: Connection, known: Known) -> None:
    found = {(row.dataset, row.period): tables.account_in(row) for row in connection.execute(sa.select(db.accounts))}
    _compare("dpdist_accounts", found, known.accounts, lambda key: f"the sums of {key[0]!r}, {key[1]}")


def _compare_caps(connection: Connection, known: Known) -> None:
    rows = list(connection.execute(sa.select(db.caps).order_by(db.caps.c.sequence)))
    numbers = Counter(row.dataset for row in rows)
    found = {row.dataset: (row.facts, numbers[row.dataset]) for row in rows}
    promised = {dataset: (tables.caps_text(each), each.caps) for dataset, each in known.datasets.items()}
    _compare("dpdist_caps", found, promised, lambda dataset: f"the cap of {dataset!r}")


def _compare_records(known: Known) -> None:
    found = {release: digest_of_seen(seen) for release, (_, seen) in known.records.items()}
    charged = {release: each.records.digest for release, each in known.releases.items() if each.state != "aborted"}
    nothing = digest_of_seen(())
    some = {release: digest for release, digest in charged.items() if digest != nothing}
    _compare("dpdist_records", found, some, lambda release: f"the records of {release!r}")


def _compare(table: str, found: Mapping[_K, object], known: Mapping[_K, object], what: Callable[[_K], str]) -> None:
    """Accept a table that holds what the rows lead to. Raises: LedgerError with what differs."""
    for key in found.keys() | known.keys():
        if found.get(key) != known.get(key):
            raise _differs(table, what(key))


def _differs(table: str, what: str) -> LedgerError:
    return LedgerError(f"{what}: table {table} does not say what the ledger's rows say; it was altered: restore a backup")
