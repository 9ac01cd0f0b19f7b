"""What a release of very many cells asks of a cluster: a model, and the release's own orchestration run against simulated storage.

Tasks, requests and objects depend on ratios only: of the cells to a shard, to a worker's memory, to a slab. So the simulation divides all
of them by ``SCALE`` and runs the real code (counting, passes, scans, noise, sums in a tree, the engine's grouping and its results in the
store) on a store that is held in memory and on workers whose clock is reckoned. What it writes is checked like anything else. Faults are
planted: workers that die in a task, requests that fail or repeat, a worker that says a wrong digest.
"""

from __future__ import annotations

import json
import math
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from dpdist import engine
from dpdist.arrays.kronecker import COPIES, kronecker_product
from dpdist.arrays.passes import Exchange, Side, Target, cut, slab_bytes
from dpdist.documents import seal
from dpdist.domain import Attribute, Domain, EvenEdges
from dpdist.errors import EngineError, StoreError
from dpdist.grids.base import Noisy
from dpdist.operators import Generated, Identity, Kronecker, Matrix, Prefix
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import Noise
from dpdist.records import counting
from dpdist.records.sources import source_of
from dpdist.reduction import FAN_IN
from dpdist.release.exact import draw
from dpdist.release.gram import RANGES_A_WORKER, block_columns, stored_gram
from dpdist.release.workspace import StoredVector, StoreWorkspace
from dpdist.sizes import SIZES, Sizes
from dpdist.store import ArrayPlan, Part, Store, StoredArray
from dpdist.strategies.needs import NOMINAL_RATE, effort
from dpdist.workloads import prefix

SCALE = 2**12
"""What the simulation divides cells, shards, slabs and memory by."""
WIDTHS = (1000, 2000, 5000, 10_000, 20_000, 50_000)
"""Cells of the second of two attributes, which the simulation keeps: the first with which a line of the product fits."""
ROWS = (4_000_000, 8192)
"""Rows and columns of the W whose gram is summed, whatever the number of cells. The simulation divides both by the root of ``SCALE``."""
MOST_TASKS, MOST_OBJECTS = 10**5, 10**6
"""Of a stage, beyond which the scheduler or a listing takes longer than the work."""


@dataclass(frozen=True)
class Rates:
    """What a cluster does in a second. Assumed, and to be replaced by what ``flows/scaling.py`` and ``benchmarks`` measure on yours.

    Attributes:
        request_seconds: until an object store answers.
        worker_bytes: that a worker exchanges with the store, and computes, compresses and hashes, each.
        task_seconds: of the scheduler and the client for a task (benchmarks/scheduler.py).
        noisy_cells: that the process of the flow draws and writes on one core; it draws alone, without workers that hold the root key.
        flow_cores: that it has.
    """

    request_seconds: float = 0.02
    worker_bytes: float = 4e8
    task_seconds: float = 0.005
    noisy_cells: float = 9.2e6
    flow_cores: int = 16


RATES = Rates()


@dataclass(frozen=True)
class Stage:
    """What one stage takes.

    Attributes:
        bytes: written to and read from the store.
        seconds: of its slowest part, of all workers side by side.
    """

    name: str
    tasks: int = 0
    requests: int = 0
    objects: int = 0
    bytes: float = 0.0
    seconds: float = 0.0


# The model


