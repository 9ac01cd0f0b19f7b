"""A release over a histogram that is larger than the memory it is given: listed ranges over three attributes, product of optima.

    python benchmarks/scale.py [--side 1000] [--ranges 100] [--records 2000000] [--worker-gib 1.5] [--out table.md]

Workers are processes of a local Dask cluster with a memory limit each; peak memory is sampled over them and this process.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet
from distributed import LocalCluster

from dpdist import engine, report, stages
from dpdist.privacy import keys
from dpdist.spec import ReleaseSpec, load
from dpdist.workloads.basis import column_codes

_T = TypeVar("_T")


class Peak(threading.Thread):
    """Largest resident memory of this process and all its children together."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.bytes, self.stop = 0, threading.Event()

    def run(self) -> None:
        me = psutil.Process()
        while not self.stop.wait(0.2):
            total = 0
            for process in [me, *me.children(recursive=True)]:
                try:
                    total += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.bytes = max(self.bytes, total)


def write_records(path: Path, rows: int, side: int) -> None:
    """Three correlated attributes, with a seed."""
    state = np.random.default_rng(0)
    schema = pa.schema([(name, pa.int32()) for name in "abc"])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, 10**6):
            size = min(10**6, rows - start)
            centre = state.integers(0, side, size)
            columns = [np.clip(centre + state.normal(0, side / 10, size).astype(np.int64), 0, side - 1) for _ in "abc"]
            writer.write_table(pa.table([pa.array(c, pa.int32()) for c in columns], schema=schema))


def spec_of(records: Path, side: int, ranges: int) -> dict[str, object]:
    state = np.random.default_rng(1)
    lists = {name: np.sort(state.integers(0, side, (ranges, 2)), axis=1).tolist() for name in "abc"}
    return {
        "release": "scale",
        "records": {"path": str(records)},
        "domain": {name: {"from": 0, "to": side - 1} for name in "abc"},
        "workload": [{"ranges": {"of": list("abc"), "lists": lists}}],
        "mechanism": "kronecker",
        "budget": {"rho": 0.1},
        "ledger": {"dataset": "scale", "cap": {"rho": 0.1}},
    }


def main() -> None:
    """Run the release and print what each stage took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=1000)
    parser.add_argument("--ranges", type=int, default=100)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--worker-gib", type=float, default=1.5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        keys.initialise(home)
        write_records(Path(folder) / "records.parquet", options.records, options.side)
        spec = load(spec_of(Path(folder) / "records.parquet", options.side, options.ranges))
        os.chdir(folder)
        lines = _measured(home, spec, options)
    table = "\n".join(lines) + "\n"
    print(table)
    if options.out:
        options.out.write_text(table)


def _measured(home: Path, spec: ReleaseSpec, options: argparse.Namespace) -> list[str]:
    """The table: one row a stage, then memory, and the errors against the truth."""
    cells = options.side**3
    peak = Peak()
    peak.start()
    took: dict[str, float] = {}

    def step(name: str, work: Callable[[], _T]) -> _T:
        started = time.perf_counter()
        out = work()
        took[name] = time.perf_counter() - started
        return out

    limit = int(options.worker_gib * 2**30)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, memory_limit=limit, dashboard_address=None) as cluster,
        engine.started(cluster.scheduler_address) as started,
    ):
        context = stages.Context(home, stages.store_of(home), started, stages.silent)
        done = stages.release(context, spec, step=step)
    peak.stop.set()
    table, certificate = report.load(done.folder)
    deviations = (table["answer"].to_numpy() - _truth(spec)) / table["standard_error"].to_numpy()
    lines = [
        f"{cells:,} cells ({8 * cells / 2**30:.1f} GiB of counts), {options.records:,} records, "
        f"{table.num_rows:,} queries, 2 workers of {options.worker_gib:g} GiB",
        "",
        "| stage | seconds |",
        "|---|---|",
        *(f"| {name} | {seconds:.1f} |" for name, seconds in took.items()),
        "",
        f"peak memory of all processes together: {peak.bytes / 2**30:.2f} GiB "
        f"({peak.bytes / (8 * cells):.2f} of the counts)",
        f"certified gap {certificate['mechanism']['certified_gap']:.1e}; "
        f"root mean square of (answer - truth) / standard error: {np.sqrt(np.mean(deviations**2)):.3f}",
    ]
    return lines


def _truth(spec: ReleaseSpec) -> np.ndarray:
    """True answers from the records alone: intervals are looked up in a cube of counts over their distinct ends."""
    (block,) = spec.queries.blocks
    records = pyarrow.parquet.read_table(spec.records_path)
    codes, factors = [], []
    for name, factor in zip("abc", block.factors, strict=True):
        merged = column_codes(factor)
        _, first = np.unique(merged, return_index=True)
        codes.append(merged[records[name].to_numpy()])
        factors.append(factor.dense()[:, first])
    sizes = [f.shape[1] for f in factors]
    cube = np.bincount(np.ravel_multi_index(codes, sizes), minlength=int(np.prod(sizes))).reshape(sizes).astype(np.float64)
    return np.einsum("ai,bj,ck,ijk->abc", *factors, cube, optimize=True).ravel()


if __name__ == "__main__":
    main()
