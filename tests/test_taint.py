"""Nothing that is told of a release quotes records, nor what names them: columns, keys, types, files, folders and their values.

A marker stands in every such place of every source; then everything that a release tells is searched for it, whether it is refused
or published. A kind of source that this file does not know fails ``test_every_kind_of_source_is_here``.
"""

from __future__ import annotations

import os
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
import yaml
import zarr
from distributed import LocalCluster

import dpdist as dp
from dpdist import engine
from dpdist.errors import DpdistError
from dpdist.extracts import table_extracts
from dpdist.pipeline.release_run import release, run_directly
from dpdist.runtime.context import Context, ignore_progress
from dpdist.sources.formats.format_registry import FORMATS
from dpdist.spec import load
from dpdist.spec.sections.sources import LOCATIONS
from dpdist.storage.array_store import Store
from flows.observability import notifications, observers
from tests.case_selection import always, slow_after_first
from tests.observability.receiver import Receiver, exported_metrics
from tests.support import forked_programs, small_release
from tests.support.complete_tree import needs_every_plugin, needs_plugin
from tests.support.marked_records import DOMAIN, FAULTS, GOOD, MARK, OF_PLUGINS, ROWS, SOURCES, Given, as_folder
from tests.support.postgres_server import Server
from tests.test_secrets import recording_flow_server

COVERED = {"parquet", "arrow", "csv", "jsonl", "npy", "zarr", "query", "delta", "iceberg"}


@needs_every_plugin
def test_every_kind_of_source_is_here() -> None:
    """Whoever adds a kind of file or table, or a place in the spec, adds it to the writers above."""
    assert {"path", *(key.partition(".")[2] for key, _ in OF_PLUGINS.values())} == {*LOCATIONS.kinds}
    tables = (kind for kind in table_extracts.RecordTable.__subclasses__() if kind.__module__.startswith("dpdist."))
    kinds = {str(kind.kind.fget(None)) for kind in tables}
    assert kinds | {each.name for each in FORMATS} == COVERED
    with pytest.raises(DpdistError, match="exactly one of 'path', 'sql', 'delta' and 'iceberg'"):
        load(small_release.spec(records={}))


