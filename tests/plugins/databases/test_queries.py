"""Queries as records: read once, charged as they were read, and never again unless they are the same."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from distributed import LocalCluster

from dpdist import engine
from dpdist.engine import cluster_workers
from dpdist.errors import DpdistError, EngineError, InvalidSpec, MissingRecords, ReleaseConflict
from dpdist.extracts.column_projection import Use
from dpdist.pipeline.histogram import materialize_table
from dpdist.plugins.databases.query_source import RecordQuery
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.runtime.context import Context
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.counting.test_histogram_counting import counted, truth
from tests.support import small_release
from tests.support.command_line import CommandLine
from tests.support.complete_tree import needs_every_plugin, needs_plugin
from tests.support.postgres_server import Server
from tests.support.record_tables import MEMORY, TABLE, TYPES, extract_records

PASSWORD = "KNOWN-PASSWORD"
SELECT = "SELECT age, sex, work, person FROM visit JOIN job USING (job)"


def shop(path: Path, table: pa.Table = TABLE) -> Path:
    """A database in which the attribute 'work' stands in another table."""
    with duckdb.connect(str(path)) as db:
        db.register("given", table)
        db.execute("CREATE TABLE job AS SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (3, 'c')) AS job(job, work)")
        db.execute("CREATE TABLE visit AS SELECT age, sex, person, job FROM given JOIN job USING (work)")
    return path


def test_a_query_over_files_is_the_records_in_an_order_of_their_own(tmp_path: Path) -> None:
    """The same rows in another order give the same bytes; files are named from the spec's folder, and nothing is left but the extract."""
    for number, order in enumerate((slice(None), np.random.default_rng(1).permutation(TABLE.num_rows))):
        (tmp_path / str(number)).mkdir()
        given = TABLE.take(np.arange(TABLE.num_rows)[order])
        pyarrow.parquet.write_table(given, tmp_path / str(number) / "visits.parquet")
    found = [
        extract_records(
            RecordQuery("SELECT * FROM 'visits.parquet';", None, tmp_path / folder, TYPES), tmp_path / f"home-{folder}"
        )
        for folder in ("0", "1")
    ]
    assert found[0].path.read_bytes() == found[1].path.read_bytes()
    np.testing.assert_array_equal(counted(tmp_path, found[0].path)[0], truth(TABLE))
    left = [each for each in (tmp_path / "home-0").rglob("*") if each.is_file()]
    assert left == [found[0].path]
    assert oct(found[0].path.parent.stat().st_mode)[-3:] == "700"


def test_which_records_of_a_person_count_depends_on_these_alone(tmp_path: Path) -> None:
    """Whoever comes or goes: the others' first records stay the same, so that a person is at most k records."""
    kept = []
    for name, table in (("all", TABLE), ("less", TABLE.filter(pa.compute.not_equal(TABLE["person"], 7)))):
        folder = tmp_path / name
        folder.mkdir()
        pyarrow.parquet.write_table(table, folder / "x.parquet")
        path = extract_records(RecordQuery("SELECT * FROM 'x.parquet'", None, folder, TYPES), folder).path
        kept.append(counted(folder, path, person="person", most_records=2)[0])
    assert int(np.abs(kept[0] - kept[1]).sum()) == min(2, TABLE["person"].to_pylist().count(7))


def test_a_query_of_a_database_is_read_once_for_each_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP", str(shop(tmp_path / "shop.duckdb")))
    query = RecordQuery(SELECT, "SHOP", tmp_path)
    first = extract_records(query, tmp_path / "home")
    np.testing.assert_array_equal(counted(tmp_path, first.path)[0], truth(TABLE))
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as db:
        db.execute("DELETE FROM visit WHERE age = 3")
    assert extract_records(query, tmp_path / "home") == first
    other = extract_records(query, tmp_path / "home", "another-release")
    assert pyarrow.parquet.read_metadata(other.path).num_rows < 3000


