"""A flow server in the process of a test, in memory: Prefect's own answers to the requests of a run.

Prefect would start a program of its own, which takes longer than a small release.
"""

from __future__ import annotations

import contextvars
import functools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import prefect.server.api.server  # every change of a state asks it which errors pass: better now than amid the run
import prefect.settings
import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from prefect.events.worker import EventsWorker
from prefect.server.api import admin, concurrency_limits_v2, events, flow_runs, flows, task_runs
from prefect.server.database import provide_database_interface
from prefect.server.exceptions import ObjectNotFoundError

SECONDS = 120.0
"""How long the server may take to start or to end: more means that it hangs."""
DRAIN_SECONDS = 10.0
"""How long the server waits for what the client has still to tell: without it the client would look for a server that has gone."""


@contextmanager
def embedded() -> Iterator[None]:
    """Flows of the block are kept by a server of this process."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))  # held until the end: nobody else answers on its port
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/api"
        with prefect.settings.temporary_settings({prefect.settings.PREFECT_API_URL: url}), _serving(listening):
            try:
                yield
            finally:
                EventsWorker.drain_all(timeout=DRAIN_SECONDS, at_exit=False)


@contextmanager
def _serving(listening: socket.socket) -> Iterator[None]:
    """A server of its own thread for the block. It ends without waiting for clients that have not hung up."""
    server = _Server(uvicorn.Config(_application(), log_level="critical", lifespan="off"))
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


ROUTERS = (flows.router, flow_runs.router, task_runs.router, concurrency_limits_v2.router, events.router, admin.router)
"""What the client of one run asks for."""


def _application() -> FastAPI:
    application = FastAPI(openapi_url=None)
    for router in ROUTERS:
        application.include_router(router, prefix="/api")

    @application.exception_handler(ObjectNotFoundError)
    async def answer_not_found(request: Request, error: ObjectNotFoundError) -> JSONResponse:
        del request
        return JSONResponse({"exception_message": str(error)}, status_code=404)

    @application.exception_handler(sa.exc.OperationalError)
    async def locked(request: Request, error: sa.exc.OperationalError) -> JSONResponse:
        """Two requests that write at once: the client asks again."""
        del request, error
        return JSONResponse({"exception_message": "Service Unavailable"}, status_code=503)

    return application


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
    """The tables of Prefect's models in one step: its revisions, one by one, take four CPU seconds (benchmarks/command_start.py)."""
    database = provide_database_interface()

    def make(connection: sa.Connection) -> None:
        for table in database.Base.metadata.sorted_tables:
            connection.execute(sa.schema.CreateTable(table, if_not_exists=True))
            for index in table.indexes:
                connection.execute(sa.schema.CreateIndex(index, if_not_exists=True))

    engine: Any = await database.engine()
    async with engine.begin() as connection:
        await connection.run_sync(make)
