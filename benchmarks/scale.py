"""Work that is larger than the memory it is given. Every part prints a section with the plain way beside it, in the same run.

    python benchmarks/scale.py all       [--large] [--minutes 30] --out benchmarks/results/scale.md   every part below, and the model
    python benchmarks/scale.py stages    [--cells 24] [--side 200]              every stage with one and two workers: CPU, traffic, objects
    python benchmarks/scale.py model     [--simulated 1e9]                      the model of a cluster, and its simulation with faults
    python benchmarks/scale.py gram      [--rows 4000000] [--columns 2048]      W'W of a stored int8 W
    python benchmarks/scale.py cells     [--cells 31]                           2^31 noisy cells
    python benchmarks/scale.py count     [--records 100000000]                  records into 10^7 cells
    python benchmarks/scale.py explicit  [--rows 1000000] [--columns 2048]      a stored W end to end
    python benchmarks/scale.py products  [--side 1000] [--ranges 100]           listed ranges over three attributes
    python benchmarks/scale.py series    [--cells 26] [--records 50000000]      2^26 steps, a running sum or a window
    python benchmarks/scale.py formulas  [--cells 26] [--records 2000000]       a formula over 26 binary attributes

with [--worker-gib 1] [--folder scratch] [--out table.md]. Workers are processes of a local Dask cluster, each with a memory limit beyond
what the program itself takes;
peak memory (proportional, so that shared pages count once) is sampled over them and this process.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet
import scipy.fft
import threadpoolctl
import zarr
from distributed import LocalCluster
from distributed.comm.tcp import TCP

from dpdist import engine, state
from dpdist.domain import Attribute, Domain
from dpdist.limits import WORKER_BYTES, cores
from dpdist.page import report
from dpdist.privacy import keys
from dpdist.records import counting, sources
from dpdist.release import story
from dpdist.release.context import Context, silent
from dpdist.release.gram import stored_gram
from dpdist.release.story import Release
from dpdist.spec import ReleaseSpec, load
from dpdist.store import Store, codec, zarr_rows
from dpdist.workloads.basis import column_codes

_T = TypeVar("_T")
GIB = 2**30


class Peak(threading.Thread):
    """Largest memory of this process and all its children together, and of the children alone."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.bytes, self.children, self.stop = 0, 0, threading.Event()

    def run(self) -> None:
        me = psutil.Process()
        while not self.stop.wait(0.2):
            own, others = _resident(me), sum(_resident(child) for child in me.children(recursive=True))
            self.bytes, self.children = max(self.bytes, own + others), max(self.children, others)


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


@contextmanager
def workers(gib: float, count: int = 2) -> Iterator[engine.Engine]:
    """Worker processes of one thread, with so much memory beyond what the program takes."""
    limit = int(gib * GIB) + WORKER_BYTES
    _count_traffic()
    os.environ[engine.WITHOUT_TLS] = "1"  # the records are made up
    with (
        LocalCluster(n_workers=count, threads_per_worker=1, memory_limit=limit, dashboard_address="127.0.0.1:0") as cluster,
        engine.started(cluster.scheduler_address) as started,
    ):
        started.client.run(_count_traffic)
        yield started


class _Traffic:
    """Bytes that this process has sent over Dask's connections."""

    sent, counted = 0, False


def _count_traffic() -> None:
    if _Traffic.counted:
        return
    _Traffic.counted, plain = True, TCP.write

    async def write(self: TCP, *arguments: Any, **options: Any) -> int:
        sent: int = await plain(self, *arguments, **options)
        _Traffic.sent += sent
        return sent

    TCP.write = write


def _sent() -> int:
    return _Traffic.sent


def spent() -> float:
    """CPU seconds of this process and its children."""
    me = psutil.Process()
    return sum(sum(each.cpu_times()[:2]) for each in [me, *me.children(recursive=True)])


@contextmanager
def measured() -> Iterator[dict[str, float]]:
    """Wall seconds and peak bytes of a block."""
    out: dict[str, float] = {}
    peak = Peak()
    peak.start()
    started = time.perf_counter()
    yield out
    out["seconds"] = time.perf_counter() - started
    peak.stop.set()
    peak.join()
    out["peak"], out["children"] = peak.bytes, peak.children


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


