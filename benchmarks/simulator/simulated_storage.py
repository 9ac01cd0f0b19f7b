"""A store that is held in memory, and workers whose clock is reckoned; what goes wrong there is planted."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.simulator.rates import Rates
from dpdist import engine
from dpdist.engine import tasks
from dpdist.engine.task_queue import WorkerSet
from dpdist.errors import EngineError, StoreError
from dpdist.operators import Matrix
from dpdist.pipeline.distributed_noise import RESOURCE, DrawReport
from dpdist.size_limits import Sizes
from dpdist.storage.array_store import ArrayPlan, Store, StoredArray, StoredPart
from dpdist.storage.documents import seal

SCALE = 2**12
"""What the simulation divides cells, shards, slabs and memory by."""


@dataclass(frozen=True)
class Faults:
    """How often things go wrong.

    Attributes:
        deaths: share of tasks whose worker dies in them.
        failures, repeats: shares of requests that are lost, so that the client asks again, or that are done twice.
        refused: share of requests whose failure reaches the code: the client gave up.
        liar: the number of the shard written whose digest is told wrong; None: none is.
        part_liar: the same of what is published.
    """

    deaths: float = 0.0
    failures: float = 0.0
    repeats: float = 0.0
    refused: float = 0.0
    liar: int | None = None
    part_liar: int | None = None


NO_FAULTS = Faults()
COMMON = Faults(deaths=0.01, failures=0.001, repeats=0.001, refused=1e-6)
"""One task in a hundred dies, one request in a thousand is lost and one done twice, one in a million fails for good."""


class _Died(BaseException):
    """The worker of a task is gone."""


@dataclass
class World:
    """The clock, the objects that a simulated store holds, and what happens to requests."""

    rates: Rates
    faults: Faults
    state: random.Random
    objects: dict[str, bytes] = field(default_factory=dict)
    tasks: int = 0
    requests: int = 0
    written: int = 0
    bytes: float = 0.0
    spent: float = 0.0
    until_death: int | None = None
    shards: int = 0
    parts: int = 0

    def begin(self) -> None:
        """Count from now on."""
        self.tasks = self.requests = self.written = 0
        self.bytes = self.spent = 0.0

    def requested(self, moved: int, *, written: bool = False) -> None:
        """One request. Raises: StoreError when it is refused."""
        if self.until_death is not None:
            self.until_death -= 1
            if self.until_death < 0:
                raise _Died
        times = 1 + (self.state.random() < self.faults.repeats) + (self.state.random() < self.faults.failures)
        self.requests += times
        self.written += written
        self.bytes += times * moved
        self.spent += times * (self.rates.request_seconds + 2 * moved / self.rates.worker_bytes)
        if self.state.random() < self.faults.refused:
            raise StoreError("the simulated store refused a request")


def _moved(name: str, size: int) -> int:
    """Bytes that the object stands for: cells are scaled down, what tasks say of them is not."""
    return size * SCALE if name.endswith("/values") or "/c/" in name else size


class SimulatedStore(Store):
    """A store whose objects are held in memory; arrays are one object a shard."""

    def __init__(self, world: World, sizes: Sizes) -> None:
        self.world, self.sizes, self.location, self._given_lease = world, sizes, "simulated", "simulated"

    def __reduce__(self) -> Any:
        return _here, (id(self),)

    def begin(self, plan: ArrayPlan) -> None:
        self.world.requested(0)

    def _confirm(self, plan: ArrayPlan) -> None:
        self.world.requested(0)

    def write_shard(self, plan: ArrayPlan, shard: int, block: Matrix) -> str:
        digest = self.put_block(f"{plan.name}/{plan.attempt}/c/{shard}", np.ascontiguousarray(block))
        self.world.shards += 1
        return "0" * 64 if self.world.shards == self.world.faults.liar else digest

    def read_shard(self, stored: StoredArray, shard: int) -> Matrix:
        start, stop = stored.plan.bounds(shard)
        name = f"{stored.name}/{stored.plan.attempt}/c/{shard}"
        return self.get_block(name, (stop - start, *stored.plan.shape[1:]), stored.plan.dtype, stored.shard_digests[shard])

    def get_blocks(self, stored_parts: Iterable[StoredPart]) -> Iterator[Matrix]:
        """One after the other: seven million threads' turns took longer than everything else at 10^11 cells."""
        return (self.get_block(part.name, part.shape, part.dtype, part.digest, start=part.start) for part in stored_parts)

    def get_values(self, name: str, start: int, length: int) -> memoryview:
        self.world.requested(_moved(name, length))
        if name not in self.world.objects:
            raise StoreError(f"{name!r} is not in the simulated store")
        return memoryview(self.world.objects[name])[start : start + length]

    def put_values(self, name: str, block: Matrix) -> None:
        self._write(name, np.ascontiguousarray(block).reshape(-1).view(np.uint8).data)

    def _write(self, name: str, data: Any) -> None:
        self.world.requested(_moved(name, len(data)), written=name not in self.world.objects)
        self.world.objects[name] = bytes(data)

    def write_document(self, name: str, content: dict[str, Any]) -> None:
        plain = json.loads(json.dumps(content))
        self._write(name, json.dumps({**plain, "digest": seal(name, plain)}).encode())

    def create_document(self, name: str, content: dict[str, Any]) -> bool:
        if name in self.world.objects:
            return False
        self.write_document(name, content)
        return True

    def read_document(self, name: str) -> dict[str, Any]:
        self.world.requested(0)
        content: dict[str, Any] = json.loads(self.world.objects[name])
        del content["digest"]
        return content

    def has_document(self, name: str) -> bool:
        return name in self.world.objects

    def delete(self, name: str, *, delete_first: Sequence[str] = ()) -> None:
        for each in [each for each in self.world.objects if each == name or each.startswith(f"{name}/")]:
            del self.world.objects[each]

    def sync(self, name: str) -> None:
        del name


