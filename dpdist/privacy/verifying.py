"""``verify``: the rows of a ledger replayed, a page of them at a time, and the tables beside the rows compared."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dpdist.errors import LedgerError
from dpdist.privacy import database as db
from dpdist.privacy import tables
from dpdist.privacy.facts import receipt_of
from dpdist.privacy.receipts import Audit, Receipt
from dpdist.privacy.replaying import Known, ReleaseSoFar

_K = TypeVar("_K")
_AT_ONCE = 1000
"""Rows that are held at once, with the receipts, salts and records of the releases that they name."""


def verify(connection: Connection, head: str | None) -> Audit:
    """What was found, after the last row; see ``Ledger.verify``."""
    known, last, rows = Known(shared=_shared(connection)), "", 0
    for part in connection.execute(db.stored_rows().execution_options(yield_per=_AT_ONCE)).partitions():
        page = list(map(db.StoredRow._make, part))
        _turn_to(connection, page, known)
        for row in page:
            if row.sequence != rows + 1 or row.previous != last or row.digest != db.digest_of(row[:-1]):
                raise LedgerError(
                    f"ledger row {row.sequence} does not continue the chain: rows were altered; restore a backup"
                )
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
    _compare_records(connection, known)
    return Audit(rows, last, len(known.releases), sum(each.runs for each in known.releases.values()))


def _shared(connection: Connection) -> set[str]:
    """The commitments to records that stand in the names of several releases."""
    found = sa.select(db.records.c.commitment).group_by(db.records.c.commitment).having(sa.func.count() > 1)
    return set(connection.execute(found).scalars())


def _turn_to(connection: Connection, page: Sequence[db.StoredRow], known: Known) -> None:
    """Let the receipts, salts and records be those of the releases that a page of rows names."""
    salts: dict[str, bytes | None] = {}
    records: dict[str, tuple[int, list[str]]] = {}
    for release, attempt, salt, commitment in connection.execute(_beside(page[0].sequence, page[-1].sequence)):
        salts[release] = None if salt is None else bytes(salt)
        if commitment is not None:
            records.setdefault(release, (attempt, []))[1].append(commitment)
    known.salts, known.records = salts, records
    named = {each.release for each in page} & known.releases.keys()
    known.receipts = {release: receipt for release, receipt in known.receipts.items() if release in named}
    known.receipts |= _receipts(connection, {release: known.releases[release] for release in named - known.receipts.keys()})


def _beside(first: int, last: int) -> sa.Select[Any]:
    """What the tables keep of the attempts that rows reserve: the salt, and of the newest attempt each commitment."""
    row, kept, salt, record = db.entries.c, db.releases.c, db.salts.c, db.records.c
    newest = sa.and_(kept.release == row.release, kept.attempt == row.attempt)
    query = sa.select(row.release, kept.attempt, salt.salt, record.commitment)
    joined = db.entries.outerjoin(db.salts, salt.release == row.release).outerjoin(db.releases, newest)
    joined = joined.outerjoin(db.records, record.release == kept.release)
    return query.select_from(joined).where(row.event == "reserved", row.sequence.between(first, last))


def _receipts(connection: Connection, releases: Mapping[str, ReleaseSoFar]) -> dict[str, Receipt]:
    """The receipts that rows before led to: what reserved the releases, and what became of them."""
    found = {}
    for part in tables.in_parts([each.sequence for each in releases.values()]):
        for row in connection.execute(sa.select(db.entries).where(db.entries.c.sequence.in_(part))):
            first = receipt_of(row.release, row.dataset, row.attempt, row.sequence, row.digest, json.loads(row.facts))
            now = releases[row.release]
            found[row.release] = replace(first, state=now.state, measurement_digest=now.measurement_digest)
    return found


def _compare_salts(connection: Connection, known: Known) -> None:
    running = {release: each.salt_right for release, each in known.releases.items() if each.runs}
    lacking = {release for release, right in running.items() if right is None}
    wrong = lacking.union(release for release in _names(connection, db.salts) if release not in running)
    if wrong:
        raise LedgerError(
            f"release {min(wrong)!r}: its salt must be there exactly while it is reserved or drawing; the ledger was altered: restore "
            "a backup"
        )
    for release, right in running.items():
        if not right:
            raise LedgerError(f"release {release!r}: its salt was altered, so its noise cannot be drawn; restore a backup")


_AS_RESERVED = ("release", "dataset", "attempt", "facts")
_MOVED = ("sequence", "period", "stream", "state", "measurement_digest")
_moved = attrgetter(*_MOVED)


def _compare_releases(connection: Connection, known: Known) -> None:
    kept, row, found = db.releases.c, db.entries.c, 0
    same = sa.and_(row.event == "reserved", row.digest == kept.binding, *(row[name] == kept[name] for name in _AS_RESERVED))
    query = sa.select(kept.release, same, *(kept[name] for name in _MOVED)).outerjoin(
        db.entries, row.sequence == kept.sequence
    )
    for release, reserved, *moved in connection.execute(query.execution_options(yield_per=_AT_ONCE)):
        receipt = known.releases.get(release)
        if receipt is None or not reserved or tuple(moved) != _moved(receipt):
            raise _differs("dpdist_releases", f"release {release!r}")
        found += 1
    if found < len(known.releases):
        missing = known.releases.keys() - _names(connection, db.releases)
        raise _differs("dpdist_releases", f"release {min(missing)!r}")


def _compare_accounts(connection: Connection, known: Known) -> None:
    found = {(row.dataset, row.period): tables.account_in(row) for row in connection.execute(sa.select(db.accounts))}
    _compare("dpdist_accounts", found, known.accounts, lambda key: f"the sums of {key[0]!r}, {key[1]}")


def _compare_caps(connection: Connection, known: Known) -> None:
    rows = list(connection.execute(sa.select(db.caps).order_by(db.caps.c.sequence)))
    numbers = Counter(row.dataset for row in rows)
    found = {row.dataset: (row.facts, numbers[row.dataset]) for row in rows}
    promised = {dataset: (tables.caps_text(each), each.caps) for dataset, each in known.datasets.items()}
    _compare("dpdist_caps", found, promised, lambda dataset: f"the cap of {dataset!r}")


def _compare_records(connection: Connection, known: Known) -> None:
    charged = {release: each.records_right for release, each in known.releases.items() if each.state != "aborted"}
    strangers = (release for release in _names(connection, db.records) if release not in charged)
    for release in chain((release for release, right in charged.items() if not right), strangers):
        raise _differs("dpdist_records", f"the records of {release!r}")


def _names(connection: Connection, table: sa.Table) -> Iterator[str]:
    """The releases that a table names, one after another."""
    return iter(connection.execute(sa.select(table.c.release).distinct().execution_options(yield_per=_AT_ONCE)).scalars())


def _compare(table: str, found: Mapping[_K, object], known: Mapping[_K, object], what: Callable[[_K], str]) -> None:
    """Accept a table that holds what the rows lead to. Raises: LedgerError with what differs."""
    for key in found.keys() | known.keys():
        if found.get(key) != known.get(key):
            raise _differs(table, what(key))


def _differs(table: str, what: str) -> LedgerError:
    return LedgerError(f"{what}: table {table} does not say what the ledger's rows say; it was altered: restore a backup")
