"""A thresholded histogram of a generated day of page views, beside DuckDB's plain GROUP BY of the same file.

    python -m benchmarks.page_views --records 10000000 --keys 125000000 [--workers 2] [--store s3] [--part-mib 64] [--bounded]
        [--venvs FOLDER] [--json]

Devices view a geometric number of pages (mean 5) by Zipf's law, in ten countries; ten rows a device, noise of about 10, rows from 90 on.
The release counts, draws and publishes in this process, or on workers of 4 GiB each that may draw, with its ledger; CPU times are of all
these processes from the spec to the published folder, and hold the compilation of the sampler in each. DuckDB publishes nothing and
protects nobody: its time is what counting the rows takes at least, and with --bounded what it takes with ten rows a device. --venvs has
virtual environments ``pipelinedp`` and ``tumult`` as benchmarks/peers/compare.py makes them; both count the same file in their own
standard way (benchmarks/peers/page_views.py). --store s3 keeps the store in moto, a process of its own, and counts its requests and
bytes; --part-mib sets into parts of what size records are dealt out at most.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import resource
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import SynchronizedArray
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import yaml
from distributed import Client, LocalCluster
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from dpdist import engine
from dpdist.counting import contribution_bounding
from dpdist.pipeline.distributed_noise import RESOURCE
from dpdist.pipeline.release_run import Release, release
from dpdist.privacy import keys
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

BATCH, COUNTRIES, VIEWS = 2_000_000, 10, 5
WORKER_BYTES, PEERS = 4 * 2**30, Path(__file__).parent / "peers" / "page_views.py"


def write_views(path: Path, records: int, pages: int) -> None:
    """A day of page views, batch by batch, from a fixed seed."""
    state, device = np.random.default_rng(7), 0
    schema = pa.schema([("country", pa.string()), ("page", pa.int64()), ("device", pa.int64())])
    names = np.array([f"c{number}" for number in range(COUNTRIES)])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for first in range(0, records, BATCH):
            size = min(BATCH, records - first)
            views = state.geometric(1 / VIEWS, size // VIEWS + 1)
            devices = np.resize(np.repeat(device + np.arange(views.size), views), size)
            device += views.size
            columns = {
                "country": names[devices % COUNTRIES],
                "page": state.zipf(1.2, size) % pages,
                "device": devices,
            }
            writer.write_table(pa.table(columns, schema=schema))


def write_spec(folder: Path, pages: int) -> Path:
    """The spec of a release of these views."""
    spec = {
        "release": "views",
        "records": {
            "path": "views.parquet",
            "person": {"column": "device", "most_records": 1},
            "columns": {"land": "country"},
        },
        "domain": {"country": {"categories": [f"c{number}" for number in range(COUNTRIES)]}},
        "workload": [{"marginals": {"of": [["country"]]}}],
        "thresholded": {
            "of": {
                "land": {"codes": [f"c{number}" for number in range(COUNTRIES)]},
                "page": {"integers": {"from": 0, "to": pages - 1}},
            },
            "at_least": 90,
            "cells_per_person": 10,
            "share": 0.9,
        },
        "left_out": None,
        "budget": {"rho": 0.0556},
        "ledger": {"dataset": "views", "cap": {"rho": 0.0556}},
        "output": {"folder": str(folder / "published")},
    }
    path = folder / "views.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path


def count_with_duckdb(views: str, folder: Path) -> tuple[float, int]:
    """CPU seconds of a plain GROUP BY of views, and how many of its rows have at least 90 of them; temporary files go into a folder."""
    import duckdb

    duckdb.execute(f"SET temp_directory = '{folder / 'duckdb'}'")
    start = time.process_time()
    ((rows,),) = duckdb.execute(
        f"SELECT count(*) FROM (SELECT country, page, count(*) AS n FROM {views} GROUP BY ALL) WHERE n >= 90"
    ).fetchall()
    return time.process_time() - start, rows


def bounded_views(path: Path) -> str:
    """The views of a file of which each device has one a row, of ten rows that a hash chooses: what the release counts, as SQL."""
    return (
        "(SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY device ORDER BY hash(device, country, page)) AS place "
        f"FROM (SELECT DISTINCT device, country, page FROM '{path}')) WHERE place <= 10)"
    )


def rows_with_views(folder: Path, published: Path) -> tuple[int, int]:
    """How many published rows have views, and how many have none."""
    import duckdb

    ((shown, seen),) = duckdb.execute(
        f"WITH shown AS (SELECT DISTINCT land, page FROM read_csv('{published}')), "
        f"seen AS (SELECT DISTINCT country AS land, page FROM '{folder / 'views.parquet'}') "
        "SELECT (SELECT count(*) FROM shown), (SELECT count(*) FROM shown SEMI JOIN seen USING (land, page))"
    ).fetchall()
    return seen, shown - seen


def serve_counted(address: Connection, traffic: SynchronizedArray[int]) -> None:
    """Serve objects with moto until the process ends; say at which port, and add up requests, bytes received and bytes sent."""
    application = DomainDispatcherApplication(create_backend_app)

    def count_traffic(environ: dict[str, Any], start_response: StartResponse) -> list[bytes]:
        answer = list(application(environ, start_response))
        with traffic.get_lock():
            traffic[0] += 1
            traffic[1] += int(environ.get("CONTENT_LENGTH") or 0)
            traffic[2] += sum(map(len, answer))
        return answer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, count_traffic, threaded=True)
    address.send(server.server_port)
    server.serve_forever()


@contextmanager
def opened_store(folder: Path, kind: str) -> Iterator[tuple[Store, Callable[[], dict[str, int]]]]:
    """A store in a folder, or one of moto's, and what tells its requests and bytes."""
    if kind == "folder":
        yield Store(folder / "home" / "store"), dict
        return
    processes = multiprocessing.get_context("spawn")
    traffic, (port, address) = processes.Array("q", 3), processes.Pipe(duplex=False)
    server = processes.Process(target=serve_counted, args=(address, traffic), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{port.recv()}"
    settings = {"ENDPOINT": url, "ALLOW_HTTP": "true", "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "y", "REGION": "us-east-1"}
    os.environ.update({f"AWS_{name}": value for name, value in settings.items()})
    urllib.request.urlopen(urllib.request.Request(f"{url}/views", method="PUT")).close()
    names = ("requests", "bytes_to_store", "bytes_from_store")
    yield Store("s3://views/store"), lambda: dict(zip(names, traffic[:], strict=True))
    server.terminate()


def measure(records: int, cells: int, workers: int, store: str, *, bounded: bool) -> dict[str, float | int | str]:
    """CPU time, memory and bytes of a release, and DuckDB's CPU time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_views(folder / "views.parquet", records, cells // COUNTRIES)
        path = write_spec(folder, cells // COUNTRIES)
        done, cost = measure_release(folder, path, workers, store)
        # after the release, so that its memory is not counted as the release's
        duckdb_seconds, duckdb_rows = count_with_duckdb(f"'{folder / 'views.parquet'}'", folder)
        limits = {"duckdb_cpu_s": round(duckdb_seconds, 2)}
        if bounded:
            limits["duckdb_bounded_cpu_s"] = round(count_with_duckdb(bounded_views(folder / "views.parquet"), folder)[0], 2)
        facts = done.certificate["thresholded"]
        rows_true, rows_false = rows_with_views(folder, Path(done.folder) / "thresholded.csv")
        return {
            "records": records,
            "cells": int(facts["cells"]),
            **cost,
            **limits,
            "rows_true": rows_true,
            "rows_false": rows_false,
            "rows_of_90_in_duckdb": duckdb_rows,
            "expected_false_rows": facts["expected_false_rows"],
        }


def measure_release(folder: Path, spec: Path, workers: int, store: str) -> tuple[Release, dict[str, float | int | str]]:
    """A release with a home of its own in a folder, and its CPU time, memory and bytes."""
    os.environ[keys.FILE_ENVIRONMENT] = str(folder / "root.key")
    os.environ["DPDIST_HOME"] = str(folder / "home")
    keys.initialise(folder / "home")
    with (
        opened_store(folder, store) as (kept, traffic),
        started(workers) as (address, usage_of_workers),
        engine.open_engine(address) as where,
    ):
        context = Context(folder / "home", kept, where, ignore_progress)
        start = time.process_time() + sum(seconds for seconds, _ in usage_of_workers())
        done = release(context, load(spec))
        worker_usage = usage_of_workers()
        seconds = time.process_time() + sum(seconds for seconds, _ in worker_usage) - start
        context.close()
        sent = traffic()
    files = [each for each in Path(done.folder).rglob("*") if each.is_file()]
    return done, {
        "workers": workers,
        "cpu_s": round(seconds, 2),
        "peak_gib": round(max(peak for _, peak in [*worker_usage, usage()]), 2),
        "published_bytes": sum(each.stat().st_size for each in files),
        **sent,
    }


def usage() -> tuple[float, float]:
    """CPU seconds of this process, and the most memory that it held, GiB."""
    return time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


@contextmanager
def started(workers: int) -> Iterator[tuple[str, Callable[[], list[tuple[float, float]]]]]:
    """The address of so many workers, none of which are this process, and what tells their usage."""
    if not workers:
        yield "inline", list
        return
    os.environ[engine.WITHOUT_TLS] = "1"
    resources = {"resources": {RESOURCE: 1}, "memory_limit": WORKER_BYTES, "threads_per_worker": 1}
    with LocalCluster(n_workers=workers, dashboard_address="127.0.0.1:0", **resources) as cluster, Client(cluster) as client:
        yield cluster.scheduler_address, lambda: list(client.run(usage).values())


def measure_peer(name: str, venvs: Path, records: int, cells: int) -> dict[str, float | int | str]:
    """CPU time and rows of another system, in an environment of its own; or what stopped it."""
    with tempfile.TemporaryDirectory() as folder:
        write_views(Path(folder) / "views.parquet", records, cells // COUNTRIES)
        command = [str(venvs / name / "bin" / "python"), str(PEERS), name, f"{folder}/views.parquet"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return {"system": name, "records": records, "stopped": done.stderr.strip().splitlines()[-1]}
        return {"system": name, "records": records, **json.loads(done.stdout.splitlines()[-1])}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=125_000_000, help="combinations of country and page")
    parser.add_argument("--workers", type=int, default=0, help="processes of 4 GiB; none: in this process")
    parser.add_argument("--store", choices=["folder", "s3"], default="folder")
    parser.add_argument("--part-mib", type=int, default=contribution_bounding.PART_BYTES // 2**20)
    parser.add_argument(
        "--bounded", action="store_true", help="DuckDB also counts ten rows a device; of 10^8 records it writes 60 GB"
    )
    parser.add_argument("--venvs", type=Path)
    parser.add_argument("--peers", nargs="*", default=["pipelinedp", "tumult"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    contribution_bounding.PART_BYTES = options.part_mib * 2**20
    results = [measure(options.records, options.keys, options.workers, options.store, bounded=options.bounded)]
    if options.venvs:
        results += [measure_peer(name, options.venvs, options.records, options.keys) for name in options.peers]
    for result in results:
        print(json.dumps(result) if options.json else "\n".join(f"{name}: {value}" for name, value in result.items()))
