"""The flow server of a run that names no other: in this process, in memory, and for this process only.

Prefect would start a program of its own on a port from 8000 to 8999 and take whatever answers there for its server: with two runs at
once that may be the other run's. It would bring a database file up to date, revision by revision, and leave it behind.
"""

from __future__ import annotations

import contextvars
import functools
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import prefect.settings
import sqlalchemy as sa
import uvicorn
from prefect.server.api.server import create_app
from prefect.server.database import provide_database_interface

SECONDS = 120.0
"""How long the server may take to start or to end: more means that it hangs."""


@contextmanager
def embedded() -> Iterator[None]:
    """Flows of the block are kept by a server of this process, unless ``PREFECT_API_URL`` names another or one is there already."""
    if prefect.settings.PREFECT_API_URL.value():
        yield
        return
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))  # held until the end: nobody else answers on its port
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/api"
        password = f"dpdist:{secrets.token_urlsafe(32)}"  # every user of the machine reaches the port
        known = {
            prefect.settings.PREFECT_API_URL: url,
            prefect.settings.PREFECT_API_AUTH_STRING: password,
            prefect.settings.PREFECT_SERVER_API_AUTH_STRING: password,
        }
        with prefect.settings.temporary_settings(known), _serving(listening):
            yield


@contextmanager
def _serving(listening: socket.socket) -> Iterator[None]:
    """A server of its own thread for the block. It ends without waiting for clients that have not hung up."""
    app = create_app(ephemeral=True, final=True, ignore_cache=True)
    server = _Server(uvicorn.Config(app, log_level="critical", lifespan="on"))
    run = functools.partial(server.run, sockets=[listening])
    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="flow server", daemon=True)
    thread.start()
    try:
        if not server.answers.wait(SECONDS):
            raise TimeoutError(f"the flow server of this process did not start within {SECONDS:.0f} s")
        yield
    finally:
        server.should_exit = server.force_exit = True
        thread.join(SECONDS)


class _Server(uvicorn.Server):
    """A server that says when it answers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.answers = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await _make_tables()
        await super().startup(sockets)
        self.answers.set()


async def _make_tables() -> None:
    """The tables of Prefect's models in one step: its revisions, one after the other, take four CPU seconds (benchmarks/start.py)."""
    database = provide_database_interface()

    def make(connection: sa.Connection) -> None:
        for table in database.Base.metadata.sorted_tables:
            connection.execute(sa.schema.CreateTable(table, if_not_exists=True))
            for index in table.indexes:
                connection.execute(sa.schema.CreateIndex(index, if_not_exists=True))

    engine: Any = await database.engine()
    async with engine.begin() as connection:
        await connection.run_sync(make)
