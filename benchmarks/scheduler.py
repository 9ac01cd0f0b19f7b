"""Plain futures beside dask.array: the same work on one worker process, tasks and CPU seconds of each side.

    python benchmarks/scheduler.py [--rows 400000] [--columns 512] [--chunks 2000] [--out table.md]

W'W of a generated W, a sum over many chunks, and tasks that do nothing. "Here" is this process: the client and the scheduler.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import dask.array
import numpy as np
import psutil
from distributed import LocalCluster
from distributed.diagnostics.plugin import SchedulerPlugin
from scaling import signs

from dpdist import engine
from dpdist.engine import runner
from dpdist.operators import Generated
from dpdist.runtime.gram_computation import stored_gram
from dpdist.storage.array_store import Store

CHUNK = 2**14
"""Values of a chunk of the sum: what a task does is little beside what it costs."""


@dataclass
class Cost:
    """What a piece of work took.

    Attributes:
        tasks: that the scheduler ran.
        here, worker: CPU seconds.
        peak: of the worker's memory beyond what it took before, bytes.
    """

    tasks: int
    here: float
    worker: float
    peak: int


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[engine.Engine, Any]]:
    os.environ[engine.WITHOUT_TLS] = "1"  # the rows are made up
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, memory_limit="3GiB", dashboard_address="127.0.0.1:0") as found,
        engine.open_engine(found.scheduler_address) as started,
    ):
        started.exchange = Store(folder / "store")
        yield started, found.scheduler


class Finished(SchedulerPlugin):
    """Counts the tasks that finish."""

    def __init__(self) -> None:
        self.tasks = 0

    def transition(self, key: Any, start: Any, finish: str, *arguments: Any, **options: Any) -> None:
        del key, start, arguments, options
        self.tasks += finish == "memory"


def took(started: engine.Engine, scheduler: Any, work: Callable[[], object]) -> Cost:
    """What some work costs here and on the one worker."""
    (worker,) = started.client.run(os.getpid).values()
    process, finished = psutil.Process(worker), Finished()
    scheduler.add_plugin(finished)
    before, here, resident = sum(process.cpu_times()[:2]), time.process_time(), process.memory_info().rss
    work()
    here, cpu = time.process_time() - here, sum(process.cpu_times()[:2]) - before
    (peak,) = started.client.run(_peak).values()
    return Cost(finished.tasks, here, cpu, peak - resident)


def _peak() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def gram_by_futures(started: engine.Engine, rows: int, columns: int) -> None:
    stored_gram(started.exchange, started, Generated((rows, columns), partial(signs, columns)), "gram")


def gram_by_dask(started: engine.Engine, rows: int, columns: int) -> None:
    """Blocks of 128 MiB in single precision, as the futures take."""
    step = 2**27 // (4 * columns)

    def block(block_info: Any = None) -> np.ndarray:
        start, stop = block_info[None]["array-location"][0]
        return signs(columns, start, stop).astype(np.float32)

    w = dask.array.map_blocks(
        block, chunks=((step,) * (rows // step) + ((rows % step,) if rows % step else ()), (columns,)), dtype="f4"
    )
    started.client.compute(w.T @ w).result()


def sum_of_squares(start: int) -> float:
    return float((np.arange(start, start + CHUNK, dtype=np.float64) ** 2).sum())


def sum_by_futures(started: engine.Engine, chunks: int) -> None:
    sum(started.map(sum_of_squares, [CHUNK * i for i in range(chunks)]))


def sum_by_dask(started: engine.Engine, chunks: int) -> None:
    started.client.compute((dask.array.arange(CHUNK * chunks, chunks=CHUNK, dtype="f8") ** 2).sum()).result()


def nothing(item: int) -> None:
    del item


def nothing_by_futures(started: engine.Engine, chunks: int) -> None:
    started.map(nothing, list(range(chunks)))


def nothing_in_groups(started: engine.Engine, chunks: int) -> None:
    """As a stage of more than ``MOST_TASKS`` items is."""
    before, runner.MOST_TASKS = runner.MOST_TASKS, max(1, chunks // 10)
    started.map(nothing, list(range(chunks)))
    runner.MOST_TASKS = before


def nothing_by_dask(started: engine.Engine, chunks: int) -> None:
    dask.compute([dask.delayed(nothing)(i) for i in range(chunks)], scheduler=started.client)


def main() -> None:
    """Run every piece in a cluster of its own and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--columns", type=int, default=512)
    parser.add_argument("--chunks", type=int, default=2000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    sizes, many = (options.rows, options.columns), (options.chunks,)
    pieces: list[tuple[str, str, Callable[..., None], tuple[int, ...]]] = [
        ("W'W", "plain futures", gram_by_futures, sizes),
        ("W'W", "dask.array", gram_by_dask, sizes),
        ("sum", "plain futures", sum_by_futures, many),
        ("sum", "dask.array", sum_by_dask, many),
        ("nothing", "plain futures", nothing_by_futures, many),
        ("nothing", "plain futures, ten items a task", nothing_in_groups, many),
        ("nothing", "dask.delayed", nothing_by_dask, many),
    ]
    lines = [
        f"W'W of {options.rows:,} x {options.columns:,} signs; {options.chunks:,} chunks. Dask {dask.__version__}.",
        "",
        "| work | by | tasks | CPU s here | CPU s worker | memory of the worker, MiB |",
        "|---|---|---|---|---|---|",
    ]
    for work, by, function, arguments in pieces:
        with tempfile.TemporaryDirectory() as folder, cluster(Path(folder)) as (started, scheduler):
            function(started, *(min(each, 512) for each in arguments))  # the worker imports before anything is measured
            started.exchange = Store(Path(folder) / "measured")
            cost = took(started, scheduler, partial(function, started, *arguments))
            lines.append(
                f"| {work} | {by} | {cost.tasks:,} | {cost.here:.2f} | {cost.worker:.2f} | {cost.peak / 2**20:,.0f} |"
            )
    table = "\n".join(lines) + "\n"
    print(table)
    if options.out:
        options.out.write_text(table, encoding="utf-8")


if __name__ == "__main__":
    cloudpickle.register_pickle_by_value(__import__("__main__"))
    main()
