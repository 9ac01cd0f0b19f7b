"""Where tasks run: in this process, on a local Dask cluster, or on an existing one. It imports distributed where it needs it.

Tasks take references and write their results to the store; what they return is small, and goes through the store, too: the scheduler
sees no count and no digest of one. They may run twice.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
import traceback
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar, cast

import cloudpickle
import numpy as np
import threadpoolctl

from dpdist.errors import DpdistError, EngineError, OutOfMemory, StoreError, TaskFailed
from dpdist.machine import versions
from dpdist.machine.admission import Admission, Place, told
from dpdist.process.limits import MIB, TERMINATED_SHARE, WORKER_BYTES, blas_threads, check_program, cores, left_bytes

_T = TypeVar("_T")
_Item = TypeVar("_Item")

OnDone = Callable[[int, int], None]
"""Called with (tasks finished, tasks in all)."""


class Engine:
    """Runs tasks on worker processes; the cluster starts when the first task does.

    Attributes:
        threads: BLAS threads of a on_largest_worker task that runs in this process.
        exchange: takes functions and results past the scheduler; None: they go through it.
        needed_files: that tasks read, each with what messages call it; a worker of a cluster that does not see one of them gets no tasks.
        tell: hears of workers that get no tasks.
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
        self.threads = threads
        self._connect, self._local, self._admission = connect, local, admission
        self._seen, self._looked = (workers, memory_bytes), time.monotonic()
        self._had_workers = False
        self.exchange: Place | None = None
        self.needed_files: tuple[tuple[str, str], ...] = ()
        self.tell: Callable[[str], None] | None = None

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
            self._seen, self._looked = _there(self._admitted()) or self._seen, time.monotonic()
        return self._seen

    def _admitted(self, *, again: Collection[str] = ()) -> dict[str, dict[str, Any]]:
        """What the scheduler knows of the workers that may get tasks; new ones are asked what they lack, and others ``again``."""
        found = _workers_of(self.client)
        lacking = self._lacking(found, again)
        return {address: worker for address, worker in found.items() if address not in lacking}

    def _lacking(self, found: dict[str, dict[str, Any]], again: Collection[str] = ()) -> dict[str, str]:
        if self._admission is None:
            return {}
        self._admission.tell = self.tell
        self._admission.need(self.exchange, self.needed_files)
        try:
            with _losses_told():
                return self._admission.lacking(found, again=again)
        except OSError:  # what the store could not do is a StoreError: this is the scheduler that is not reached
            raise EngineError(SCHEDULER_GONE) from None

    def check_workers(self) -> None:
        """Accept a cluster one of whose workers, at least, has what tasks need. Raises: EngineError."""
        if self._admission is None:
            return
        with _losses_told():
            self._allowed()

    def check_started(self) -> None:
        """Start what tasks run on, and accept it when it can work. Raises: EngineError."""
        if self.client is not None and not _workers_of(self.client):
            self._await_workers()
        self.check_workers()

    def _allowed(self) -> list[str] | None:
        """The addresses of the workers that may get tasks; None where all may. Waits for one if there is none.

        Raises: EngineError when none comes.
        """
        deadline = time.monotonic() + WITHOUT_WORKERS_SECONDS
        while self._admission is not None:
            found = _workers_of(self.client)
            lacking = self._lacking(found)
            if not found:
                self._await_workers()
            elif found.keys() - lacking.keys():
                self._seen = _there({each: worker for each, worker in found.items() if each not in lacking}) or self._seen
                self._had_workers = True
                return sorted(found.keys() - lacking.keys()) if lacking else None
            elif not self._had_workers or time.monotonic() > deadline:
                address, lack = min(lacking.items())
                others = f" (and {len(lacking) - 1} more lack something)" if len(lacking) > 1 else ""
                raise EngineError(f"no worker of the cluster can do the tasks of this run: {told(address, lack)}{others}")
            else:
                time.sleep(LOOK_SECONDS)
        return None

    @cached_property
    def client(self) -> Any:
        """The Dask client, None when everything runs in this process."""
        return None if self._connect is None else self._connect()

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
        return max((limit for _, limit in _optimisers(self._admitted())), default=self.memory_bytes)

    @property
    def own_bytes(self) -> int:
        """What the stages of the process that runs the flow may use now, while workers that it started are idle."""
        return min(self.memory_bytes * max(1, self.workers), left_bytes()) if self._local else left_bytes()

    @property
    def task_bytes(self) -> int:
        """What one task may use now: no more than this process has left where tasks run in it."""
        return min(self.memory_bytes, self.own_bytes) if self.in_process else self.memory_bytes

    def map(self, function: Callable[[_Item], _T], items: Sequence[_Item], *, on_done: OnDone | None = None) -> list[_T]:
        """function of every item, in order. Finished tasks are released as they complete; beyond ``MOST_TASKS`` one does several items."""
        if self.client is None:
            out = []
            for position, item in enumerate(items):
                out.append(function(item))
                if on_done is not None:
                    on_done(position + 1, len(items))
            return out
        return cast(list[_T], self._mapped(function, items, on_done, None))

    def with_resource(self, resource: str) -> list[str]:
        """The addresses of the workers that were started with a resource; none in this process and on a cluster of its own."""
        return [] if self._local else sorted(_slots(self._admitted(), resource))

    def halves(self) -> tuple[list[str], list[str]]:
        """The addresses of the workers that may get tasks, in two halves: whoever is in one did not write what another one wrote."""
        present = sorted(self._admitted())
        return present[::2], present[1::2]

    def map_where(
        self,
        resource: str | None,
        function: Callable[[_Item], _T],
        items: Sequence[_Item],
        *,
        among: Sequence[str] | None = None,
        on_done: OnDone | None = None,
    ) -> list[_T | None]:
        """function of every item on workers with a resource, in order; None for what was left when the last of them had gone.

        Args:
            resource: None: any worker.
            among: addresses of the workers that are meant; default all with the resource, also those that join later.
        """
        slots = _slots(self._admitted(), resource)
        if among is not None:
            slots = {address: tasks for address, tasks in slots.items() if address in among}
        if not slots or not items:
            return [None] * len(items)
        limited = among is not None or self._lacking(_workers_of(self.client))
        some = Some(resource, sum(slots.values()), sorted(slots) if limited else None)
        return self._mapped(function, items, on_done, some)

    def _mapped(
        self, function: Callable[[_Item], _T], items: Sequence[_Item], on_done: OnDone | None, some: Some | None
    ) -> list[_T | None]:
        tasks = self.workers if some is None else some.tasks
        several = -(-len(items) // max(MOST_TASKS, tasks * TASKS_AHEAD))
        if several <= 1:
            with self._past_the_scheduler(function) as called:
                return self._distributed(called, items, on_done, some)
        groups = [items[start : start + several] for start in range(0, len(items), several)]

        def tell(done: int, total: int) -> None:
            if on_done is not None:
                on_done(len(items) if done == total else done * several, len(items))

        with self._past_the_scheduler(partial(_one_after_another, function)) as called:
            found = self._distributed(called, groups, tell, some)
        return [each for results, group in zip(found, groups, strict=True) for each in results or [None] * len(group)]

    def dealt(self, items: int) -> list[list[int]]:
        """Numbers 0..items dealt out evenly over the workers, no hand empty."""
        hands = min(self.workers, items)
        return [list(range(hand, items, hands)) for hand in range(hands)]

    def on_largest_worker(self, function: Callable[..., _T], *arguments: Any, needed_bytes: int = 0) -> _T:
        """One computation that wants all cores: here on a local cluster, whose workers then idle; else on one worker.

        That is a worker with the resource ``optimiser`` if there are some, else one with enough memory, with as many BLAS threads as
        it has. When it dies the computation starts again on another one: what is long keeps checkpoints.

        Raises: OutOfMemory when no worker has ``needed_bytes``.
        """
        if self._local:
            with threadpoolctl.threadpool_limits(self.threads):
                return function(*arguments)
        with self._past_the_scheduler(partial(_with_threads, function, *arguments)) as called:
            return cast(_T, self._placed(called, needed_bytes))

    @contextmanager
    def _past_the_scheduler(self, function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
        """A small function that fetches this one where it runs, and leaves results behind, in the exchange.

        However small it is: it may hold digests of exact counts, with which a guess of them can be tested.
        """
        if self.exchange is None:
            yield partial(_without_data, function)
            return
        folder = self.exchange.scratch()
        try:
            yield partial(_by_reference, self.exchange, folder, _Kept.of(self.exchange, folder, function))
        finally:
            self.exchange.delete(folder)
            with suppress(EngineError, OSError, AttributeError), _losses_told():  # whoever is gone holds nothing
                self.client.run(_forget, on_error="ignore")

    def _placed(self, function: Callable[[None], Any], needed_bytes: int) -> Any:
        with _losses_told():
            while True:
                self._allowed()
                admitted = self._admitted()
                chosen = {address for address, limit in _optimisers(admitted) if limit >= needed_bytes}
                if not chosen:
                    cure = "start a worker with more memory (and '--resources optimiser=1'), or set 'limits' or another mechanism"
                    raise OutOfMemory("optimising the strategy", needed_bytes, self.largest_worker_bytes, cure)
                apart = {"optimiser": 1} if _has_optimisers(admitted) else None
                future = self.client.submit(function, None, pure=False, workers=sorted(chosen), resources=apart)
                while chosen & {address for address, _ in _optimisers(self._admitted())}:
                    try:
                        found = _result(future)
                        if found is not None:
                            return self._fetched(found[0])
                    except Exception as error:  # whatever the task raised: what its worker lacks decides
                        if not _failed(future, error) or not chosen - self._admitted(again=chosen).keys():
                            raise
                        break  # a worker that lacks something: on another one
                future.cancel()  # every worker that it was meant for is gone

    def _distributed(
        self, function: Callable[[Any], Any], items: Sequence[Any], on_done: OnDone | None, some: Some | None = None
    ) -> list[Any]:
        """Tasks are handed out some at a time: the scheduler never holds more than a few for each worker.

        Where a worker lacks something, tasks are meant for the others by name. One that fails is asked again what it lacks: a task
        that had failed for that reason runs again.
        """
        from distributed import wait

        out: list[Any] = [None] * len(items)
        with _losses_told():
            running: dict[Any, _Handed] = {}
            left, done = deque(range(len(items))), 0
            while done < len(items):
                ahead = (self.workers if some is None else some.tasks) * TASKS_AHEAD
                size = min(len(left), ahead - len(running))
                if size > 0 and size >= min(ahead // 2, len(left)):
                    batch = [left.popleft() for _ in range(size)]
                    allowed = self._allowed() if some is None else some.addresses
                    apart = None if some is None or some.resource is None else {some.resource: 1}
                    given = [items[i] for i in batch]
                    futures = self.client.map(function, given, pure=False, retries=3, workers=allowed, resources=apart)
                    running.update(zip(futures, (_Handed(i, allowed) for i in batch), strict=True))
                try:
                    wait(list(running), timeout=POLL_SECONDS, return_when="FIRST_COMPLETED")
                except TimeoutError:
                    if some is not None and not some.there(self._admitted()):
                        self.client.cancel(list(running), force=True)
                        return out
                    if some is None:
                        left.extendleft(self._stranded(running))
                for future in [future for future in running if future.status != "pending"]:
                    try:
                        found = _result(future)
                        result = None if found is None else self._fetched(found[0])
                    except Exception as error:  # whatever the task raised: what its worker lacks decides
                        if some is not None or not _failed(future, error) or not self._blameless(running[future]):
                            raise
                        left.appendleft(running.pop(future).item)
                        continue
                    if found is None:
                        if some is None:
                            self._await_workers()  # the worker died with the result: the task runs again
                        continue
                    out[running.pop(future).item] = result
                    future.release()
                    done += 1
                    if on_done is not None:
                        on_done(done, len(items))
        return out

    def _blameless(self, handed: _Handed) -> bool:
        """Whether a task that failed could run on a worker that lacks something, as is found now."""
        if self._admission is None:
            return False
        found = _workers_of(self.client)
        meant = found.keys() if handed.allowed is None else set(handed.allowed)
        return bool(meant & self._lacking(found, again=found.keys()).keys())

    def _stranded(self, running: dict[Any, _Handed]) -> list[int]:
        """Items whose workers are all gone, or lack something now; their tasks are taken back."""
        allowed = self._allowed()
        if allowed is None:
            allowed = list(_workers_of(self.client))
        lost = [
            future for future, each in running.items() if each.allowed is not None and not set(each.allowed) & set(allowed)
        ]
        if lost:
            self.client.cancel(lost, force=True)
        return [running.pop(future).item for future in lost]

    def _fetched(self, result: Any) -> Any:
        """What a task returned. Raises: what it refused."""
        found = result.fetch() if isinstance(result, _Kept) else result
        if isinstance(found, _Refusal):
            raise found.error
        return found

    def _await_workers(self) -> None:
        """Wait for the first worker if all are gone. Raises: EngineError when none comes back."""
        from distributed import TimeoutError as NoWorker

        try:
            self.client.wait_for_workers(1, timeout=WITHOUT_WORKERS_SECONDS)
        except NoWorker:
            raise EngineError(
                f"the Dask cluster has had no worker for {WITHOUT_WORKERS_SECONDS} seconds; start some and run the same command "
                "again: it goes on where it stopped"
            ) from None
        except (AttributeError, OSError):  # a client that gave up its scheduler has None in its place
            raise EngineError(SCHEDULER_GONE) from None


@dataclass(frozen=True)
class Some:
    """Workers with a resource: how many tasks they run at once, and their addresses where not all of them are meant."""

    resource: str | None
    tasks: int
    addresses: list[str] | None

    def there(self, admitted: dict[str, dict[str, Any]]) -> bool:
        """Whether there is one of them."""
        found = _slots(admitted, self.resource)
        return bool(found if self.addresses is None else set(self.addresses) & set(found))


@dataclass(frozen=True)
class _Handed:
    """An item that was handed out, and the addresses of the workers that it was meant for; None: all that there are."""

    item: int
    allowed: list[str] | None


SCHEDULER_GONE = "the Dask scheduler went away; start it and run the same command again: it goes on where it stopped"
TASKS_AHEAD = 8
"""Tasks that the scheduler holds for each worker: enough to keep it busy, few enough to lose nothing."""
MOST_TASKS = 8192
"""Tasks of a stage: a scheduler takes some milliseconds for each, however small it is (docs/decisions/0016-futures.md)."""
LOOK_SECONDS = 1.0
"""How old what is known of the workers may be."""
POLL_SECONDS = 5
CONNECT_SECONDS = 20
"""How long a scheduler that does not answer, or went away, is waited for."""
WITHOUT_WORKERS_SECONDS = 120


SALT_BYTES = 16


class _Kept:
    """A pickled object in the exchange, fetched once in a process."""

    def __init__(self, exchange: Place, name: str, size: int, digest: str) -> None:
        self._exchange, self._name, self._size, self._digest = exchange, name, size, digest

    @staticmethod
    def of(exchange: Place, folder: str, item: Any) -> _Kept:
        """Put an object into a folder of the exchange."""
        data = os.urandom(SALT_BYTES) + cloudpickle.dumps(item)  # the digest travels: it must not tell what is kept
        name = f"{folder}/{uuid.uuid4().hex}"
        return _Kept(exchange, name, len(data), exchange.put_block(name, np.frombuffer(data, dtype=np.uint8)))

    def fetch(self) -> Any:
        """The object, from the exchange. The digest travelled apart: only what was put there is unpickled."""
        data = self._exchange.get_block(self._name, (self._size,), np.uint8, self._digest)
        return pickle.loads(data[SALT_BYTES:].tobytes())


@dataclass(frozen=True)
class _Refusal:
    """What a task returns in place of raising it: Dask would run the task three times more, and log it each time."""

    error: DpdistError


class _Stage:
    """The function of a stage on a worker, unpickled once: what it reads for one task it holds for the next ones."""

    folder, function = "", None
    changing = threading.Lock()


def _held(folder: str, function: _Kept) -> Callable[[Any], Any]:
    """The first function that came for the stage that has this folder."""
    with _Stage.changing:
        if _Stage.folder != folder:
            _Stage.folder, _Stage.function = folder, function.fetch()
        return cast(Callable[[Any], Any], _Stage.function)


def _forget() -> None:
    """Give up what a stage holds on this worker."""
    with _Stage.changing:
        _Stage.folder, _Stage.function = "", None


def _by_reference(exchange: Place, folder: str, function: _Kept, item: Any) -> Any:
    """function(item) where it runs; its result, if it has one, is left in the exchange."""
    found = _without_data(partial(_called, folder, function), item)
    return None if found is None else _Kept.of(exchange, folder, found)


def _one_after_another(function: Callable[[_Item], _T], items: Sequence[_Item]) -> list[_T]:
    return [function(item) for item in items]


def _called(folder: str, function: _Kept, item: Any) -> Any:
    return _held(folder, function)(item)


def _without_data(function: Callable[[Any], _T], item: Any) -> _T | _Refusal:
    """function(item), or what it refuses. Raises, for Dask to try again: StoreError as it is, TaskFailed for what is not of dpdist.

    Workers log errors and the scheduler keeps them: what other libraries write into theirs may quote a record, and so may the
    errors behind an error.
    """
    failure: DpdistError
    try:
        return function(item)
    except DpdistError as error:
        failure = error
    except Exception as error:  # noqa: BLE001 - whatever it is
        failure = TaskFailed(failed_at(error))
    failure.__context__ = failure.__cause__ = None
    if not isinstance(failure, StoreError | TaskFailed):
        return _Refusal(failure)
    raise failure


def failed_at(error: BaseException) -> str:
    """The type of an error and the line of code that raised it: nothing of its text."""
    *_, last = traceback.extract_tb(error.__traceback__)
    return (
        f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}; its text is not shown, it may quote records: "
        "run again with --debug, and report it"
    )


def _failed(future: Any, error: Exception) -> bool:
    """Whether an error is of the task itself."""
    return future.status == "error" or isinstance(error, DpdistError)


def _result(future: Any) -> tuple[Any] | None:
    """The result of a task, None while there is none. Raises: what the task raised."""
    try:
        return (future.result(timeout=POLL_SECONDS),)
    except TimeoutError:
        if future.status == "error":
            raise
        return None


def _with_threads(function: Callable[..., _T], *arguments: Any) -> _T:
    """On a worker: as many BLAS threads as it has threads. The last argument is the task's empty item."""
    from distributed import get_worker

    with threadpoolctl.threadpool_limits(get_worker().state.nthreads):
        return function(*arguments[:-1])


def this_worker() -> str:
    """The address of the worker that runs this task, empty where that is not Dask's."""
    from distributed import get_worker

    with suppress(ValueError):
        return str(get_worker().address)
    return ""


def _workers_of(client: Any) -> dict[str, dict[str, Any]]:
    """What the scheduler knows of each worker, by address; nothing once it is gone. Raises: EngineError once the client knows that."""
    if client.status == "closed":
        raise EngineError(SCHEDULER_GONE)
    return cast(dict[str, dict[str, Any]], client.scheduler_info(n_workers=-1).get("workers", {}))


def _there(found: dict[str, dict[str, Any]]) -> tuple[int, int] | None:
    """How many tasks workers run at once, and what each may use on the smallest; None when there is none."""
    tasks = sum(w["nthreads"] for w in found.values())
    return (tasks, min(_task_bytes(w, w["nthreads"]) for w in found.values())) if tasks else None


def _slots(found: dict[str, dict[str, Any]], resource: str | None) -> dict[str, int]:
    """How many tasks that want one of a resource, if any, each worker runs at once, by address; of those that have some."""
    if resource is None:
        return {address: w["nthreads"] for address, w in found.items()}
    given = {address: min(w["nthreads"], int(w["resources"].get(resource, 0))) for address, w in found.items()}
    return {address: tasks for address, tasks in given.items() if tasks}


def _optimisers(found: dict[str, dict[str, Any]]) -> list[tuple[str, int]]:
    """Workers for the largest computations with their memory: those with the resource ``optimiser``, else all."""
    chosen = {address: w for address, w in found.items() if w["resources"].get("optimiser")} or found
    return [(address, _task_bytes(w, 1)) for address, w in chosen.items()]


def _has_optimisers(found: dict[str, dict[str, Any]]) -> bool:
    return any(w["resources"].get("optimiser") for w in found.values())


LEAST_SHARE = 256 * MIB
"""With less for each task, fewer worker processes are started: stages that need more would be refused."""


def _task_bytes(worker: dict[str, Any], tasks: int) -> int:
    """What each of so many tasks of a worker may use, beyond what the worker itself takes."""
    limit = worker["memory_limit"]
    return max(0, int(TERMINATED_SHARE * limit) - WORKER_BYTES) // tasks if limit else left_bytes()


def inline() -> Engine:
    """Everything in this process, one task after the other. Raises: OutOfMemory where the program itself does not fit."""
    check_program()
    return Engine(workers=1, memory_bytes=left_bytes(), threads=blas_threads(), connect=None, local=True)


@contextmanager
def started(address: str | None = None, *, workers: int | None = None) -> Iterator[Engine]:
    """An engine for the duration of a block.

    Args:
        address: ``tls://host:port`` of a Dask scheduler, with certificates from Dask's configuration; None starts one process a
            core on this machine; ``inline`` starts nothing. Without one the environment variable DPDIST_ENGINE is asked first.
        workers: most local worker processes; each gets an equal part of the BLAS threads. Fewer are started where memory is short.
    Raises: OutOfMemory where the program itself does not fit.
    """
    check_program()
    address = address or os.environ.get("DPDIST_ENGINE") or None
    if address == "inline":
        yield inline()
        return
    with ExitStack() as stack:
        if address is not None:
            client = stack.enter_context(_reached(address))
            with _losses_told():
                versions.check(client)
            tasks, memory = _there(_workers_of(client)) or (1, left_bytes())
            yield Engine(
                workers=tasks,
                memory_bytes=memory,
                threads=1,
                connect=lambda: client,
                local=False,
                admission=Admission(client),
            )
            return
        processes = min(workers or cores(), cores())
        while processes > 0 and left_bytes(processes) < LEAST_SHARE:
            processes -= 1
        if processes == 0:
            yield inline()
            return
        share = left_bytes(processes)
        yield Engine(
            workers=processes,
            memory_bytes=share,
            threads=blas_threads(),
            connect=lambda: stack.enter_context(_local(processes, int((share + WORKER_BYTES) / TERMINATED_SHARE))),
            local=True,
        )


@contextmanager
def _losses_told() -> Iterator[None]:
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


def _local(processes: int, memory_bytes: int) -> AbstractContextManager[Any]:
    from dpdist.machine.local_cluster import local_client  # imports distributed, which takes a second
    from dpdist.machine.local_worker import quiet

    quiet()
    return local_client(processes, memory_bytes)


WITHOUT_TLS = "DPDIST_ENGINE_WITHOUT_TLS"
"""Set to 1, lets a release use a scheduler that runs the code of whoever reaches its port."""
CERTIFICATES = "DASK_DISTRIBUTED__COMM__TLS__CA_FILE, ..._TLS__CLIENT__CERT and ..._TLS__CLIENT__KEY"


def _reached(address: str) -> Any:
    """A client of a running scheduler. Raises: EngineError when none answers, or its connections are not encrypted."""
    from distributed import Client

    from dpdist.machine.local_worker import quiet

    quiet()
    if "://" not in address and os.environ.get(WITHOUT_TLS) != "1":
        raise EngineError(f"an engine is 'inline' (this process) or tls://host:port of a Dask scheduler, found {address!r}")
    if address.startswith("tls://"):
        security = _certificates()
    elif address.startswith("inproc://") or os.environ.get(WITHOUT_TLS) == "1":
        security = None
    else:
        raise EngineError(
            f"the Dask scheduler at {address!r} is not reached by TLS: whoever reaches its port could run code as your user and read "
            f"records and root key; give tls://host:port and certificates ({CERTIFICATES}), or accept it with {WITHOUT_TLS}=1"
        )
    try:
        return Client(address, timeout=CONNECT_SECONDS, security=security)
    except (OSError, ValueError) as error:
        raise EngineError(
            f"no Dask scheduler answers at {address!r} ({type(error).__name__}); give tls://host:port of a running one"
        ) from None


def _certificates() -> Any:
    """The certificates of Dask's own configuration. Raises: EngineError when they are missing or unreadable."""
    from distributed import Security

    found = Security(require_encryption=True)
    try:
        context = found.get_connection_args("client")["ssl_context"]
    except OSError as error:
        raise EngineError(
            f"the certificates for a tls:// scheduler cannot be read ({error.strerror or type(error).__name__}); check {CERTIFICATES}"
        ) from None
    if context is None:
        raise EngineError(f"a tls:// scheduler asks for certificates; name their files in {CERTIFICATES}")
    return found
