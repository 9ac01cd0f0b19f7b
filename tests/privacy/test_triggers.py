"""Each condition of PostgreSQL's triggers, and a row that only it refuses: with the condition taken out, the same statement is accepted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fractions import Fraction

import psycopg
import pytest

from dpdist.privacy.accounting import Loss
from dpdist.privacy.ledger import roles
from tests.privacy.test_roles import Database, charged, granted
from tests.support.postgres_server import Server

FUNCTIONS = {
    name: text
    for text in roles.STATEMENTS
    for name in re.findall(r"CREATE OR REPLACE FUNCTION (\w+)\(\) RETURNS trigger", text)
}


def conditions() -> dict[str, str]:
    """Every condition under which a trigger refuses, and the function without it."""
    found = {}
    for text in FUNCTIONS.values():
        for refusal in re.findall(r"IF ((?:(?!\bIF\b).)*?)\s+THEN\s+RAISE", text, re.DOTALL):
            for each in [refusal] if refusal.startswith("NOT (") else re.split(r"\s+OR\s+", refusal):
                found[" ".join(each.split())] = text.replace(refusal, refusal.replace(each, "FALSE"))
        for each in re.findall(r"THEN facts := NULL", text):
            found[each] = text.replace(each, "THEN NULL")
    return found


def reserved(**changes: str) -> str:
    """SQL of a new row that reserves another release, with the facts of the first."""
    dataset = changes.pop("dataset", "people")
    facts = f"(facts::jsonb || '{json.dumps(changes)}')::text"
    return (
        f"INSERT INTO dpdist_rows SELECT 3, 'reserved', '{dataset}', 'r2', 1, {facts}, '', digest, 'third' FROM dpdist_rows "
        "WHERE sequence = 2"
    )


def moved(event: str, number: int, previous: str = "digest") -> str:
    """SQL of a new row that moves the first release."""
    return (
        f"INSERT INTO dpdist_rows SELECT {number}, '{event}', 'people', 'r1', 1, '{{}}', '', {previous}, '{event}' FROM dpdist_rows "
        f"WHERE sequence = {number - 1}"
    )


RIGHT = "UPDATE dpdist_accounts SET releases = 2, rho = '2/7'"
FORGED = {
    "facts IS NULL": (moved("drawing", 3), RIGHT),
    "row.dataset <> NEW.dataset": (reserved(dataset="others"), RIGHT),
    "facts->>'period' <> NEW.period": (reserved(period="2026-01"), RIGHT),
    "THEN facts := NULL": (
        moved("drawing", 3),
        moved("aborted", 4),
        "UPDATE dpdist_accounts SET releases = 0, rho = '0'",
    ),
    "OLD.applied >= row.sequence": (RIGHT,),
    "NEW.releases <> OLD.releases + sign": (reserved(), RIGHT.replace("= 2,", "= 1,")),
    "NOT dpdist_moved(OLD.rho, NEW.rho, facts->'loss'->>'rho', sign)": (reserved(), RIGHT.replace("2/7", "1/7")),
    "NOT dpdist_moved(OLD.pure, NEW.pure, facts->'loss'->>'pure', sign)": (reserved(), f"{RIGHT}, pure = '1'"),
    "NOT dpdist_moved(OLD.squares, NEW.squares, dpdist_square(facts->'loss'->>'pure'), sign)": (
        reserved(),
        f"{RIGHT}, squares = '1'",
    ),
    "NOT dpdist_moved(OLD.slack, NEW.slack, facts->'loss'->>'slack', sign)": (reserved(), f"{RIGHT}, slack = '1'"),
    "NOT dpdist_moved(OLD.failure, NEW.failure, coalesce(facts->'loss'->>'failure', '0'), sign)": (
        reserved(),
        f"{RIGHT}, failure = '1/10'",
    ),
    "abs(moved - expected) > 1e-6 * expected + 1e-11 + 1e-12 * dpdist_float(OLD.as_gaussian)": (
        reserved(),
        f"{RIGHT}, as_gaussian = '1/100'",
    ),
    "NOT (NEW.sequence = 1 AND NEW.previous = '') AND NOT EXISTS (SELECT FROM dpdist_rows r WHERE r.sequence = NEW.sequence - 1 AND "
    "r.digest = NEW.previous)": (moved("drawing", 3, "'another'"),),
}


@pytest.fixture(scope="module")
def database(postgres: Server) -> Iterator[Database]:
    """A ledger in which the application has reserved one release, of rho 1/7."""
    with granted(postgres) as found:
        charged(found, Loss.gaussian(Fraction(1, 7)))
        yield found


def test_every_condition_has_a_forgery() -> None:
    assert set(conditions()) == set(FORGED)
    assert sum(text.count("RAISE") for text in roles.STATEMENTS) == 3


def run(database: Database, *statements: str, trigger: str | None = None) -> None:
    """The statements with the application's rights, under another trigger if one is given; nothing of it stays."""
    address = f"host=127.0.0.1 port={database.server.port} user={database.roles['owner']} dbname={database.name}"
    with psycopg.connect(address) as connection:
        if trigger is not None:
            connection.execute(trigger)
        connection.execute(f'SET LOCAL ROLE "{database.roles["application"]}"')
        try:
            for statement in statements:
                assert connection.execute(statement).rowcount == 1, statement
        finally:
            connection.rollback()


@pytest.mark.parametrize("condition", FORGED)
def test_a_statement_that_breaks_one_condition_alone_is_refused_by_it(database: Database, condition: str) -> None:
    *before, forged = FORGED[condition]
    run(database, reserved(), RIGHT)  # what is right is accepted
    run(database, *before)
    with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.SerializationFailure)):
        run(database, *before, forged)
    run(database, *before, forged, trigger=conditions()[condition])


def test_sums_of_a_new_period_follow_their_row(database: Database) -> None:
    """A period begins with the loss of its first charge, and with no other one."""
    sums = "sequence, rule, releases, pure, squares, as_gaussian, slack, failure"
    begun = f"INSERT INTO dpdist_accounts (dataset, period, rho, {sums}) SELECT dataset, '2026-01', '{{}}', {sums} FROM dpdist_accounts"
    run(database, reserved(period="2026-01"), begun.format("1/7"))
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="by its loss and once"):
        run(database, reserved(period="2026-01"), begun.format("1/9"))
