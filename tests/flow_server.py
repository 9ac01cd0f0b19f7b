"""A real Prefect server of the test's own, as a deployment has one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flows import settings
from tests import HANGS
from tests.ports import HeldPort


@contextmanager
def flow_server(folder: Path) -> Iterator[tuple[str, int]]:
    """Its API's URL and its process, which leads a group of its own."""
    port = HeldPort()
    api = f"http://127.0.0.1:{port.number}/api"
    environment = {**os.environ, **settings.SILENT, "PREFECT_HOME": str(folder)}
    environment["PREFECT_SERVER_REGISTER_BLOCKS_ON_START"] = "false"  # a fifth of the CPU time of the start
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port.number)]
    server = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        for _ in range(HANGS):
            try:
                urllib.request.urlopen(f"{api}/health", timeout=HANGS).close()
                break
            except OSError:
                time.sleep(1)
        yield api, server.pid
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=HANGS)
        port.release()
