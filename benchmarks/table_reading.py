"""How long tables take that are read from noisy cells, up to 10^8 cells.

    python benchmarks/table_reading.py [--cells 6 7 8] [--folder FOLDER] [--out benchmarks/results/table_reading.md]

Every cell is measured by itself (mechanism 'identity'). The cells lie in the store, shard by shard; the tables are the first ones of those
of one attribute, of two, and so on. 'seconds' and 'CPU s' are those of all answers with their standard errors and half widths, by tasks of
one process; 'memory' is what a task may take by plan.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from dpdist import engine
from dpdist.arrays.lazy_vector import LazyVector
from dpdist.domain import Domain
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import Kind
from dpdist.reconstruction.answer_vectors import AnswerRequest
from dpdist.reconstruction.table_reduction import TableReduction
from dpdist.runtime.stored_vectors import StoreWorkspace
from dpdist.storage.array_store import Store
from dpdist.strategies import identity
from dpdist.workloads import Workload
from dpdist.workloads.product_queries import listed_marginals

SHAPES = {6: ((4,) * 10, 300), 7: ((4,) * 11 + (3,), 1200), 8: ((4,) * 12 + (6,), 300)}
"""By the logarithm of the cells: sizes of attributes, and how many tables."""
NOISE = Noise(Kind.GAUSSIAN, 100)
COLUMNS = ("cells", "tables", "answers", "seconds", "CPU s", "memory")


def first_tables(shape: tuple[int, ...], count: int) -> Workload:
    """So many tables, those of few attributes first."""
    domain = Domain.of_shape(shape)
    subsets = (subset for ways in range(1, len(shape)) for subset in itertools.combinations(domain.names, ways))
    return listed_marginals(domain, list(itertools.islice(subsets, count)))


def _noisy_cells(start: int, count: int) -> np.ndarray:
    return np.random.default_rng(start).integers(-100, 1000, count)


def measure(shape: tuple[int, ...], tables: int, folder: Path) -> tuple[str, ...]:
    """A line of the table."""
    workload = first_tables(shape, tables)
    measurement = identity(workload.shape[1]).measurement(workload, neighbours="add-remove", most_records=1)
    work = StoreWorkspace(Store(folder / "store"), engine.inline())
    drawn = LazyVector(workload.shape[1], (), _noisy_cells, 8, "benchmark", np.dtype(np.int64))
    cells = work.write(drawn, "cells")
    started, busy = time.perf_counter(), time.process_time()
    measurement.answers(workload, cells, NOISE, AnswerRequest("answers", work))
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - busy
    memory = TableReduction(workload, measurement.spacing).task_bytes()
    return (
        f"{workload.shape[1]:,}",
        f"{tables:,}",
        f"{workload.shape[0]:,}",
        f"{seconds:.1f}",
        f"{cpu_seconds:.1f}",
        f"{memory / 2**20:,.0f} MiB",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, nargs="+", choices=sorted(SHAPES), default=[6, 7])
    parser.add_argument("--folder", type=Path, default=None, help="where the cells are stored meanwhile")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for logarithm in options.cells:
        folder = Path(tempfile.mkdtemp(dir=options.folder))
        try:
            lines.append(f"| {' | '.join(measure(*SHAPES[logarithm], folder))} |")
        finally:
            shutil.rmtree(folder)
        print(lines[-1], flush=True)
    if options.out is not None:
        about = "\n\n".join(part for part in (__doc__ or "").split("\n\n") if not part.startswith("    python"))
        command = f"`python benchmarks/table_reading.py --cells {' '.join(map(str, options.cells))}`"
        title, _, rest = about.partition("\n\n")
        table = "\n".join(lines)
        options.out.write_text(
            f"# Tables read from noisy cells\n\n{command}\n\n{title}\n\n{rest.strip()}\n\n{table}\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
