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
from dpdist.privacy.ledger import database as db
from dpdist.privacy.ledger.budget_ledger import Charge, Counted, CountedRecords, Ledger, Receipt
from dpdist.privacy.privacy_unit import ProtectedRecords
from tests.case_selection import slow_after_first
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


SUMS = (
    "UPDATE dpdist_accounts SET rho = '0'",
    "UPDATE dpdist_accounts SET releases = 0",
    "UPDATE dpdist_accounts SET pure = '0', squares = '0', as_gaussian = '0'",
    "UPDATE dpdist_accounts SET as_gaussian = '1/100'",
    "UPDATE dpdist_accounts SET slack = '1'",
    "UPDATE dpdist_accounts SET failure = '1/10'",
    "UPDATE dpdist_accounts SET rho = rho",  # of a row that was counted before
    "INSERT INTO dpdist_accounts VALUES ('people', '2026-01', 1, 'gaussian', 1, '0', '0', '0', '0', '0', '0')",
)


@pytest.mark.parametrize("statement", slow_after_first(4, SUMS))
def test_the_application_cannot_write_false_sums(database: Database, statement: str) -> None:
    """They stood until ``verify`` was run, and let it overdraw a cap."""
    charged(
        database,
        Loss.gaussian(Fraction(1, 7), Fraction(1, 2**90)) if "pure" not in statement else Loss.laplace(Fraction(1, 3)),
    )
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="follow the newest row"):
        database.execute("application", statement)


def test_sums_move_once_for_each_row(database: Database) -> None:
    """A false row would stand in the chain; even with one, a charge is given back once, and not after a draw."""
    receipt = charged(database, Loss.gaussian(Fraction(1, 7)))
    charged(database, Loss.gaussian(Fraction(1, 7)), "r2")
    said = "INSERT INTO dpdist_rows SELECT max(sequence) + 1, 'aborted', 'people', '{}', 1, '{{}}', '', {}, 'x' FROM dpdist_rows"
    newest = "(SELECT digest FROM dpdist_rows ORDER BY sequence DESC LIMIT 1)"
    half = "UPDATE dpdist_accounts SET rho = '1/7', releases = 1"
    with pytest.raises(psycopg.errors.SerializationFailure, match="continues the chain"):
        database.execute("application", said.format("r2", "'another'"))
    application = Ledger(database.url("application"))
    application.begin_drawing("r1", receipt.attempt, receipt.binding)
    application.close()
    database.execute("application", said.format("r1", newest))
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="follow the newest row"):
        database.execute("application", half)
    database.execute("application", said.format("r2", newest).replace("'x'", "'y'"))
    database.execute("application", half)
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="by its loss and once"):
        database.execute("application", "UPDATE dpdist_accounts SET rho = '0', releases = 0")


LIES = {
    "rho": "'1/9'",
    "pure": "'1/9'",
    "squares": "'1/9'",
    "as_gaussian": "'1/100'",
    "slack": "'1'",
    "failure": "'1/10'",
    "releases": "3",
}


def test_each_sum_follows_the_newest_row_for_itself(database: Database) -> None:
    """A true move of all sums but one is refused; the true move of all is made."""
    slack = Fraction(1, 2**90)
    for release in ("r1", "r2"):
        charged(database, Loss.gaussian(Fraction(1, 7), slack), release)
    newest = "(SELECT digest FROM dpdist_rows ORDER BY sequence DESC LIMIT 1)"
    database.execute(
        "application",
        f"INSERT INTO dpdist_rows SELECT max(sequence) + 1, 'aborted', 'people', 'r2', 1, '{{}}', '', {newest}, 'x' FROM dpdist_rows",
    )
    columns = {column.name for column in db.accounts.columns}
    true = dict.fromkeys(LIES, "'0'") | {"rho": "'1/7'", "slack": f"'{slack}'", "releases": "1"}
    assert columns - set(true) == {"dataset", "period", "sequence", "applied", "rule"}

    def move(sums: dict[str, str]) -> None:
        written = ", ".join(f"{name} = {value}" for name, value in sums.items())
        database.execute("application", f"UPDATE dpdist_accounts SET {written}")

    for name, lie in LIES.items():
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="by its loss and once"):
            move({**true, name: lie})
    move(true)


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
