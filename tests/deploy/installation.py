"""The whole installation on loopback, as processes of its own: Prefect server, Dask, workers. PostgreSQL and the store are given."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil

from flows.prefect import prefect_settings
from tests import HANGS
from tests.engine.test_engine import Processes
from tests.support import forked_programs, prefect_preload
from tests.support.loopback_ports import HeldPort
from tests.support.prefect_server import with_tables

ROOT = Path(__file__).parents[2]


class Installation:
    """Everything that runs, as processes of its own.

    Args:
        migrated: whether the server makes its tables itself, by all revisions that they had, as every installation's does.
    """

    def __init__(self, folder: Path, server_url: str, ledger_url: str, s3: str, hook: str, *, migrated: bool) -> None:
        self.folder, self.ledger_url, self.s3 = folder, ledger_url, s3
        tables = {} if migrated else with_tables(server_url)
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
            **prefect_settings.PREFECT_SETTINGS,
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_API_URL": self.api,
            "PREFECT_API_DATABASE_CONNECTION_URL": server_url.replace("+psycopg", "+asyncpg"),
            **tables,
            "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",  # as in compose
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

    def start(self, *command: str, folder: Path = ROOT) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=folder,
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

    def register(self, file: Path, *options: str) -> None:
        arguments = ("--file", file, "--dataset", "small", "--wait", "60", *options)
        known = {
            name: value for name, value in self.environment.items() if not prefect_preload.READ_ON_IMPORT.fullmatch(name)
        }
        done = forked_programs.finished(str(ROOT / "deploy" / "register.py"), *arguments, folder=ROOT, **known)
        assert done.returncode == 0, done.stdout + done.stderr

    def ask(self, what: str, content: dict[str, Any] | None = None, *, method: str | None = None) -> Any:
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(f"{self.api}/{what}", data, {"content-type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=HANGS) as answer:
            return json.loads(answer.read() or b"null")

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
    """A process with everything that it started, in whatever session: as the kill of its container does."""
    for started in below(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            started.kill()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def below(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """All processes that a process and those below it started."""
    try:
        return list(psutil.Process(process.pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


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
