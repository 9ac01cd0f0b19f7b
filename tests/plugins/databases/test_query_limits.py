"""A query that never ends, or that spills without end, is refused in one line, and nothing of it is left."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpdist.errors import DpdistError, InvalidInput, InvalidSpec
from dpdist.extracts import record_sorting, table_extracts
from dpdist.extracts.column_projection import Use
from dpdist.extracts.record_sorting import DISK_GIB, disk_gib
from dpdist.extracts.table_extracts import extract_table
from dpdist.plugins.databases import query_limits
from dpdist.plugins.databases.query_limits import SECONDS, most_seconds
from dpdist.plugins.databases.query_source import RecordQuery
from dpdist.privacy.keys import Secret
from dpdist.privacy.ledger.budget_ledger import open_ledger
from tests.support import small_release
from tests.support.postgres_server import Server

NEVER = "SELECT count(*) AS age FROM range(10000000) AS a(i), range(10000000) AS b(j) WHERE a.i * b.j = -1"
EVER = "SELECT i AS age FROM range(10000000000000) AS a(i)"


NUMBERS = "SELECT hash(i) AS a, hash(i + 1) AS b, hash(i + 2) AS c, hash(i + 3) AS d FROM range(2000000) AS r(i)"
SPILLS = f"SELECT count(*) AS age FROM (SELECT DISTINCT * FROM ({NUMBERS}))"
"""More than a memory of 64 MiB holds."""
AGE: dict[str, Use] = {"age": "number"}


def extract_records(query: RecordQuery, home: Path, memory_bytes: int = 2**30) -> table_extracts.Extract:
    home.mkdir(exist_ok=True)
    return extract_table(query, "r", home / "records", home, Secret(bytes(32)), memory_bytes, AGE)


def check_nothing_left(home: Path) -> None:
    assert not [each for each in home.rglob("*") if each.is_file()]
    assert not [thread for thread in threading.enumerate() if thread.name == "limit of a query"]


@pytest.mark.parametrize("sql", [NEVER, EVER], ids=["no row", "rows without end"])
def test_a_query_that_never_ends_is_ended(sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECONDS, "0.5")
    with pytest.raises(
        InvalidSpec, match=r"'records.sql' ran longer than 0.5 s and was ended; .* raise DPDIST_QUERY_SECONDS"
    ):
        extract_records(RecordQuery(sql, None, tmp_path), tmp_path / "home")
    check_nothing_left(tmp_path / "home")


def test_an_interrupt_that_is_lost_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that arrives between two statements ends neither."""
    monkeypatch.setenv(SECONDS, "0.01")
    interrupted: list[int] = []
    second = threading.Event()

    def interrupt() -> None:
        interrupted.append(1)
        if len(interrupted) == 2:
            second.set()

    def work() -> Iterator[None]:
        with query_limits.interrupt_in_time(interrupt):
            assert second.wait(60)
            raise OSError
        yield

    with pytest.raises(InvalidSpec, match="ran longer"):
        list(work())


def test_a_query_of_postgresql_that_never_ends_is_ended(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP", postgres.database().replace("+psycopg", ""))
    monkeypatch.setenv(SECONDS, "0.5")
    for sql in (
        "SELECT 1 AS age FROM pg_sleep(600)",
        "SELECT i AS age, pg_sleep(0.1)::text AS b FROM generate_series(1, 100000) AS i",
    ):
        with pytest.raises(InvalidSpec, match="'records.sql' ran longer than 0.5 s and was ended"):
            extract_records(RecordQuery(sql, "SHOP", tmp_path), tmp_path / "home")
    check_nothing_left(tmp_path / "home")


def test_a_query_takes_no_more_disk_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same query is refused with 10 MB of disk, and read with the default; what sorts rows has the same limit."""
    assert (most_seconds(), disk_gib()) == (3600, 16)
    assert extract_records(RecordQuery(SPILLS, None, tmp_path), tmp_path / "other", 2**26).path.is_file()
    monkeypatch.setenv(DISK_GIB, "0.01")
    with pytest.raises(InvalidSpec, match=r"and 0.01 GiB of disk; make the query do less, or raise DPDIST_QUERY_DISK_GIB"):
        extract_records(RecordQuery(SPILLS, None, tmp_path), tmp_path / "home", 2**26)
    check_nothing_left(tmp_path / "home")
    with (
        pytest.raises(InvalidSpec, match=r"and 0.01 GiB of disk"),
        record_sorting.open_connection(None, tmp_path / "order", 2**26) as sorting,
    ):
        sorting.execute(f"CREATE TEMP TABLE kept AS {NUMBERS}, range(2)").fetchall()


@pytest.mark.parametrize("text", ["0", "-1", "much", "nan", "inf"])
def test_a_limit_that_is_none_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECONDS, text)
    with pytest.raises(InvalidInput, match=f"{SECONDS} is '{text}'; give a number above 0, or leave it out for 3600"):
        most_seconds()


def test_files_that_are_none_are_not_read(tmp_path: Path) -> None:
    """A pipe or a device would be waited for without end: neither the kernel's log nor a pipe beside the spec is a file of records."""
    os.mkfifo(tmp_path / "pipe.csv")
    for place in ("/proc/kmsg", "pipe.csv"):
        with pytest.raises(DpdistError):
            extract_records(RecordQuery(f"SELECT * FROM '{place}'", None, tmp_path, {"age": "whole"}), tmp_path / "home")
    check_nothing_left(tmp_path / "home")


def test_a_release_whose_query_never_ends_is_not_charged(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECONDS, "0.5")
    sql = f"SELECT age, 'f' AS sex, 'a' AS work FROM ({NEVER})"
    path = small_release.write(home.parent / "data", records={"sql": sql, "person": {"most_records": 1}})
    with pytest.raises(InvalidSpec, match="ran longer than 0.5 s"):
        small_release.run(path, home)
    with open_ledger(home) as book:
        assert not [charge for budget in book.budgets(charges=True) for charge in budget.charges]
    assert not [each for each in (home / "records").rglob("*") if each.is_file()]
