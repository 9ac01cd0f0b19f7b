"""The tables that follow from the ledger's rows: state of each release, running sums, caps, records. Steps read these, not all rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dpdist.privacy import database as db
from dpdist.privacy.accounting import Loss, Rule
from dpdist.privacy.charges import loss_of

PART_ROWS = 500
"""Commitments that are looked up or written at once."""


def set_release(connection: Connection, row: Any, facts: Mapping[str, Any]) -> None:
    """A release is reserved by a row: its state from now on."""
    connection.execute(db.releases.delete().where(db.releases.c.release == row.release))
    values = {
        "release": row.release,
        "dataset": row.dataset,
        "period": facts["period"],
        "attempt": row.attempt,
        "state": "reserved",
        "sequence": row.sequence,
        "binding": row.digest,
        "facts": row.facts,
        "measurement_digest": None,
        "stream": facts.get("part", {}).get("stream"),
    }
    connection.execute(db.releases.insert().values(**values))


def set_records(connection: Connection, release: str, seen: Iterable[str]) -> None:
    """The records that stand in the name of a release."""
    connection.execute(db.records.delete().where(db.records.c.release == release))
    for part in in_parts(list(seen)):
        connection.execute(db.records.insert(), [{"release": release, "commitment": commitment} for commitment in part])


def set_cap(connection: Connection, row: Any, facts: Mapping[str, Any]) -> None:
    """A cap holds from a row on."""
    kept = {"cap": facts["cap"], "protection": facts.get("protection")}
    connection.execute(
        db.caps.insert().values(dataset=row.dataset, sequence=row.sequence, facts=json.dumps(kept, sort_keys=True))
    )


def add_to_account(connection: Connection, row: Any, period: str, loss: Loss, rule: Rule, releases: int) -> None:
    """Add a charge to the running sums of a data set's period, or, negative, take it off."""
    mine = sa.and_(db.accounts.c.dataset == row.dataset, db.accounts.c.period == period)
    known = connection.execute(sa.select(db.accounts).where(mine)).first()
    if known is None:
        values = {"dataset": row.dataset, "period": period, "sequence": row.sequence, "rule": rule, "releases": releases}
        connection.execute(db.accounts.insert().values(**values, **sums(loss)))
    else:
        changed = {"releases": known.releases + releases, **sums(spent_of(known) + loss)}
        connection.execute(db.accounts.update().where(mine).values(**changed))


def sums(loss: Loss) -> dict[str, str]:
    """A loss as an account keeps it."""
    return {name: str(getattr(loss, name)) for name in _SUMS}


def spent_of(row: Any) -> Loss:
    """The loss that an account holds: all but failures, which ``failures_of`` adds up."""
    return Loss(*(Fraction(getattr(row, name)) for name in _SUMS))


def failures_of(connection: Connection, dataset: str, period: str) -> Fraction:
    """The probability that something fails that was charged to an account: releases that can are few."""
    if connection.execute(sa.select(db.version.c.version)).scalar_one() < db.SELECTIONS_VERSION:
        return Fraction(0)  # no cap ever set something aside for them
    mine = sa.and_(
        db.releases.c.dataset == dataset,
        db.releases.c.period == period,
        db.releases.c.state != "aborted",
        db.releases.c.facts.like('%"failure"%'),
    )
    found = connection.execute(sa.select(db.releases.c.facts).where(mine)).scalars()
    return sum((loss_of(json.loads(facts)["loss"]).failure for facts in found), Fraction(0))


_SUMS = ("rho", "pure", "squares", "as_gaussian", "slack")


def digest_of_seen(seen: Iterable[str]) -> str:
    """SHA-256 of commitments in order: what a row says of those that stand in the table beside it."""
    return hashlib.sha256("".join(sorted(seen)).encode()).hexdigest()


def in_parts(seen: list[str]) -> Iterator[list[str]]:
    """Commitments, some at a time."""
    return (seen[i : i + PART_ROWS] for i in range(0, len(seen), PART_ROWS))
