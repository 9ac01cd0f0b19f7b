"""A real Prefect server of the test's own, as a deployment has one."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from flows.prefect import prefect_settings
from tests import HANGS
from tests.support.forked_programs import Program
from tests.support.loopback_ports import HeldPort


@contextmanager
def flow_server(folder: Path, **environment: str) -> Iterator[tuple[str, int]]:
    """Its API's URL and its process, which leads a group of its own and has further variables."""
    port = HeldPort()
    api = f"http://127.0.0.1:{port.number}/api"
    environment = {**prefect_settings.PREFECT_SETTINGS, **stored(folder), **environment}
    command = ("server", "start", "--no-ui", "--host", "127.0.0.1", "--port", str(port.number))
    server = Program("prefect.__main__", *command, folder=folder, **environment)
    try:
        for _ in range(HANGS):
            try:
                urllib.request.urlopen(f"{api}/health", timeout=HANGS).close()
                break
            except OSError:
                time.sleep(1)
        yield api, server.pid
    finally:
        server.kill()
        server.wait()
        port.release()


def stored(folder: Path) -> dict[str, str]:
    """The environment of a server that keeps its state in the folder, in tables that are made here."""
    folder.mkdir(parents=True, exist_ok=True)
    return {
        "PREFECT_HOME": str(folder),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{folder / 'prefect.db'}",
        **with_tables(f"sqlite:///{folder / 'prefect.db'}"),
    }


def with_tables(database: str) -> dict[str, str]:
    """Make Prefect's tables in an empty database: the environment of a server that finds them there.

    The server's start then takes half the CPU time: it goes through no revisions of its tables, and registers no blocks. Indexes for
    searching texts need an extension of PostgreSQL, and are left out.
    """
    from prefect.server.database.orm_models import Base

    made = sa.MetaData()
    for table in Base.metadata.tables.values():
        copy = table.to_metadata(made)
        copy.indexes -= {index for index in copy.indexes if index.dialect_options["postgresql"]["using"] == "gin"}
    engine = sa.create_engine(database)
    made.create_all(engine, checkfirst=False)
    engine.dispose()
    return {
        "PREFECT_SERVER_DATABASE_MIGRATE_ON_START": "false",
        "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",
    }
