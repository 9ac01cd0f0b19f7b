"""The command line as a user meets it: a real process, the embedded Prefect flow, a local Dask cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from dpdist.privacy import keys
from tests import HANGS, small
from tests.flow_server import flow_server


def dpdist(*arguments: str, home: Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "DPDIST_HOME": str(home), "COLUMNS": "200", "DPDIST_ENGINE": "inline", **environment}
    command = [sys.executable, "-m", "flows.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=variables, check=False, timeout=HANGS)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    small.write(folder / "data")
    return folder


def test_the_whole_story(place: Path) -> None:
    home, spec = place / "home", "data/release.yaml"

    refused = dpdist("run", spec, home=home, cwd=place)
    assert refused.returncode == 1
    assert "keys init" in refused.stderr
    assert "Traceback" not in refused.stderr

    made = dpdist("keys", "init", home=home, cwd=place)
    assert made.returncode == 0
    assert "mode 0600" in made.stdout
    assert dpdist("keys", "check", home=home, cwd=place).returncode == 0

    planned = dpdist("plan", spec, home=home, cwd=place)
    assert planned.returncode == 0, planned.stderr
    for text in ("coa", "identity", "gaussian", "rho=0.1 zCDP", "epsilon=", "GiB", "nothing yet"):
        assert text in planned.stdout
    assert not (home / "store" / "histograms").exists()

    ran = dpdist("run", spec, home=home, cwd=place, DPDIST_ENGINE="")  # on a local Dask cluster
    assert ran.returncode == 0, ran.stderr
    assert "published releases/small-1" in ran.stdout
    assert "charged rho=0.1" in ran.stdout
    assert "records read" in ran.stderr
    assert "records read" not in ran.stdout
    assert not list(home.rglob("prefect.db*"))  # the flow server of a run leaves nothing
    before = small.tree(place / "releases")

    again = dpdist("run", spec, home=home, cwd=place)
    assert again.returncode == 0, again.stderr
    assert "nothing charged" in again.stdout
    assert small.tree(place / "releases") == before

    shown = dpdist("show", "small-1", "--group", "sex", home=home, cwd=place)
    assert shown.returncode == 0
    assert "sex f" in shown.stdout
    facts = json.loads(dpdist("show", "small-1", "--json", home=home, cwd=place).stdout)
    assert facts["certificate"]["privacy"]["rho"] == "1/10"
    assert len(facts["answers"]) == facts["certificate"]["queries"]

    listed = dpdist("ledger", home=home, cwd=place)
    assert "rho=0.15" in listed.stdout
    verified = dpdist("ledger", "verify", home=home, cwd=place)
    assert "verified: 4 rows, 1 releases, 0 of them not finished" in verified.stdout
    head = verified.stdout.split()[-1]
    assert dpdist("ledger", "verify", "--head", head, home=home, cwd=place).returncode == 0
    removed = dpdist("ledger", "verify", "--head", "0" * 64, home=home, cwd=place)
    assert removed.returncode == 1
    assert "rows were removed" in removed.stderr
    book = json.loads(dpdist("ledger", "export", home=home, cwd=place).stdout)
    assert book["budgets"][0]["left"] == pytest.approx(0.15)
    assert book["entries"][-1]["digest"] == head
    assert json.loads(dpdist("ledger", "--json", home=home, cwd=place).stdout) == book["budgets"]
    explained = dpdist("ledger", "explain", home=home, cwd=place).stdout
    for text in ("small-1: rho=0.1 zCDP", "together, rho=0.1 zCDP: epsilon=2.7", "privacy loss distributions: epsilon=2."):
        assert text in explained
    story = dpdist("ledger", "explain", "small-1", home=home, cwd=place).stdout
    assert "row 4: committed at" in story
    assert "the key of its noise is erased" in story
    refused = dpdist("ledger", "abort", "small-1", home=home, cwd=place)
    assert refused.returncode == 1
    assert "is committed: only a reserved release" in refused.stderr

    text = (place / spec).read_text()
    (place / "data" / "greedy.yaml").write_text(text.replace("small-1", "small-2").replace("rho: 0.1", "rho: 0.2", 1))
    greedy = dpdist("run", "data/greedy.yaml", home=home, cwd=place)
    assert greedy.returncode == 1
    assert "rho=0.15 is left" in greedy.stderr
    assert "Traceback" not in greedy.stderr + greedy.stdout

    secret = (home / "root.key").read_text().strip()
    for path in [*home.rglob("*"), *(place / "releases").rglob("*")]:
        if path.is_file() and path.name != "root.key":
            content = path.read_bytes()
            assert secret.encode() not in content, path
            assert bytes.fromhex(secret) not in content, path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "missing.yaml"), "No such file"),
        (("plan", "bad.yaml"), "bad.yaml, line"),
        (("show", "nothing"), "no published release"),
        (("keys", "check"), "keys init"),
    ],
)
def test_errors_are_one_line_without_traceback(place: Path, arguments: tuple[str, ...], message: str) -> None:
    (place / "bad.yaml").write_text((place / "data" / "release.yaml").read_text().replace("rho: 0.1", "rhoo: 0.1"))
    failed = dpdist(*arguments, home=place / "empty", cwd=place)
    assert failed.returncode == 1
    assert message in failed.stderr
    assert "Traceback" not in failed.stderr
    assert "Traceback" in dpdist("--debug", *arguments, home=place / "empty", cwd=place).stderr


def test_wrong_usage_exits_with_2(place: Path) -> None:
    assert dpdist("run", home=place / "empty", cwd=place).returncode == 2
    assert dpdist("nonsense", home=place / "empty", cwd=place).returncode == 2


def test_no_telemetry() -> None:
    script = (
        "from pathlib import Path; import tempfile; from flows import settings; settings.configure(Path(tempfile.mkdtemp()));"
        "from prefect.settings import get_current_settings as s;"
        "print(s().server.analytics_enabled, s().cloud.enable_orchestration_telemetry, s().telemetry.enable_resource_metrics)"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["False", "False", "False"]


def test_a_prefect_server_keeps_the_run_and_its_progress(place: Path) -> None:
    home = place / "served"
    with flow_server(place / "server") as (api, _):
        assert dpdist("keys", "init", home=home, cwd=place).returncode == 0
        shutil.rmtree(place / "releases", ignore_errors=True)
        ran = dpdist("run", "data/release.yaml", home=home, cwd=place, PREFECT_API_URL=api)
        assert ran.returncode == 0, ran.stderr

        def ask(what: str) -> list[dict[str, Any]]:
            body = urllib.request.Request(f"{api}/{what}/filter", b"{}", {"content-type": "application/json"})
            with urllib.request.urlopen(body) as answer:
                return list(json.load(answer))

        assert [run["state_name"] for run in ask("flow_runs")] == ["Completed"]
        told = {run["name"] for run in ask("task_runs")}
        assert told == {f"{stage} small-1" for stage in ("plan", "count", "measure", "answer", "publish")}
        for _ in range(HANGS):
            lines = [line["message"] for line in ask("logs")]
            if any("certified gap" in line for line in lines):
                break
            time.sleep(1)
        assert any("certified gap" in line for line in lines)
        secret = (home / "root.key").read_text().strip()
        assert secret not in json.dumps([ask("flow_runs"), ask("task_runs"), lines])


def test_a_prefect_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    small.write(tmp_path / "data")
    home, api = tmp_path / "home", "http://name:secret@127.0.0.1:1/api"
    keys.initialise(home)
    ran = dpdist("run", "data/release.yaml", home=home, cwd=tmp_path, PREFECT_API_URL=api)
    assert ran.returncode == 1
    assert [line for line in ran.stderr.splitlines() if not line.startswith(("plan: ", "start: "))] == [
        "error: the Prefect server http://127.0.0.1:1/api does not answer (ConnectError); start it, or unset PREFECT_API_URL, and run the "
        "same command again: it goes on where it stopped, with the same noise. Nothing was charged"
    ]
