"""Work that is larger than the memory it is given. Every part prints a section with the plain way beside it, in the same run.

    python benchmarks/scale.py all [--large] [--only cells gram] [--out benchmarks/results/scale.md]

runs every part, each in a process of its own, at a small size or at the large one, and puts its section into the file: in place of the one
that the same command printed before. The shortest part runs first. A part that takes longer than --minutes is ended with all its processes,
and its scratch is removed. The parts, with their large sizes as defaults:

{parts}

with [--worker-gib 1] [--folder scratch] [--out table.md]. Workers are processes of a local Dask cluster, each with a memory limit beyond
what the program itself takes; peak memory (proportional, so that shared pages count once) is sampled over them and this process. Every
section tells the peak beside what was promised, and ends with its command, the version, the machine, its load and the CPU seconds of all
processes.
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import scipy.fft
import threadpoolctl
import zarr
from resource_meters import GIB, Use, measure_use, measured, spent, worker_limit, workers
from result_sections import headed, merged, unprinted_headings

from dpdist.counting import histogram_counting
from dpdist.domain import Attribute, Domain
from dpdist.pipeline import release_run
from dpdist.pipeline.release_run import Release
from dpdist.privacy import keys
from dpdist.process.resource_limits import cores
from dpdist.publish import release_folder
from dpdist.runtime.context import Context, ignore_progress
from dpdist.runtime.gram_computation import stored_gram
from dpdist.sources import record_sources
from dpdist.spec import Job, load
from dpdist.storage import home_folder
from dpdist.storage.array_store import COMPRESSOR, LEVEL, Store
from dpdist.storage.zarr_matrices import zarr_rows
from dpdist.version import version
from dpdist.workloads.integer_basis import column_codes

_T = TypeVar("_T")


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


def write_moments(path: Path, rows: int, steps: int) -> None:
    """Moments in a series, with a seed."""
    state = np.random.default_rng(0)
    with pyarrow.parquet.ParquetWriter(path, pa.schema([("t", pa.int32())])) as writer:
        for start in range(0, rows, 10**6):
            moments = (steps * state.beta(2.0, 3.0, min(10**6, rows - start))).astype(np.int32)
            writer.write_table(pa.table({"t": pa.array(moments, pa.int32())}))


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
    rows, columns = options.rows, options.columns
    lines = [f"## W'W of a stored int8 W of {columns} columns, 2 workers of {options.worker_gib:g} GiB", ""]
    lines += [
        "| rows | GiB | seconds | CPU s | GFLOP/s | of SYRK in memory | peak of workers, GiB | of all, GiB | exact |",
        "|---|---|---|---|---|---|---|---|---|",
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
        exact = bool((store.read_array(found)[:, some] == truth).all())
        rate = 2.0 * m * columns**2 / took["seconds"] / 1e9
        lines.append(
            f"| {m:,} | {m * columns / GIB:.1f} | {took['seconds']:.1f} | {took['cpu']:.1f} | {rate:.0f} | {rate / syrk:.2f} | "
            f"{took['children'] / GIB:.2f} | {took['peak'] / GIB:.2f} | {exact} |"
        )
    return [
        *lines,
        "",
        _allowed(options),
        "",
        f"SYRK in memory, float32, {cores()} threads: {syrk:.0f} GFLOP/s, counted as a full product.",
    ]


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
    write_records(folder / "records.parquet", options.records, min(sizes))
    lines, done = released(load(content), folder, options)
    stored = Store(folder / "home" / "store").open("measurements/cells")
    store, target = Store(folder / "home" / "store"), folder / "plain.zarr"
    own = zarr.codecs.BloscCodec(cname=COMPRESSOR, clevel=LEVEL, shuffle="bitshuffle")
    plain, same = (_plain_write(store, stored.name, target, kind) for kind in ("auto", own))
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
        f"- plain Zarr write of the noisy values in the same chunks: {plain:.1f} s with Zarr's codec, {same:.1f} s with dpdist's",
        f"- exact noise, reading the counts, digests, writing and reading back against them: {took:.1f} s, {plain / took:.2f} of the "
        f"plain rate ({same / took:.2f} with dpdist's codec)",
        f"- root mean square of the first {some.size:,} answers' errors over the standard error: {np.sqrt(np.mean(some**2)) / errors:.3f}",
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
    """Records into 10^7 cells, against DuckDB's and Polars' group-by of the same files."""
    records, path = options.records, folder / "records"
    path.mkdir()
    state = np.random.default_rng(0)
    schema = pa.schema([("a", pa.int32()), ("b", pa.int32())])
    for number, some in enumerate(np.diff(np.linspace(0, records, options.files + 1).astype(int))):
        with pyarrow.parquet.ParquetWriter(path / f"{number:06}.parquet", schema) as writer:
            for start in range(0, some, 10**6):
                size = min(10**6, some - start)
                columns = [pa.array(state.integers(0, top, size).astype(np.int32)) for top in (10_000, 1_000)]
                writer.write_table(pa.table(columns, schema=schema))
    domain = Domain((Attribute("a", edges=tuple(range(10_001))), Attribute("b", edges=tuple(range(1_001)))))
    keys.initialise(folder / "home")
    root = keys.load(folder / "home")
    with workers(options.worker_gib) as started, measured() as took:
        source = record_sources.source_of(path, columns={})
        stored, _ = histogram_counting.count(source, domain, Store(folder / "store"), started, root=root)
    counts = Store(folder / "store").read_array(stored)
    rows = [("dpdist, with digests", took, int(counts.sum()) == records)]
    rows += _group_bys(path, counts)
    own, written = rows[0][1]["seconds"], sum(each.stat().st_size for each in path.iterdir()) / GIB
    objects = sum(each.is_file() for each in (folder / "store").rglob("*"))
    return [
        f"## {records:,} records ({written:.2f} GiB of Parquet in {options.files:,} files) into {domain.cells:,} cells",
        "",
        "| | seconds | CPU s | dpdist's rate over this one | peak, GiB | same counts |",
        "|---|---|---|---|---|---|",
        *(
            f"| {name} | {took['seconds']:.1f} | {took['cpu']:.1f} | {took['seconds'] / own:.2f} | {took['peak'] / GIB:.2f} | {same} |"
            for name, took, same in rows
        ),
        "",
        f"{_peaks(rows[0][1], options)}; {objects:,} objects in the store",
    ]


def _group_bys(path: Path, counts: np.ndarray) -> list[tuple[str, dict[str, float], bool]]:
    try:
        import duckdb
        import polars
    except ImportError:
        return []
    out = []

    def has_true_counts(table: pa.Table) -> bool:
        cell = table["a"].to_numpy().astype(np.int64) * 1000 + table["b"].to_numpy()
        return bool((counts[cell] == table["n"].to_numpy()).all()) and table.num_rows == int((counts > 0).sum())

    with measured() as took:
        table = duckdb.sql(f"select a, b, count(*) as n from '{path}/*.parquet' group by all").to_arrow_table()
    out.append(("DuckDB", took, has_true_counts(table)))
    with measured() as took:
        frame = polars.scan_parquet(path).group_by("a", "b").agg(polars.len().alias("n")).collect()
    out.append(("Polars", took, has_true_counts(frame.to_arrow())))
    return out


def explicit(options: argparse.Namespace, folder: Path) -> list[str]:
    """A stored W end to end: gram, COA, answers."""
    rows, columns = options.rows, options.columns
    write_rows(folder / "w.zarr", rows, columns)
    write_records(folder / "records.parquet", options.records, columns)
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
    table, certificate = release_folder.load_release(Path(done.folder))
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
    write_records(folder / "records.parquet", options.records, options.side)
    spec = load(spec_of(folder / "records.parquet", options.side, options.ranges))
    lines, done = released(spec, folder, options)
    certificate = release_folder.certificate_of(Path(done.folder))
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
    steps, rows = 2**options.cells, options.records
    write_moments(folder / "records.parquet", rows, steps)
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
    bits, rows = options.cells, options.records
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


def released(spec: Job, folder: Path, options: argparse.Namespace) -> tuple[list[str], Release]:
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
        context = Context(home, home_folder.store_of(home), started, ignore_progress)
        done = release_run.release(context, spec, step=step)
    lines = ["| stage | seconds | CPU s |", "|---|---|---|"]
    lines += [*(f"| {name} | {seconds:.1f} | {cpu:.1f} |" for name, (seconds, cpu) in took.items()), ""]
    return [*lines, _peaks(whole, options), ""], done


def _peaks(took: dict[str, float], options: argparse.Namespace, count: int = 2) -> str:
    """The peak of memory, beside what was promised."""
    return (
        f"peak memory: {took['children'] / GIB:.2f} GiB of the workers, {took['peak'] / GIB:.2f} GiB with this process; "
        + _allowed(options, count)
    )


def _allowed(options: argparse.Namespace, count: int = 2) -> str:
    named = "two workers" if count == 2 else "one worker"
    return f"{named} may take {count * worker_limit(options.worker_gib) / GIB:.2f} GiB with their programs"


STAGES = 25
"""Cells of the small releases that are made first, on each axis: workers compile and import before anything is measured."""


def stages(options: argparse.Namespace, folder: Path) -> list[str]:
    """Every stage of four releases with one and with two workers: what it takes and moves, and what the second worker brings."""
    lines = [
        f"## Every stage with one and two workers of {options.worker_gib:g} GiB: {options.side**3:,} cells, 2^{options.cells} steps, "
        f"a stored W of {options.rows:,} x {options.columns:,}; {options.records:,} records",
        "",
        "| release | stage | CPU s, 1 worker | CPU s, 2 workers | seconds, 1 worker | seconds, 2 workers | speed-up | KiB by Dask | "
        "MiB read by workers | MiB written by workers | MiB read and written by the flow | objects written |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    small = _kinds(folder / "small", 14, STAGES, 10_000, 200, STAGES)
    large = _kinds(folder / "large", options.cells, options.side, options.rows, options.records, options.columns)
    (alone, first), (both, second) = (
        _every_stage(small, large, folder / f"home-{count}", options.worker_gib, count) for count in (1, 2)
    )
    for (kind, stage), one in alone.items():
        two = both[kind, stage]
        faster = f"{one.seconds / two.seconds:.2f}" if one.seconds >= 1 else "-"
        lines.append(
            f"| {kind} | {stage} | {one.cpu:.1f} | {two.cpu:.1f} | {one.seconds:.1f} | {two.seconds:.1f} | {faster} | "
            f"{two.sent / 2**10:,.0f} | {two.read / 2**20:,.0f} | {two.written / 2**20:,.0f} | "
            f"{two.read_here / 2**20:,.0f} and {two.written_here / 2**20:,.0f} | {two.objects:,} |"
        )
    return [
        *lines,
        "",
        "Workers hold the root key and draw the noise. CPU seconds are those of all processes, traffic and objects those of the run with "
        "two workers: what client, scheduler and workers sent one another, what processes read from and wrote to files (the records, the "
        "store and the release), and files that were written to the store, scratch included, or to the release. A stage of less than a "
        "second has no speed-up.",
        "",
        f"With one worker: {_peaks(first, options, 1)}.",
        "",
        f"With two workers: {_peaks(second, options)}.",
    ]


def _kinds(folder: Path, exponent: int, side: int, rows: int, records: int, columns: int) -> dict[str, dict[str, Any]]:
    """The specs of the releases by their names; their records and queries are written into the folder."""
    folder.mkdir()
    steps, cube, line, series = 2**exponent, folder / "cube.parquet", folder / "line.parquet", folder / "series.parquet"
    write_records(cube, records, side)
    write_records(line, records, columns)
    write_moments(series, records, steps)
    write_rows(folder / "w.zarr", rows, columns)
    product = spec_of(cube, side, side // 2)
    return {
        "noisy cells": {**product, "workload": [{"marginals": {"of": [["a", "b", "c"]]}}], "mechanism": "identity"},
        "a product": product,
        "a filter": {
            **product,
            "records": {"path": str(series)},
            "domain": {"t": {"from": 0, "to": steps - 1}},
            "workload": [{"filters": {"of": "t", "apply": [{"window": min(1440, steps // 2)}]}}],
            "mechanism": "auto",
        },
        "stored rows": {
            **product,
            "records": {"path": str(line)},
            "domain": {"a": {"from": 0, "to": columns - 1}},
            "workload": [{"rows": {"file": str(folder / "w.zarr")}}],
            "mechanism": "coa",
        },
    }


def _every_stage(
    small: dict[str, Any], large: dict[str, Any], home: Path, gib: float, count: int
) -> tuple[dict[tuple[str, str], Use], dict[str, float]]:
    """What each stage of the large releases uses, by release and stage, once the workers have made the small ones; and the peaks."""
    keys.initialise(home)
    os.environ["DPDIST_HOME"] = str(home)
    out: dict[tuple[str, str], Use] = {}
    with workers(gib, count, drawing=True) as started, measured() as took:
        context = Context(home, home_folder.store_of(home), started, ignore_progress)
        for size, kinds in (("small", small), ("large", large)):
            for number, (kind, content) in enumerate(kinds.items()):

                def step(stage: str, work: Callable[[], _T], kind: str = kind) -> _T:
                    before = measure_use(started.client)
                    done = work()
                    out[kind, stage] = measure_use(started.client) - before
                    return done

                name = f"{size}-{number}"
                ledger = {"dataset": size, "cap": {"rho": 0.1 * len(kinds)}}
                output = {"formats": ["parquet"], "folder": str(home / f"published-{name}")}
                release_run.release(
                    context, load({**content, "release": name, "ledger": ledger, "output": output}), step=step
                )
    shutil.rmtree(home)
    return out, took


def model(options: argparse.Namespace, folder: Path) -> list[str]:
    """What larger clusters would take, and how that compares with the real orchestration on simulated storage."""
    del folder
    command = [sys.executable, "-m", "benchmarks.simulator", "--fit", "--simulate", f"{options.simulated:g}"]
    with measured() as took:
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout
    return [
        "## The model of larger releases, and its simulation",
        "",
        MODELLED,
        "",
        re.sub("(?m)^## ", "### ", told.strip()),
        "",
        f"peak memory: {took['children'] / GIB:.2f} GiB of all its processes; the simulated store is held in memory, so none is promised",
    ]


ROOT = Path(__file__).resolve().parent.parent
MODELLED = (
    "W'W is for 4,000,000 rows of 8,192 columns and without its arithmetic, publish for 10^9 answers, whatever the number of cells. With "
    "faults, 1 % of tasks die, 0.1 % of requests are lost, 0.1 % are done twice, one in a million fails for good. A simulated slab of the "
    "product holds few lines, so that their number is rounded, and a simulated part 1,024 rows, so that its footer counts among the bytes."
)
Part = Callable[[argparse.Namespace, Path], list[str]]
PARTS: dict[str, tuple[Part, dict[str, Any]]] = {
    "stages": (stages, {"cells": 23, "side": 256, "rows": 400_000, "columns": 1024, "records": 20_000_000}),
    "cells": (cells, {"cells": 31, "records": 2_000_000}),
    "gram": (gram, {"rows": 4_000_000, "columns": 2048}),
    "products": (products, {"side": 1000, "ranges": 100, "records": 2_000_000}),
    "count": (count, {"records": 100_000_000, "files": 1}),
    "explicit": (explicit, {"rows": 1_000_000, "columns": 2048, "records": 1_000_000}),
    "series": (series, {"cells": 28, "records": 50_000_000, "running": False}),
    "formulas": (formulas, {"cells": 28, "records": 1_000_000}),
    "model": (model, {"simulated": 1e11}),
}
"""Every part with its options, and their defaults: the large size."""
RUNS: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("count", {"records": 5_000_000}, {}),
    ("explicit", {"rows": 50_000, "columns": 512, "records": 500_000}, {}),
    ("products", {"side": 300, "ranges": 60, "records": 500_000}, {"worker_gib": 1.5}),
    ("gram", {"rows": 200_000, "columns": 512}, {}),
    ("stages", {"cells": 20, "side": 100, "rows": 50_000, "columns": 512, "records": 2_000_000}, {}),
    ("series", {"cells": 20, "records": 1_000_000, "running": True}, {"cells": 26, "running": True}),
    ("formulas", {"cells": 20, "records": 200_000}, {}),
    ("products", {"side": 60, "ranges": 120, "records": 500_000}, {"side": 330, "ranges": 464}),
    ("model", {"simulated": 1e9}, {}),
    ("cells", {"cells": 24, "records": 500_000}, {}),
    ("series", {"cells": 20, "records": 1_000_000}, {}),
)
"""What ``all`` runs, the shortest first: parts with the options of the small size and of the large one, as far as they are no defaults."""


def run_parts(options: argparse.Namespace) -> None:
    """Put the sections of all parts into a file of results, each by a process of its own, as they end. What fails changes nothing there."""
    text = headed(options.out.read_text(encoding="utf-8") if options.out and options.out.exists() else "", HEAD)
    printed, failed = [], 0
    for part, small, large in RUNS:
        if part not in (options.only or PARTS):
            continue
        options_of_part = {"worker_gib": options.worker_gib, **(large if options.large else small)}
        print(
            f"{datetime.datetime.now(datetime.UTC):%H:%M:%S} {_command(part, options_of_part)}", file=sys.stderr, flush=True
        )
        try:
            section = _section([part, *_typed_options(options_of_part)], options.folder, 60 * options.minutes)
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
            failed += 1
            print(f"{_command(part, options_of_part)}: {error}", file=sys.stderr, flush=True)
            continue
        print(section, flush=True)
        printed.append(_command(part, options_of_part))
        text = merged(text, section)
        if options.out:
            options.out.write_text(text, encoding="utf-8")
    for heading in unprinted_headings(text, printed):
        print(f"not printed by this run, and left as it was: {heading}", file=sys.stderr)
    sys.exit(f"{failed} parts did not end" if failed else 0)


def _section(given: list[str], folder: Path | None, seconds: float) -> str:
    """What a part prints, by processes that are gone afterwards, as is all that they wrote.

    Raises: CalledProcessError, TimeoutExpired.
    """
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as scratch:
        command = [sys.executable, __file__, *given, "--folder", scratch]
        place = {**os.environ, "TMPDIR": scratch}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=place) as process:
            try:
                section, _ = process.communicate(timeout=seconds)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # workers, too
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return section


HEAD = """# Beyond memory

