"""From older ledgers to this version: plain digests of private data go, everything else stays."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dpdist.errors import KeyUnavailable, LedgerError
from dpdist.privacy import database as db
from dpdist.privacy import keys
from dpdist.privacy.accounting import Rule
from dpdist.privacy.charges import cap_of, loss_of
from dpdist.privacy.derived import add_to_account, digest_of_seen, set_cap, set_records, set_release, spent_of
from dpdist.privacy.keys import Secret

_OLD_TABLE = "dpdist_entries"


def migrate(database: db.Database, root: Callable[[], Secret] | None, *, blank: bool) -> None:
    """Create the tables, or bring an older ledger to this version, in one transaction.

    Versions 1 to 3 kept the plain digest of every release's exact counts in their rows. Those rows are written anew: the digest of a
    running release becomes a commitment under its salt, that of a finished one under a cap per period a commitment under the root key,
    all others go. The hash chain begins anew with them; its old head, which those digests decide, stays as a commitment.

    Raises: LedgerError for a newer ledger, an altered one, or when the root key that this needs is not there.
    """

    def work(connection: Connection) -> bool:
        if not sa.inspect(connection).has_table(db.version.name):
            db.metadata.create_all(connection)
            connection.execute(db.version.insert().values(version=db.SCHEMA_VERSION))
            return False
        found = int(connection.execute(sa.select(db.version.c.version)).scalar_one())
        if found > db.NEWEST_VERSION:
            raise LedgerError(f"the ledger has schema {found}, this dpdist knows {db.NEWEST_VERSION}: upgrade dpdist")
        if found >= db.SCHEMA_VERSION:
            return False
        db.metadata.create_all(connection)
        rows = list(connection.execute(sa.text(f"SELECT * FROM {_OLD_TABLE} ORDER BY sequence")))
        _check_chain(rows)
        if rows:
            _write_anew(connection, rows, found, _root_key(root, blank=blank))
        connection.execute(sa.text(f"DROP TABLE {_OLD_TABLE}"))
        connection.execute(db.version.update().values(version=db.SCHEMA_VERSION))
        return True

    if database.transaction(_is_current):
        return
    # of several programs that start together one migrates, the others wait
    migrated = database.locked(lambda: database.transaction(work))
    if migrated and database.sqlite:
        database.alone("VACUUM")  # no free page keeps what was there; PostgreSQL removed the table's file


def _is_current(connection: Connection) -> bool:
    if not sa.inspect(connection).has_table(db.version.name):
        return False
    found = int(connection.execute(sa.select(db.version.c.version)).scalar_one())
    return db.SCHEMA_VERSION <= found <= db.NEWEST_VERSION


def _root_key(root: Callable[[], Secret] | None, *, blank: bool) -> Secret | None:
    if blank:
        return None
    try:
        if root is None:
            raise KeyUnavailable("no root key was given")
        return root()
    except KeyUnavailable as error:
        raise LedgerError(
            f"this ledger is of an older version and holds plain digests of counts, which the root key turns into commitments; {error}. "
            "If that key is lost, run 'dpdist ledger migrate --without-key': finished releases then forget which records they counted"
        ) from None


def _check_chain(rows: Iterable[Any]) -> None:
    """An altered ledger is not written anew: that would hide it."""
    last = ""
    for number, row in enumerate(rows, 1):
        if row.sequence != number or row.previous != last or row.digest != db.row_digest(row._asdict()):
            raise LedgerError(f"ledger row {row.sequence} does not continue the chain: rows were altered; restore a backup")
        last = row.digest


def _write_anew(connection: Connection, rows: list[Any], found: int, root: Secret | None) -> None:
    salts = {row.release: bytes(row.salt) for row in connection.execute(sa.select(db.salts))}
    newest = {row.release: row for row in rows}
    caps = {row.dataset: cap_of(json.loads(row.facts)["cap"]) for row in rows if row.event == "declared"}
    previous = ""
    for row in rows:
        facts = json.loads(row.facts)
        if row.event == "reserved":
            digest, last = facts.pop("histogram_digest"), newest[row.release]
            live = last.attempt == row.attempt and last.event != "aborted"
            facts |= _commitments(root, row.release, digest, salts.get(row.release), caps[row.dataset].per) if live else {}
        content = {**row._asdict(), "facts": json.dumps(facts, sort_keys=True), "previous": previous}
        previous = content["digest"] = db.row_digest(content)
        connection.execute(db.entries.insert().values(**content))
        written = connection.execute(sa.select(db.entries).where(db.entries.c.sequence == row.sequence)).one()
        _derive(connection, written, facts)
    old_head = None if root is None else keys.commitment(root, "migrated head", rows[-1].digest)
    db.append(
        connection, "migrated", "", "schema", db.SCHEMA_VERSION, {"from": found, "rows": len(rows), "old_head": old_head}
    )


def _commitments(root: Secret | None, release: str, digest: str, salt: bytes | None, per: str) -> dict[str, Any]:
    """What stands in place of the plain digest of a live release's counts."""
    if root is None:
        return {}
    content = None if per == "total" else keys.counts_commitment(root, digest)
    seen = () if content is None else (content,)
    out: dict[str, Any] = {
        "records": {
            "source": None,
            "content": content,
            "key": keys.identity(root),
            "files": 0,
            "digest": digest_of_seen(seen),
        }
    }
    if salt is not None:
        commitment = keys.histogram_commitment(root, salt=salt, release=release, histogram_digest=digest)
        out["histogram_commitment"] = commitment
    return out


def _derive(connection: Connection, row: Any, facts: dict[str, Any]) -> None:
    """The tables beside the rows, row by row."""
    if row.event == "declared":
        set_cap(connection, row, facts)
        return
    if row.event == "reserved":
        loss = loss_of(facts["loss"])
        set_release(connection, row, facts)
        content = facts.get("records", {}).get("content")
        set_records(connection, row.release, () if content is None else (content,))
        add_to_account(connection, row, facts["period"], loss, "gaussian", 1)
        _choose_rule(connection, row, facts["period"])
        return
    mine = db.releases.c.release == row.release
    if row.event == "aborted":
        reserved = connection.execute(sa.select(db.releases).where(mine)).one()
        loss = loss_of(json.loads(reserved.facts)["loss"])
        add_to_account(connection, row, reserved.period, type(loss)() - loss, "gaussian", -1)
        set_records(connection, row.release, ())
    connection.execute(db.releases.update().where(mine).values(state=row.event, **facts))


def _choose_rule(connection: Connection, row: Any, period: str) -> None:
    """Charges of version 1 have an unknown slack: their account adds up by the conversion of any zCDP."""
    cap = cap_of(
        json.loads(connection.execute(sa.select(db.caps.c.facts).where(db.caps.c.dataset == row.dataset)).scalar_one())[
            "cap"
        ]
    )
    mine = sa.and_(db.accounts.c.dataset == row.dataset, db.accounts.c.period == period)
    account = connection.execute(sa.select(db.accounts).where(mine)).one()
    rule: Rule = "zcdp" if account.rule == "zcdp" else cap.rule_for(spent_of(account))
    connection.execute(db.accounts.update().where(mine).values(rule=rule))
