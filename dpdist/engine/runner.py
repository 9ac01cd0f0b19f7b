"""An engine: what runs tasks, in this process or on workers. They take references and write their results to the store.

What tasks return is small, and goes through the store, too (``tasks``). They may run twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar, cast

from dpdist.engine import task_queue, tasks
from dpdist.engine.cluster_workers import Workforce, losses_told, optimisers, slots, workers_of
from dpdist.engine.task_queue import ProgressCallback, WorkerSet
from dpdist.engine.worker_checks import Admission
from dpdist.errors import EngineError
from dpdist.process.resource_limits import free_bytes

_T = TypeVar("_T")
_Item = TypeVar("_Item")
MOST_TASKS = 8192
"""Tasks of a stage: a scheduler takes some milliseconds for each, however small it is (docs/decisions/0003-tasks-and-store.md)."""
FORGET_SECONDS = 5
"""How long is waited at a stage's end until workers have given up what it held."""


async def _forget_on_workers(client: Any, addresses: list[str]) -> None:
    """Have workers give up what the stage holds; one that hangs is not waited for."""
    with suppress(TimeoutError):
        async with asyncio.timeout(FORGET_SECONDS):
            await client.run(tasks.forget, workers=addresses, on_error="ignore")


class Engine(Workforce):
    """Runs tasks on worker processes; the cluster starts when the first task does.

    Attributes:
        threads: BLAS threads of a task ``on_largest_worker`` that runs in this process.
    """

    def __init__(
        self,
        *,
        workers: int,
        memory_bytes: int,
        threads: int,
        connect: Callable[[], Any] | None,
        local: bool,
        admission: Admission | None = None,
    ) -> None:
        super().__init__(connect, (workers, memory_bytes), admission)
        self.threads, self._local = threads, local

    @property
    def in_process(self) -> bool:
        """Whether tasks run in this process, one after another."""
        return self._connect is None

    @property
    def elsewhere(self) -> bool:
        """Whether tasks run on machines of others, not on this one."""
        return not self._local

    @property
    def largest_worker_bytes(self) -> int:
        """What ``on_largest_worker`` may use: all memory here, the largest worker's on a cluster."""
        if self._local:
            return self.own_bytes
        return max((limit for _, limit in optimisers(self.admitted())), default=self.memory_bytes)

    @property
    def own_bytes(self) -> int:
        """What the stages of the process that runs the flow may use now, while workers that it started are idle."""
        return min(self.memory_bytes * max(1, self.workers), free_bytes()) if self._local else free_bytes()

    @property
    def task_bytes(self) -> int:
        """What one task may use now: no more than this process has left where tasks run in it."""
        return min(self.memory_bytes, self.own_bytes) if self.in_process else self.memory_bytes

    def map(
        self, function: Callable[[_Item], _T], items: Sequence[_Item], *, report_progress: ProgressCallback | None = None
    ) -> list[_T]:
        """function of every item, in order. Finished tasks are released as they complete; beyond ``MOST_TASKS`` one does several items."""
        if self.client is None:
            results = []
            for position, item in enumerate(items):
                results.append(function(item))
                if report_progress is not None:
                    report_progress(position + 1, len(items))
            return results
        return cast(list[_T], self._map_groups(function, items, report_progress, None))

    def with_resource(self, resource: str) -> list[str]:
        """The addresses of the workers that were started with a resource; none in this process and on a cluster of its own."""
        return [] if self._local else sorted(slots(self.admitted(), resource))

    def halves(self) -> tuple[list[str], list[str]]:
        """The addresses of the workers that may get tasks, in two halves: whoever is in one did not write what another one wrote."""
        addresses = sorted(self.admitted())
        return addresses[::2], addresses[1::2]

    def map_where(
        self,
        resource: str | None,
        function: Callable[[_Item], _T],
        items: Sequence[_Item],
        *,
        among: Sequence[str] | None = None,
        report_progress: ProgressCallback | None = None,
    ) -> list[_T | None]:
        """function of every item on workers with a resource, in order; None for what was left when the last of them had gone.

        Args:
            resource: None: any worker.
            among: addresses of the workers that are meant; default all with the resource, also those that join later.
        """
        slot_counts = slots(self.admitted(), resource)
        if among is not None:
            slot_counts = {address: at_once for address, at_once in slot_counts.items() if address in among}
        if not slot_counts or not items:
            return [None] * len(items)
        limited = among is not None or self.lacking(workers_of(self.client))
        worker_set = WorkerSet(resource, sum(slot_counts.values()), sorted(slot_counts) if limited else None)
        return self._map_groups(function, items, report_progress, worker_set)

    def _map_groups(
        self,
        function: Callable[[_Item], _T],
        items: Sequence[_Item],
        report_progress: ProgressCallback | None,
        worker_set: WorkerSet | None,
    ) -> list[_T | None]:
        at_once = self.workers if worker_set is None else worker_set.tasks
        several = -(-len(items) // max(MOST_TASKS, at_once * task_queue.TASKS_AHEAD))
        if several <= 1:
            with self._past_the_scheduler(function) as remote_function:
                return self._hand_out(remote_function, items, report_progress, worker_set)
        groups = [items[start : start + several] for start in range(0, len(items), several)]

        def report_items(completed: int, total: int) -> None:
            if report_progress is not None:
                report_progress(len(items) if completed == total else completed * several, len(items))

        with self._past_the_scheduler(partial(tasks.one_after_another, function)) as remote_function:
            group_results = self._hand_out(remote_function, groups, report_items, worker_set)
        return [
            result for results, group in zip(group_results, groups, strict=True) for result in results or [None] * len(group)
        ]

    def dealt(self, items: int) -> list[list[int]]:
        """Round-robin lists of the numbers 0..items, one a worker, none empty."""
        hands = min(self.workers, items)
        return [list(range(hand, items, hands)) for hand in range(hands)]

    def on_largest_worker(self, function: Callable[..., _T], *arguments: Any, needed_bytes: int = 0) -> _T:
        """One computation that wants all cores: here on a local cluster, whose workers then idle; else on one worker.

        That is a worker with the resource ``optimiser`` if there are some, else one with enough memory, with as many BLAS threads as
        it has. When it dies the computation starts again on another one: what is long keeps checkpoints.

        Raises: OutOfMemory when no worker has ``needed_bytes``.
        """
        if self._local:
            with tasks.with_blas_threads(self.threads):
                return function(*arguments)
        with self._past_the_scheduler(partial(tasks.with_threads, function, *arguments)) as remote_function:
            return cast(_T, task_queue.run_on_worker(self, remote_function, needed_bytes))

    @contextmanager
    def _past_the_scheduler(self, function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
        """A small function that fetches this one where it runs, and leaves results behind, in the exchange.

        However small it is: it may hold digests of exact counts, with which a guess of them can be tested.
        """
        if self.exchange is None:
            yield partial(tasks.without_data, function)
            return
        folder = self.exchange.scratch()
        try:
            yield partial(tasks.by_reference, self.exchange, folder, tasks.Parcel.of(self.exchange, folder, function))
        finally:
            self.exchange.delete(folder)
            with suppress(EngineError, OSError, AttributeError), losses_told():  # whoever is gone holds nothing
                self.client.sync(_forget_on_workers, self.client, list(self.admitted()))

    def _hand_out(
        self,
        function: Callable[[Any], Any],
        items: Sequence[Any],
        report_progress: ProgressCallback | None,
        worker_set: WorkerSet | None = None,
    ) -> list[Any]:
        return task_queue.hand_out(self, function, items, report_progress, worker_set)
