"""The ledger's tables are a format: ledgers that exist have these, whichever version made them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import psutil
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from dpdist.privacy.ledger import database as db
from dpdist.privacy.ledger.budget_ledger import Ledger
from tests.conftest import ENGINE_OF

DIGEST = "ec2f60d8c0e39b06498ca418a9745f64a356c1cc87f90a8100accf553f6253b8"
"""Of every column with its type on PostgreSQL, which keeps to lengths, and of every constraint and index, in format 8."""


def test_the_tables_of_a_schema_version_do_not_change() -> None:
    """Another column, length or index is another format."""
    dialect, found = postgresql.dialect(), []
    for table in db.metadata.sorted_tables:
        found += [
            (table.name, c.name, c.type.compile(dialect), c.nullable, c.primary_key, c.autoincrement) for c in table.columns
        ]
        found += sorted((table.name, i.name, i.unique, *(c.name for c in i.columns)) for i in table.indexes)
        unique = [c for c in table.constraints if isinstance(c, sa.UniqueConstraint)]
        found += sorted((table.name, *(c.name for c in constraint.columns)) for constraint in unique)
    assert (db.FORMAT, hashlib.sha256(repr(sorted(map(repr, found))).encode()).hexdigest()) == (8, DIGEST)


def test_a_ledger_syncs_its_files_overwrites_what_it_deletes_and_locks_out_other_writers(tmp_path: Path) -> None:
    """A salt that was erased is in no page, a receipt that was given survives a power cut, and two writers never interleave."""
    path = tmp_path / "ledger.db"
    ledger = Ledger(f"sqlite:///{path}")

    def settings(connection: sa.engine.Connection) -> list[object]:
        other = sa.create_engine(f"sqlite:///{path}", connect_args={"timeout": 0})
        try:
            with other.connect() as second:
                second.exec_driver_sql("BEGIN IMMEDIATE")
            locked = False
        except sa.exc.OperationalError:
            locked = True
        names = ("secure_delete", "synchronous", "journal_mode")
        return [locked, *(connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names)]

    assert ledger._database.transaction(settings) == [True, 1, 2, "truncate"]
    assert path.stat().st_mode & 0o777 == 0o600
    ledger.close()


def test_ledgers_on_one_file_share_compiled_statements_and_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release opens its ledger six times; a connection that stayed open would keep a file that somebody moves."""
    monkeypatch.setattr(db, "_sqlite", ENGINE_OF)
    url, compiled = f"sqlite:///{tmp_path / 'ledger.db'}", []
    original = sa.ClauseElement._compiler

    def compiler(self: sa.ClauseElement, *arguments: Any, **options: Any) -> Any:
        compiled.append(self)
        return original(self, *arguments, **options)

    monkeypatch.setattr(sa.ClauseElement, "_compiler", compiler)
    counts = []
    for _ in range(2):
        ledger = Ledger(url)
        compiled.clear()
        assert ledger.receipt("unknown") is None
        ledger.close()
        counts.append(len(compiled))
    assert counts[0] > 0 == counts[1]
    assert not [file for file in psutil.Process().open_files() if file.path.startswith(str(tmp_path))]
