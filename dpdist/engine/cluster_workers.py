"""The workers of a cluster: how many tasks they run at once, with what memory, and which of them may get tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import cached_property
from typing import Any, cast

from dpdist.engine.worker_checks import Admission, TaskStore, describe_lack
from dpdist.errors import EngineError
from dpdist.process.resource_limits import TERMINATED_SHARE, WORKER_BYTES, free_bytes

SCHEDULER_GONE = "the Dask scheduler went away; start it and run the same command again: it goes on where it stopped"
LOOK_SECONDS = 1.0
"""How old what is known of the workers may be."""
WITHOUT_WORKERS_SECONDS = 120


class Workforce:
    """Those who do an engine's tasks.

    Attributes:
        exchange: takes functions and results past the scheduler; None: they go through it.
        needed_files: that tasks read, each with what messages call it; a worker of a cluster that does not see one of them gets no tasks.
        report: hears of workers that get no tasks.
    """

    def __init__(
        self, connect: Callable[[], Any] | None, last_size: tuple[int, int], admission: Admission | None = None
    ) -> None:
        self._connect, self._admission = connect, admission
        self._last_size, self._looked = last_size, time.monotonic()
        self._had_workers = False
        self.exchange: TaskStore | None = None
        self.needed_files: tuple[tuple[str, str], ...] = ()
        self.report: Callable[[str], None] | None = None

    @property
    def workers(self) -> int:
        """How many tasks run at once, now: workers come and go."""
        return self._now[0]

    @property
    def memory_bytes(self) -> int:
        """What one task may use on the smallest worker there is now, beyond what the program itself takes."""
        return self._now[1]

    @property
    def _now(self) -> tuple[int, int]:
        """Tasks at once and memory of each; of the last workers that were there while there is none."""
        if self._admission is not None and time.monotonic() - self._looked >= LOOK_SECONDS:
            self._last_size, self._looked = size_of(self.admitted()) or self._last_size, time.monotonic()
        return self._last_size

    def admitted(self, *, again: Collection[str] = ()) -> dict[str, dict[str, Any]]:
        """What the scheduler knows of the workers that may get tasks; new ones are asked what they lack, and others ``again``."""
        workers = workers_of(self.client)
        lacking = self.lacking(workers, again)
        return {address: worker for address, worker in workers.items() if address not in lacking}

    def lacking(self, workers: dict[str, dict[str, Any]], again: Collection[str] = ()) -> dict[str, str]:
        """What each of some workers lacks that should get no tasks, by address; ``again``: asked in any case."""
        if self._admission is None:
            return {}
        self._admission.report = self.report
        self._admission.require(self.exchange, self.needed_files)
        try:
            with losses_told():
                return self._admission.lacking(workers, again=again)
        except OSError:  # what the store could not do is a StoreError: this is the scheduler that is not reached
            raise EngineError(SCHEDULER_GONE) from None

    def check_started(self) -> None:
        """Start what tasks run on, and accept it when one of its workers, at least, has what tasks need. Raises: EngineError."""
        if self.client is not None and not workers_of(self.client):
            self.await_workers()
        if self._admission is not None:
            with losses_told():
                self.allowed()

    def allowed(self) -> list[str] | None:
        """The addresses of the workers that may get tasks; None where all may. Waits for one if there is none.

        Raises: EngineError when none comes.
        """
        deadline = time.monotonic() + WITHOUT_WORKERS_SECONDS
        while self._admission is not None:
            workers = workers_of(self.client)
            lacking = self.lacking(workers)
            if not workers:
                self.await_workers()
            elif workers.keys() - lacking.keys():
                self._last_size = (
                    size_of(
                        {
                            worker_address: worker
                            for worker_address, worker in workers.items()
                            if worker_address not in lacking
                        }
                    )
                    or self._last_size
                )
                self._had_workers = True
                return sorted(workers.keys() - lacking.keys()) if lacking else None
            elif not self._had_workers or time.monotonic() > deadline:
                address, lack = min(lacking.items())
                rest_phrase = f" (and {len(lacking) - 1} more lack something)" if len(lacking) > 1 else ""
                raise EngineError(
                    f"no worker of the cluster can do the tasks of this run: {describe_lack(address, lack)}{rest_phrase}"
                )
            else:
                time.sleep(LOOK_SECONDS)
        return None

    @cached_property
    def client(self) -> Any:
        """The Dask client, None when everything runs in this process."""
        return None if self._connect is None else self._connect()

    def await_workers(self) -> None:
        """Wait for the first worker if all are gone. Raises: EngineError when none comes back."""
        from distributed import TimeoutError as NoWorker

        try:
            # adaptive scaling starts the first worker for a task that waits
            waiting_task = self.client.submit(int, pure=False)
            self.client.wait_for_workers(1, timeout=WITHOUT_WORKERS_SECONDS)
            waiting_task.release()
        except NoWorker:
            raise EngineError(
                f"the Dask cluster has had no worker for {WITHOUT_WORKERS_SECONDS} seconds; start some and run the same command "
                "again: it goes on where it stopped"
            ) from None
        except (
            AttributeError,
            OSError,
            RuntimeError,
        ):  # a client that gave up its scheduler has None or a closed pool in its place
            raise EngineError(SCHEDULER_GONE) from None


def workers_of(client: Any) -> dict[str, dict[str, Any]]:
    """What the scheduler knows of each worker, by address; nothing once it is gone. Raises: EngineError once the client knows that."""
    if client.status == "closed":
        raise EngineError(SCHEDULER_GONE)
    return cast(dict[str, dict[str, Any]], client.scheduler_info(n_workers=-1).get("workers", {}))


def size_of(workers: dict[str, dict[str, Any]]) -> tuple[int, int] | None:
    """How many tasks workers run at once, and what each may use on the smallest; None when there is none."""
    tasks = sum(w["nthreads"] for w in workers.values())
    return (tasks, min(_task_bytes(w, w["nthreads"]) for w in workers.values())) if tasks else None


def slots(workers: dict[str, dict[str, Any]], resource: str | None) -> dict[str, int]:
    """How many tasks that want one of a resource, if any, each worker runs at once, by address; of those that have some."""
    if resource is None:
        return {address: w["nthreads"] for address, w in workers.items()}
    slot_counts = {address: min(w["nthreads"], int(w["resources"].get(resource, 0))) for address, w in workers.items()}
    return {address: tasks for address, tasks in slot_counts.items() if tasks}


def optimisers(workers: dict[str, dict[str, Any]]) -> list[tuple[str, int]]:
    """Workers for the largest computations with their memory: those with the resource ``optimiser``, else all."""
    candidates = {address: w for address, w in workers.items() if w["resources"].get("optimiser")} or workers
    return [(address, _task_bytes(w, 1)) for address, w in candidates.items()]


def has_optimisers(workers: dict[str, dict[str, Any]]) -> bool:
    """Whether some workers are meant for the largest computations."""
    return any(w["resources"].get("optimiser") for w in workers.values())


def _task_bytes(worker: dict[str, Any], tasks: int) -> int:
    """What each of so many tasks of a worker may use, beyond what the worker itself takes."""
    limit = worker["memory_limit"]
    return max(0, int(TERMINATED_SHARE * limit) - WORKER_BYTES) // tasks if limit else free_bytes()


@contextmanager
def losses_told() -> Iterator[None]:
    """What Dask raises when workers or the scheduler die, as one clear error."""
    from distributed import KilledWorker
    from distributed.client import ClosedClientError
    from distributed.comm.core import CommClosedError

    try:
        yield
    except KilledWorker:
        raise EngineError(
            "a task killed every worker that ran it, most likely for memory; give the workers more, or ask for fewer cells"
        ) from None
    except (CancelledError, CommClosedError, ClosedClientError):
        raise EngineError(SCHEDULER_GONE) from None
    except RuntimeError as error:
        if str(error) != "ConnectionPool is closed":  # what a client says that is closing, because its scheduler is gone
            raise
        raise EngineError(SCHEDULER_GONE) from None
