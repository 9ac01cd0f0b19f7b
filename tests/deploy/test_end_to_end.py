"""The whole installation on loopback: PostgreSQL, Prefect server, Dask, an S3-compatible store, a process worker, schedules.

A schedule fires and publishes to the object store; then the server is restarted and a Dask worker is killed; the next period is
released, too. However often the schedules fire, the ledger holds two charges.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpdist.page import report
from dpdist.privacy.ledger import Ledger
from flows import settings
from tests import HANGS, small
from tests.ports import HeldPort
from tests.postgres import Server
from tests.test_engine import Processes

ROOT = Path(__file__).parents[2]
WEEKS = ("2026-11-09", "2026-11-16")


class Installation:
    """Everything that runs, as processes of its own."""

    def __init__(self, folder: Path, server_url: str, ledger_url: str, s3: str, hook: str) -> None:
        self.folder, self.s3 = folder, s3
        self.port = HeldPort()
        self.api = f"http://127.0.0.1:{self.port.number}/api"
        self.dask = Processes(folder)
        for _ in range(2):
            self.dask.worker(1, "--memory-limit", "1GB")
        home = folder / "home"
        home.mkdir()
        (home / "root.key").write_text("5c" * 32 + "\n")
        (home / "root.key").chmod(0o600)
        (folder / "ledger-url").write_text(ledger_url + "\n")
        self.environment = {
            **os.environ,
            **settings.SILENT,
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_API_URL": self.api,
            "PREFECT_API_DATABASE_CONNECTION_URL": server_url,
            "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "5",
            "PREFECT_WORKER_QUERY_SECONDS": "2",
            "DPDIST_HOME": str(home),
            "DPDIST_STORE": f"{s3}/store",
            "DPDIST_ENGINE": self.dask.address,
            **self.dask.environment,
            "DPDIST_LEDGER_FILE": str(folder / "ledger-url"),
            "DPDIST_NOTIFY_URL": hook,
            "DPDIST_DIRECTORY": str(ROOT),
        }
        self.running: list[subprocess.Popen[bytes]] = []
        self.log = (folder / "log").open("wb")
        self.server = self.start_server()

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env=self.environment,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )
        self.running.append(process)
        return process

    def start_server(self) -> subprocess.Popen[bytes]:
        process = self.start("prefect", "server", "start", "--host", "127.0.0.1", "--port", str(self.port.number))
        wait_until(lambda: _answers(f"{self.api}/health"), "the Prefect server")
        return process

    def restart_server(self) -> None:
        kill(self.server)
        self.server = self.start_server()

    def register(self, file: Path) -> None:
        done = subprocess.run(
            [sys.executable, "deploy/register.py", "--file", str(file), "--dataset", "small", "--wait", "60"],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=HANGS,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def ask(self, what: str, content: dict[str, Any] | None = None) -> Any:
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(f"{self.api}/{what}", data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=HANGS) as answer:
            return json.load(answer)

    def states(self) -> list[str]:
        """Of all runs that were due."""
        runs = self.ask("flow_runs/filter", {"limit": 200})
        return [run["state_name"] for run in runs if run["state_type"] != "SCHEDULED"]

    def stop(self) -> None:
        for process in self.running:
            kill(process)
        self.dask.stop()
        self.log.close()
        self.port.release()


def kill(process: subprocess.Popen[bytes]) -> None:
    """A process with everything that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < deadline, f"{what}: nothing after {HANGS} s"
        time.sleep(1)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=HANGS).close()
    except OSError:
        return False
    return True


