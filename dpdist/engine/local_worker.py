"""The program of a worker process of ``local_cluster``: it knows this module and what it reads on its standard input.

Certificates come that way and are nowhere else. The worker ends when its standard input does: when the process that started it is gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
import sys
import threading
from typing import Any

import dask
from distributed import Worker

from dpdist.process.allocator import keep_freed_memory

COMMAND = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from dpdist.engine import local_worker; local_worker.main(pickle.load(sys.stdin.buffer))"
)
"""What the interpreter of a worker process runs: it finds modules where the process does that starts it."""


class SilentWorker(Worker):
    """A worker without an HTTP port."""

    def start_http_server(self, *arguments: Any, **options: Any) -> None:
        """Nothing."""


def worker_input(options: dict[str, Any]) -> bytes:
    """What a worker process reads: where modules are, Dask's settings in this process, and the options of its worker."""
    return pickle.dumps([os.path.abspath(path) for path in sys.path]) + pickle.dumps((dask.config.config, options))


def main(startup_input: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Run a worker until the scheduler, or the process that started this one, is gone; one line says that it is there."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # of a terminal, to all of its processes: the one that started this one ends it
    threading.Thread(target=_end_with_input, daemon=True).start()
    ready = os.dup(1)
    os.dup2(2, 1)  # what a task prints is no answer
    settings, options = startup_input
    keep_freed_memory()
    dask.config.set(settings)
    quiet()
    asyncio.run(_work(options, ready))


def quiet() -> None:
    """Dask tells its own losses in tracebacks; dpdist tells them in one line. Called once distributed is imported: that sets levels."""
    names = ["distributed", *(name for name in logging.root.manager.loggerDict if name.startswith("distributed."))]
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _end_with_input() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


async def _work(options: dict[str, Any], ready: int) -> None:
    async with SilentWorker(protocol="tls://", nthreads=1, dashboard=False, **options) as worker:
        os.write(ready, b"ready\n")
        os.close(ready)
        await worker.finished()
