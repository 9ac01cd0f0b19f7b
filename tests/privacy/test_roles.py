"""Database roles on a real PostgreSQL server: what each login can do, and what it cannot."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import psycopg
import pytest

from dpdist.errors import LedgerError
from dpdist.privacy.accounting import Cap, Loss, gaussian_equivalent
from dpdist.privacy.ledger.budget_ledger import Charge, Counted, CountedRecords, Ledger, Receipt
from dpdist.privacy.privacy_unit import ProtectedRecords
from tests.support import small_release
from tests.support.postgres_server import Server

LOGINS = ("owner", "application", "noise", "metrics", "stranger")


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
    with granted(postgres) as found:
        yield found


@pytest.fixture(scope="module")
def untouched(postgres: Server) -> Iterator[Database]:
    """One for all that changes nothing."""
    with granted(postgres) as found:
        yield found


@contextmanager
def granted(postgres: Server) -> Iterator[Database]:
    """An empty ledger with its roles granted twice: the second time changes nothing."""
    found = Database(postgres)
    ledger = Ledger(found.url("owner"))
    for _ in range(2):
        ledger.grant(*(found.roles[login] for login in ("application", "noise", "metrics")))
    ledger.close()
    yield found
    postgres.execute(f"DROP DATABASE {found.name} WITH (FORCE)")
    for role in found.roles.values():
        postgres.execute(f'DROP ROLE "{role}"')


def test_the_application_publishes_under_a_cap_of_the_owner(
    database: Database, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole release with the application's login, its salt erased; the cap is declared and changed by the owner only."""
    path = small_release.write(tmp_path / "spec")
    monkeypatch.setenv("DPDIST_LEDGER", database.url("application"))
    with pytest.raises(LedgerError, match="run 'dpdist ledger migrate', 'dpdist ledger declare SPEC'"):
        small_release.run(path, home)
    owner = Ledger(database.url("owner"))
    checked = small_release.load(path)
    assert [owner.declare("small", checked.guarantee.cap, checked.guarantee.protection) for _ in range(2)] == [True, False]
    with pytest.raises(LedgerError, match="'small' was declared with the budget rho=0.25"):
        owner.declare("small", Cap(rho=checked.guarantee.cap.rho * 2), checked.guarantee.protection)
    assert small_release.run(path, home).charged
    assert not small_release.run(path, home).charged
    assert database.execute("application", "SELECT count(*) FROM dpdist_salts") == [(0,)]
    application = Ledger(database.url("application"))
    with pytest.raises(LedgerError, match="this login may not do that"):
        application.set_cap("small", cap=Cap(rho=checked.guarantee.cap.rho * 2), why="more, more")
    owner.set_cap("small", cap=Cap(rho=checked.guarantee.cap.rho * 2), why="agreed on")
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
    "INSERT INTO dpdist_rows SELECT 99, 'approvers', 'small', 'x', 1, '{}', '', '', ''",
    "INSERT INTO dpdist_caps VALUES ('small', 99, '{}')",
    "UPDATE dpdist_caps SET facts = '{}'",
    "DELETE FROM dpdist_caps",
    "DELETE FROM dpdist_accounts",
    "UPDATE dpdist_accounts SET dataset = 'other'",
    "UPDATE dpdist_releases SET facts = '{}'",
    "UPDATE dpdist_records SET commitment = ''",
    "UPDATE dpdist_schema SET version = 3",
    "CREATE TABLE mine (a int)",
    "INSERT INTO dpdist_accounts VALUES ('small', 'total', 1, 'gaussian', 0, '0', '0', '0', '0', '0', '0')",
    "CREATE OR REPLACE FUNCTION dpdist_follow_rows() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
)


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_what_the_application_cannot_do(untouched: Database, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        untouched.execute("application", statement)


def test_a_committed_release_is_out_of_the_application_s_reach(
    database: Database, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Policies hide it from updates and deletions: they touch no row."""
    path = small_release.write(tmp_path / "spec")
    owner = Ledger(database.url("owner"))
    owner.declare("small", small_release.load(path).guarantee.cap, small_release.load(path).guarantee.protection)
    monkeypatch.setenv("DPDIST_LEDGER", database.url("application"))
    small_release.run(path, home)
    database.execute("application", "UPDATE dpdist_releases SET state = 'aborted'")
    database.execute("application", "DELETE FROM dpdist_releases")
    assert database.execute("noise", "SELECT state FROM dpdist_releases") == [("committed",)]
    owner.verify()
    owner.close()


def charged(database: Database, loss: Loss, release: str = "r1") -> Receipt:
    """A release that the application reserved, under a cap of the owner."""
    cap, protection = Cap(epsilon=Fraction(10), delta=Fraction(1, 10**6)), ProtectedRecords("add-remove", 1)
    owner, application = Ledger(database.url("owner")), Ledger(database.url("application"))
    owner.declare("people", cap, protection)
    receipt = application.reserve(
        Charge(
            release=release,
            dataset="people",
            loss=loss,
            cap=cap,
            protection=protection,
            spec_digest="spec",
            approval_digest="asked",
            counted=Counted(lambda _: "counts", CountedRecords(f"records of {release}")),
        )
    )
    owner.verify()
    owner.close()
    application.close()
    return receipt


@pytest.mark.parametrize("epsilon", ["1/1000", "1/10", "1", "3", "369/100", "5", "12", "60"])
def test_pure_losses_are_followed_as_they_are_counted(untouched: Database, epsilon: str) -> None:
    """The database's approximation of the dominating Gaussian agrees with the ledger's; charged, given back, charged again."""
    statement = f"SELECT dpdist_as_gaussian({float(Fraction(epsilon))})"
    (found,) = untouched.execute("owner", statement)
    assert found[0] == pytest.approx(float(gaussian_equivalent(Fraction(epsilon))), rel=1e-7, abs=2e-12)


def test_a_pure_charge_is_taken_and_given_back(database: Database) -> None:
    charged(database, Loss.laplace(Fraction(1, 3)))
    application = Ledger(database.url("application"))
    application.abort("r1")
    charged(database, Loss.laplace(Fraction(1, 2)))
    assert application.budgets()[0].spent == Loss.laplace(Fraction(1, 2))
    application.verify()
    application.close()


@pytest.mark.parametrize("table", ["dpdist_rows", "dpdist_caps", "dpdist_accounts", "dpdist_records"])
def test_noise_workers_read_salts_and_states_only(untouched: Database, table: str) -> None:
    assert untouched.execute("noise", "SELECT * FROM dpdist_salts") == []
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        untouched.execute("noise", f"SELECT * FROM {table}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        untouched.execute("noise", "DELETE FROM dpdist_salts")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        untouched.execute("stranger", "SELECT * FROM dpdist_salts")


def test_an_embedded_ledger_knows_no_roles(tmp_path: Path) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
    with pytest.raises(LedgerError, match=re.escape("(SQLite) has no roles")):
        ledger.grant("application")
    ledger.close()
