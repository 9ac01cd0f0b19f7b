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

import sqlalchemy as sa

from flows import settings
from tests import HANGS
from tests.ports import HeldPort


@contextmanager
def flow_server(folder: Path) -> Iterator[tuple[str, int]]:
    """Its API's URL and its process, which leads a group of its own."""
    port = HeldPort()
    api = f"http://127.0.0.1:{port.number}/api"
    environment = {**os.environ, **settings.SILENT, **stored(folder)}
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


def stored(folder: Path) -> dict[str, str]:
    """The environment of a server that keeps its state in the folder, in tables that are made here.

    The server's start then takes half the CPU time: it goes through no revisions of its tables, and registers no blocks.
    """
    from prefect.server.database.orm_models import Base

    folder.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(f"sqlite:///{folder / 'prefect.db'}")
    with engine.begin() as connection:
        for table in Base.metadata.sorted_tables:
            connection.execute(sa.schema.CreateTable(table, if_not_exists=True))
            for index in table.indexes:
                connection.execute(sa.schema.CreateIndex(index, if_not_exists=True))
    engine.dispose()
    return {
        "PREFECT_HOME": str(folder),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{folder / 'prefect.db'}",
        "PREFECT_SERVER_DATABASE_MIGRATE_ON_START": "false",
        "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",
    }
