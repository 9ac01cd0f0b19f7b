"""Database roles on a real PostgreSQL server: what each login can do, and what it cannot."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from dpdist.errors import LedgerError
from dpdist.privacy.accounting import Cap
from dpdist.privacy.ledger import Ledger
from tests import small
from tests.postgres import Server

LOGINS = ("owner", "application", "noise", "stranger")


class Database:
    """A ledger's database with a login for each part."""

    def __init__(self, server: Server) -> None:
        self.server, self.name, suffix = server, f"roles_{uuid.uuid4().hex[:8]}", uuid.uuid4().hex[:8]
        self.roles = {login: f"{login}-{suffix}" for login in LOGINS}  # names that need quoting
        for role in self.roles.values():
            server.execute(f'CREATE ROLE "{role}" LOGIN')
        server.execute(f'GRANT "{self.roles["application"]}" TO "{self.roles["owner"]}"')
        server.execute(f'CREATE DATABASE {self.name} OWNER "{self.roles["owner"]}"')
        server.execute(f'ALTER SCHEMA public OWNER TO "{self.roles["owner"]}"', self.name)

    def url(self, login: str) -> str:
        return f"postgresql+psycopg://{self.roles[login]}@127.0.0.1:{self.server.port}/{self.name}"

    def execute(self, login: str, statement: str) -> list[tuple[object, ...]]:
        address = f"host=127.0.0.1 port={self.server.port} user={self.roles[login]} dbname={self.name}"
        with psycopg.connect(address, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
def database(postgres: Server) -> Iterator[Database]:
    """An empty ledger of schema 4 with its roles granted twice: the second time changes nothing."""
    found = Database(postgres)
    ledger = Ledger(found.url("owner"))
    for _ in range(2):
        ledger.grant(found.roles["application"], found.roles["noise"])
    ledger.close()
    yield found
    postgres.execute(f"DROP DATABASE {found.name} WITH (FORCE)")
    for role in found.roles.values():
        postgres.execute(f'DROP ROLE "{role}"')


def test_the_application_publishes_under_a_cap_of_the_owner(
    database: Database, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole release with the application's login, its salt erased; the cap is declared and changed by the owner only."""
    path = small.write(tmp_path / "spec")
    monkeypatch.setenv("DPDIST_LEDGER", database.url("application"))
    with pytest.raises(LedgerError, match="run 'dpdist ledger migrate', 'dpdist ledger declare SPEC'"):
        small.run(path, home)
    owner = Ledger(database.url("owner"))
    checked = small.load(path)
    assert [owner.declare("small", checked.ledger.cap.cap, checked.protection) for _ in range(2)] == [True, False]
    with pytest.raises(LedgerError, match="'small' was declared with the budget rho=0.25"):
        owner.declare("small", Cap(rho=checked.ledger.cap.cap.rho * 2), checked.protection)
    assert small.run(path, home).charged
    assert not small.run(path, home).charged
    assert database.execute("application", "SELECT count(*) FROM dpdist_salts") == [(0,)]
    application = Ledger(database.url("application"))
    with pytest.raises(LedgerError, match="this login may not do that"):
        application.set_cap("small", cap=Cap(rho=checked.ledger.cap.cap.rho * 2), why="more, more")
    owner.set_cap("small", cap=Cap(rho=checked.ledger.cap.cap.rho * 2), why="agreed on")
    assert application.verify() == owner.verify()
    application.close()
    owner.close()


FORBIDDEN = (
    "UPDATE dpdist_rows SET facts = '{}'",
    "DELETE FROM dpdist_rows",
    "TRUNCATE dpdist_rows",
    "DROP TABLE dpdist_rows",
    "ALTER TABLE dpdist_rows DISABLE ROW LEVEL SECURITY",
    "INSERT INTO dpdist_rows SELECT 99, 'capped', 'small', 'x', 1, '{}', '', '', ''",
    "INSERT INTO dpdist_rows SELECT 99, 'declared', 'small', 'x', 1, '{}', '', '', ''",
    "INSERT INTO dpdist_rows SELECT 99, 'migrated', 'small', 'x', 1, '{}', '', '', ''",
    "INSERT INTO dpdist_caps VALUES ('small', 99, '{}')",
    "UPDATE dpdist_caps SET facts = '{}'",
    "DELETE FROM dpdist_caps",
    "DELETE FROM dpdist_accounts",
    "UPDATE dpdist_accounts SET dataset = 'other'",
    "UPDATE dpdist_releases SET facts = '{}'",
    "UPDATE dpdist_records SET commitment = ''",
    "UPDATE dpdist_schema SET version = 3",
    "CREATE TABLE mine (a int)",
)


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_what_the_application_cannot_do(database: Database, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        database.execute("application", statement)


def test_a_committed_release_is_out_of_the_application_s_reach(
    database: Database, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Policies hide it from updates and deletions: they touch no row."""
    path = small.write(tmp_path / "spec")
    owner = Ledger(database.url("owner"))
    owner.declare("small", small.load(path).ledger.cap.cap, small.load(path).protection)
    monkeypatch.setenv("DPDIST_LEDGER", database.url("application"))
    small.run(path, home)
    database.execute("application", "UPDATE dpdist_releases SET state = 'aborted'")
    database.execute("application", "DELETE FROM dpdist_releases")
    assert database.execute("noise", "SELECT state FROM dpdist_releases") == [("committed",)]
    owner.verify()
    owner.close()


@pytest.mark.parametrize("table", ["dpdist_rows", "dpdist_caps", "dpdist_accounts", "dpdist_records"])
def test_noise_workers_read_salts_and_states_only(database: Database, table: str) -> None:
    assert database.execute("noise", "SELECT * FROM dpdist_salts") == []
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        database.execute("noise", f"SELECT * FROM {table}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        database.execute("noise", "DELETE FROM dpdist_salts")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        database.execute("stranger", "SELECT * FROM dpdist_salts")


def test_an_embedded_ledger_knows_no_roles(tmp_path: Path) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
    with pytest.raises(LedgerError, match=re.escape("(SQLite) knows no roles")):
        ledger.grant("application")
    ledger.close()
