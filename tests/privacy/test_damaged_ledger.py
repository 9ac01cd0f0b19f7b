"""Whatever is damaged in a ledger is found by ``verify``, and stops whoever reads it in one line that says what to do."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dpdist.errors import LedgerError
from dpdist.privacy.accounting import Cap, Loss
from dpdist.privacy.ledger import approvals, database
from dpdist.privacy.ledger.approvals import Approvers
from dpdist.privacy.ledger.budget_ledger import Ledger, Publication, StreamPart
from tests.privacy.test_budget_ledger import RECORDS, charge, commit, drawing

CAP = Cap(epsilon=Fraction(2), delta=Fraction(1, 10**6), selection=Fraction(1, 10**8))
SIGNED = Cap(rho=Fraction(1))
BESIDE = {("dpdist_accounts", "sequence"), ("dpdist_accounts", "applied")}
"""What no rule rests on: the order in which budgets are listed, and what triggers of PostgreSQL note."""
READ = ("approvers", "approved", "signer", "published")
"""Rows that are read for what they say; of others, tables beside them say it."""


def live(ledger: Ledger, folder: Path) -> None:
    """Something of every kind that a ledger can hold."""
    names = ("a", "b", "given back", "running")
    ledger.declare("people", CAP, RECORDS)
    for name in names:
        failure = Fraction(1, 10**9) if name == "b" else Fraction(0)
        ledger.reserve(
            charge(name, cap=CAP, loss=Loss.gaussian(Fraction(1, 100)) + Loss(failure=failure), files=(f"file {name}",))
        )
    part = StreamPart("hours", "digest", 0, 3)
    ledger.reserve(charge("part", cap=CAP, loss=Loss.laplace(Fraction(1, 10)), stream_part=part))
    ledger.abort("given back")
    for name in ("a", "b", "part", "running"):
        drawing(ledger, name)
    for name in ("a", "b", "part"):
        commit(ledger, name)
    ledger.publish("a", Publication("0" * 64, "1" * 64, "published/a", (("postgresql", "answers"),)))
    ledger.set_cap("people", cap=Cap(epsilon=Fraction(3), delta=CAP.delta, selection=CAP.selection), why="agreed")
    key = approvals.new_key(folder / "approver.pem")
    ledger.declare("signed", SIGNED, RECORDS)
    ledger.set_approvers("signed", Approvers((key,), 1), "agreed")
    for name in ("approved", "approved, not charged"):
        signature = approvals.signature(approvals.load_key(folder / "approver.pem"), "signed", name, "asked")
        ledger.approve("signed", name, "asked", key=key, signature=signature)
    ledger.reserve(charge("approved", cap=SIGNED, dataset="signed"))


NEW = charge("new", cap=Cap(epsilon=Fraction(3), delta=CAP.delta, selection=CAP.selection), files=("file a", "another file"))
NEW_PART = charge(
    "new part", cap=NEW.cap, loss=Loss.laplace(Fraction(1, 10)), stream_part=StreamPart("hours", "digest", 3, 5)
)
READERS: dict[str, Callable[[Ledger], Any]] = {
    "receipts": lambda ledger: [ledger.receipt(name) for name in ("a", "b", "given back", "running", "part", "approved")],
    "budgets": lambda ledger: ledger.budgets(charges=True),
    "budget after": lambda ledger: [ledger.budget_after(name) for name in ("a", "running", "approved")],
    "stream": lambda ledger: ledger.stream("people", "hours"),
    "first": lambda ledger: ledger.first("people"),
    "approvers": lambda ledger: ledger.approvers("signed"),
    "signers": lambda ledger: ledger.signers(),
    "publications": lambda ledger: ledger.publications("a"),
    "published": lambda ledger: ledger.published(),
    "entries": lambda ledger: ledger.entries(),
    "rehearsal": lambda ledger: ledger.rehearse(NEW),
    "rehearsal of a part": lambda ledger: ledger.rehearse(NEW_PART),
    "rehearsal of a signed one": lambda ledger: ledger.rehearse(
        charge("approved, not charged", cap=SIGNED, dataset="signed")
    ),
}
READERS_OF_ROWS = ("approvers", "signers", "publications", "published", "entries", "rehearsal of a signed one")
NO_FACTS = ("", "{}", "[1]")


def damages(value: Any) -> Iterator[Any]:
    """Other values: for texts of JSON, one field after another is not there, or is nothing that it can be."""
    if isinstance(value, int):
        yield value + 7
    elif isinstance(value, bytes):
        yield bytes(len(value))
    elif isinstance(value, str) and value.startswith("{"):
        yield from (*NO_FACTS, value[:-1])
        yield from map(json.dumps, damaged_fields(json.loads(value)))
    elif isinstance(value, str):
        yield from (f"{value}x", "-1/3")


def damaged_fields(content: Any) -> Iterator[Any]:
    fields = content.items() if isinstance(content, dict) else enumerate(content)
    for place, value in list(fields):
        others: list[Any] = ["-1/3", {}, None, -5]
        if isinstance(value, dict | list) and value:
            others = [*damaged_fields(value), {}]
        for other in others:
            if other != value:
                yield (
                    {**content, place: other}
                    if isinstance(content, dict)
                    else [*content[:place], other, *content[place + 1 :]]
                )
    if isinstance(content, dict):
        yield from ({name: value for name, value in content.items() if name != left_out} for left_out in content)


class Damage(NamedTuple):
    """Another value in a column of a row; ``event``: of the ledger's own rows, what happened."""

    table: str
    column: str
    event: str
    rowid: int
    value: Any