`python benchmarks/scale.py all --large --out benchmarks/results/scale.md` prints every section, part by part, and puts
each in place of the one that its command printed before. A section ends with the command that prints it alone, the
version of dpdist, the machine and its load. The load is the average number of processes that want a core, over a minute:
where it is beyond the number of cores, other work was running, and seconds are no measure of speed.

A release is made in stages. *Plan* reads the spec, makes digests of the records and finds the strategy. *Count* makes a
histogram of the records: one number for each cell, which is one combination of values. *Measure* computes what the
strategy asks of the histogram, adds the noise and writes the result. *Answer* turns the noisy numbers into answers to all
queries. *Publish* writes the files that readers get.

- **seconds** are those of the clock. **CPU s** are the seconds that all processes together kept a core busy.
- **Workers** are processes of a local Dask cluster of one thread each. "2 workers of 1 GiB" may each take so much memory
  beyond what the program itself takes.
- **Peak memory** is the largest sum, sampled every 0.2 s, over the workers, and over them and the process that runs the
  release. A page that several processes share counts once. Beside it stands what the workers may take: that is the
  promise which the peak has to keep.
- **speed-up** is the time with one worker over the time with two.
- **KiB by Dask** is what client, scheduler and workers sent one another. Counts, noise and answers are not in it: they go
  through the store.