@pytest.fixture
def hook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A webhook on loopback, and what it was told."""
    heard: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", heard
    server.shutdown()


@pytest.fixture
def installation(
    tmp_path: Path, postgres: Server, s3: str, hook: tuple[str, list[dict[str, Any]]]
) -> Iterator[Installation]:
    ledger_url, server_url = postgres.database(), postgres.database()
    found = Installation(tmp_path, server_url.replace("+psycopg", "+asyncpg"), ledger_url, f"{s3}/{tmp_path.name}", hook[0])
    found.ledger_url = ledger_url
    yield found
    found.stop()


def schedules(spec: Path, weeks: tuple[str, ...], *, cron: str = "* * * * *") -> dict[str, Any]:
    """A deployment that fires for each of the weeks."""
    return {
        "name": "dpdist",
        "pull": [{"prefect.deployments.steps.set_working_directory": {"directory": str(ROOT)}}],
        "deployments": [
            {
                "name": "weekly",
                "entrypoint": "flows/release.py:release",
                "work_pool": {"name": "dpdist"},
                "concurrency_limit": {"limit": 1, "collision_strategy": "ENQUEUE"},
                "parameters": {"spec_path": str(spec), "every": "week"},
                "schedules": [
                    {"cron": cron, "timezone": "UTC", "slug": f"week-{week}", "parameters": {"period": week}}
                    for week in weeks
                ],
            }
        ],
    }


def weekly(installation: Installation, data: Path) -> Path:
    """Records of each week, and the spec of all: its path."""
    for seed, week in enumerate(WEEKS):
        small.write(data / week, table=small.records(seed=seed))
    spec = data / "release.yaml"
    content = small.spec(
        release="weekly-{period}",
        period="{period}",
        records={"path": "{period}/records.parquet"},
        ledger={"dataset": "small", "cap": {"rho": 0.1, "per": "week"}},
        output={"folder": f"{installation.s3}/published/{{period}}"},
    )
    spec.write_text(yaml.safe_dump(content, sort_keys=False))
    return spec


def check_published(installation: Installation, week: str) -> None:
    with report.local_copy(f"{installation.s3}/published/{week}") as folder:
        table, certificate = report.load(folder)
        assert certificate["release"] == f"weekly-{week}"
        assert table.num_rows == certificate["queries"]


def test_a_run_of_the_deployment_publishes_its_period(
    installation: Installation, hook: tuple[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    """The small form of the schedules: the same installation, one run that is asked for, the schedule looked at."""
    file = tmp_path / "prefect.yaml"
    file.write_text(yaml.safe_dump(schedules(weekly(installation, tmp_path / "data"), WEEKS[:1], cron="0 6 1 1 *")))
    installation.register(file)
    (deployment,) = installation.ask("deployments/filter", {})
    (schedule,) = deployment["schedules"]
    assert (schedule["schedule"]["cron"], schedule["parameters"]) == ("0 6 1 1 *", {"period": WEEKS[0]})
    installation.start("prefect", "worker", "start", "--pool", "dpdist", "--type", "process")
    installation.ask(f"deployments/{deployment['id']}/create_flow_run", {"parameters": {"period": WEEKS[0]}})
    wait_until(lambda: any(told.get("where") for told in hook[1]), "the period")
    with_ledger = Ledger(installation.ledger_url)
    assert {b.period: list(b.charges) for b in with_ledger.budgets(charges=True)} == {"2026-W46": ["weekly-2026-11-09"]}
    assert with_ledger.verify().releases == 1
    with_ledger.close()
    check_published(installation, WEEKS[0])


@pytest.mark.slow
def test_schedules_publish_each_period_once(
    installation: Installation, hook: tuple[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    spec = weekly(installation, tmp_path / "data")
    file = tmp_path / "prefect.yaml"

    def published(week: str) -> bool:
        return f"{installation.s3}/published/{week}" in [told.get("where") for told in hook[1]]

    file.write_text(yaml.safe_dump(schedules(spec, WEEKS[:1])))
    installation.register(file)
    installation.register(file)  # again: nothing changes
    installation.start("prefect", "worker", "start", "--pool", "dpdist", "--type", "process")
    wait_until(lambda: published(WEEKS[0]), "the first period")
    installation.restart_server()
    installation.dask.running[1].kill()  # one of two workers
    file.write_text(yaml.safe_dump(schedules(spec, WEEKS)))
    installation.register(file)
    wait_until(lambda: published(WEEKS[1]), "the second period")
    assert "Failed" not in installation.states()
    with_ledger = Ledger(installation.ledger_url)
    budgets = {budget.period: list(budget.charges) for budget in with_ledger.budgets(charges=True)}
    assert budgets == {"2026-W46": ["weekly-2026-11-09"], "2026-W47": ["weekly-2026-11-16"]}
    assert with_ledger.verify().releases == 2
    with_ledger.close()
    charged = [told["release"] for told in hook[1] if told.get("charged")]
    assert sorted(charged) == ["weekly-2026-11-09", "weekly-2026-11-16"]
    for week in WEEKS:
        check_published(installation, week)
    kinds = {artifact["type"] for artifact in installation.ask("artifacts/filter", {"limit": 200})}
    assert {"table", "markdown"} <= kinds
    limit = installation.ask("v2/concurrency_limits/dpdist-small")
    assert limit["limit"] == 1
    assert limit["active_slots"] in (0, 1)
