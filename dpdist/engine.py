"""Where tasks run: in this process, on a local Dask cluster, or on an existing one. The only place that imports distributed.

Tasks take references and write their results to the store; what they return is small. They may run twice.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any, TypeVar

import threadpoolctl

from dpdist.errors import EngineError

_T = TypeVar("_T")
_Item = TypeVar("_Item")

OnDone = Callable[[int, int], None]
"""Called with (tasks finished, tasks in all)."""


class Engine:
    """Runs tasks on worker processes; the cluster starts when the first task does.

    Attributes:
        workers: how many tasks run at once.
        memory_bytes: what one worker may use.
        threads: BLAS threads of a heavy task that runs in this process.
    """

    def __init__(
        self, *, workers: int, memory_bytes: int, threads: int, connect: Callable[[], Any] | None, local: bool
    ) -> None:
        self.workers, self.memory_bytes, self.threads = workers, memory_bytes, threads
        self._connect, self._local = connect, local

    @cached_property
    def client(self) -> Any:
        """The Dask client, None when everything runs in this process."""
        return None if self._connect is None else self._connect()

    def map(self, function: Callable[[_Item], _T], items: Sequence[_Item], *, on_done: OnDone | None = None) -> list[_T]:
        """function of every item, in order. Finished tasks are released as they complete."""
        if self.client is None:
            out = []
            for position, item in enumerate(items):
                out.append(function(item))
                if on_done is not None:
                    on_done(position + 1, len(items))
            return out
        return self._distributed(function, items, on_done)

    def dealt(self, items: int) -> list[list[int]]:
        """Numbers 0..items dealt out evenly over the workers, no hand empty."""
        return [list(range(hand, items, self.workers)) for hand in range(min(self.workers, items))]

    def heavy(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """One computation that wants all cores: here on a local cluster, whose workers then idle; else on one worker."""
        if self._local:
            with threadpoolctl.threadpool_limits(self.threads):
                return function(*arguments)
        with _losses_told():
            return self.client.submit(function, *arguments, pure=False).result()  # type: ignore[no-any-return]

    def _distributed(self, function: Callable[[Any], Any], items: Sequence[Any], on_done: OnDone | None) -> list[Any]:
        from distributed import as_completed

        out: list[Any] = [None] * len(items)
        with _losses_told():
            futures = self.client.map(function, items, pure=False, retries=3)
            place = {future.key: position for position, future in enumerate(futures)}
            for done, future in enumerate(as_completed(futures), start=1):
                out[place[future.key]] = future.result()
                future.release()
                if on_done is not None:
                    on_done(done, len(items))
        return out


def inline() -> Engine:
    """Everything in this process, one task after the other."""
    return Engine(workers=1, memory_bytes=_memory_bytes(), threads=_cores(), connect=None, local=True)


@contextmanager
def started(address: str | None = None, *, workers: int | None = None) -> Iterator[Engine]:
    """An engine for the duration of a block.

    Args:
        address: ``tcp://host:port`` of a Dask scheduler; None starts one process a core on this machine;
            ``inline`` starts nothing.
        workers: number of local worker processes; each gets cores / workers BLAS threads.
    """
    if address == "inline":
        yield inline()
        return
    from distributed import Client

    _quiet()
    with ExitStack() as stack:
        if address is not None:
            client = stack.enter_context(_reached(address))
            found = client.scheduler_info(n_workers=-1)["workers"]
            memory = min((w["memory_limit"] for w in found.values()), default=0) or _memory_bytes()
            yield Engine(workers=max(1, len(found)), memory_bytes=memory, threads=1, connect=lambda: client, local=False)
            return
        processes = min(workers or _cores(), _cores())
        limit = _memory_bytes() // (processes + 1)
        yield Engine(
            workers=processes,
            memory_bytes=limit,
            threads=_cores(),
            connect=lambda: stack.enter_context(Client(stack.enter_context(_local_cluster(processes, limit)))),
            local=True,
        )


@contextmanager
def _losses_told() -> Iterator[None]:
    """What Dask raises when workers or the scheduler die, as one clear error."""
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError
    from distributed.comm.core import CommClosedError

    try:
        yield
    except KilledWorker:
        raise EngineError(
            "a task killed every worker that ran it, most likely for memory; give the workers more, or ask for fewer cells"
        ) from None
    except (FutureCancelledError, CommClosedError):
        raise EngineError(
            "the Dask scheduler went away; start it and run the same command again: it goes on where it stopped"
        ) from None


def _reached(address: str) -> Any:
    from distributed import Client

    try:
        return Client(address, timeout="20s")
    except (OSError, ValueError) as error:
        raise EngineError(
            f"no Dask scheduler answers at {address!r} ({type(error).__name__}); give tcp://host:port of a running one"
        ) from None


def _quiet() -> None:
    """Dask tells its own losses in tracebacks; dpdist tells them in one line."""
    names = ["distributed", *(name for name in logging.root.manager.loggerDict if name.startswith("distributed."))]
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _local_cluster(processes: int, memory_bytes: int) -> Any:
    """Worker processes with cores / processes BLAS threads each."""
    import dask
    from distributed import LocalCluster

    threads = str(max(1, _cores() // processes))
    options = {
        "distributed.nanny.pre-spawn-environ": dict.fromkeys(
            ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), threads
        ),
        "distributed.admin.tick.limit": "60s",
        "distributed.comm.timeouts.connect": "60s",
    }
    with dask.config.set(options):
        return LocalCluster(
            n_workers=processes,
            threads_per_worker=1,
            memory_limit=memory_bytes,
            dashboard_address=None,
            silence_logs=logging.ERROR,
        )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory_bytes() -> int:
    """Memory of the machine or of its control group, whichever is smaller."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            text = file.read().strip()
        return min(total, int(text)) if text != "max" else total
    except (OSError, ValueError):
        return total