def predicted(cells: int, workers: int, memory_bytes: int = 16 * 2**30, rates: Rates = RATES) -> list[Stage]:
    """What every stage takes: counting beyond a worker's memory, noise on the cells, a product over two attributes, a scan, W'W."""
    shards, most = math.ceil(8 * cells / SIZES.shard_bytes), max(engine.MOST_TASKS, workers * engine.TASKS_AHEAD)

    def grouped(items: int) -> int:
        return math.ceil(items / math.ceil(items / most)) if items else 0

    def stage(name: str, tasks: int, requests: int, objects: int, moved: float) -> Stage:
        busy = (2 * moved / rates.worker_bytes + requests * rates.request_seconds) / workers
        return Stage(name, tasks, requests, objects, moved, max(tasks * rates.task_seconds, busy))

    dealing, a_range = (
        workers * counting.PARTS_A_WORKER,
        max(1, min(shards // workers, memory_bytes // 4 // SIZES.shard_bytes)),
    )
    ranges = math.ceil(shards / a_range)
    counts = dealing + grouped(ranges)
    width = _width(cells, memory_bytes)
    sides = [Side(lines, _nothing, 8 * COPIES * cells // lines) for lines in (cells // width, width, cells // width)]
    divided = cut(_Long(cells), sides, [Target(width, np.int64)], memory_bytes)
    first, second, third = (len(some) for some in divided.slabs)
    merges = sum(exchange.merges for exchange in divided.exchanges)
    passes = sum(grouped(len(some)) for some in divided.slabs) + sum(grouped(e.merges) for e in divided.exchanges)
    reads, manifests = sum(map(_tile_reads, divided.exchanges)), sum(1 + _merged_groups(e) for e in divided.exchanges)
    again_moved = sum(16.0 * cells for exchange in divided.exchanges if exchange.merges)
    parts, wide = math.ceil(cells / SIZES.part_values), divided.shard_lines * width
    again = 1 + wide / SIZES.part_values  # a part reads whole shards, and one that lies on an edge reads two
    return [
        stage("count", counts, 2 * counts + shards + 5 * dealing + 2 * ranges, counts + shards + dealing + 3, 8.0 * cells),
        Stage("noise", 0, 2 * shards, shards + 1, 16.0 * cells, cells / rates.noisy_cells / rates.flow_cores),
        stage(
            "product",
            passes,
            2 * passes
            + 3 * (first + second + merges)
            + second
            + third
            + manifests
            + reads
            + shards
            + math.ceil(cells / wide),
            passes + 2 * (first + second + merges) + 3 + manifests + math.ceil(cells / wide),
            48.0 * cells + again_moved,
        ),
        stage(
            "scan",
            grouped(parts),
            2 * grouped(parts) + parts + math.ceil(cells / wide),
            grouped(parts),
            8.0 * cells * again,
        ),
        summed(workers, memory_bytes, rates),
    ]


def summed(workers: int, memory_bytes: int = 16 * 2**30, rates: Rates = RATES) -> Stage:
    """What W'W of ``ROWS`` takes beside its arithmetic: partial sums that are written, and added in a tree by eights."""
    rows, n = ROWS
    width = block_columns(n, memory_bytes)
    blocks = math.ceil(n / width)
    pairs, each = blocks * (blocks + 1) // 2, 8.0 * min(width, n) ** 2
    shards, summands = (
        math.ceil(each / SIZES.shard_bytes),
        max(1, min(workers * RANGES_A_WORKER, rows * n // SIZES.gram_entries)),
    )
    levels = [(pairs * summands, 0)]  # tasks, and what they read together
    while summands > FAN_IN:
        levels.append((pairs * math.ceil(summands / FAN_IN), pairs * summands))
        summands = math.ceil(summands / FAN_IN)
    written, read = sum(tasks for tasks, _ in levels), sum(reads for _, reads in levels)
    last = blocks**2 * summands  # a block right of the diagonal is read again
    rounds = len(levels) + 1  # the function of each is written and fetched
    seconds = sum(
        math.ceil(tasks / workers) * _spent(reads // tasks * (shards + 1) + shards + 2, (reads // tasks + 1) * each, rates)
        for tasks, reads in levels
    ) + _spent(last // blocks * (shards + 1), (last + blocks**2) // blocks * each, rates) * math.ceil(blocks / workers)
    return Stage(
        "W'W",
        written + blocks,
        written * (shards + 2) + (read + last) * (shards + 1) + 3 * blocks + 3 + 2 * rounds,
        written * (shards + 1) + 2 * blocks + 1 + rounds,
        (written + read + last + blocks**2) * each,
        seconds,
    )


def _tile_reads(exchange: Exchange) -> int:
    """Requests that read what the tasks of a pass wrote."""
    if not exchange.merges:
        return exchange.tasks * len(exchange.slabs)
    groups = _merged_groups(exchange)
    return exchange.tasks * groups + exchange.merges // groups * len(exchange.slabs)


def _merged_groups(exchange: Exchange) -> int:
    return len(exchange.groups) if exchange.merges else 0


def _spent(requests: float, moved: float, rates: Rates) -> float:
    """Seconds of a task."""
    return requests * rates.request_seconds + 2 * moved / rates.worker_bytes


def _width(cells: int, memory_bytes: int) -> int:
    allowed = slab_bytes(memory_bytes, cells)
    return next(width for width in WIDTHS if 8 * COPIES * cells // width <= allowed)


def _nothing(start: int, lines: Matrix) -> Matrix:
    del start
    return lines


@dataclass(frozen=True)
class _Long:
    """A vector of so many values that nobody reads."""

    size: int
    bytes_each: int = 0
    digest: str = ""
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.int64))

    def read(self, start: int, stop: int) -> Matrix:
        raise NotImplementedError


def wall(stages: Sequence[Stage]) -> str:
    """What stops growth next: the limit that a stage is beyond, else the stage that takes longest."""
    for stage in stages:
        if stage.tasks > MOST_TASKS:
            return f"{stage.name}: {stage.tasks:,} tasks"
        if stage.objects > MOST_OBJECTS:
            return f"{stage.name}: {stage.objects:,} objects"
    slowest = max(stages, key=lambda stage: stage.seconds)
    return f"{slowest.name}: {slowest.seconds / 3600:.1f} h"


def table(sizes: Sequence[int] = (10**10, 10**11, 10**12), workers: Sequence[int] = (10, 100, 1000)) -> str:
    """Markdown: what the model predicts."""
    out = [
        "| cells | workers | tasks | requests | objects | TB moved | hours | the next wall |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cells in sizes:
        for count in workers:
            stages = predicted(cells, count)
            out.append(
                f"| 10^{math.log10(cells):.0f} | {count:,} | {sum(s.tasks for s in stages):,} | {sum(s.requests for s in stages):,} | "
                f"{sum(s.objects for s in stages):,} | {sum(s.bytes for s in stages) / 1e12:.1f} | "
                f"{sum(s.seconds for s in stages) / 3600:.2f} | {wall(stages)} |"
            )
    return "\n".join(out) + "\n"


def optima(sizes: Sequence[int] = (8192, 16_384, 32_768, 65_536)) -> str:
    """Markdown: what the certified optimum over n cells in one block asks of one worker, on the nominal processor of 20 GFLOP/s."""
    out = ["| n | GiB | nominal hours |", "|---|---|---|"]
    for n in sizes:
        needs = effort(prefix(n), "coa")
        hours = needs.products * 2.0 * needs.rank**2 * needs.cells / NOMINAL_RATE / 3600
        out.append(f"| {n:,} | {needs.memory_bytes / 2**30:.0f} | {hours:.1f} |")
    return "\n".join(out) + "\n"


def comparison(model: Sequence[Stage], found: Sequence[Stage], disturbed: Sequence[Stage]) -> str:
    """Markdown: what the model predicts beside what simulations did, undisturbed and with faults."""
    out = ["| stage | by | tasks | requests | objects | GB moved | seconds |", "|---|---|---|---|---|---|---|"]
    for same in zip(model, found, disturbed, strict=True):
        out += [
            f"| {stage.name} | {by} | {stage.tasks:,} | {stage.requests:,} | {stage.objects:,} | {stage.bytes / 1e9:,.0f} | "
            f"{stage.seconds:,.0f} |"
            for by, stage in zip(("the model", "simulated", "simulated, with faults"), same, strict=True)
        ]
    return "\n".join(out) + "\n"


# The simulation


@dataclass(frozen=True)
class Faults:
    """How often things go wrong.

    Attributes:
        deaths: share of tasks whose worker dies in them.
        failures, repeats: shares of requests that are lost, so that the client asks again, or that are done twice.
        refused: share of requests whose failure reaches the code: the client gave up.
        liar: the number of the shard written whose digest is told wrong; None: none is.
    """

    deaths: float = 0.0
    failures: float = 0.0
    repeats: float = 0.0
    refused: float = 0.0
    liar: int | None = None


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
        self.world, self.sizes, self.location, self.is_local, self._given = world, sizes, "simulated", False, "simulated"

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

    def get_blocks(self, parts: Iterable[Part]) -> Iterator[Matrix]:
        """One after the other: seven million threads' turns took longer than everything else at 10^11 cells."""
        return (self.get_block(part.name, part.shape, part.dtype, part.digest, start=part.start) for part in parts)

    def get_values(self, name: str, start: int, length: int) -> memoryview:
        self.world.requested(_moved(name, length))
        if name not in self.world.objects:
            raise StoreError(f"{name!r} is not in the simulated store")
        return memoryview(self.world.objects[name])[start : start + length]

    def _put(self, name: str, data: Any, **options: Any) -> None:
        del options
        self.world.requested(_moved(name, len(data)), written=name not in self.world.objects)
        self.world.objects[name] = bytes(data)

    def write_document(self, name: str, content: dict[str, Any]) -> None:
        plain = json.loads(json.dumps(content))
        self._put(name, json.dumps({**plain, "digest": seal(plain)}).encode())

    def create_document(self, name: str, content: dict[str, Any]) -> bool:
        if name in self.world.objects:
            return False
        self.write_document(name, content)
        return True

    def read_with_digest(self, name: str) -> tuple[dict[str, Any], Any]:
        self.world.requested(0)
        content = json.loads(self.world.objects[name])
        return content, content.pop("digest")

    def has_document(self, name: str) -> bool:
        return name in self.world.objects

    def delete(self, name: str, *, first: Sequence[str] = ()) -> None:
        for each in [each for each in self.world.objects if each == name or each.startswith(f"{name}/")]:
            del self.world.objects[each]

    def sync(self, name: str) -> None:
        del name


_STORES: dict[int, SimulatedStore] = {}


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

    def _distributed(
        self, function: Callable[[Any], Any], items: Sequence[Any], on_done: engine.OnDone | None, some: Any = None
    ) -> list[Any]:
        del some
        world, out, free = self.world, [], [0.0] * self.workers
        begun, dispatched = world.spent, 0.0
        for number, item in enumerate(items):
            world.tasks += 1
            dispatched += world.rates.task_seconds
            worker = min(range(self.workers), key=free.__getitem__)
            world.spent = 0.0
            found = self._survived(function, item)
            free[worker] = max(free[worker], dispatched) + world.spent
            out.append(self._fetched(found))
            if on_done is not None:
                on_done(number + 1, len(items))
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
                return super()._fetched(result)
            except StoreError:  # a client of an object store asks again by itself
                if again == 3:
                    raise
        return None


@dataclass(frozen=True)
class Simulated:
    """A simulated release: what its stages took, and the digests of what it stored."""

    stages: list[Stage]
    digests: tuple[str, ...]


def simulate(
    cells: int,
    workers: int,
    *,
    memory_bytes: int = 16 * 2**30,
    faults: Faults = Faults(),
    seed: int = 0,
    rates: Rates = RATES,
) -> Simulated:
    """Run the orchestration of a release of so many cells. Raises: StoreError, EngineError: nothing is stored then."""
    sizes = replace(
        SIZES,
        **{
            name: max(1, getattr(SIZES, name) // SCALE)
            for name in ("shard_bytes", "part_values", "slab_bytes", "tile_bytes", "gram_entries", "row_block_bytes")
        },
        gram_columns=SIZES.gram_columns // math.isqrt(SCALE),
    )
    world = World(rates, faults, random.Random(seed))
    store = SimulatedStore(world, sizes)
    run = SimulatedEngine(world, workers, memory_bytes // SCALE)
    run.exchange = store
    width, stages = _width(cells, memory_bytes), list[Stage]()
    shape = (cells // SCALE // width, width)
    _STORES[id(store)] = store

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        world.tasks = world.requests = world.written = 0
        world.bytes = world.spent = 0.0
        yield
        stages.append(Stage(name, world.tasks, world.requests, world.written, world.bytes, world.spent))

    try:
        with timed("count"):
            counts = _retried(partial(_counted, shape, store, run))
        with timed("noise"):
            noisy = Noisy(StoredVector(store, counts), Secret(bytes(32)), Noise("gaussian", 1000))
            drawn = _retried(lambda: draw(store, "measurements/x", noisy, {}))
            world.spent = cells / rates.noisy_cells / rates.flow_cores
        work = StoreWorkspace(store, run)
        with timed("product"):
            product = Kronecker([Identity(shape[0]), Prefix(shape[1])])
            made = _retried(lambda: kronecker_product(work, product, StoredVector(store, drawn)))
        with timed("scan"):
            scanned = _retried(lambda: work.fold(_checksum, made))
        m, n = (size // math.isqrt(SCALE) for size in ROWS)
        with timed("W'W"):
            summed = _retried(lambda: stored_gram(store, run, Generated((m, n), partial(_row_numbers, n)), "grams/w"))
    finally:
        del _STORES[id(store)]
    digests = (counts.content_digest, drawn.content_digest, made.digest, str(sum(scanned)), summed.content_digest)
    return Simulated(stages, digests)


def _row_numbers(columns: int, start: int, stop: int) -> Matrix:
    """Rows whose entries are 0 to 6, by their numbers."""
    return (np.arange(start, stop)[:, None] * np.arange(1, columns + 1) % 7).astype(np.int8)


def liars(cells: int) -> dict[str, int]:
    """Numbers of shards, in the order in which a simulation writes them, one of what each of the first two stages writes."""
    shards = math.ceil(8 * cells / SIZES.shard_bytes)
    return {"histogram": shards // 2, "measurement": shards + shards // 2}


def _retried(step: Callable[[], Any]) -> Any:
    """A step, run again as its flow is: what an interrupted one left is used or replaced, never mixed."""
    for again in range(5):
        try:
            return step()
        except StoreError:
            if again == 4:
                raise
    return None


def _counted(shape: tuple[int, int], store: Store, run: engine.Engine) -> StoredArray:
    """A histogram of a few records, as many row groups as there are tasks."""
    domain = Domain(tuple(Attribute(name, edges=EvenEdges(0, 1, size)) for name, size in zip("ab", shape, strict=True)))
    state, tasks = np.random.default_rng(0), run.workers * counting.PARTS_A_WORKER
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.parquet"
        columns = {name: state.integers(0, size, 4 * tasks) for name, size in zip("ab", shape, strict=True)}
        pyarrow.parquet.write_table(pa.table(columns), path, row_group_size=4)
        return counting.count(source_of(path, columns={}), domain, store, run, root=Secret(bytes(32)))[0]


def _checksum(start: int, values: Matrix) -> int:
    return int(values.sum()) + start % 2