def write_rows(path: Path, rows: int, columns: int, kind: str = "range") -> None:
    """A W of int8 in Zarr: ranges of random ends, or random signs."""
    array = zarr.create_array(path, shape=(rows, columns), chunks=(min(rows, 8192), columns), dtype="int8", overwrite=True)
    state = np.random.default_rng(0)
    for start in range(0, rows, 8192):
        stop = min(rows, start + 8192)
        if kind == "signs":
            array[start:stop] = state.integers(-1, 2, (stop - start, columns), dtype=np.int8)
            continue
        ends = np.sort(state.integers(0, columns + 1, (stop - start, 2)), axis=1)
        cells = np.arange(columns)
        array[start:stop] = ((cells >= ends[:, :1]) & (cells < np.maximum(ends[:, 1:], ends[:, :1] + 1))).astype(np.int8)


def gram(options: argparse.Namespace, folder: Path) -> list[str]:
    """W'W of a stored int8 W against a SYRK in memory; twice, to show growth in m."""
    rows, columns = options.rows or 4_000_000, options.columns
    lines = [f"## W'W of a stored int8 W of {columns} columns, 2 workers of {options.worker_gib:g} GiB", ""]
    lines += [
        "| rows | GiB | seconds | GFLOP/s | of SYRK in memory | peak of workers, GiB | of all, GiB | exact |",
        "|---|---|---|---|---|---|---|---|",
    ]
    syrk = _syrk_rate(columns)
    write_rows(folder / "w.zarr", rows, columns, "signs")
    for m in sorted({rows // 4, rows}):
        source = zarr_rows(str(folder / "w.zarr"))
        source = type(source)(source.location, (m, columns))
        with workers(options.worker_gib) as started, measured() as took:
            started.exchange = store = Store(folder / f"store-{m}")
            found = stored_gram(store, started, source, "gram")
        some = slice(0, min(8, columns))
        truth = np.zeros((columns, some.stop), dtype=np.int64)
        for start in range(0, m, 2**16):
            block = source.read(start, min(m, start + 2**16))
            truth += (block.T.astype(np.float32) @ block[:, some].astype(np.float32)).astype(np.int64)  # sums below 2^24
        exact = bool((store.read(found)[:, some] == truth).all())
        rate = 2.0 * m * columns**2 / took["seconds"] / 1e9
        lines.append(
            f"| {m:,} | {m * columns / GIB:.1f} | {took['seconds']:.1f} | {rate:.0f} | {rate / syrk:.2f} | "
            f"{took['children'] / GIB:.2f} | {took['peak'] / GIB:.2f} | {exact} |"
        )
    return [*lines, "", f"SYRK in memory, float32, {cores()} threads: {syrk:.0f} GFLOP/s, counted as a full product."]


def _syrk_rate(columns: int) -> float:
    block = np.random.default_rng(0).integers(-1, 2, (16384, columns)).astype(np.float32)
    best = np.inf
    with threadpoolctl.threadpool_limits(cores()):
        for _ in range(4):
            started = time.perf_counter()
            block.T @ block
            best = min(best, time.perf_counter() - started)
    return 2.0 * block.shape[0] * columns**2 / best / 1e9


def cells(options: argparse.Namespace, folder: Path) -> list[str]:
    """Noise on every cell of three attributes, published as Zarr; against a plain Zarr write of the same bytes."""
    sizes = [2 ** ((options.cells + i) // 3) for i in range(3)]
    total = int(np.prod(sizes))
    content: dict[str, Any] = {
        "release": "cells",
        "records": {"path": str(folder / "records.parquet")},
        "domain": {name: {"from": 0, "to": size - 1} for name, size in zip("abc", sizes, strict=True)},
        "workload": [{"marginals": {"of": [["a", "b", "c"]]}}],
        "mechanism": "identity",
        "budget": {"rho": 0.1},
        "ledger": {"dataset": "scale", "cap": {"rho": 0.1}},
        "output": {"formats": ["zarr"]},
    }
    write_records(folder / "records.parquet", options.records or 2_000_000, min(sizes))
    lines, done = released(load(content), folder, options)
    stored = Store(folder / "home" / "store").open("measurements/cells")
    store, target = Store(folder / "home" / "store"), folder / "plain.zarr"
    plain, same = (_plain_write(store, stored.name, target, kind) for kind in ("auto", codec(stored.plan.dtype)))
    took = float(next(line for line in lines if line.startswith("| measure")).split("|")[2])
    answers = zarr.open_group(str(Path(done.folder) / "answers.zarr"), mode="r")
    errors = float(np.asarray(answers["standard_error"][:1])[0])
    (counts,) = (path.name for path in (folder / "home" / "store" / "histograms").iterdir())
    looked_at = min(2**20, total)
    truth = store.read_rows(store.open(f"histograms/{counts}"), 0, looked_at)
    some = np.asarray(answers["answer"][:looked_at]) - truth
    return [
        f"## Noise on {total:,} cells ({8 * total / GIB:.1f} GiB), 2 workers of {options.worker_gib:g} GiB",
        "",
        *lines,
        "",
        f"plain Zarr write of the noisy values in the same chunks: {plain:.1f} s with Zarr's codec, {same:.1f} s with dpdist's",
        f"exact noise, reading the counts, digests, writing and reading back against them: {took:.1f} s, {plain / took:.2f} of the "
        f"plain rate ({same / took:.2f} with dpdist's codec)",
        f"root mean square of the first {some.size:,} answers' errors over the standard error: {np.sqrt(np.mean(some**2)) / errors:.3f}",
    ]


def _plain_write(store: Store, name: str, target: Path, compressors: Any) -> float:
    """Seconds of writing the values of a stored array in its chunks; reading them is not counted."""
    stored = store.open(name)
    plan = stored.plan
    array = zarr.create_array(target, shape=plan.shape, dtype=plan.dtype, chunks=(plan.shard_rows,), compressors=compressors)
    seconds = 0.0
    for shard in range(0, plan.shards, 2):
        start, stop = plan.bounds(shard)[0], plan.bounds(min(shard + 1, plan.shards - 1))[1]
        block = store.read_rows(stored, start, stop)
        begun = time.perf_counter()
        array[start:stop] = block  # zarr writes the chunks of a slice side by side
        seconds += time.perf_counter() - begun
    shutil.rmtree(target)
    return seconds


def count(options: argparse.Namespace, folder: Path) -> list[str]:
    """Records into 10^7 cells, against DuckDB's and Polars' group-by of the same file."""
    records = options.records or 100_000_000
    path = folder / "records.parquet"
    state = np.random.default_rng(0)
    schema = pa.schema([("a", pa.int32()), ("b", pa.int32())])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, records, 10**6):
            size = min(10**6, records - start)
            columns = [pa.array(state.integers(0, top, size).astype(np.int32)) for top in (10_000, 1_000)]
            writer.write_table(pa.table(columns, schema=schema))
    domain = Domain((Attribute("a", edges=tuple(range(10_001))), Attribute("b", edges=tuple(range(1_001)))))
    keys.initialise(folder / "home")
    root = keys.load(folder / "home")
    with workers(options.worker_gib) as started, measured() as took:
        source = sources.source_of(path, columns={})
        stored, _ = counting.count(source, domain, Store(folder / "store"), started, root=root)
    counts = Store(folder / "store").read(stored)
    rows = [("dpdist, with digests", took["seconds"], took["peak"], int(counts.sum()) == records)]
    rows += _group_bys(path, counts)
    own = rows[0][1]
    return [
        f"## {records:,} records ({path.stat().st_size / GIB:.2f} GiB of Parquet) into {domain.cells:,} cells",
        "",
        "| | seconds | dpdist's rate over this one | peak, GiB | same counts |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {seconds:.1f} | {seconds / own:.2f} | {peak / GIB:.2f} | {same} |"
            for name, seconds, peak, same in rows
        ),
    ]


def _group_bys(path: Path, counts: np.ndarray) -> list[tuple[str, float, float, bool]]:
    try:
        import duckdb
        import polars
    except ImportError:
        return []
    out = []

    def same(table: pa.Table) -> bool:
        cell = table["a"].to_numpy().astype(np.int64) * 1000 + table["b"].to_numpy()
        return bool((counts[cell] == table["n"].to_numpy()).all()) and table.num_rows == int((counts > 0).sum())

    with measured() as took:
        table = duckdb.sql(f"select a, b, count(*) as n from '{path}' group by all").to_arrow_table()
    out.append(("DuckDB", took["seconds"], took["peak"], same(table)))
    with measured() as took:
        frame = polars.scan_parquet(path).group_by("a", "b").agg(polars.len().alias("n")).collect()
    out.append(("Polars", took["seconds"], took["peak"], same(frame.to_arrow())))
    return out


def explicit(options: argparse.Namespace, folder: Path) -> list[str]:
    """A stored W end to end: gram, COA, answers."""
    rows, columns = options.rows or 1_000_000, options.columns
    write_rows(folder / "w.zarr", rows, columns)
    write_records(folder / "records.parquet", options.records or 1_000_000, columns)
    content: dict[str, Any] = {
        "release": "explicit",
        "records": {"path": str(folder / "records.parquet")},
        "domain": {"a": {"from": 0, "to": columns - 1}},
        "workload": [{"rows": {"file": str(folder / "w.zarr")}}],
        "mechanism": "coa",
        "budget": {"rho": 0.1},
        "ledger": {"dataset": "scale", "cap": {"rho": 0.1}},
    }
    lines, done = released(load(content), folder, options)
    table, certificate = report.load(Path(done.folder))
    x = np.bincount(pyarrow.parquet.read_table(folder / "records.parquet")["a"].to_numpy(), minlength=columns)
    truth = np.concatenate(
        [zarr_rows(str(folder / "w.zarr")).read(s, min(rows, s + 8192)) @ x for s in range(0, rows, 8192)]
    )
    asked = table["standard_error"].to_numpy() > 0  # some ranges are empty
    deviations = (table["answer"].to_numpy() - truth)[asked] / table["standard_error"].to_numpy()[asked]
    return [
        f"## A stored W of {rows:,} x {columns} ({rows * columns / GIB:.1f} GiB, {8 * rows * columns / GIB:.0f} as float64) end to end",
        "",
        *lines,
        _certified(certificate, deviations),
    ]


def _certified(certificate: dict[str, Any], deviations: np.ndarray) -> str:
    gap, rms = certificate["mechanism"]["certified_gap"], np.sqrt(np.mean(deviations**2))
    return f"certified gap {gap:.1e}; root mean square of (answer - truth) / standard error: {rms:.3f}"


def products(options: argparse.Namespace, folder: Path) -> list[str]:
    """Listed ranges over three attributes, product of optima."""
    write_records(folder / "records.parquet", options.records or 2_000_000, options.side)
    spec = load(spec_of(folder / "records.parquet", options.side, options.ranges))
    lines, done = released(spec, folder, options)
    certificate = report.certificate_of(Path(done.folder))
    table = pyarrow.parquet.read_table(Path(done.folder) / "answers.parquet", columns=["answer", "standard_error"])
    deviations = (table["answer"].to_numpy() - _truth(spec)) / table["standard_error"].to_numpy()
    size = options.side**3
    return [
        f"## {table.num_rows:,} boxes over {size:,} cells ({8 * size / GIB:.1f} GiB of counts), 2 workers of {options.worker_gib:g} GiB",
        "",
        *lines,
        _certified(certificate, deviations),
    ]


def series(options: argparse.Namespace, folder: Path) -> list[str]:
    """A filter of a series of 2^cells steps, that ends: released through the store."""
    steps, rows = 2**options.cells, options.records or 50_000_000
    state = np.random.default_rng(0)
    with pyarrow.parquet.ParquetWriter(folder / "records.parquet", pa.schema([("t", pa.int32())])) as writer:
        for start in range(0, rows, 10**6):
            size = min(10**6, rows - start)
            moments = (steps * state.beta(2.0, 3.0, size)).astype(np.int32)
            writer.write_table(pa.table({"t": pa.array(moments, pa.int32())}))
    spec = load(
        {
            "release": "scale",
            "records": {"path": str(folder / "records.parquet")},
            "domain": {"t": {"from": 0, "to": steps - 1}},
            "workload": [
                {"filters": {"of": "t", "apply": [{"running_sum": True} if options.running else {"window": 1440}]}}
            ],
            "budget": {"epsilon": 1.0, "delta": 1e-9},
            "ledger": {"dataset": "scale", "cap": {"epsilon": 1.0, "delta": 1e-8}},
            "output": {"formats": ["parquet"]},
        }
    )
    lines, done = released(spec, folder, options)
    tables = sorted(Path(done.folder, "answers.parquet").rglob("*.parquet")) or [Path(done.folder, "answers.parquet")]
    counts = np.zeros(steps, dtype=np.int64)
    for batch in pyarrow.parquet.ParquetFile(folder / "records.parquet").iter_batches():
        np.add.at(counts, batch["t"].to_numpy(), 1)
    sums = np.cumsum(counts)
    start, squares, told = 0, 0.0, 0.0
    for path in tables:
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(columns=["answer", "standard_error"]):
            stop = start + batch.num_rows
            truth = sums[start:stop].astype(np.float64)
            if not options.running:
                truth -= np.where(np.arange(start, stop) >= 1440, sums[np.maximum(np.arange(start, stop) - 1440, 0)], 0)
            wrong = (batch["answer"].to_numpy() - truth) / batch["standard_error"].to_numpy()
            squares, told, start = squares + float(wrong @ wrong), batch["standard_error"][0].as_py(), stop
    del counts, sums
    padded = np.zeros(2 * steps)
    begun = time.perf_counter()
    scipy.fft.rfft(padded)
    fft = time.perf_counter() - begun
    name = "running sum" if options.running else "sum of 1440 steps"
    return [
        f"## {name} of 2^{options.cells} steps ({8 * steps / GIB:.2f} GiB of counts), {rows:,} records, "
        f"2 workers of {options.worker_gib:g} GiB",
        "",
        *lines,
        f"{start:,} answers, standard error {told:.3g}; root mean square of (answer - truth) / standard error: "
        f"{math.sqrt(squares / start):.3f}; "
        f"certified gap {done.certificate['mechanism']['certified_gap']:.3g}; one real FFT of the padded series in memory: {fft:.1f} s",
    ]


def formulas(options: argparse.Namespace, folder: Path) -> list[str]:
    """A disjunction over 2^cells combinations, for every way to negate its attributes: released through the store."""
    bits, rows = options.cells, options.records or 2_000_000
    state = np.random.default_rng(0)
    names = [f"x{i}" for i in range(bits)]
    values = state.random((rows, bits)) < np.linspace(0.2, 0.8, bits)
    table = pa.table({name: pa.array(values[:, i].astype(np.int8)) for i, name in enumerate(names)})
    pyarrow.parquet.write_table(table, folder / "records.parquet")
    terms = [names[start : start + 5] for start in range(0, bits, 5)]
    spec = load(
        {
            "release": "scale",
            "records": {"path": str(folder / "records.parquet")},
            "domain": {name: {"from": 0, "to": 1} for name in names},
            "workload": [{"dnf": {"terms": terms}}],
            "budget": {"epsilon": 1.0, "delta": 1e-9},
            "ledger": {"dataset": "scale", "cap": {"epsilon": 1.0, "delta": 1e-8}},
            "output": {"formats": ["zarr"]},
        }
    )
    lines, done = released(spec, folder, options)
    picked = np.sort(state.integers(0, 2**bits, 400))
    wrong = []
    for row in picked.tolist():
        negated = values ^ np.array([row >> (bits - 1 - i) & 1 for i in range(bits)], dtype=bool)
        truth = np.zeros(rows, dtype=bool)
        for start in range(0, bits, 5):
            truth |= negated[:, start : start + 5].all(axis=1)
        (answer,), (error,) = (column.read(row, row + 1) for column in (done.columns.answer, done.columns.error))
        wrong.append((answer - truth.sum()) / error)
    return [
        f"## a disjunction of {len(terms)} conjunctions over 2^{bits} cells ({8 * 2**bits / GIB:.2f} GiB of counts), {rows:,} records, "
        f"2 workers of {options.worker_gib:g} GiB",
        "",
        *lines,
        f"{2**bits:,} answers, standard error {error:.3g}; {_certified(done.certificate, np.array(wrong))}",
    ]


def released(spec: ReleaseSpec, folder: Path, options: argparse.Namespace) -> tuple[list[str], Release]:
    """Publish a release; one row a stage, then memory."""
    home = folder / "home"
    keys.initialise(home)
    took: dict[str, tuple[float, float]] = {}

    def step(name: str, work: Callable[[], _T]) -> _T:
        begun, cpu = time.perf_counter(), spent()
        out = work()
        took[name] = time.perf_counter() - begun, spent() - cpu
        return out

    with workers(options.worker_gib) as started, measured() as whole:
        context = Context(home, state.store_of(home), started, silent)
        done = story.release(context, spec, step=step)
    lines = ["| stage | seconds | CPU s |", "|---|---|---|"]
    lines += [*(f"| {name} | {seconds:.1f} | {cpu:.1f} |" for name, (seconds, cpu) in took.items()), ""]
    lines.append(
        f"peak memory: {whole['children'] / GIB:.2f} GiB of the workers, {whole['peak'] / GIB:.2f} GiB with this process"
    )
    return lines, done


def stages(options: argparse.Namespace, folder: Path) -> list[str]:
    """Every stage of three releases with one and with two workers: what it takes, and what the second worker brings."""
    steps = 2**options.cells
    attributes = {name: {"from": 0, "to": options.side - 1} for name in "abc"}
    ranges = {name: [[0, end] for end in range(options.side)] for name in "abc"}
    kinds: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
        "noisy cells": (attributes, {"marginals": {"of": [["a", "b", "c"]]}}, "identity"),
        "a product": (
            attributes,
            {"ranges": {"of": list("abc"), "lists": {**ranges, "b": [[0, 9]], "c": [[0, 9]]}}},
            "kronecker",
        ),
        "a filter": ({"t": {"from": 0, "to": steps - 1}}, {"filters": {"of": "t", "apply": [{"window": 1440}]}}, "auto"),
    }
    write_records(folder / "cube.parquet", options.records or 2_000_000, options.side)
    moments = (steps * np.random.default_rng(0).beta(2.0, 3.0, options.records or 2_000_000)).astype(np.int32)
    pyarrow.parquet.write_table(pa.table({"t": moments}), folder / "series.parquet")
    lines = [
        f"## Every stage with one and two workers of {options.worker_gib:g} GiB: {options.side**3:,} cells, {steps:,} steps",
        "",
        "| release | stage | CPU s, 1 worker | CPU s, 2 workers | seconds, 1 worker | seconds, 2 workers | KiB by Dask, 2 workers | "
        "objects kept | MiB kept |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for kind, (domain, workload, mechanism) in kinds.items():
        took = []
        for count in (1, 2):
            spec = load(
                {
                    "release": "stages",
                    "records": {"path": str(folder / ("series.parquet" if "t" in domain else "cube.parquet"))},
                    "domain": domain,
                    "workload": [workload],
                    "mechanism": mechanism,
                    "budget": {"rho": 0.1},
                    "ledger": {"dataset": "scale", "cap": {"rho": 0.1}},
                    "output": {"formats": ["parquet"], "folder": str(folder / f"{kind}-{count}")},
                }
            )
            took.append(_every_stage(spec, folder / f"home-{kind}-{count}", options.worker_gib, count))
        for one, two in zip(*took, strict=True):
            lines.append(
                f"| {kind} | {one[0]} | {one[1]:.1f} | {two[1]:.1f} | {one[2]:.1f} | {two[2]:.1f} | {two[5] / 2**10:,.0f} | {two[3]:,} | "
                f"{two[4] / 2**20:,.0f} |"
            )
    return lines


def _every_stage(spec: ReleaseSpec, home: Path, gib: float, count: int) -> list[tuple[str, float, float, int, int, int]]:
    """Stage, CPU seconds of all processes, seconds, objects and bytes left in the store, bytes sent by client, scheduler and workers."""
    keys.initialise(home)
    os.environ["DPDIST_HOME"] = str(home)
    out: list[tuple[str, float, float, int, int, int]] = []

    def kept() -> list[int]:
        return [path.stat().st_size for path in (home / "store").rglob("*") if path.is_file()]

    def moved() -> int:
        return _sent() + sum(started.client.run(_sent).values())

    def step(name: str, work: Callable[[], _T]) -> _T:
        cpu, begun, before, sent = spent(), time.perf_counter(), kept(), moved()
        done = work()
        after = kept()
        figures = (spent() - cpu, time.perf_counter() - begun, len(after) - len(before), sum(after) - sum(before))
        out.append((name, *figures, moved() - sent))
        return done

    with workers(gib, count) as started:
        started.map(_import, list(range(4 * count)))  # workers import before anything is measured
        story.release(Context(home, state.store_of(home), started, silent), spec, step=step)
    return out


def _import(_: int) -> None:
    pass


def model(options: argparse.Namespace, folder: Path) -> list[str]:
    """What larger clusters would take, and how that compares with the real orchestration on simulated storage."""
    del folder
    command = [sys.executable, "-m", "flows.scaling", "--model", "--simulate", str(options.simulated), "--workers", "100"]
    told = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    return ["## The model of larger releases, and its simulation", "", "With faults: " + FAULTS, "", told.rstrip()]


ROOT = Path(__file__).resolve().parent.parent
FAULTS = "1 % of tasks die, 0.1 % of requests are lost, 0.1 % are done twice, one in a million fails for good."
EVERY = (
    ("stages", "--cells 20 --side 100 --records 500000", "--cells 24 --side 200"),
    ("model", "--simulated 1e9", "--simulated 1e11"),
    ("gram", "--rows 200000 --columns 512", ""),
    ("cells", "--cells 24 --records 500000", ""),
    ("count", "--records 5000000", ""),
    ("explicit", "--rows 50000 --columns 512 --records 500000", ""),
    ("products", "--side 300 --ranges 60 --records 500000", ""),
    ("products", "--side 60 --ranges 120 --records 500000", "--side 330 --ranges 464"),
    ("series", "--cells 20 --records 1000000", "--cells 28"),
    ("formulas", "--cells 20 --records 200000", "--cells 28 --records 1000000"),
)
"""Every part with its small and its large options."""


def every(options: argparse.Namespace) -> None:
    """Write the sections of all parts, each by a process of its own, as they end."""
    lines = [
        "# Beyond memory",
        "",
        f"`python benchmarks/scale.py all{' --large' if options.large else ''}`, {cores()} cores, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, Linux {platform.release()}; the load average was {os.getloadavg()[1]:.0f} at the beginning. "
        "Workers are processes of a local Dask cluster, each with a limit of memory beyond what the program takes. CPU seconds are those "
        "of all processes together. Memory is proportional set size, sampled every 0.2 s.",
        "",
    ]
    for part, small, large in EVERY:
        chosen = large if options.large else small
        command = [sys.executable, __file__, part, *chosen.split(), "--worker-gib", str(options.worker_gib)]
        try:
            with tempfile.TemporaryDirectory(dir=options.folder, ignore_cleanup_errors=True) as scratch:
                command += ["--folder", scratch]
                done = subprocess.run(command, capture_output=True, text=True, timeout=60 * options.minutes, check=False)
            told = (
                done.stdout
                if done.returncode == 0
                else f"## {part} {chosen}\n\nended with an error: {done.stderr.strip()[-300:]}\n"
            )
        except subprocess.TimeoutExpired:
            told = f"## {part} {chosen}\n\ndid not end within {options.minutes:g} minutes\n"
        lines += [told.rstrip(), "", f"`{' '.join(['python benchmarks/scale.py', part, *chosen.split()])}`", ""]
        (options.out or Path(os.devnull)).write_text("\n".join(lines))
    print("\n".join(lines))


PARTS: dict[str, Callable[[argparse.Namespace, Path], list[str]]] = {
    "stages": stages,
    "model": model,
    "gram": gram,
    "cells": cells,
    "count": count,
    "explicit": explicit,
    "products": products,
    "series": series,
    "formulas": formulas,
}


def main() -> None:
    """Run a part and print its section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["all", *PARTS])
    parser.add_argument("--rows", type=int)
    parser.add_argument("--columns", type=int, default=2048)
    parser.add_argument("--cells", type=int, default=31, help="log2 of the number of cells")
    parser.add_argument("--simulated", type=float, default=1e9, help="cells of the model's simulation")
    parser.add_argument("--side", type=int, default=1000)
    parser.add_argument("--ranges", type=int, default=100)
    parser.add_argument("--records", type=int)
    parser.add_argument("--running", action="store_true", help="series: a running sum, not a window")
    parser.add_argument("--worker-gib", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, help="where scratch data goes; default: the system's")
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--large", action="store_true", help="all: 2^31 cells, 10^8 answers and so on; hours, and 40 GB of scratch"
    )
    parser.add_argument("--minutes", type=float, default=60, help="all: most of one part")
    options = parser.parse_args()
    if options.part == "all":
        every(options)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        os.environ["DPDIST_HOME"] = str(folder / "home")
        os.chdir(folder)
        out = options.out
        table = "\n".join(PARTS[options.part](options, folder)) + "\n"
        os.chdir("/")
    print(table)
    if out:
        out.write_text(table)


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