- **objects** are files of the store, or of the release.
- **W'W** is the matrix of all products of columns of the queries' matrix W, the *gram*. **SYRK** is the routine of the
  linear algebra library that computes it in memory. **GFLOP/s** are 10^9 multiplications and additions a second, counted
  as if the whole square were computed.
- **of SYRK in memory** and **of the plain rate** are dpdist's rate over that of the plain way. **dpdist's rate over this
  one** is the same for the way in its row: above 1, dpdist is faster.
- **exact** and **same counts** say whether the result equals one that was computed another way.
- **certified gap** is by how much, at most, the strategy's squared error is above that of the best strategy of its kind,
  as a fraction.
- The **root mean square of (answer - truth) / standard error** is near 1 if the published standard errors are right. Few
  independent numbers, as in a running sum, leave it further from 1.

The model of larger releases says what clusters would take that were not at hand: for each stage its **tasks**, its
**requests** to the object store, the **objects** that it writes, the **bytes** that it writes and reads, and its seconds
by the rates of a store and of cores, which are assumed or measured ("fitted"). *The next wall* is the limit that a stage
is beyond, else the stage that takes longest. *Simulated* rows are counted by running the real code on a store in memory,
with a clock that goes by the same rates. docs/scale.md says what the model leaves out.
"""


def _command(part: str, chosen: dict[str, Any]) -> str:
    """The command that prints a section, with all its options."""
    return f"`{' '.join(['python benchmarks/scale.py', part, *_typed_options({'worker_gib': 1.0, **PARTS[part][1], **chosen})])}`"


def _typed_options(options: dict[str, Any]) -> list[str]:
    """Options as they are typed."""
    words: list[str] = []
    for name, value in options.items():
        if value is not False:
            words.append(f"--{name.replace('_', '-')}")
        if not isinstance(value, bool):
            words.append(f"{value:g}" if isinstance(value, float) else str(value))
    return words


def run_part(options: argparse.Namespace) -> None:
    """Run a part and print its section."""
    function, defaults = PARTS[options.part]
    load, begun = os.getloadavg()[0], time.perf_counter()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        os.environ["DPDIST_HOME"] = str(folder / "home")
        os.chdir(folder)
        lines = function(options, folder)
        os.chdir("/")
    cpu = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    machine = f"{cores()} cores, Python {platform.python_version()}, NumPy {np.__version__}"
    command = _command(options.part, {option: getattr(options, option) for option in ("worker_gib", *defaults)})
    heading = (
        f"{command}, dpdist {version()}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC; {machine}; load {load:.1f} at the "
        f"beginning and {os.getloadavg()[0]:.1f} at the end; {time.perf_counter() - begun:.0f} s and {cpu:.0f} CPU seconds with the "
        "making of the data and the checks"
    )
    table = "\n".join([*lines, "", heading]) + "\n"
    print(table)
    if options.out:
        options.out.write_text(table)


def main() -> None:
    """Run a part, or all of them."""
    listed = "\n".join(
        f"    {name:9} {(function.__doc__ or '').splitlines()[0]}\n              {' '.join(_typed_options(defaults))}"
        for name, (function, defaults) in PARTS.items()
    )
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").format(parts=listed), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="part", required=True)
    for name, (function, defaults) in PARTS.items():
        command = commands.add_parser(name, description=function.__doc__)
        for option, value in defaults.items():
            if value is False:
                command.add_argument(f"--{option}", action="store_true")
            else:
                command.add_argument(f"--{option}", type=type(value), default=value)
    together = commands.add_parser("all", description="Every part in a process of its own.")
    together.add_argument(
        "--large", action="store_true", help="2^31 cells, 10^8 answers and so on; hours, and 40 GB of scratch"
    )
    together.add_argument("--only", nargs="+", choices=[*PARTS], help="these parts")
    together.add_argument("--minutes", type=float, default=120, help="most of each part; those that did not end are told")
    for command in commands.choices.values():
        command.add_argument("--worker-gib", type=float, default=1.0)
        command.add_argument("--folder", type=Path, help="where scratch data goes; default: the system's")
        command.add_argument(
            "--out", type=Path, help="where the section goes; all: the file of results, whose sections are replaced"
        )
    options = parser.parse_args()
    run_parts(options) if options.part == "all" else run_part(options)


def _truth(spec: Job) -> np.ndarray:
    """True answers from the records alone: intervals are looked up in a cube of counts over their distinct ends."""
    (block,) = spec.workload.queries.blocks
    records = pyarrow.parquet.read_table(spec.source.path)
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
