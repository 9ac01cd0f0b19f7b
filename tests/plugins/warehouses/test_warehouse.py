"""Published answers in Iceberg, Delta and PostgreSQL: each release once, whatever runs again, and a refusal before the charge."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.utils.config import Config

from dpdist import engine
from dpdist.errors import DpdistError, InvalidInput, InvalidSpec, StoreError
from dpdist.pipeline.warehouse_delivery import deliver, differences, rows_of, synthetic_rows
from dpdist.planner.memory_estimate import DELIVERED_ROW_BYTES
from dpdist.planner.release_plan import plan, stage_memory
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.publish import release_folder
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.spec.warehouse_target import TARGETS, PublishedRows
from dpdist.storage.array_store import Store
from tests.support import small_release
from tests.support.command_line import CommandLine
from tests.support.postgres_server import Server

KINDS = ("iceberg", "delta", "postgres")
Reader = Callable[[], list[dict[str, Any]]]


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, str], Reader]:
    """A table as a spec names it, and what it holds as another program reads it."""
    if request.param == "iceberg":
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/lake")
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # PyIceberg reads the environment when it is imported

        def from_iceberg() -> list[dict[str, Any]]:
            from pyiceberg.catalog import load_catalog

            return load_catalog("lake").load_table("privacy.answers").scan().to_arrow().to_pylist()

        return {"iceberg": "lake.privacy.answers"}, from_iceberg
    if request.param == "delta":

        def from_delta() -> list[dict[str, Any]]:
            import deltalake

            return deltalake.DeltaTable(tmp_path / "answers").to_pyarrow_table().to_pylist()

        return {"delta": str(tmp_path / "answers")}, from_delta
    server: Server = request.getfixturevalue("postgres")
    url = server.database().replace("postgresql+psycopg", "postgresql")
    monkeypatch.setenv("DPDIST_WAREHOUSE", url)

    def from_postgres() -> list[dict[str, Any]]:
        import psycopg
        from psycopg.rows import dict_row

        with psycopg.connect(url, row_factory=dict_row) as connection:
            return connection.execute("SELECT * FROM answers").fetchall()

    return {"postgres": "public.answers"}, from_postgres


def test_every_release_is_there_once(home: Path, tmp_path: Path, target: tuple[dict[str, str], Reader]) -> None:
    """Two periods, and the first again and again: the same rows. Afterwards one of them is spoilt and put right."""
    place, read = target
    published = {}
    for week in ("2026-11-09", "2026-11-16"):
        changes = {"period": week, "release": f"small-{week}", "output": {"to": [place]}}
        done = small_release.run(
            small_release.write(tmp_path / week, table=small_release.records(seed=int(week[-2:])), **changes), home
        )
        published[week] = (done, changes)
    first = tmp_path / "2026-11-09" / "release.yaml"
    assert small_release.run(first, home).charged is False
    rows = read()
    for week, (done, _) in published.items():
        table, certificate = release_folder.load_release(Path(done.folder))
        mine = [row for row in rows if row["release"] == f"small-{week}"]
        assert len(mine) == table.num_rows == certificate["queries"]
        assert {(str(row["period"]), row["dataset"]) for row in mine} == {(week, "small")}
        assert sorted(row["answer"] for row in mine) == sorted(table["answer"].to_pylist())
    there = published["2026-11-09"][0].location
    assert deliver(there, [TARGETS.parse(place)]) == []  # it is there: nothing is written
    (named,) = place.items()
    with rows_of(there) as answers:
        assert list(differences(answers, [named])) == [(" ".join(named), "")]
        other = replace(answers, batches=lambda: (_altered(batch) for batch in answers.batches()))
        assert list(differences(other, [named])) == [(" ".join(named), "rows of it are not the published ones")]
        fewer = list(differences(replace(answers, number=answers.number - 1), [named]))
        assert fewer == [
            (" ".join(named), f"it has {answers.number} rows of the release, {answers.number - 1} were published")
        ]
    assert small_release.verified(home, "small-2026-11-09")[-1] == f"small-2026-11-09, rows in {' '.join(named)}: right"


def test_attributes_called_like_columns_of_a_warehouse_are_there(
    home: Path, tmp_path: Path, target: tuple[dict[str, str], Reader]
) -> None:
    """Also where only the case of their letters differs, which not every warehouse tells apart: no table with two such columns was made."""
    place, read = target
    names = {"sex": "period", "work": "Certificate"}
    columns = [names.get(column, column) for column in small_release.records().column_names]
    domain = {names.get(name, name): values for name, values in small_release.spec()["domain"].items()}
    changes = {"domain": domain, "workload": [{"marginals": {"of": [["period", "Certificate"]]}}], "output": {"to": [place]}}
    done = small_release.run(
        small_release.write(tmp_path, table=small_release.records().rename_columns(columns), **changes), home
    )
    rows = read()
    assert {(row["attribute_period"], row["attribute_Certificate"]) for row in rows} == {(a, b) for a in "fm" for b in "abc"}
    assert {(row["period"], row["release"]) for row in rows} == {(None, "small-1")}
    assert sorted(row["answer"] for row in rows) == sorted(done.answers.arrow["answer"].to_pylist())
    (named,) = place.items()
    assert small_release.verified(home, "small-1")[-1] == f"small-1, rows in {' '.join(named)}: right"
    changes["release"] = "small-2"  # the table is there: its columns are compared with those that the plan expects
    small_release.run(
        small_release.write(tmp_path / "2", table=small_release.records().rename_columns(columns), **changes), home
    )
    assert {row["release"] for row in read()} == {"small-1", "small-2"}


def test_synthetic_records_are_there_as_such(home: Path, tmp_path: Path, target: tuple[dict[str, str], Reader]) -> None:
    """Two sets beside each other, the second again in fewer records; each is written once."""
    place, read = target
    done = small_release.run(small_release.write(tmp_path, workload=[{"marginals": {"ways": [2]}}]), home)
    records = small_release.records(50)  # as a plugin would have made them
    for name, number, written in (("synthetic-1-0", 50, True), ("synthetic-2-0", 50, True), ("synthetic-2-0", 20, True),
                                  ("synthetic-2-0", 20, False)):  # fmt: skip
        rows = synthetic_rows(done.location, records.slice(0, number), name)
        assert TARGETS.parse(place).write(rows) is written
    found = read()
    for name, number in (("synthetic-1-0", 50), ("synthetic-2-0", 20)):
        mine = [row for row in found if row["release"] == f"small-1/{name}"]
        assert {row["synthetic"] for row in mine} == {True}
        assert {row["dataset"] for row in mine} == {"small"}
        assert sorted((row["sex"], row["age"]) for row in mine) == sorted(
            (row["sex"], row["age"]) for row in records.slice(0, number).to_pylist()
        )
    assert len(found) == 70


def test_a_warehouse_that_nobody_knows_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = CommandLine(monkeypatch, capsys)
    ended = command("synthesize", "small-1", "--to", "made.csv", "--into", "lake")
    assert "--into is KIND=TABLE with one of iceberg, delta, postgres, found 'lake'" in ended.err


def _altered(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows with another answer in the first of them."""
    place = batch.schema.names.index("answer")
    values = batch.column(place).to_pylist()
    return batch.set_column(place, batch.schema.field(place), pa.array([values[0] + 1.0, *values[1:]], pa.float64()))