def every_damage(connection: sqlite3.Connection) -> Iterator[Damage]:
    for table in database.metadata.sorted_tables:
        names = [column.name for column in table.columns if (table.name, column.name) not in BESIDE]
        for rowid, *values in connection.execute(f"SELECT rowid, {', '.join(names)} FROM {table.name}").fetchall():
            row = dict(zip(names, values, strict=True))
            for name, value in row.items():
                yield from (Damage(table.name, name, row.get("event", ""), rowid, other) for other in damages(value))


def drawn(possible: list[Damage]) -> Iterator[Damage]:
    """Some of every column, of every kind of row: of facts that are read all texts that are none, and some fields."""
    chance, columns = random.Random(1), dict[tuple[str, str, str], list[Damage]]()
    for damage in possible:
        columns.setdefault(damage[:3], []).append(damage)
    for (table, name, event), some in columns.items():
        if name == "facts" and (table != "dpdist_rows" or event in READ):
            yield from [*some[: len(NO_FACTS)], *chance.sample(some[len(NO_FACTS) :], 6)]
        else:
            yield chance.choice(some)


def refusal(read: Callable[[], Any]) -> str:
    """The one line with which a reader is stopped; empty where it is not."""
    try:
        read()
    except LedgerError as error:
        return str(error)
    return ""


def test_every_damage_is_found_and_stops_whoever_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a LedgerError of one line. Where it is still something that dpdist could have written, ``verify`` alone finds it."""
    monkeypatch.setattr(database, "RETRIES", 1)  # numbers of rows that are taken look like those of another process
    path = tmp_path / "ledger.db"
    ledger = Ledger(f"sqlite:///{path}")
    live(ledger, tmp_path)
    right, whole = {name: read(ledger) for name, read in READERS.items()}, path.read_bytes()
    assert ledger.verify().rows > 15
    with closing(sqlite3.connect(path)) as connection:
        possible = [damage for damage in every_damage(connection) if damage.table != "dpdist_schema"]
    stopped, chance = 0, random.Random(2)
    for damage in drawn(possible):
        path.write_bytes(whole)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute(
                f"UPDATE OR IGNORE {damage.table} SET {damage.column} = ? WHERE rowid = ?", (damage.value, damage.rowid)
            )
        if path.read_bytes() == whole:
            continue  # what the database itself refuses
        assert "restore" in refusal(ledger.verify), damage
        if damage.table == "dpdist_rows" and damage.event not in READ:
            continue
        for name in READERS_OF_ROWS if damage.event else chance.sample([*READERS], 5):
            line = refusal(partial(READERS[name], ledger))
            stopped += bool(line)
            assert "\n" not in line, damage
    assert stopped > 15
    path.write_bytes(whole)
    assert {name: read(ledger) for name, read in READERS.items()} == right
