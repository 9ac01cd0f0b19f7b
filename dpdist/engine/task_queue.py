"""Tasks are handed out some at a time: the scheduler never holds more than a few for each worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dpdist.engine.cluster_workers import Workforce, has_optimisers, losses_told, optimisers, slots, workers_of
from dpdist.engine.tasks import fetch_result
from dpdist.errors import DpdistError, OutOfMemory

ProgressCallback = Callable[[int, int], None]
"""Called with (tasks finished, tasks in all)."""
TASKS_AHEAD = 8
"""Tasks that the scheduler holds for each worker: enough to keep it busy, few enough to lose nothing."""
POLL_SECONDS = 5


@dataclass(frozen=True)
class WorkerSet:
    """Workers with a resource: how many tasks they run at once, and their addresses where not all of them are meant."""

    resource: str | None
    tasks: int
    addresses: list[str] | None

    def has_admitted(self, admitted: dict[str, dict[str, Any]]) -> bool:
        """Whether there is one of them."""
        slot_counts = slots(admitted, self.resource)
        return bool(slot_counts if self.addresses is None else set(self.addresses) & set(slot_counts))


@dataclass(frozen=True)
class _Handed:
    """An item that was handed out, and the addresses of the workers that it was meant for; None: all that there are."""

    item: int
    allowed: list[str] | None


def hand_out(
    workers: Workforce,
    function: Callable[[Any], Any],
    items: Sequence[Any],
    report_progress: ProgressCallback | None,
    worker_set: WorkerSet | None = None,
) -> list[Any]:
    """function of every item, in order; None for what was left when the last of ``worker_set`` had gone.

    Where a worker lacks something, tasks are meant for the others by name. One that fails is asked again what it lacks: a task
    that had failed for that reason runs again.
    """
    from distributed import wait

    results: list[Any] = [None] * len(items)
    with losses_told():
        running: dict[Any, _Handed] = {}
        remaining, completed = deque(range(len(items))), 0
        while completed < len(items):
            ahead = (workers.workers if worker_set is None else worker_set.tasks) * TASKS_AHEAD
            size = min(len(remaining), ahead - len(running))
            if size > 0 and size >= min(ahead // 2, len(remaining)):
                batch = [remaining.popleft() for _ in range(size)]
                allowed = workers.allowed() if worker_set is None else worker_set.addresses
                resources = None if worker_set is None or worker_set.resource is None else {worker_set.resource: 1}
                arguments = [items[i] for i in batch]
                futures = workers.client.map(
                    function, arguments, pure=False, retries=3, workers=allowed, resources=resources
                )
                running.update(zip(futures, (_Handed(i, allowed) for i in batch), strict=True))
            try:
                wait(list(running), timeout=POLL_SECONDS, return_when="FIRST_COMPLETED")
            except TimeoutError:
                if worker_set is not None and not worker_set.has_admitted(workers.admitted()):
                    workers.client.cancel(list(running), force=True)
                    return results
                if worker_set is None:
                    remaining.extendleft(_stranded(workers, running))
            for future in [future for future in running if future.status != "pending"]:
                try:
                    outcome = result_of(future)
                    result = None if outcome is None else fetch_result(workers.exchange, outcome[0])
                except Exception as error:  # whatever the task raised: what its worker lacks decides
                    if (
                        worker_set is not None
                        or not _failed(future, error)
                        or not _ran_on_lacking_worker(workers, running[future])
                    ):
                        raise
                    remaining.appendleft(running.pop(future).item)
                    continue
                if outcome is None:
                    if worker_set is None:
                        workers.await_workers()  # the worker died with the result: the task runs again
                    continue
                results[running.pop(future).item] = result
                future.release()
                completed += 1
                if report_progress is not None:
                    report_progress(completed, len(items))
    return results


def run_on_worker(workers: Workforce, function: Callable[[None], Any], needed_bytes: int) -> Any:
    """What a function returns on a worker with so much memory; when that one goes, or lacks something, on another one.

    Raises: OutOfMemory when there is none.
    """
    with losses_told():
        while True:
            workers.allowed()
            admitted = workers.admitted()
            if not admitted:  # the last one has left meanwhile
                continue
            candidates = {address for address, limit in optimisers(admitted) if limit >= needed_bytes}
            if not candidates:
                cure = (
                    "start a worker with more memory (and '--resources optimiser=1'), or set 'limits' or another mechanism"
                )
                largest_memory = max((limit for _, limit in optimisers(admitted)), default=workers.memory_bytes)
                raise OutOfMemory("optimising the strategy", needed_bytes, largest_memory, cure)
            resources = {"optimiser": 1} if has_optimisers(admitted) else None
            future = workers.client.submit(function, None, pure=False, workers=sorted(candidates), resources=resources)
            while candidates & {address for address, _ in optimisers(workers.admitted())}:
                try:
                    outcome = result_of(future)
                    if outcome is not None:
                        return fetch_result(workers.exchange, outcome[0])
                except Exception as error:  # whatever the task raised: what its worker lacks decides
                    if not _failed(future, error) or not candidates - workers.admitted(again=candidates).keys():
                        raise
                    break  # a worker that lacks something: on another one
            future.cancel()  # every worker that it was meant for is gone


def _ran_on_lacking_worker(workers: Workforce, handed: _Handed) -> bool:
    """Whether a task that failed could run on a worker that lacks something, as is found now."""
    cluster_workers = workers_of(workers.client)
    meant = cluster_workers.keys() if handed.allowed is None else set(handed.allowed)
    return bool(meant & workers.lacking(cluster_workers, again=cluster_workers.keys()).keys())


def _stranded(workers: Workforce, running: dict[Any, _Handed]) -> list[int]:
    """Items whose workers are all gone, or lack something now; their tasks are taken back."""
    allowed = workers.allowed()
    if allowed is None:
        allowed = list(workers_of(workers.client))
    lost = [
        future
        for future, handed_item in running.items()
        if handed_item.allowed is not None and not set(handed_item.allowed) & set(allowed)
    ]
    if lost:
        workers.client.cancel(lost, force=True)
    return [running.pop(future).item for future in lost]


def _failed(future: Any, error: Exception) -> bool:
    """Whether an error is of the task itself."""
    return future.status == "error" or isinstance(error, DpdistError)


def result_of(future: Any) -> tuple[Any] | None:
    """The result of a task, None while there is none. Raises: what the task raised."""
    try:
        return (future.result(timeout=POLL_SECONDS),)
    except TimeoutError:
        if future.status == "error":
            raise
        return None