def test_rows_of_a_release_are_replaced_never_doubled(
    home: Path, tmp_path: Path, target: tuple[dict[str, str], Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that holds half of a release, or another certificate of it, holds the published one afterwards."""
    place, read = target
    done = small_release.run(small_release.write(tmp_path / "r", period="2026-11-09"), home)
    named = TARGETS.parse(place)
    with rows_of(done.location) as rows:
        table = rows.reader().read_all().slice(0, rows.number // 2)
        half = PublishedRows(
            rows.release, rows.period, rows.certificate, table.num_rows, rows.schema, lambda: iter(table.to_batches())
        )
        assert named.write(half)
    monkeypatch.setattr("dpdist.pipeline.warehouse_delivery.BATCH_ROWS", 3)  # in many batches, and for Iceberg in many files
    assert deliver(done.location, [named])
    assert len(read()) == rows.number
    assert deliver(done.location, [named]) == []


SCHEMA = pa.schema(
    [
        ("release", pa.string()),
        ("dataset", pa.string()),
        ("period", pa.date32()),
        ("certificate", pa.string()),
        ("answer", pa.float64()),
    ]
)


def answers(release: str, period: datetime.date | None, certificate: str, values: Sequence[float]) -> PublishedRows:
    """Rows of a release as they are delivered."""
    rows = [
        {"release": release, "dataset": "small", "period": period, "certificate": certificate, "answer": value}
        for value in values
    ]
    table = pa.Table.from_pylist(rows, SCHEMA)
    return PublishedRows(release, period, certificate, table.num_rows, SCHEMA, lambda: iter(table.to_batches()))


def test_a_table_holds_what_a_dictionary_of_releases_would(target: tuple[dict[str, str], Reader]) -> None:
    """Releases of the same and of other periods, written again, and corrected with as many rows or with fewer."""
    place, read = target
    named, kept = TARGETS.parse(place), dict[str, PublishedRows]()
    periods = (datetime.date(2026, 11, 9), datetime.date(2026, 11, 16))
    steps = [("a", 0, "1", 3), ("b", 0, "1", 3), ("a", 0, "2", 3), ("a", 0, "2", 3), ("b", 0, "2", 2), ("c", 1, "1", 3)]
    for name, week, certificate, number in (*steps, steps[0]):
        values = [ord(name) + int(certificate) + place / 4 for place in range(number)]
        rows, known = answers(name, periods[week], 8 * certificate, values), kept.get(name)
        assert named.write(rows) == (known is None or known.certificate != rows.certificate)
        kept[name] = rows
        expected = sorted(tuple(row.values()) for each in kept.values() for row in each.reader().read_all().to_pylist())
        assert sorted(tuple(row[column] for column in SCHEMA.names) for row in read()) == expected


@pytest.mark.parametrize("target", ["postgres"], indirect=True)
def test_two_runs_at_once_write_a_release_once(
    target: tuple[dict[str, str], Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both would look at the table before either has written, but that one waits for the other."""
    place, read = target
    named = TARGETS.parse(place)
    assert named.write(answers("before", None, 8 * "0", [0.0]))
    rows, looked = answers("a", None, 8 * "1", [1.0, 2.0]), threading.Barrier(2)
    kind: Any = type(named)
    write = kind._write

    def slowly(self: Any, cursor: Any, given: PublishedRows) -> bool:
        """Give the other run time to look, before what this one wrote is committed."""
        done = bool(write(self, cursor, given))
        with suppress(threading.BrokenBarrierError):
            looked.wait(timeout=0.5)
        return done

    monkeypatch.setattr(kind, "_write", slowly)
    with ThreadPoolExecutor(2) as runs:
        assert sorted(runs.map(lambda _: named.write(rows), range(2))) == [False, True]
    assert sorted(row["answer"] for row in read()) == [0.0, 1.0, 2.0]


def test_a_table_with_other_columns_is_refused_before_the_charge(
    home: Path, tmp_path: Path, target: tuple[dict[str, str], Reader]
) -> None:
    place, _ = target
    done = small_release.run(small_release.write(tmp_path / "r"), home)
    certificate = release_folder.certificate_of(Path(done.folder))
    named = TARGETS.parse(place)
    deliver(done.location, [named])
    other = tmp_path / "other"
    changes = {"release": "other", "domain": {"sex": {"categories": ["f", "m"]}}, "workload": [{"marginals": {"ways": [1]}}]}
    spec = small_release.write(other, output={"to": [place]}, **changes)
    message = "has the columns .*; name another table in output.to"
    with pytest.raises(StoreError, match=message):
        small_release.run(spec, home)
    with open_ledger(home) as ledger:
        assert {entry["release"] for entry in ledger.entries() if entry["event"] == "reserved"} == {certificate["release"]}
    other_release = small_release.run(small_release.write(tmp_path / "elsewhere", **changes), home)
    with pytest.raises(StoreError, match=message):  # of a table that came between the plan and the delivery
        deliver(other_release.location, [named])


@pytest.mark.parametrize("target", ["delta"], indirect=True)
def test_more_answers_than_a_table_takes_are_refused_before_the_charge(
    home: Path, tmp_path: Path, target: tuple[dict[str, str], Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, _ = target
    spec = small_release.write(tmp_path, workload=[{"marginals": {"of": [["sex"]]}}], output={"to": [place]})
    monkeypatch.setattr("dpdist.pipeline.validation.PARQUET_ROWS", 1)
    with pytest.raises(InvalidInput, match=r"2 answers are too many for .* \(at most 1\); leave it out of output\.to"):
        small_release.run(spec, home)
    with open_ledger(home) as ledger:
        assert [entry for entry in ledger.entries() if entry["event"] == "reserved"] == []
    monkeypatch.setattr("dpdist.pipeline.validation.PARQUET_ROWS", 2)
    assert small_release.run(spec, home).charged


@pytest.mark.parametrize(
    ("place", "environment", "message"),
    [
        ({"iceberg": "nowhere.privacy.answers"}, {}, "cannot be reached"),
        ({"iceberg": "answers"}, {}, "give catalog.namespace.table"),
        ({"postgres": "public.answers"}, {}, "set DPDIST_WAREHOUSE to"),
        ({"postgres": "public.answers; DROP"}, {}, "is no table of PostgreSQL"),
        ({"postgres": "answers"}, {"DPDIST_WAREHOUSE": "postgresql://me:secret-word@127.0.0.1:1/none"}, "cannot be reached"),
        ({"postgres": "answers"}, {"DPDIST_WAREHOUSE_FILE": "/nowhere/url"}, "names a file that cannot be read"),
    ],
)
def test_a_warehouse_that_is_not_there_refuses_before_the_charge(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: dict[str, str],
    environment: dict[str, str],
    message: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(DpdistError, match=message) as refused:
        small_release.run(small_release.write(tmp_path / "r", output={"to": [place]}), home)
    assert "secret-word" not in str(refused.value)
    with open_ledger(home) as ledger:
        assert ledger.budgets() == []


def test_memory_of_delivering_is_planned(home: Path, tmp_path: Path) -> None:
    """tests/test_benchmarks.py measures it."""
    context = Context(home, Store(home / "store"), engine.inline(), ignore_progress)
    stages = []
    for folder, output in (("plain", {}), ("delivered", {"to": [{"delta": str(tmp_path / "answers")}]})):
        planned = plan(context, load(small_release.write(tmp_path / folder, output=output)))
        stages.append({stage.stage: stage.bytes for stage in stage_memory(planned, context.engine)})
    assert "deliver" not in stages[0]
    assert stages[1]["deliver"] == planned.workload.shape[0] * DELIVERED_ROW_BYTES


def test_a_warehouse_changes_no_identity(tmp_path: Path) -> None:
    plain = load(small_release.write(tmp_path / "a")).digest
    assert load(small_release.write(tmp_path / "b", output={"to": [{"delta": "answers"}]})).digest == plain


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ({"to": [{"delta": "a", "postgres": "b"}]}, "give exactly one of 'iceberg', 'delta' and 'postgres'"),
        ({"to": [{}]}, "give exactly one of 'iceberg', 'delta' and 'postgres'"),
        ({"to": [{"delta": "a"}], "formats": ["csv"]}, "add parquet to output.formats"),
    ],
)
def test_specs_of_targets(tmp_path: Path, output: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        load(small_release.write(tmp_path, output=output))