class Heard:
    """Everything that a release in this process tells."""

    def __init__(self, home: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
        self.home, self.caplog, self.capfd = home, caplog, capfd
        self.lines: list[str] = []

    def run(self, path: Path, table: pa.Table | None = None) -> DpdistError | None:
        """What refused the release; None where it was published."""
        self.caplog.set_level("DEBUG")
        refused: DpdistError | None = None
        try:
            if table is not None:
                shown = dp.run(yaml.safe_load(path.read_text()), records=table, engine="inline")
            else:
                checked = load(path)
                context = Context(self.home, Store(self.home / "store"), engine.inline(), self.record_progress)
                with observers.watching(checked, self.home, self.record_progress, period_length="week") as watched:
                    shown = release(context, checked, step=watched.stepping(run_directly, context.engine))
            self.lines += [repr(shown), shown._repr_html_()]
            self.lines += [file.read_text(errors="replace") for file in Path(shown.folder).rglob("*") if file.is_file()]
        except DpdistError as error:
            refused = error
            self.lines += [str(error), repr(error.args), repr(error.__cause__)]
            self.lines += [] if error.__suppress_context__ else [repr(error.__context__)]
        return refused

    def record_progress(self, stage: str, line: str) -> None:
        self.lines.append(f"{stage}: {line}")

    def check(self) -> None:
        """Nothing of it holds the marker."""
        printed = self.capfd.readouterr()
        self.lines += [self.caplog.text, printed.out, printed.err, exported_metrics(self.home)]
        self.lines += [path.read_bytes().decode(errors="replace") for path in self.home.glob("ledger.db*")]
        assert [line for line in self.lines if MARK in line] == []


@pytest.fixture
def heard(home: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Heard:
    return Heard(home, caplog, capfd)


def written(folder: Path, given: Given, **changes: Any) -> Path:
    content = small_release.spec(
        domain=DOMAIN,
        records={"person": {"column": "person"}, **given},
        workload=[{"marginals": {"ways": [1]}}],
        mechanism="identity",
        **changes,
    )
    if "counts" in given:
        content["records"].pop("person")
    folder.mkdir(exist_ok=True)
    path = folder / "release.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


ALWAYS = {("column missing", source) for source in SOURCES} | {(fault, "parquet") for fault in FAULTS}
MATRIX = [
    pytest.param(fault, source, marks=() if (fault, source) in ALWAYS else pytest.mark.slow)
    for fault in FAULTS
    for source in SOURCES
]


@pytest.mark.parametrize(("fault", "source"), MATRIX)
def test_a_refused_release_quotes_nothing(fault: str, source: str, home: Path, heard: Heard) -> None:
    folder = home.parent / "data"
    folder.mkdir()
    refused = heard.run(written(folder, SOURCES[source](FAULTS[fault], folder)))
    may_pass = {"dictionary for a number", "person is a struct", "person missing", "list", "struct"}
    assert refused is not None or (fault in may_pass and source not in ("parquet", "arrow"))
    heard.check()


@pytest.mark.parametrize("source", always(list(SOURCES)[::2], SOURCES))
def test_a_published_release_quotes_nothing(source: str, home: Path, heard: Heard) -> None:
    folder = home.parent / "data"
    folder.mkdir()
    assert heard.run(written(folder, SOURCES[source](GOOD, folder))) is None
    heard.check()


@pytest.mark.parametrize("fault", [None, "column missing", "value outside"])
def test_a_table_from_python_quotes_nothing(fault: str | None, home: Path, heard: Heard) -> None:
    table = GOOD if fault is None else FAULTS[fault]
    assert (heard.run(written(home.parent / "data", {"path": "nowhere"}), table) is None) == (fault is None)
    heard.check()


@pytest.mark.parametrize("fault", [None, "column missing", "struct"])
def test_a_query_of_postgresql_quotes_nothing(fault: str | None, home: Path, heard: Heard, postgres: Server) -> None:
    url = postgres.database()
    name = url.rpartition("/")[2]
    folder = home.parent / "data"
    kind = "json" if fault == "struct" else "text"
    value = f'{{"{MARK}": 1}}' if fault == "struct" else "f"
    postgres.execute(f'CREATE TABLE visit (age int8, sex {kind}, person text, "{MARK}" text)', name)
    postgres.execute(
        f"INSERT INTO visit SELECT n, '{value}', '{MARK}' || n, '{MARK}' FROM generate_series(0, 9) AS t (n)", name
    )
    os.environ["DPDIST_TEST_SHOP"] = url.replace("+psycopg", "")
    sql = "SELECT age, person, sexx FROM visit" if fault == "column missing" else "SELECT * FROM visit"
    refused = heard.run(written(folder, {"sql": sql, "connection": "$DPDIST_TEST_SHOP"}))
    assert (refused is None) == (fault is None)
    heard.check()


SQL = {
    "another column": "SELECT nobody FROM 'x.parquet'",
    "another table": "SELECT * FROM visi",
    "a key of a struct": "SELECT keys.nobody.x FROM 'x.parquet'",
    "a struct in a sum": "SELECT sum(keys) FROM 'x.parquet'",
    "a text that is no number": "SELECT sex::INTEGER AS age FROM 'x.parquet'",
    "no such file": "SELECT * FROM 'y*.parquet'",
    "a record that is taken for a header": "SELECT age FROM read_csv('x.csv', all_varchar = true)",
    "keys of JSON": "SELECT age FROM 'x.json'",
    "an enum": f"SELECT 1 AS age, '{MARK[:0]}' || k AS sex FROM (SELECT keys AS k FROM 'x.parquet')",
}


@pytest.mark.parametrize("case", slow_after_first(5, SQL))
def test_what_duckdb_says_of_data_is_not_passed_on(case: str, home: Path, heard: Heard) -> None:
    folder = home.parent / "data"
    folder.mkdir()
    table = GOOD.append_column("keys", pa.array([{MARK: MARK}] * ROWS)).set_column(1, "sex", pa.array([MARK] * ROWS))
    pyarrow.parquet.write_table(table, folder / "x.parquet")
    (folder / "x.csv").write_text(f"{MARK},{MARK},C34\n{MARK},x,C50\n")
    (folder / "x.json").write_text(f'{{"{MARK}": 1}}\n')
    refused = heard.run(written(folder, {"sql": SQL[case]}))
    assert refused is not None
    heard.check()


def array(folder: Path, kind: str) -> Given:
    given = {"counts": {"of": "visits"}}
    counts = np.ones((12, 2), dtype=np.int64)
    if kind == "zarr axes":
        made = zarr.create_array(
            zarr.storage.LocalStore(folder / "x.zarr"), shape=(12, 2), dtype="i4", dimension_names=(MARK, "sex")
        )
        made[:] = counts
        return {"path": "x.zarr", **given}
    if kind in ("zarr", "no zarr"):
        if kind == "zarr":
            zarr.save_array(folder / "x.zarr", counts)
        else:
            (folder / "x.zarr" / MARK).mkdir(parents=True)
        return {"path": "x.zarr", **given}
    types: dict[str, Any] = {"npy": np.int64, "npy of fractions": float, "npy of a record": np.dtype([(MARK, "i4")])}
    np.save(folder / "x.npy", counts.astype(types.get(kind, np.int64))[: 11 if kind == "npy of another shape" else 12])
    return {"path": "x.npy", **given}


@pytest.mark.parametrize(
    "kind", ["npy", "zarr", "npy of fractions", "npy of a record", "npy of another shape", "zarr axes", "no zarr"]
)
def test_arrays_quote_nothing(kind: str, home: Path, heard: Heard) -> None:
    folder = home.parent / "data"
    folder.mkdir()
    assert (heard.run(written(folder, array(folder, kind))) is None) == (kind in ("npy", "zarr"))
    heard.check()


def test_files_that_are_no_records_are_not_named(home: Path, heard: Heard) -> None:
    """Pipes, links, copies, damaged files, folders that nobody may read, and folders of a hive that are no numbers or not everywhere."""
    folder = home.parent / "data"
    all_of = folder / "all"

    def fresh() -> Path:
        shutil.rmtree(all_of, ignore_errors=True)
        all_of.mkdir(parents=True)
        pyarrow.parquet.write_table(GOOD[:20], all_of / f"{MARK}0.parquet")
        return all_of

    def fails() -> None:
        assert heard.run(written(folder, {"path": "all"})) is not None

    os.mkfifo(fresh() / f"{MARK}.parquet")
    fails()
    (fresh() / f"{MARK}.parquet").symlink_to(f"/nowhere/{MARK}")
    fails()
    shutil.copy(fresh() / f"{MARK}0.parquet", all_of / f"{MARK}1.parquet")
    fails()
    for content in (b"", b"PAR1" + MARK.encode() * 50 + b"PAR1"):
        (fresh() / f"{MARK}.parquet").write_bytes(content)
        fails()
    for text in (f"{MARK};sex\n", f"age,sex,person\n{MARK},f,x\n", f"age,sex,person\n1,f\n{MARK},{MARK},{MARK},{MARK}\n"):
        (fresh() / f"{MARK}.csv").write_text(text)
        fails()
    (fresh() / f"age={MARK}").mkdir()
    shutil.move(all_of / f"{MARK}0.parquet", all_of / f"age={MARK}" / "x.parquet")
    fails()
    pyarrow.parquet.write_table(GOOD[20:], all_of / f"{MARK}.parquet")
    fails()
    heard.check()


@pytest.mark.parametrize(
    "case",
    slow_after_first(
        1,
        [
            pytest.param(("folder", "value outside", "inline"), id="refused"),
            pytest.param(("folder", None, "inline"), id="published"),
            pytest.param(("folder", "value outside", "local"), id="refused on workers", marks=pytest.mark.slow),
            *(
                pytest.param((source, fault, "inline"), id=f"{source}-{fault}", marks=pytest.mark.slow)
                for source in SOURCES
                for fault in (None, "column missing", "struct")
            ),
        ],
    ),
)
@needs_plugin("metrics")
def test_the_command_line_and_all_who_listen_hear_nothing(
    case: tuple[str, str | None, str], home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The terminal with the logs of Dask's workers, all tables of Prefect's database, OpenLineage, traces and the webhook."""
    source, fault, where = case
    folder = home.parent / "data"
    folder.mkdir()
    path = written(folder, SOURCES[source](GOOD if fault is None else FAULTS[fault], folder))
    receiver = Receiver()
    try:
        environment = {
            "DPDIST_ENGINE": where,
            "DPDIST_WORKERS": "1",
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
            "OTEL_TRACES_EXPORTER": "otlp",
            "OPENLINEAGE_URL": receiver.url,
            notifications.NOTIFY_URL: f"{receiver.url}/webhook",
        }
        with recording_flow_server(home) as kept:
            done = forked_programs.finished("flows.commands.cli", "run", path, **kept, **environment)
    finally:
        receiver.server.shutdown()
        receiver.server.server_close()
    assert (done.returncode == 0) == (fault is None), done.stderr
    database = b"".join(file.read_bytes() for file in (home / "prefect").rglob("*") if file.is_file())
    assert b"flow_run_state" in database
    assert b"task_run_state" in database
    heard = [database, *(body for _, body in receiver.heard), *(file.read_bytes() for file in home.glob("ledger.db*"))]
    begun = [] if fault == "column missing" else ["/v1/traces"]  # it may be refused before anybody hears of a run
    assert {*begun, *(["/webhook"] if fault is None else [])} <= {place for place, _ in receiver.heard}
    heard += [
        done.stdout.encode(),
        done.stderr.encode(),
        exported_metrics(home).encode(),
        *map(str.encode, capfd.readouterr()),
    ]
    assert [MARK.encode() in content for content in heard] == [False] * len(heard)


@pytest.mark.usefixtures("without_tls")
@pytest.mark.parametrize("fault", [None, "column missing", "value outside", "struct"])
def test_dask_hears_nothing(fault: str | None, home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its logs, events and states of tasks, of a folder whose files have names that are records."""
    folder = home.parent / "data"
    folder.mkdir()
    path = written(folder, as_folder(GOOD if fault is None else FAULTS[fault], folder))
    with (
        caplog.at_level("DEBUG"),
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        engine.open_engine(cluster.scheduler_address) as started,
    ):
        context = Context(home, Store(home / "store"), started, ignore_progress)
        with nullcontext() if fault is None else pytest.raises(DpdistError):
            release(context, load(path))
        seen = [started.client.get_scheduler_logs(), started.client.get_worker_logs(), cluster.scheduler.transition_log]
        seen += [[(each.exception_text, each.traceback_text) for each in cluster.scheduler.tasks.values()]]
    assert [MARK in repr(each) for each in (*seen, caplog.text)] == [False] * 5
