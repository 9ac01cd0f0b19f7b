"""What metrics, JSON lines, traces and lineage tell of a run: public facts only, whatever becomes of the run and of who listens."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dpdist import engine
from dpdist.errors import UnknownValue
from dpdist.pipeline import release_run
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from flows.observability import observers, run_recorder
from flows.observability.run_events import Run
from tests import HANGS
from tests.case_selection import slow_after_first
from tests.observability.receiver import Receiver, exported_metrics
from tests.support import forked_programs, small_release
from tests.support.prometheus_server import promtool

ROWS = 3217
"""Of the records: a number that turns up nowhere else."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.server.shutdown()
    found.server.server_close()


def observed(folder: Path, home: Path, **changes: Any) -> release_run.Release:
    """A small release in this process, told to the observers that the environment names."""
    path = small_release.write(folder, table=changes.pop("table", None) or small_release.records(ROWS), **changes)
    checked = load(path)
    context = Context(home, Store(home / "store"), engine.inline(), ignore_progress)
    with observers.watching(checked, home, ignore_progress, period_length="week") as watched:
        done = release_run.release(context, checked, step=watched.stepping(release_run.run_directly, context.engine))
    watched.published(done)
    return done


def log_records(written: str) -> list[dict[str, Any]]:
    """The lines of JSON; what a thread of an earlier test prints may stand before one."""
    return [json.loads(line[line.index('{"time"') :]) for line in written.splitlines() if '{"time"' in line]


def test_everything_tells_of_a_release_and_nothing_of_its_records(
    home: Path, tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DPDIST_LOG", "json")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
    records = tmp_path / "of-one-person"
    done = observed(records, home, period="2026-11-09", output={"folder": str(tmp_path / "published")})

    lines = log_records(capfd.readouterr().err)
    assert [line["event"] for line in lines] == ["started", "stage", "planned", "stage", "stage", "published"]
    assert [line["stage"] for line in lines if line["event"] == "stage"] == ["plan", "answer", "publish"]
    assert {line["release"] for line in lines} == {"small-1"}
    assert lines[2]["charge"]["rho_decimal"] == pytest.approx(0.1)
    assert lines[-1]["bytes"] == sum(file.stat().st_size for file in Path(done.folder).rglob("*") if file.is_file())

    events = [json.loads(body) for path, body in receiver.heard if path.startswith("/api/v1/lineage")]
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "COMPLETE"]
    assert len({event["run"]["runId"] for event in events}) == 1
    facets = events[-1]["run"]["facets"]
    assert facets["dpdist_release"]["spec_digest"] == done.plan.job.digest
    assert facets["dpdist_charge"]["rho_decimal"] == pytest.approx(0.1)
    assert facets["dpdist_charge"]["charged"] is True
    assert [entry["name"] for entry in events[-1]["inputs"]] == ["small"]
    for event in events:  # what OpenLineage's schema asks of every event and every facet
        assert {"eventTime", "producer", "schemaURL", "run", "job"} <= event.keys()
        every = [*event["run"]["facets"].values(), *event["job"]["facets"].values()]
        every += [facet for output in event["outputs"] for facet in output["outputFacets"].values()]
        assert all(facet["_producer"] and facet["_schemaURL"] for facet in every)
    statistics = events[-1]["outputs"][0]["outputFacets"]["outputStatistics"]
    assert statistics["rowCount"] == done.plan.workload.shape[0]

    spans = b"".join(body for path, body in receiver.heard if path == "/v1/traces")
    for word in (b"release", b"plan", b"answer", b"publish", b"small-1", b"dpdist.charge.rho_decimal"):
        assert word in spans

    text = exported_metrics(home)
    for line in (
        'dpdist_budget_cap{dataset="small",per="total",unit="rho"} 0.25',
        'dpdist_releases{dataset="small",state="committed"} 1.0',
        'dpdist_period_published{dataset="small",period="2026-W46"} 1.0',
        'dpdist_published_releases_total{dataset="small"} 1.0',
        'dpdist_stage_seconds_count{dataset="small",stage="answer"} 1.0',
        "dpdist_ledger_up 1.0",
    ):
        assert line in text, line
    for stage in (line for line in lines if line["event"] == "stage"):
        total = re.search(f'dpdist_stage_seconds_sum.*stage="{stage["stage"]}".* (\\S+)', text)
        assert total is not None
        assert float(total[1]) == pytest.approx(stage["seconds"], abs=1e-3)
    assert not re.search('dpdist_stage_seconds_count.*stage="(count|measure|select|extract)"', text)

    seen = [json.dumps(lines), text, *(body.decode(errors="replace") for _, body in receiver.heard)]
    for content in seen:
        assert not small_release.has_number(ROWS, content)
        for private in ("of-one-person", "records.parquet", str(records)):
            assert private not in content


