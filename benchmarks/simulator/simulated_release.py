"""The release's own orchestration, run against simulated storage.

Tasks, requests and objects depend on ratios only: of the cells to a shard, to a worker's memory, to a slab. So the simulation divides all
of them by ``SCALE`` and runs the real code (counting, noise on workers with its checks, passes, scans, sums in a tree, publishing, the
engine's grouping and its results in the store) on a store that is held in memory and on workers whose clock is reckoned. What it writes is
checked like anything else. Faults are planted: workers that die in a task, requests that fail or repeat, a worker that says a wrong digest.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from benchmarks.simulator.rates import RATES, Rates
from benchmarks.simulator.simulated_publication import publish, read_back
from benchmarks.simulator.simulated_storage import (
    NO_FAULTS,
    SCALE,
    Faults,
    SimulatedEngine,
    SimulatedStore,
    World,
    registered,
)
from benchmarks.simulator.stages import ALONE, ANSWERS, ROWS, Stage, width_of
from dpdist import engine
from dpdist.arrays.kronecker_transform import kronecker_product
from dpdist.arrays.lazy_vector import Vector
from dpdist.counting import histogram_counting
from dpdist.domain import Attribute, Domain, EvenEdges
from dpdist.errors import StoreError
from dpdist.measurement.integer_measurement import NoisyVector
from dpdist.operators import Generated, Identity, Kronecker, Matrix, Prefix
from dpdist.pipeline.distributed_noise import ONE_TILE_IN, Claim, draw_on_workers
from dpdist.pipeline.measure import draw
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN, Samples
from dpdist.runtime.context import Context, ignore_progress
from dpdist.runtime.gram_computation import stored_gram
from dpdist.runtime.stored_vectors import StoredVector, StoreWorkspace
from dpdist.size_limits import SIZES
from dpdist.sources.record_sources import source_of
from dpdist.storage.array_store import Store, StoredArray

DIVIDED = (
    "shard_bytes",
    "part_values",
    "slab_bytes",
    "tile_bytes",
    "gram_entries",
    "row_block_bytes",
    "file_rows",
    "export_rows",
)
"""Sizes that the simulation divides; those of which only ratios count stay."""


STAGES = ("count", ALONE, "noise", "product", "scan", "W'W", "publish")
"""What is simulated, in this order."""


@dataclass(frozen=True)
class Simulated:
    """A simulated release: what its stages took, and the digest of what each of them stored."""

    stages: list[Stage]
    digests: dict[str, str]


@dataclass(frozen=True)
class _Noise(Noise):
    """Noise that takes no time to draw, but is a function of key and position, like the real one.

    A simulated shard has 1,024 cells, for which the sampler would take batches of 4,096 attempts: more than half of all the time.
    """

    def draw(self, key: bytes, *, start: int = 0, count: int) -> Samples:
        places = np.arange(start, start + count, dtype=np.uint64) + np.frombuffer(key[:8], dtype=np.uint64)
        return (places * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(54)).astype(np.int64)  # Fibonacci hashing


@dataclass(frozen=True)
class _Claim(Claim):
    """What a worker needs to draw, without a ledger and a root key of its own."""

    @contextmanager
    def key(self) -> Iterator[Callable[[], Secret]]:
        yield lambda: Secret(bytes(32))


def simulate(
    cells: int,
    workers: int,
    *,
    memory_bytes: int = 16 * 2**30,
    faults: Faults = NO_FAULTS,
    seed: int = 0,
    rates: Rates = RATES,
    answers: int = ANSWERS,
    only: Sequence[str] = STAGES,
) -> Simulated:
    """Run the orchestration of a release of so many cells and answers.

    Args:
        only: stages that are run, among them those whose results they read.
    Raises: StoreError, EngineError: what is stored then is not whole, or every reader refuses it.
    """
    divided = {name: max(1, getattr(SIZES, name) // SCALE) for name in DIVIDED}
    sizes = replace(SIZES, **divided, gram_columns=SIZES.gram_columns // math.isqrt(SCALE))
    world = World(rates, faults, random.Random(seed))
    store = SimulatedStore(world, sizes)
    run = SimulatedEngine(world, workers, memory_bytes // SCALE)
    run.exchange = store
    work, width = StoreWorkspace(store, run), width_of(cells, memory_bytes)
    shape = (cells // SCALE // width, width)
    m, n = (size // math.isqrt(SCALE) for size in ROWS)
    done: dict[str, Any] = {}

    def noisy() -> NoisyVector:
        return NoisyVector(done["count"], Secret(bytes(32)), _Noise(GAUSSIAN, 1000))

    def by_workers(home: str) -> None:
        context, claim = Context(Path(home), store, run, ignore_progress), _Claim("simulated", 1, "", "")
        draw_on_workers(context, claim, "measurements/y", noisy(), {})

    with registered(store), tempfile.TemporaryDirectory() as home:
        steps: dict[str, Callable[[], Any]] = {
            "count": lambda: StoredVector(store, sparse_counts(shape, store, run)),
            ALONE: lambda: StoredVector(store, draw(store, "measurements/x", noisy(), {})),
            "noise": lambda: by_workers(home),
            "product": lambda: product_of(work, shape, done[ALONE]),
            "scan": lambda: scan_of(work, done["product"]),
            "W'W": lambda: StoredVector(
                store, stored_gram(store, run, Generated((m, n), partial(_row_numbers, n)), "grams/w")
            ),
            "publish": lambda: publish(store, run, answers),
        }
        drawing, stages = cells / rates.noisy_cells, list[Stage]()
        for name in only:
            world.begin()
            done[name] = _retried(steps[name])
            if name == ALONE:
                world.spent = drawing / rates.flow_cores  # the threads that draw write, too
            elif name == "noise":
                world.spent += drawing * (1 + 2 / ONE_TILE_IN) / workers  # half after half checks
            stages.append(Stage(name, world.tasks, world.requests, world.written, world.bytes, world.spent))
        if "noise" in only:
            done["noise"] = StoredVector(store, store.open("measurements/y"))
        if "publish" in only:
            read_back(store)
    return Simulated(stages, {name: _digest_of(found) for name, found in done.items()})


def _digest_of(found: Vector | list[int] | str) -> str:
    if isinstance(found, list):
        return str(sum(found))
    return found if isinstance(found, str) else found.digest


def product_of(work: StoreWorkspace, shape: tuple[int, int], source: Vector) -> Vector:
    """Running sums along the second of two attributes."""
    return kronecker_product(work, Kronecker([Identity(shape[0]), Prefix(shape[1])]), source)


def scan_of(work: StoreWorkspace, vector: Vector) -> list[int]:
    """A number a part."""
    return work.fold(_checksum, vector)


def _row_numbers(columns: int, start: int, stop: int) -> Matrix:
    """Rows whose entries are 0 to 6, by their numbers."""
    return (np.arange(start, stop)[:, None] * np.arange(1, columns + 1) % 7).astype(np.int8)


@dataclass(frozen=True)
class Lie:
    """A worker that tells a wrong digest, and the stages that write what it is of and read it."""

    faults: Faults
    stages: tuple[str, ...]


def liars(cells: int) -> dict[str, Lie]:
    """A wrong digest of one shard of what each of the first stages writes, or of a published part."""
    shards = math.ceil(8 * cells / SIZES.shard_bytes)
    first, second = Faults(liar=shards // 2), Faults(liar=shards + shards // 2)
    return {
        "a shard of the histogram": Lie(first, ("count", ALONE)),
        "a shard of the noise that the flow draws": Lie(second, ("count", ALONE, "product")),
        "a shard of the noise that workers draw": Lie(second, ("count", "noise")),
        "a published part": Lie(Faults(part_liar=1), ("publish",)),
    }


def after_a_lie(cells: int, workers: int, lie: Lie, truth: Simulated, **options: Any) -> str:
    """What became of a release in which a worker told a wrong digest."""
    try:
        found = simulate(cells, workers, faults=lie.faults, only=lie.stages, **options)
    except StoreError:
        return "found, and nothing is published that a reader accepts"
    return "found, and the next attempt writes the right bytes" if found.digests.items() <= truth.digests.items() else WRONG


WRONG = "WRONG BYTES"


def _retried(step: Callable[[], Any]) -> Any:
    """A step, run again as its flow is: what an interrupted one left is used or replaced, never mixed."""
    for again in range(5):
        try:
            return step()
        except StoreError:
            if again == 4:
                raise
    return None


def sparse_counts(shape: tuple[int, int], store: Store, run: engine.Engine) -> StoredArray:
    """A histogram of a few records, as many row groups as there are tasks."""
    domain = Domain(tuple(Attribute(name, edges=EvenEdges(0, 1, size)) for name, size in zip("ab", shape, strict=True)))
    state, tasks = np.random.default_rng(0), run.workers * histogram_counting.PARTS_A_WORKER
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.parquet"
        columns = {name: state.integers(0, size, 4 * tasks) for name, size in zip("ab", shape, strict=True)}
        pyarrow.parquet.write_table(pa.table(columns), path, row_group_size=4)
        return histogram_counting.count(source_of(path, columns={}), domain, store, run, root=Secret(bytes(32)))[0]


def _checksum(start: int, values: Matrix) -> int:
    return int(values.sum()) + start % 2
