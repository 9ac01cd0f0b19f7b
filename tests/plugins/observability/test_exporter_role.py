"""The exporter's login to PostgreSQL sees what the metrics show, and writes nothing."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import psycopg
import pytest
from prometheus_client import generate_latest

from dpdist.plugins.observability.metrics import registry
from dpdist.privacy.accounting import Loss
from dpdist.privacy.ledger import database as db
from tests.privacy.test_roles import FORBIDDEN, SUMS, Database, charged, database

__all__ = ["database"]


def test_the_exporter_s_login_shows_budgets_and_writes_nothing(
    database: Database, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had the application's, which may charge. Neither salts nor what binds charges to records are its business."""
    charged(database, Loss.gaussian(Fraction(1, 7)))
    monkeypatch.setenv("DPDIST_LEDGER", database.url("metrics"))
    shown = generate_latest(registry(home)).decode()
    assert "dpdist_ledger_up 1.0" in shown
    assert 'dpdist_releases{dataset="people",state="reserved"} 1.0' in shown
    tables = [table.name for table in db.metadata.sorted_tables]
    hidden = [f"SELECT * FROM {table}" for table in ("dpdist_salts", "dpdist_records")]
    writes = [f"INSERT INTO {table} SELECT * FROM {table}" for table in tables] + [
        f"DELETE FROM {table}" for table in tables
    ]
    for statement in [*hidden, *writes, *FORBIDDEN, *SUMS]:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            database.execute("metrics", statement)