def test_a_failure_is_told_by_the_name_of_its_error(
    home: Path, tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not by its text, which other libraries may fill with values of the records."""
    monkeypatch.setenv("DPDIST_LOG", "json")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
    table = small_release.records(50)
    at = table.column_names.index("work")
    marked = table.set_column(at, "work", pa.array(["a"] * 49 + ["the-only-widow"]))
    with pytest.raises(UnknownValue, match="outside its declared domain"):
        observed(tmp_path, home, table=marked)
    events = [json.loads(body) for path, body in receiver.heard if path.startswith("/api/v1/lineage")]
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "FAIL"]
    assert events[-1]["run"]["facets"]["errorMessage"]["message"] == "UnknownValue"
    text = exported_metrics(home)
    assert 'dpdist_failures_total{dataset="small",reason="UnknownValue"} 1.0' in text
    seen = [text, capfd.readouterr().err, *(body.decode(errors="replace") for _, body in receiver.heard)]
    assert not any("widow" in content for content in seen)


@pytest.mark.parametrize("needed", [True, False])
def test_a_period_that_is_passed_over_is_no_failure(home: Path, needed: bool) -> None:
    """Catching up passes over periods without records; nobody fails who waits for approvals."""
    run = Run("small-1", "small", None, None, "digest", needed)
    for reason in ("NoRecords", "OutOfMemory", "ApprovalsMissing"):
        run_recorder.Recorder(home).failed(run, reason)
    assert f'dpdist_failures_total{{dataset="small",reason="NoRecords"}} {float(needed)}' in exported_metrics(home)
    assert 'dpdist_failures_total{dataset="small",reason="OutOfMemory"} 1.0' in exported_metrics(home)
    assert "ApprovalsMissing" not in exported_metrics(home)


@pytest.mark.parametrize("listener", slow_after_first(2, ["nobody", "silent", "broken"]))
def test_listeners_neither_fail_nor_hold_up_a_release(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listener: str
) -> None:
    """Nobody at the port, somebody who never answers, a state folder whose document cannot be written."""
    monkeypatch.setattr(observers, "SECONDS", 0.2)
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        if listener == "silent":
            port.listen()
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{port.getsockname()[1]}")
        if listener == "broken":
            (home / "observed").write_text("no folder")
        assert observed(tmp_path, home).charged


def test_runs_at_once_lose_no_count(home: Path) -> None:
    threads = [threading.Thread(target=run_recorder.record_failure, args=(home, "small", "OutOfMemory")) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 'dpdist_failures_total{dataset="small",reason="OutOfMemory"} 20.0' in exported_metrics(home)


def test_a_ledger_that_cannot_be_read_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPDIST_LEDGER", "postgresql+psycopg://nobody:secret-word@127.0.0.1:1/none")
    text = exported_metrics(home)
    assert "dpdist_ledger_up 0.0" in text
    assert "secret-word" not in text


def test_prometheus_reads_the_metrics(home: Path, tmp_path: Path) -> None:
    """As it reads them: through the command, by promtool where it is installed."""
    observed(tmp_path, home, period="2026-11-09")
    printed = forked_programs.finished("flows.main", "metrics").stdout
    assert "dpdist_budget_left" in printed
    done = promtool("check", "metrics", input=printed.encode())
    assert done.returncode == 0, done.stdout + done.stderr


def test_they_are_served(home: Path) -> None:
    command = [sys.executable, "-m", "flows.main", "metrics", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        url = process.stdout.readline().split()[-1]
        with urllib.request.urlopen(url, timeout=HANGS) as answer:
            assert b"dpdist_ledger_up 1.0" in answer.read()
    finally:
        process.kill()
        process.communicate()


def test_an_address_that_is_none(home: Path) -> None:
    done = forked_programs.finished("flows.main", "metrics", "--listen", "everywhere")
    assert done.returncode == 1
    assert "--listen is HOST:PORT" in done.stderr