def test_a_query_takes_a_part_of_the_memory_and_sorts_on_disk_beyond_it(tmp_path: Path) -> None:
    query = RecordQuery("SELECT current_setting('memory_limit') AS allowed", None, tmp_path)
    found = extract_records(query, tmp_path / "home", uses={"allowed": "text"})
    assert pyarrow.parquet.read_table(found.path)["allowed"].to_pylist() == [f"{MEMORY // 8 / 2**20} MiB"]


def test_a_query_of_postgresql_through_adbc(postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = postgres.database()
    name = url.rpartition("/")[2]
    rows = ", ".join(f"({r['age']}, '{r['sex']}', '{r['work']}', 2.50)" for r in TABLE.to_pylist())
    postgres.execute(
        f"CREATE TABLE visit (age int, sex text, work text, paid numeric); INSERT INTO visit VALUES {rows}", name
    )
    (tmp_path / "url").write_text(url.replace("+psycopg", "") + "\n")
    monkeypatch.setenv("SHOP_FILE", str(tmp_path / "url"))
    uses: dict[str, Use] = {"age": "number", "sex": "text", "work": "text", "paid": "number"}
    found = extract_records(
        RecordQuery("SELECT age, sex, work, paid FROM visit", "SHOP", tmp_path), tmp_path / "home", uses=uses
    )
    np.testing.assert_array_equal(counted(tmp_path, found.path)[0], truth(TABLE))
    assert set(pyarrow.parquet.read_table(found.path)["paid"].to_pylist()) == {2.5}
    numbers = "SELECT n AS who, n AS paid FROM (VALUES (7::numeric), (7.0), (7.00), (70), (0.50), (-1.250)) AS t (n)"
    uses = {"who": "person", "paid": "text"}
    written = pyarrow.parquet.read_table(
        extract_records(RecordQuery(numbers, "SHOP", tmp_path), tmp_path / "home", "persons", uses).path
    )
    for name_of_column in uses:  # one person, and one category, however it is written
        assert sorted(written[name_of_column].to_pylist()) == ["-1.25", "0.5", "7", "7", "7", "70"]
    with pytest.raises(InvalidSpec, match="the query of the records cannot be read") as refused:
        extract_records(
            RecordQuery("SELECT ('x' || sex)::int AS age FROM visit", "SHOP", tmp_path),
            tmp_path / "home",
            "wrong",
            {"age": "number"},
        )
    assert "xf" not in str(refused.value)
    assert postgres.execute("SELECT count(*) FROM visit", name) == [(3000,)]


FOLDED = "(VALUES ('x', 'a'), ('X', 'A'), ('x ', 'å'), ('K', 'å')) AS t (word, who)"
"""Words and persons that collations take for one another."""


def test_what_a_database_takes_for_one_text_stays_two(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its collations nor what it takes for one name of a column merges two values."""
    uses: dict[str, Use] = {"word": "text", "who": "person"}
    expected = [("X", "A"), ("x", "a"), ("x ", "å"), ("K", "å")]
    place = tmp_path / "shop.duckdb"
    with duckdb.connect(str(place)) as db:
        db.execute(
            f"CREATE TABLE visit (word VARCHAR COLLATE NOCASE, who VARCHAR COLLATE NOACCENT); INSERT INTO visit FROM {FOLDED}"
        )
    monkeypatch.setenv("SHOP", str(place))
    url = postgres.database()
    postgres.execute(
        "CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level1', deterministic = false); "
        f"CREATE TABLE visit (word text COLLATE folded, who text COLLATE folded); INSERT INTO visit SELECT * FROM {FOLDED}",
        url.rpartition("/")[2],
    )
    monkeypatch.setenv("LARGE_SHOP", url.replace("+psycopg", ""))
    for name in ("SHOP", "LARGE_SHOP"):
        found = extract_records(RecordQuery("SELECT * FROM visit", name, tmp_path), tmp_path / name, uses=uses)
        columns = pyarrow.parquet.read_table(found.path).to_pydict()
        assert sorted(zip(columns["word"], columns["who"], strict=True)) == sorted(expected)
        twins = 'SELECT who AS "Who", who AS "word", word AS "Word", word AS who FROM visit'  # names that differ in capitals alone
        found = extract_records(
            RecordQuery(twins, name, tmp_path), tmp_path / name, "twins", {"word": "text", "who": "text"}
        )
        columns = pyarrow.parquet.read_table(found.path).to_pydict()
        assert sorted(zip(columns["who"], columns["word"], strict=True)) == sorted(expected)
        for again in ("SELECT word, who, who FROM visit", 'SELECT word, who AS "Who" FROM visit'):
            with pytest.raises(InvalidSpec, match="(more than one|no) column 'who'"):
                extract_records(RecordQuery(again, name, tmp_path), tmp_path / name, "again", uses)


def test_persons_as_whole_numbers_are_no_casts_of_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """'1.6' and '0x2' are no whole number, and so no 2."""
    place = tmp_path / "shop.duckdb"
    uses: dict[str, Use] = {"who": "numbered person"}
    monkeypatch.setenv("SHOP", str(place))
    for kind, values in (
        ("VARCHAR", "('2'), ('1.6'), ('2.4'), ('0x2'), ('02')"),
        ("DECIMAL(9, 1)", "(2), (1.6)"),
        ("DOUBLE", "(2)"),
    ):
        with duckdb.connect(str(place)) as db:
            db.execute(f"CREATE OR REPLACE TABLE visit (who {kind}); INSERT INTO visit VALUES {values}")
        query = RecordQuery("SELECT * FROM visit", "SHOP", tmp_path)
        if kind == "DOUBLE":
            with pytest.raises(InvalidSpec, match="persons are named by text or whole numbers"):
                extract_records(query, tmp_path / "home", kind, uses)
            continue
        persons = pyarrow.parquet.read_table(extract_records(query, tmp_path / "home", kind, uses).path)["who"].to_pylist()
        assert {each for each in persons if each} == {"2"}, kind
        assert persons.count("2") == values.count("2)") + values.count("'2'") + values.count("'02'"), kind


def test_only_the_columns_that_are_counted_are_asked_for(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another column is not computed, sent or read."""
    monkeypatch.setenv("SHOP", postgres.database().replace("+psycopg", ""))
    uses: dict[str, Use] = {"age": "number"}
    for connection, other in ((None, "error('asked for')"), ("SHOP", "1 / (n - n)")):
        query = RecordQuery(f"SELECT {other} AS other, n AS age FROM (VALUES (3), (4)) AS t (n)", connection, tmp_path)
        found = pyarrow.parquet.read_table(extract_records(query, tmp_path / "home", str(connection), uses).path)
        assert sorted(found["age"].to_pylist()) == [3.0, 4.0]


def test_the_file_that_lacks_a_column_is_named_by_its_number(tmp_path: Path) -> None:
    """Of the files of a pattern, from 1 on in the order of their names."""
    for name, column in (("a.csv", "age"), ("b.csv", "sex")):
        (tmp_path / name).write_text(f"{column}\n1\n")
    query = RecordQuery("SELECT age, 'f' AS sex, 'a' AS work, 1 AS person FROM '*.csv'", None, tmp_path, {"age": "whole"})
    with pytest.raises(InvalidSpec, match=r"file 2 of '\*\.csv'"):
        extract_records(query, tmp_path / "home")


def test_columns_of_a_file_that_duckdb_takes_for_one_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("age,Age\n1,2\n")
    query = RecordQuery("SELECT age FROM 'x.csv'", None, tmp_path, {"Age": "whole"})
    with pytest.raises(InvalidSpec, match="differ in capitals alone"):
        extract_records(query, tmp_path / "home", uses={"age": "number"})


TOUCHING = (
    "read_csv('visits.csv')",
    "read_csv('visits.csv', all_varchar = true)",
    "read_parquet('visits/*.parquet')",
    "read_text('/etc/hostname')",
    "glob('*')",
    "sniff_csv('visits.csv')",
    "query('SELECT * FROM read_text(''/etc/hostname'')')",
    "query_table('visits.csv')",
    "'visits.csv' AS a, read_blob('/etc/hostname') AS b",
    "duckdb_secrets()",
)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("DROP TABLE visit", "one SELECT"),
        ("ATTACH 'other.duckdb'", "one SELECT"),
        ("LOAD httpfs", "one SELECT"),
        ("SET memory_limit = '1GB'", "one SELECT"),
        ("SELECT 1; SELECT 2", "one SELECT"),
        ("COPY visit TO 'out.csv'", "one SELECT"),
        ("SELEC age FROM visit", "cannot be run: its grammar is wrong \\(line 1, at 'SELEC'\\)"),
        ("SELECT agee FROM visit", "cannot be run: a column that it names does not exist, .* \\(at 'agee'\\)"),
        (
            "SELECT CAST('x' || sex AS INTEGER) AS age, sex, sex AS work, 1 AS person FROM visit",
            r"cannot be read \(ConversionException\)",
        ),
        ("SELECT * FROM 'visits.csv'", "the records have no column 'sex'"),
        ("SELECT job FROM 'visits.csv'", "files have the columns that are counted, and those that 'records.types' declares"),
        ("SELECT * FROM 'jobs.csv'", "no column that is counted, nor one that 'records.types' declares: declare those"),
        *(
            (f"SELECT 1 AS age, 'f' AS sex, 'a' AS work, 1 AS person FROM {each}", "may name files as tables alone")
            for each in TOUCHING
        ),
    ],
)
def test_queries_that_are_refused_in_one_line(sql: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP", str(shop(tmp_path / "shop.duckdb")))
    (tmp_path / "visits.csv").write_text("age,job\n1,2\n")
    (tmp_path / "jobs.csv").write_text("job\n2\n")
    with pytest.raises(InvalidSpec, match=said) as refused:
        extract_records(RecordQuery(sql, "SHOP", tmp_path), tmp_path / "home")
    assert "\n" not in str(refused.value)
    assert "xf" not in str(refused.value)
    assert "xm" not in str(refused.value)
    assert not [each for each in (tmp_path / "home").rglob("*") if each.is_file()]


@pytest.mark.parametrize(
    "url", [f"postgresql://me:{PASSWORD}@127.0.0.1:1/shop", f"mysql://me:{PASSWORD}@host/shop", f"{PASSWORD}.duckdb"]
)
def test_no_message_holds_a_connection(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP", url)
    with pytest.raises(InvalidSpec) as refused:
        extract_records(RecordQuery("SELECT 1 AS a", "SHOP", tmp_path), tmp_path / "home")
    assert PASSWORD not in repr(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None
    monkeypatch.delenv("SHOP")
    with pytest.raises(InvalidSpec, match=re.escape("$SHOP, which is not set")):
        extract_records(RecordQuery("SELECT 1 AS a", "SHOP", tmp_path), tmp_path / "home")


def test_a_package_that_is_missing_is_named_in_one_line(tmp_path: Path) -> None:
    with mock.patch.dict("sys.modules", {"duckdb": None}), pytest.raises(InvalidSpec, match=r"pip install 'dpdist\[sql\]'"):
        extract_records(RecordQuery("SELECT 1", None, Path()), tmp_path / "home")


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ({"sql": "SELECT 1", "path": "x.csv"}, "at most one of 'path', 'sql', 'delta' and 'iceberg'"),
        ({}, "exactly one of"),
        ({"path": "x.csv", "connection": "$SHOP"}, "belongs to 'sql'"),
        ({"path": "x.csv", "snapshot": 3}, "belongs to 'delta' or 'iceberg'"),
        ({"sql": "SELECT 1", "header": ["a"]}, "'header' belongs to 'path'"),
        ({"sql": "SELECT 1", "connection": f"postgresql://me:{PASSWORD}@host/shop"}, "is .NAME of an environment"),
        ({"delta": f"s3://me:{PASSWORD}@bucket/lake"}, "holds credentials"),
    ],
)
@needs_every_plugin
def test_specs_of_tables_that_are_refused(records: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=said) as refused:
        load(small_release.write(tmp_path, records=records))
    assert PASSWORD not in str(refused.value)


def test_a_killed_release_goes_on_with_what_it_read_and_a_finished_one_keeps_none(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database changes between the kill and the repeat: same bytes, one charge. Without the extract the repeat is refused."""
    place = shop(home.parent / f"{PASSWORD}.duckdb")
    monkeypatch.setenv("SHOP", str(place))
    path = small_release.write(home.parent / "data", records={"sql": SELECT, "connection": "$SHOP"})
    small_release.reserved(path, home)
    (extract,) = (home / "records").rglob("*.parquet")
    with duckdb.connect(str(place)) as db:
        db.execute("UPDATE visit SET age = 1")
    kept = extract.read_bytes()
    extract.unlink()
    with pytest.raises(ReleaseConflict):
        small_release.run(path, home)
    extract.write_bytes(kept)
    expected = small_release.undisturbed(path, home)
    release = small_release.run(path, home)
    assert small_release.tree(release.folder) == expected
    assert not list((home / "records").rglob("*.parquet"))
    assert release.tally.read == 3000
    left = [each.read_bytes() for folder in (home, release.folder) for each in folder.rglob("*") if each.is_file()]
    assert not any(PASSWORD.encode() in each for each in left)


@pytest.mark.slow
def test_the_command_line_publishes_a_query_and_tells_no_password(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = home.parent / f"{PASSWORD}.duckdb"
    monkeypatch.setenv("SHOP", str(shop(place)))
    path = small_release.write(home.parent / "data", records={"sql": SELECT, "connection": "$SHOP"})
    done = CommandLine(monkeypatch, capsys)("run", str(path), "--engine", "inline")
    assert done.code == 0, done.printed
    assert PASSWORD not in done.printed
    kept = [each.read_bytes() for folder in (home, Path.cwd()) for each in folder.rglob("*") if each.is_file()]
    assert kept
    assert not any(PASSWORD.encode() in each for each in kept)


@needs_plugin("postprocess.consistent_with")
def test_releases_of_tables_are_not_combined(tmp_path: Path) -> None:
    other = small_release.write(tmp_path / "other", records={"sql": "SELECT 1"}, noise="gaussian")
    path = small_release.write(tmp_path / "one", release="one", postprocess={"consistent_with": [str(other)]})
    with pytest.raises(InvalidSpec, match="both read the same files"):
        load(path)


@pytest.mark.parametrize("share", [0.05, 0.2])
@pytest.mark.parametrize("where", ["counted", "declared"])
def test_files_of_a_query_with_texts_for_numbers_stop_the_release(home: Path, where: str, share: float) -> None:
    """DuckDB is given NULL in their place: they counted as missing, without a word, in a column with a bin for missing values."""
    folder = home.parent / "data"
    content: dict[str, Any] = {"sql": "SELECT age, sex, work FROM 'visits.csv' WHERE year > 0 OR year IS NULL"}
    content |= {"types": {"year": "whole"}, "most_missing": "10%"}
    domain = {
        "age": {"edges": [0, 6, 12], "missing": "unknown"},
        **{name: small_release.spec()["domain"][name] for name in ("sex", "work")},
    }
    path = small_release.write(folder, records=content, domain=domain, gated=True)
    texts = small_release.records().select(["age", "sex", "work"])
    texts = texts.append_column("year", pa.array(["2026"] * texts.num_rows))
    name = "age" if where == "counted" else "year"
    wrong = np.random.default_rng(2).random(texts.num_rows) < share
    column = np.where(wrong, "twelve", texts[name].cast(pa.string()).to_numpy(zero_copy_only=False))
    texts = texts.set_column(texts.schema.get_field_index(name), name, pa.array(column))
    pyarrow.csv.write_csv(texts, folder / "visits.csv")
    if share < 0.1:
        assert small_release.run(path, home).charged
        return
    with pytest.raises(MissingRecords, match="the operator has to look at the query's result: more than 10 %") as refused:
        small_release.run(path, home)
    assert f"{wrong.sum():,} of 3,000 records" in refused.value.private
    with open_ledger(home) as ledger:
        assert ledger.receipt("small-1") is None


def test_what_would_be_refused_is_refused_before_a_query_is_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP", str(home / "nothing.duckdb"))
    given = {"sql": SELECT, "connection": "$SHOP"}
    path = small_release.write(home.parent / "data", records=given, output={"folder": "/proc/nowhere"})
    with (
        mock.patch.object(RecordQuery, "open_records", side_effect=AssertionError("asked")),
        pytest.raises(DpdistError, match="nowhere"),
    ):
        small_release.run(path, home)
    with open_ledger(home) as ledger:
        assert ledger.receipt("small-1") is None


def test_a_finished_release_is_refused_over_other_rows_and_shown_without_the_database(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing more is charged, and whoever shows it or asks it needs no connection."""
    place = shop(home.parent / "shop.duckdb")
    monkeypatch.setenv("SHOP", str(place))
    monkeypatch.chdir(home.parent)
    path = small_release.write(home.parent / "data", records={"sql": SELECT, "connection": "$SHOP"})
    done = small_release.run(path, home)
    kept, charged = small_release.tree(done.folder), ledger_of(home)
    assert not small_release.run(path, home).charged
    with duckdb.connect(str(place)) as db:
        db.execute("UPDATE visit SET age = 1")
    with pytest.raises(ReleaseConflict, match="whose rows have changed") as refused:
        small_release.run(path, home)
    assert "\n" not in str(refused.value)
    assert (small_release.tree(done.folder), ledger_of(home)) == (kept, charged)
    assert not list((home / "records").rglob("*.parquet"))  # or the rows as they were would be refused, too
    monkeypatch.delenv("SHOP")
    place.unlink()
    command = CommandLine(monkeypatch, capsys)
    for asked in (("show", str(done.folder)), ("ask", str(done.folder), "sum of all")):
        shown = command(*asked)
        assert shown.code == 0, shown.err


def ledger_of(home: Path) -> object:
    with open_ledger(home) as ledger:
        return ledger.receipt("small-1"), ledger.checkpoint()


LACK = "cannot read the query's result of the records: put them on a volume that all workers share"
APART = """
import asyncio, os, sys
from distributed import Worker
import dpdist.engine.worker_checks, dpdist.engine, dpdist.storage.array_store

async def main():
    async with Worker(sys.argv[1], nthreads=1, dashboard=False, local_directory=sys.argv[2]) as worker:
        os.setgroups([]), os.setgid(65534), os.setuid(65534)  # after the imports: the interpreter itself may be private
        print("apart", flush=True)
        await worker.finished()

asyncio.run(main())
"""


def address(_: int) -> str:
    return engine.this_worker()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of another user")
@pytest.mark.usefixtures("without_tls")
def test_a_worker_that_cannot_read_what_was_extracted_gets_no_tasks(
    home: Path, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two workers, which another user runs: the other one does its part. Without that one the run refuses."""
    monkeypatch.setenv("SHOP", str(shop(home.parent / "shop.duckdb")))
    path = small_release.write(home.parent / "data", records={"sql": SELECT, "connection": "$SHOP"})
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            protocol="tcp",
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        engine.open_engine(cluster.scheduler_address) as started,
    ):
        told: list[str] = []
        context = Context(home, Store(f"{s3}/extracts"), started, lambda stage, line: told.append(f"{stage}: {line}"))
        read = materialize_table(context, load(path), home / "records")
        assert Path(read.source.path).is_file()
        command = [sys.executable, "-c", APART, cluster.scheduler_address, str(home.parent)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as apart:
            assert apart.stdout is not None
            assert apart.stdout.readline() == "apart\n"
            started.client.wait_for_workers(2)
            own = cluster.workers[0].address
            materialize_table(context, load(path), home / "records")
            assert set(started.map(address, range(20))) == {own}
            monkeypatch.setattr(cluster_workers, "WITHOUT_WORKERS_SECONDS", 1)
            started.client.retire_workers([own], close_workers=True)
            with pytest.raises(EngineError, match=rf"no worker .* can do the tasks of this run: the worker at .* {LACK}"):
                started.map(address, [1])
            apart.terminate()
    assert [line for line in told if line.startswith("warning: the worker at tcp://") and re.search(LACK, line)]


CHANGES = (
    "DELETE FROM visit",
    "INSERT INTO visit VALUES (9, 'z') RETURNING age, sex",
    "WITH gone AS (DELETE FROM visit RETURNING *) SELECT * FROM gone",
    "COMMIT; DELETE FROM visit",
    "SELECT age, sex FROM visit) AS q; DELETE FROM visit; SELECT * FROM (SELECT 1 AS age, '' AS sex",
    "SELECT age, sex FROM visit) AS q; COMMIT; SET default_transaction_read_only = off; DELETE FROM visit; SELECT * FROM (SELECT 1",
    "SELECT nextval('number')::int AS age, 'f' AS sex",
    "SELECT setval('number', 5)::int AS age, 'f' AS sex",
    "SELECT emptied() AS age, 'f' AS sex",
    "SELECT set_config('transaction_read_only', 'off', false) AS sex, emptied() AS age",
    "SELECT age, sex FROM visit FOR UPDATE",
    "SELECT age, sex INTO copied FROM visit",
    "COPY visit TO PROGRAM 'cat'",
    "SET default_transaction_read_only = off",
)


@pytest.fixture(scope="module")
def changed(postgres: Server) -> tuple[Server, str]:
    """A database whose login may do everything."""
    url = postgres.database()
    name = url.rpartition("/")[2]
    postgres.execute(
        "CREATE TABLE visit (age int, sex text); INSERT INTO visit VALUES (1, 'f'), (2, 'm'); CREATE SEQUENCE number; "
        "CREATE FUNCTION emptied() RETURNS int LANGUAGE plpgsql AS $$ BEGIN DELETE FROM visit; RETURN 1; END $$",
        name,
    )
    return postgres, url.replace("+psycopg", "")


@pytest.mark.parametrize("sql", CHANGES)
def test_a_statement_in_a_spec_changes_no_postgresql(
    sql: str, changed: tuple[Server, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where the login could: what is no SELECT is refused, and so is whatever would write."""
    server, url = changed
    monkeypatch.setenv("SHOP", url)
    with pytest.raises(InvalidSpec, match="'records.sql' is one SELECT that changes nothing"):
        extract_records(RecordQuery(sql, "SHOP", tmp_path), tmp_path / "home", uses={"age": "number", "sex": "text"})
    unchanged(server, url)


def test_what_a_read_only_postgresql_lets_pass_is_rolled_back(
    changed: tuple[Server, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before version 16 large objects could be made there; and what a session sets, it takes along."""
    server, url = changed
    monkeypatch.setenv("SHOP", url)
    sql = "SELECT set_config('default_transaction_read_only', 'off', false) AS sex, lo_from_bytea(0, '\\x01')::int AS age"
    with contextlib.suppress(InvalidSpec):
        extract_records(RecordQuery(sql, "SHOP", tmp_path), tmp_path / "home", uses={"age": "number", "sex": "text"})
    unchanged(server, url)


def unchanged(server: Server, url: str) -> None:
    name = url.rpartition("/")[2]
    assert server.execute("SELECT count(*) FROM visit", name) == [(2,)]
    assert server.execute("SELECT last_value, is_called FROM number", name) == [(1, False)]
    assert server.execute("SELECT count(*) FROM pg_largeobject_metadata", name) == [(0,)]
    assert server.execute("SELECT count(*) FROM pg_class WHERE relname = 'copied'", name) == [(0,)]