_STORES: dict[int, SimulatedStore] = {}


@contextmanager
def registered(store: SimulatedStore) -> Iterator[None]:
    """A block in which what is pickled of a store is the store itself."""
    _STORES[id(store)] = store
    try:
        yield
    finally:
        del _STORES[id(store)]


def _here(number: int) -> SimulatedStore:
    return _STORES[number]


class _Client:
    """What the engine asks of a client beside tasks."""

    def run(self, *arguments: Any, **options: Any) -> None:
        del arguments, options


class SimulatedEngine(engine.Engine):
    """Tasks run here, one after another; the clock of each worker is reckoned."""

    def __init__(self, world: World, workers: int, memory_bytes: int) -> None:
        super().__init__(workers=workers, memory_bytes=memory_bytes, threads=1, connect=_Client, local=False)
        self.world = world

    def with_resource(self, resource: str) -> list[str]:
        """All workers may draw."""
        return [f"{resource}-{number}" for number in range(self.workers)]

    def halves(self) -> tuple[list[str], list[str]]:
        """All workers, in two halves."""
        present = self.with_resource("worker")
        return present[::2], present[1::2]

    def map_where(
        self,
        resource: str | None,
        function: Callable[[Any], Any],
        items: Sequence[Any],
        *,
        among: Sequence[str] | None = None,
        report_progress: engine.ProgressCallback | None = None,
    ) -> list[Any]:
        """Tasks on some workers; none of them leaves for good."""
        there = self.with_resource(resource or "worker") if among is None else list(among)
        if not there or not items:
            return [None] * len(items)
        return self._map_groups(function, items, report_progress, WorkerSet(resource, len(there), there))

    def _hand_out(
        self,
        function: Callable[[Any], Any],
        items: Sequence[Any],
        report_progress: engine.ProgressCallback | None,
        worker_set: Any = None,
    ) -> list[Any]:
        world, out, free = self.world, [], [0.0] * (self.workers if worker_set is None else worker_set.tasks)
        begun, dispatched = world.spent, 0.0
        for number, item in enumerate(items):
            world.tasks += 1
            dispatched += world.rates.task_seconds
            worker = min(range(len(free)), key=free.__getitem__)
            world.spent = 0.0
            found = self._survived(function, item)
            free[worker] = max(free[worker], dispatched) + world.spent
            out.append(
                _with_worker_address(
                    self.with_resource(RESOURCE) if worker_set is None else worker_set.addresses,
                    worker,
                    self._fetched(found),
                )
            )
            if report_progress is not None:
                report_progress(number + 1, len(items))
        world.spent = begun + max(free, default=0.0)
        return out

    def _survived(self, function: Callable[[Any], Any], item: Any) -> Any:
        """A task with the retries that it has on Dask: three for what it raises, three for workers that die."""
        world, deaths, errors = self.world, 0, 0
        while True:
            dies = world.state.random() < world.faults.deaths
            world.until_death = world.state.randrange(8) if dies else None
            try:
                return function(item)
            except _Died:
                deaths += 1
                if deaths > 3:
                    raise EngineError("a task killed every worker that ran it") from None
            except StoreError:
                errors += 1
                if errors > 3:
                    raise
            finally:
                world.until_death = None

    def _fetched(self, result: Any) -> Any:
        for again in range(4):
            try:
                return tasks.fetch_result(self.exchange, result)
            except StoreError:  # a client of an object store asks again by itself
                if again == 3:
                    raise
        return None


def _with_worker_address(addresses: Sequence[str], worker: int, found: Any) -> Any:
    """What a worker says of the shards that it drew, with its address: a simulated one has none to find."""
    if isinstance(found, list):
        return [_with_worker_address(addresses, worker, each) for each in found]
    return replace(found, worker=addresses[worker]) if isinstance(found, DrawReport) else found
