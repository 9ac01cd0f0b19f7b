"""A Dask cluster of processes on this machine that answers nobody but its own processes.

Whoever can talk to a Dask scheduler can run code as its user, and every user of a machine can reach its loopback ports. So all
connections are TLS in both directions, under a certificate made for this cluster that exists in the memory of its processes only;
no port answers HTTP; and nothing is written outside a private folder.

Workers are started by a command of dpdist's own. Dask's nanny starts them by multiprocessing, which imports the user's program once
more in each of them: a script that publishes without ``if __name__ == "__main__"`` would publish again in every worker.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import spawn
from typing import Any

import dask
import psutil
from distributed import Client, Scheduler, Security, SpecCluster
from distributed.core import Status
from distributed.deploy.spec import ProcessInterface

from dpdist.engine import local_worker
from dpdist.errors import EngineError
from dpdist.process.resource_limits import TERMINATED_SHARE, blas_threads

LOOPBACK = "127.0.0.1"
LOOK_SECONDS = 0.1
"""How often the memory of a worker process is looked at."""


class SilentScheduler(Scheduler):
    """A scheduler without the HTTP port that Dask opens even where the dashboard is off."""

    def start_http_server(self, *arguments: Any, **options: Any) -> None:
        """Nothing."""


class WorkerProcess(ProcessInterface):
    """A process with one worker, started again when it was killed, and killed when it takes more than its part of the memory."""

    def __init__(self, scheduler: str, *, name: int, options: dict[str, Any], environment: dict[str, str]) -> None:
        super().__init__(scheduler, name)
        self._options = {"scheduler_ip": scheduler, "name": name, **options}
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """The worker, once the scheduler knows it. Raises: EngineError."""
        await self._begin()
        await super().start()
        self._watching = asyncio.create_task(self._watch())

    async def _begin(self) -> None:
        """Raises: EngineError when the process ends before its worker is there."""
        self._process = await asyncio.create_subprocess_exec(
            spawn.get_executable(),
            *("-P", "-c", local_worker.COMMAND),  # -P: modules of the current folder are not taken for Python's
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **self._environment},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(ConnectionError):
            self._process.stdin.write(local_worker.worker_input(self._options))
            await self._process.stdin.drain()
        if not await self._process.stdout.readline():
            code = await self._process.wait()
            raise EngineError(
                f"a worker process of this machine ended before it could work (exit code {code}); 'inline' as engine starts none"
            )

    async def _watch(self) -> None:
        with suppress(EngineError):  # a worker that cannot start again is missing: the engine waits for it, and says so
            while True:
                await self._ended()
                if self.status != Status.running:
                    return
                await self._begin()

    async def _ended(self) -> None:
        """Wait for the end of the process; end it when it takes too much."""
        assert self._process is not None
        ended = asyncio.create_task(self._process.wait())
        memory_limit = TERMINATED_SHARE * self._options["memory_limit"]
        with suppress(psutil.Error):
            program = psutil.Process(self._process.pid)
            while not (await asyncio.wait([ended], timeout=LOOK_SECONDS))[0]:
                if program.memory_info().rss > memory_limit:
                    self._process.kill()
        await ended

    async def close(self) -> None:
        """End the process, whatever it does: what it has not finished nobody waits for."""
        self.status = Status.closing
        if self._watching is not None:
            self._watching.cancel()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await super().close()


@contextmanager
def local_client(processes: int, memory_bytes: int) -> Iterator[Any]:
    """The client of a new cluster of worker processes with an equal part of the BLAS threads each, which ends with the block.

    Raises: EngineError when it cannot start.
    """
    threads = str(max(1, blas_threads() // processes))
    blas = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), threads)
    with _private_folder() as folder, dask.config.set(_settings(folder)):
        security = Security.temporary()
        worker = {"memory_limit": memory_bytes, "security": security, "host": LOOPBACK}
        scheduler = {"protocol": "tls://", "host": LOOPBACK, "port": 0, "security": security, "dashboard": False}
        described = {"cls": WorkerProcess, "options": {"options": worker, "environment": blas}}
        try:
            cluster = SpecCluster(
                workers=dict.fromkeys(range(processes), described),
                scheduler={"cls": SilentScheduler, "options": scheduler},
                security=security,
                silence_logs=logging.ERROR,
            )
        except (OSError, RuntimeError) as error:
            raise EngineError(
                f"worker processes of this machine cannot start ({type(error).__name__}: {error}); 'inline' as engine starts none"
            ) from error
        with cluster, Client(cluster) as client:
            try:
                yield client
            finally:
                for worker_process in cluster.workers.values():
                    worker_process.status = Status.closing  # whose workers end now without being started again


@contextmanager
def _private_folder() -> Iterator[str]:
    """A folder for what Dask writes. Raises: EngineError."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="dpdist-dask-", ignore_cleanup_errors=True)  # mode 0700
    except OSError as error:
        raise EngineError(f"worker processes need a folder for temporary files, and none can be written ({error})") from None
    with folder as name:
        yield name


def _settings(folder: str) -> dict[str, Any]:
    return {
        "temporary-directory": folder,
        "distributed.worker.memory.target": False,  # results are small: none is ever spilled to disk
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,  # nothing is spilled: waiting frees nothing
        "distributed.admin.tick.limit": "60s",
        "distributed.comm.timeouts.connect": "60s",
        "distributed.deploy.lost-worker-timeout": "120s",  # a worker that was killed is started again
    }
