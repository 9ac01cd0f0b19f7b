"""What every stage of a release asks of a cluster: tasks, requests, objects, bytes and seconds, as a model says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.simulator.rates import RATES, Rates
from dpdist.arrays.kronecker_transform import COPIES
from dpdist.arrays.transpose_passes import LARGEST_SHARDS, Exchange, Target, TransformPass, cut, slab_bytes
from dpdist.counting import histogram_counting
from dpdist.engine import runner, task_queue
from dpdist.engine.tree_reduction import FAN_IN
from dpdist.operators import Matrix
from dpdist.pipeline.distributed_noise import ONE_TILE_IN, REDRAWN_SHARDS
from dpdist.pipeline.publish import MOST_REWRITTEN, PARTS_PER_CHECK
from dpdist.runtime.gram_computation import RANGES_A_WORKER, block_columns
from dpdist.size_limits import SIZES

WIDTHS = (1000, 2000, 5000, 10_000, 20_000, 50_000)
"""Cells of the second of two attributes, which the simulation keeps: the first with which a line of the product fits."""
ROWS = (4_000_000, 8192)
"""Rows and columns of the W whose gram is summed, whatever the number of cells. The simulation divides both by the root of its scale."""
ANSWERS = 10**9
"""Answers that are published, whatever the number of cells, as Parquet and as Zarr."""
ANSWER_BYTES = 8.5
"""Of an answer with its query, errors and interval, in both, compressed; measured with answers of three digits."""
ZARR_COLUMNS = 3
LISTED_AT_ONCE = 1000
"""Objects that one request lists."""
MOST_TASKS, MOST_OBJECTS = 10**5, 10**6
"""Of a stage, beyond which the scheduler or a listing takes longer than the work."""
ALONE = "noise, the flow alone"
"""The stage that stands beside another one: noise is drawn by the flow, or by workers."""


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


@dataclass(frozen=True)
class Cluster:
    """Workers of one task each, with so much memory, and their rates."""

    workers: int
    memory_bytes: int = 16 * 2**30
    rates: Rates = RATES

    @property
    def halves(self) -> list[int]:
        """Workers of each half of them; an empty one is left out."""
        return [some for some in (self.workers // 2, self.workers - self.workers // 2) if some]

    def grouped(self, items: int, workers: int | None = None) -> int:
        """Tasks of a stage of so many items."""
        most = max(runner.MOST_TASKS, (workers or self.workers) * task_queue.TASKS_AHEAD)
        return math.ceil(items / math.ceil(items / most)) if items else 0

    def spent(self, requests: float, moved: float, core_seconds: float = 0.0) -> float:
        """Seconds of one worker."""
        return requests * self.rates.request_seconds + 2 * moved / self.rates.worker_bytes + core_seconds

    def stage(self, name: str, tasks: int, requests: int, objects: int, moved: float, core_seconds: float = 0.0) -> Stage:
        """A stage whose work is spread evenly, unless the scheduler is slower."""
        busy = self.spent(requests, moved, core_seconds) / self.workers
        return Stage(name, tasks, requests, objects, moved, max(tasks * self.rates.task_seconds, busy))


def predicted(
    cells: int, workers: int, memory_bytes: int = 16 * 2**30, rates: Rates = RATES, *, answers: int = ANSWERS
) -> list[Stage]:
    """What every stage takes: counting beyond a worker's memory, noise, a product over two attributes, a scan, W'W, publishing."""
    cluster = Cluster(workers, memory_bytes, rates)
    return [
        counted(cluster, cells),
        drawn_alone(cluster, cells),
        drawn(cluster, cells),
        *product(cluster, cells, width_of(cells, memory_bytes)),
        summed(cluster),
        published(cluster, answers),
    ]


def counted(cluster: Cluster, cells: int) -> Stage:
    """Sparse counts of few records."""
    shards, dealing = math.ceil(8 * cells / SIZES.shard_bytes), cluster.workers * histogram_counting.PARTS_A_WORKER
    a_range = max(1, min(shards // cluster.workers, cluster.memory_bytes // 4 // SIZES.shard_bytes))
    ranges = math.ceil(shards / a_range)
    counts = dealing + cluster.grouped(ranges)
    requests = 2 * counts + shards + 5 * dealing + 2 * ranges
    return cluster.stage("count", counts, requests, counts + shards + dealing + 3, 8.0 * cells)


def drawn_alone(cluster: Cluster, cells: int) -> Stage:
    """Noise that the process of the flow draws."""
    shards, rates = math.ceil(8 * cells / SIZES.shard_bytes), cluster.rates
    return Stage(ALONE, 0, 2 * shards + 3, shards + 1, 16.0 * cells, cells / rates.noisy_cells / rates.flow_cores)


def drawn(cluster: Cluster, cells: int) -> Stage:
    """Noise that workers draw; each half of them reads back what the other one wrote, half after half, and the flow some shards."""
    shards = math.ceil(8 * cells / SIZES.shard_bytes)
    tasks = cluster.grouped(shards) + sum(cluster.grouped(math.ceil(shards / 2), some) for some in cluster.halves)
    again, rate = min(REDRAWN_SHARDS, shards), cluster.rates.noisy_cells
    requests, moved = 4 * shards + 2 * tasks + 2 * again + 9, 2 * drawn_bytes(cells)
    drawing = cluster.spent(requests / 2, moved / 2, cells / rate)
    checking = cluster.spent(requests / 2, moved / 2, cells / rate / ONE_TILE_IN)
    seconds = max(tasks * cluster.rates.task_seconds, (drawing + 2 * checking) / cluster.workers)
    return Stage("noise", tasks, requests, shards + tasks + 4, moved, seconds)


def drawn_bytes(cells: int) -> float:
    """Bytes of counts that are read while workers draw noise and check it, and as many of noisy counts that are written and read."""
    shards = math.ceil(8 * cells / SIZES.shard_bytes)
    return 16.0 * cells + min(REDRAWN_SHARDS, shards) * float(SIZES.shard_bytes)


def network_bytes(
    cells: int, *, records_bytes: float, counts_share: float, noise_share: float, partial_bytes: float
) -> dict[str, float]:
    """Bytes that go over the network while workers count and draw: what a ``Stage`` moves is arrays before they are compressed.

    Args:
        records_bytes: of the files of records, which are read for their digest, to be counted, and again before the charge.
        counts_share, noise_share: bytes in the store for each byte of counts, and of noisy counts.
        partial_bytes: in the store, of the counts of all tasks; each that adds up a shard reads those that hold it.
    """
    shards, a_partial = math.ceil(8 * cells / SIZES.shard_bytes), math.ceil(cells / SIZES.shard_bytes)
    return {
        "count": 2 * records_bytes + partial_bytes * (1 + shards / a_partial) + 8.0 * cells * counts_share,
        "noise": records_bytes + drawn_bytes(cells) * (counts_share + noise_share),
    }


def gram_network_bytes(*, rows_bytes: float, sum_bytes: float, sums: int, gram_bytes: float) -> float:
    """Bytes that go over the network while workers sum W'W in one block: rows are read, sums of them written and read, the gram written.

    Args:
        rows_bytes: of the rows, compressed.
        sum_bytes: of the sum over one task's rows in the store; there are ``sums`` of them.
        gram_bytes: of W'W in the store.
    """
    return rows_bytes + 2 * sums * sum_bytes + gram_bytes


def product(cluster: Cluster, cells: int, width: int) -> list[Stage]:
    """A product over two attributes, and a scan of what it wrote."""
    sides = [
        TransformPass(lines, _nothing, 8 * COPIES * cells // lines) for lines in (cells // width, width, cells // width)
    ]
    divided = cut(_Long(cells), sides, [Target(width, np.int64)], cluster.memory_bytes, SIZES)
    first, second, third = (len(some) for some in divided.slabs)
    shards, exchanges = math.ceil(8 * cells / SIZES.shard_bytes), divided.exchanges
    merges, merging = sum(each.merges for each in exchanges), [each for each in exchanges if each.merges]
    tasks = sum(map(cluster.grouped, [first, second, third, *(each.merges for each in exchanges)]))
    manifests = len(exchanges) + sum(len(each.groups) for each in merging)
    wide = divided.shard_lines * width
    written = math.ceil(cells / wide)
    reads = shards + sum(map(tile_reads, exchanges))
    at_once = LARGEST_SHARDS * SIZES.shard_bytes // 8  # values that a task of a scan reads where it has the memory
    ranges, again = math.ceil(cells / at_once), 1 + wide / at_once  # shards are read whole, and those on an edge twice
    scanning = cluster.grouped(ranges)
    return [
        cluster.stage(
            "product",
            tasks,
            2 * tasks + 3 * (first + second + merges) + second + third + manifests + reads + written,
            tasks + 2 * (first + second + merges) + 3 + manifests + written,
            (48.0 + 16.0 * len(merging)) * cells,
        ),
        cluster.stage("scan", scanning, 2 * scanning + ranges + written, scanning, 8.0 * cells * again),
    ]


def tile_reads(exchange: Exchange) -> int:
    """Requests that read what the tasks of a pass wrote."""
    if not exchange.merges:
        return exchange.tasks * len(exchange.slabs)
    groups = len(exchange.groups)
    return exchange.tasks * groups + exchange.merges // groups * len(exchange.slabs)


def summed(cluster: Cluster) -> Stage:
    """What W'W of ``ROWS`` takes beside its arithmetic: partial sums that are written, and added in a tree by eights.

    Sums of small whole numbers over a task's rows are in single precision, sums of them in double.
    """
    rows, n = ROWS
    width = block_columns(n, cluster.memory_bytes)
    blocks = math.ceil(n / width)
    pairs, entries = blocks * (blocks + 1) // 2, float(min(width, n) ** 2)
    summands = max(1, min(cluster.workers * RANGES_A_WORKER, rows * n // SIZES.gram_entries))
    levels = [(pairs * summands, 0)]  # tasks, and what they read together
    while summands > FAN_IN:
        levels.append((pairs * math.ceil(summands / FAN_IN), pairs * summands))
        summands = math.ceil(summands / FAN_IN)
    each = [4.0 * entries] + [8.0 * entries] * (len(levels) - 1)
    shards = [math.ceil(written / SIZES.shard_bytes) for written in each]
    last = blocks**2 * summands  # a block right of the diagonal is read again
    rounds = len(levels) + 1  # the function of each is written and fetched
    seconds = cluster.spent(
        last // blocks * (shards[-1] + 1), last // blocks * each[-1] + blocks * 8.0 * entries
    ) * math.ceil(blocks / cluster.workers)
    requests, written, moved = (
        last * (shards[-1] + 1) + 3 * blocks + 3 + 2 * rounds,
        0,
        last * each[-1] + blocks**2 * 8.0 * entries,
    )
    for level, (tasks, reads) in enumerate(levels):
        before = max(0, level - 1)
        asked, bytes_moved = (
            reads // tasks * (shards[before] + 1) + shards[level] + 2,
            reads // tasks * each[before] + each[level],
        )
        seconds += math.ceil(tasks / cluster.workers) * cluster.spent(asked, bytes_moved)
        requests += tasks * (shards[level] + 2) + reads * (shards[before] + 1)
        written += tasks * (shards[level] + 1)
        moved += reads * each[before] + tasks * each[level]
    tasks_of_all = sum(tasks for tasks, _ in levels) + blocks
    return Stage("W'W", tasks_of_all, requests, written + 2 * blocks + 1 + rounds, moved, seconds)


def published(cluster: Cluster, answers: int) -> Stage:
    """Parts of tables that workers write to where the release is published; the flow lists them, and writes certificate and signature last.

    Before that each half of the workers reads all parts back, half after half, and writes some of them again, and so does the flow.
    """
    size, core = ANSWER_BYTES / 2 * SIZES.file_rows, SIZES.file_rows / 2 / cluster.rates.published_rows
    halves, there = cluster.halves, ZARR_COLUMNS + 1
    rounds = 1 + len(halves)  # the function of each is written and fetched
    tasks, read, moved, seconds = 0, 0, ANSWER_BYTES * answers * rounds, 0.0
    for rows, files in ((SIZES.file_rows, 1), (SIZES.export_rows, ZARR_COLUMNS)):
        parts = math.ceil(answers / rows)
        again = math.ceil(parts / PARTS_PER_CHECK)
        by_flow = min(MOST_REWRITTEN, again) + (parts if len(halves) < 2 else 0)
        tasks += cluster.grouped(parts) + sum(cluster.grouped(parts, some) for some in halves)
        there += files * parts
        read += files * (parts * len(halves) + by_flow)
        moved += by_flow * size
        seconds += math.ceil(parts / cluster.workers) * cluster.spent(files + 1, size, core)
        for some in halves:
            seconds += math.ceil(parts / some) * cluster.spent(files + 1, size) + math.ceil(again / some) * core
        seconds += by_flow * cluster.spent(files, size) + min(MOST_REWRITTEN, again) * core
    requests = there + 2 + math.ceil(there / LISTED_AT_ONCE) + read + 2 * tasks + 4 * rounds
    return Stage("publish", tasks, requests, there + 2 + tasks + 2 * rounds, moved, seconds)


def width_of(cells: int, memory_bytes: int) -> int:
    """Cells of the second attribute."""
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
    return f"{slowest.name}: {slowest.seconds / 3600:.2f} h"
