"""A measuring service of the test's own, and users other than its own."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dpdist.plugins.service.service_address import Address
from dpdist.plugins.service.service_client import digest_of, request
from dpdist.privacy.ledger.budget_ledger import open_ledger
from tests import HANGS

ROOT = Path(__file__).parents[3]
SERVICE, WORKER, CLIENTS = 40001, 40002, 40010
"""Users, and the group of the service's socket."""


@functools.cache
def interpreter() -> str | None:
    """A Python that other users may run, with these packages; None where there is none, or where this user may start none of them."""
    if os.geteuid() != 0:
        return None
    system = f"/usr/bin/python3.{sys.version_info.minor}"
    known = [sys.executable, *([system] if Path(system).exists() else [])]
    for name in known:
        asked = [name, "-c", "import numpy, pyarrow, prefect"]
        with contextlib.suppress(PermissionError):  # the tests' own Python may lie in a private folder
            if (
                subprocess.run(asked, check=False, capture_output=True, cwd="/", **as_user(WORKER, HOME="/tmp")).returncode
                == 0
            ):
                return name
    return None


def as_user(user: int, *groups: int, **environment: str) -> dict[str, Any]:
    """Options of a process of another user, with the packages of these tests."""
    packages = [str(ROOT), *(each for each in sys.path if each.endswith("-packages"))]
    named = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(packages),
        "USER": f"user-{user}",
        "LOGNAME": f"user-{user}",
    }
    known = {name: os.environ[name] for name in ("OMP_NUM_THREADS",) if name in os.environ}
    return {"user": user, "group": user, "extra_groups": list(groups), "env": {**known, **named, **environment}}


@contextlib.contextmanager
def folder_for_all() -> Iterator[Path]:
    """A folder that all users may pass through."""
    made = Path(tempfile.mkdtemp(prefix="dpdist-service-", dir="/tmp"))
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


class Running:
    """A service in a process of its own; it may be killed and started again."""

    def __init__(
        self, folder: Path, home: Path, *more: str, listen: str = "", command: Sequence[str] = (), **options: Any
    ) -> None:
        self.folder, self.home = folder, home
        self.listen = listen or f"unix:{folder / 'run' / 'socket'}"
        self.address = Address.of(self.listen)
        (folder / "run").mkdir(exist_ok=True)
        self._command = [*(command or [sys.executable]), "-m", "flows.main", "serve", "--specs", str(folder / "specs")]
        self._command += ["--listen", self.listen, *more]
        self._options = options or {"env": {**os.environ, "PYTHONPATH": str(ROOT), "DPDIST_HOME": str(home)}}
        self.start()

    def start(self) -> None:
        """Start it and wait until it listens."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command, cwd=self.folder, stdout=log, stderr=log, start_new_session=True, **self._options
            )
        for _ in range(HANGS):
            with contextlib.suppress(OSError):
                if self.health():
                    return
            assert self.process.poll() is None, self.log()
            time.sleep(0.2)

    def health(self) -> bool:
        """Whether it answers."""
        return bool(request(self.address, "GET", "/health")["state"] == "ready")

    def log(self) -> str:
        """What it told the operator."""
        return (self.folder / "log").read_text()

    def kill(self) -> None:
        """End it as a loss of power does."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """End it as an operator does."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(HANGS)

    def request_release(self, spec: Path | str, period: object = "-", method: str = "POST") -> dict[str, Any]:
        """The answer to one request."""
        return request(self.address, method, f"/releases/{digest_of(str(spec))}/{period}")

    def sent(self, text: bytes, *, seconds: float = HANGS) -> bytes:
        """What it answers to bytes."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(seconds)
            connection.connect(self.address.path)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(text)
                connection.shutdown(socket.SHUT_WR)
            found = b""
            with contextlib.suppress(ConnectionResetError):
                while part := connection.recv(65536):
                    found += part
            return found

    def charges(self) -> list[str]:
        """The releases that the ledger has charged."""
        with open_ledger(self.home) as book:
            return [release for budget in book.budgets(charges=True) for release in budget.charges]
