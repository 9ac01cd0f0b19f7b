"""The rates of this machine, measured, and how seconds that they predict compare with seconds that stages take.

Each rate is measured by itself, on little data. The stages that are compared run the same code as the simulation, on more data, on real
workers and a real store.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.simulator import simulated_release, stages
from benchmarks.simulator.rates import RATES, Rates
from dpdist import engine
from dpdist.arrays.lazy_vector import ArrayVector, Constant
from dpdist.content.answer_tables import write_tables
from dpdist.content.destination import DraftFolder, TaskMap
from dpdist.content.release_content import ReleaseContent
from dpdist.measurement.integer_measurement import NoisyVector
from dpdist.pipeline.measure import draw
from dpdist.pipeline.publish import write_checked
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN
from dpdist.process.resource_limits import cores
from dpdist.runtime.stored_vectors import StoredVector, StoreWorkspace
from dpdist.size_limits import Sizes
from dpdist.storage.array_store import Store
from dpdist.workloads import prefix

Clock = Callable[[], float]
REQUESTS, TASKS, BLOCKS_EACH = 200, 400, 4
BLOCK_VALUES = 2**21
FITTED_CELLS, FITTED_ANSWERS = 2**23, 2**21
COMPARED_CELLS, COMPARED_ANSWERS = 2**25, 2**23
TASK_BYTES = 2**28
"""Memory that tasks of the compared stages may use, so that their data exceeds it."""


def request_seconds(store: Store, clock: Clock = time.perf_counter) -> float:
    """Seconds of a request for an object of some bytes."""
    work, block = store.scratch(), np.zeros(8, dtype=np.uint8)
    begun = clock()
    for number in range(REQUESTS):
        digest = store.put_block(f"{work}/{number}", block)
        store.get_block(f"{work}/{number}", block.shape, block.dtype, digest)
    seconds = (clock() - begun) / REQUESTS / 2
    store.delete(work)
    return seconds


def task_seconds(run: engine.Engine, clock: Clock = time.perf_counter) -> float:
    """Seconds of a task that does nothing, many being handed out together."""
    run.map(_nothing, range(TASKS // 10))  # workers start and import before anything is timed
    begun = clock()
    run.map(_nothing, range(TASKS))
    return (clock() - begun) / TASKS


def worker_bytes(store: Store, run: engine.Engine, request: float, clock: Clock = time.perf_counter) -> float:
    """Bytes that a worker writes or reads in a second, and twice that with what it does to them: half of the rate of its shards."""
    items, work = BLOCKS_EACH * run.workers, store.scratch()
    run.map(
        partial(_exchanged, store), [f"{work}/first-{number}" for number in range(2 * run.workers)]
    )  # workers import zarr
    begun = clock()
    run.map(partial(_exchanged, store), [f"{work}/{number}" for number in range(items)])
    busy = (clock() - begun) * run.workers - (4 * items + 2 * run.workers) * request
    store.delete(work)
    return 4 * 8 * BLOCK_VALUES * items / busy


def noisy_cells(store: Store) -> float:
    """Cells that a core draws, compresses, hashes and writes in a second."""
    _drawn(store, 2**15)  # compiles the sampler
    return FITTED_CELLS / _drawn(store, FITTED_CELLS) / cores()


def published_rows(run: engine.Engine) -> float:
    """Answers that a core writes in a second as Parquet and as Zarr."""
    _published(run.map, 2**10, parts=4)  # workers import what they write with
    return FITTED_ANSWERS / _published(run.map, FITTED_ANSWERS, parts=run.workers) / run.workers


def fitted(store: Store, run: engine.Engine) -> Rates:
    """The rates of the machine that runs these workers and has this store."""
    request = request_seconds(store)
    return Rates(
        request_seconds=request,
        task_seconds=task_seconds(run),
        worker_bytes=worker_bytes(store, run, request),
        noisy_cells=noisy_cells(store),
        published_rows=published_rows(run),
        flow_cores=cores(),
    )


@dataclass(frozen=True)
class Compared:
    """Seconds that a stage took, and what the model says by fitted and by assumed rates."""

    stage: str
    size: int
    measured: float
    fitted: float
    assumed: float


def compared(
    store: Store, run: engine.Engine, rates: Rates, *, cells: int = COMPARED_CELLS, answers: int = COMPARED_ANSWERS
) -> list[Compared]:
    """Stages of a release on real workers, beside what the model says of them."""
    width = stages.width_of(cells, run.memory_bytes)
    shape = (cells // width, width)
    cells, work = shape[0] * width, StoreWorkspace(store, run)
    seconds: dict[str, float] = {}

    begun = time.perf_counter()
    counts = simulated_release.sparse_counts(shape, store, run)
    seconds["count"] = time.perf_counter() - begun
    seconds[stages.ALONE] = _drawn(store, cells)
    begun = time.perf_counter()
    made = simulated_release.product_of(work, shape, StoredVector(store, counts))
    seconds["product"] = time.perf_counter() - begun
    begun = time.perf_counter()
    simulated_release.scan_of(work, made)
    seconds["scan"] = time.perf_counter() - begun
    seconds["publish"] = _published(run.map if run.in_process else partial(write_checked, run), answers)

    def stage_seconds(rates: Rates) -> dict[str, float]:
        cluster = stages.Cluster(run.workers, run.memory_bytes, rates)
        found = [stages.counted(cluster, cells), stages.drawn_alone(cluster, cells), stages.published(cluster, answers)]
        return {each.name: each.seconds for each in (*found, *stages.product(cluster, cells, width))}

    by_fitted, by_assumed = stage_seconds(rates), stage_seconds(replace(RATES, flow_cores=rates.flow_cores))
    return [
        Compared(name, answers if name == "publish" else cells, took, by_fitted[name], by_assumed[name])
        for name, took in seconds.items()
    ]


def table(found: Sequence[Compared]) -> str:
    """Markdown: measured and predicted seconds, and predicted over measured."""
    out = ["| stage | cells or answers | measured, s | by fitted rates, s | ratio | by assumed rates, s | ratio |"]
    out += ["|---|---|---|---|---|---|---|"]
    out += [
        f"| {each.stage} | {each.size:,} | {each.measured:.1f} | {each.fitted:.1f} | {each.fitted / each.measured:.2f} | "
        f"{each.assumed:.1f} | {each.assumed / each.measured:.2f} |"
        for each in found
    ]
    return "\n".join(out) + "\n"


def here(workers: int = 2) -> tuple[Rates, list[Compared]]:
    """The rates of this machine with so many worker processes and a store in its temporary folder, and the stages compared."""
    with tempfile.TemporaryDirectory(prefix="dpdist-") as folder, engine.open_engine(workers=workers) as started:
        run = engine.Engine(
            workers=started.workers, memory_bytes=TASK_BYTES, threads=1, connect=lambda: started.client, local=True
        )
        run.exchange = store = Store(folder)
        rates = fitted(store, run)
        return rates, compared(store, run, rates)


def _nothing(item: int) -> None:
    del item


def _exchanged(store: Store, name: str) -> None:
    """Write and read one shard."""
    plan = store.plan(name, (BLOCK_VALUES,), np.int64, shard_rows=BLOCK_VALUES)
    store.begin(plan)
    block = np.arange(BLOCK_VALUES, dtype=np.int64) % 1009
    stored = store.finish(plan, [store.write_shard(plan, 0, block)])
    store.read_shard(stored, 0)


def _drawn(store: Store, cells: int) -> float:
    """Seconds of exact noise on zeros: no record is touched, the key is a fixed one."""
    work = store.scratch()
    counts = store.put(f"{work}/counts", np.zeros(cells, dtype=np.int64))
    begun = time.perf_counter()
    draw(store, f"{work}/noisy", NoisyVector(StoredVector(store, counts), Secret(bytes(32)), Noise(GAUSSIAN, 1000)), {})
    seconds = time.perf_counter() - begun
    store.delete(work)
    return seconds


def _published(spread: TaskMap, answers: int, *, parts: int = 0) -> float:
    """Seconds of writing so many answers into a folder; in so many parts, or in those of a release."""
    sizes = Sizes(file_rows=answers // parts, export_rows=answers // parts) if parts else Sizes()
    values = ArrayVector(np.random.default_rng(0).normal(1000, 100, answers).round())
    errors = (Constant(100.0, answers), Constant(196.0, answers))
    content = ReleaseContent("fit", "", prefix(answers), values, *errors, {}, formats=("parquet", "zarr"), sizes=sizes)
    with tempfile.TemporaryDirectory(prefix="dpdist-") as folder:
        draft = Path(folder) / "draft"
        draft.mkdir()
        begun = time.perf_counter()
        write_tables(content, 0, DraftFolder.of(draft, Path(folder) / "release"), spread)
        return time.perf_counter() - begun
