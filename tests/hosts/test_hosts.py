"""Every kind of work over five machines, also with a fault in each stage: the bytes of one process, one charge, no hang."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.simulator import stages
from dpdist.runtime.gram_computation import RANGES_A_WORKER
from tests.hosts.host_releases import HostRelease, machines_with_records, print_traffic, stored_bytes
from tests.hosts.machines import BIN, OWN_DISK, THROTTLES, WORKERS, Machines

pytestmark = pytest.mark.large
ROWS, MORE_ROWS, CHUNK = 2**16, 2**20, 2**13
"""Queries of 1,024 cells that lie in the store as rows, in two arrays, and how many of them lie together."""
QUERIES = """
import numpy as np, zarr
from dpdist.storage.objects import parse_location
state, columns = np.random.default_rng(1), np.arange(1024)
shape, chunks = (ROWS, 1024), (CHUNK, 1024)
rows = zarr.create_array(parse_location("s3://dpdist/queries-ROWS.zarr").zarr(), shape=shape, chunks=chunks, dtype="i1")
for start in range(0, ROWS, CHUNK):
    ends = np.sort(state.integers(0, 1025, (CHUNK, 2)), axis=1)
    rows[start : start + CHUNK] = (ends[:, :1] <= columns) & (columns < ends[:, 1:])
"""
SUM = """
from pathlib import Path
from dpdist.operators.out_of_core import row_gram
from dpdist.storage.array_store import Store
from dpdist.storage.zarr_matrices import zarr_rows
Store("sum").put("of-rows", row_gram(zarr_rows("s3://dpdist/queries-ROWS.zarr"), 0, COUNT))
print(sum(file.stat().st_size for file in Path("sum/of-rows").rglob("*") if file.is_file()))
"""
"""Prints what the sum over the rows of one task takes in the store."""
COMMON = """
release: NAME
records: {path: "s3://dpdist/records/", called: calls PERSON}
budget: {rho: 0.1}
ledger: {dataset: calls, shared_records: true, cap: {rho: 0.1}}
"""
PERSON = ", person: {column: who, most_records: 4}"
OF_PERSONS = ("persons", "thresholded")
WORK = {
    "tables": """
domain: {x: {from: 0, to: 399}, y: {from: 0, to: 399, width: 8}}
workload: [{marginals: {of: [[x], [y], [x, y]]}}]
mechanism: marginals
""",
    "persons": """
domain: {x: {from: 0, to: 399}}
workload: [{cdf: {of: x}}]
mechanism: coa
""",
    "filter": """
domain: {step: {from: 0, to: 1048575}}
workload: [{filters: {of: step, apply: [{running_sum: true}]}}]
mechanism: square-root
""",
    "long-filter": """
domain: {step: {from: 0, to: 4194304}}
workload: [{filters: {of: step, apply: [{running_sum: true}]}}]
mechanism: square-root
""",
    "product": """
domain: {x: {from: 0, to: 399}, step: {from: 0, to: 1048575, width: 4096}}
workload: [{cdf: {of: x, by: [step]}}]
mechanism: kronecker
""",
    "eigen": """
domain: {x: {from: 0, to: 399}}
workload: [{ranges: {of: [x], list: [[0, 99], [50, 249], [200, 399], [10, 19], [0, 399]]}}, {cdf: {of: x}}]
mechanism: eigen
""",
    "rows": """
domain: {x: {from: 0, to: 1023}}
workload: [{rows: {file: "s3://dpdist/queries-ROWS.zarr"}}]
mechanism: eigen
""",
    "thresholded": """
domain: {x: {from: 0, to: 399}}
workload: [{marginals: {of: [[x]]}}]
mechanism: identity
thresholded: {of: {page: {integers: {from: 1, to: 1000000000}}}, at_least: 400, cells_per_person: 4, share: 0.5}
""",
}
"""A spec for each kind of work."""
STAGES = {
    "count": ("tables", "HEAD /dpdist/{place}/store/histograms/"),
    "measure": ("tables", "PUT /dpdist/{place}/store/histograms/[^ ]*manifest.json"),
    "answer": ("tables", "PUT /dpdist/{place}/store/measurements/{name}/manifest.json"),
    "publish": ("tables", "PUT /dpdist/{place}/releases/{name}/answers.parquet"),
    "sum-rows": ("rows", "PUT /dpdist/{place}/store/scratch/grams/"),
    "deal-persons-out": ("thresholded", "PUT /dpdist/{place}/store/scratch/"),
}
"""For each stage a work that has it, and the request to the store with which it begins, or is under way."""
FAULTS = ("worker-killed", "link-down", "told-to-end")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Five machines with records and queries in the store."""
    with machines_with_records(tmp_path_factory.mktemp("hosts")) as made:
        write_queries(made, ROWS)
        yield made


def write_queries(hosts: Machines, rows: int) -> None:
    """Write an array of queries to the store."""
    hosts.run("flow", str(BIN / "python"), "-c", QUERIES.replace("ROWS", str(rows)).replace("CHUNK", str(CHUNK)))


def release(hosts: Machines, work: str, place: str, *before: str, rows: int = ROWS, **settings: str) -> HostRelease:
    """A release of one kind of work, which has begun."""
    spec = (COMMON + WORK[work]).replace("NAME", work).replace(" PERSON", PERSON if work in OF_PERSONS else "")
    return HostRelease(hosts, spec.replace("ROWS", str(rows)), place, before, settings=settings).start()


@pytest.mark.parametrize("work", [work for work in WORK if work != "rows"])
def test_the_bytes_of_one_process(hosts: Machines, work: str) -> None:
    """The long filter has one step more than are filtered in memory."""
    hosts.start_missing_workers()
    release(hosts, work, work).finish()
    assert not any((hosts.disk(worker) / "home").exists() for worker in WORKERS)


def test_the_model_knows_what_summing_rows_sends(hosts: Machines) -> None:
    write_queries(hosts, MORE_ROWS)
    hosts.start_missing_workers()
    running = release(hosts, "rows", "rows-followed", rows=MORE_ROWS)
    sent = running.follow(
        {"before": "/dpdist/{place}/store/grams/", "W'W": "PUT /dpdist/{place}/store/grams/[^ ]*manifest.json"}
    )
    running.finish()
    sums = len(WORKERS) * RANGES_A_WORKER
    gram = stored_bytes(hosts, "rows-followed/store/grams/")
    rows = stored_bytes(hosts, f"queries-{MORE_ROWS}.zarr/")
    program = SUM.replace("ROWS", str(MORE_ROWS)).replace("COUNT", str(MORE_ROWS // sums))
    sum_bytes = int(hosts.run("flow", str(BIN / "python"), "-c", program))
    print(f"rows {rows / 1e6:.1f} MB, a sum {sum_bytes / 1e6:.1f} MB, W'W {gram / 1e6:.1f} MB in the store")
    predicted = {"W'W": stages.gram_network_bytes(rows_bytes=rows, sum_bytes=sum_bytes, sums=sums, gram_bytes=gram)}
    print_traffic(sent, predicted)
    assert sent["W'W"] == pytest.approx(predicted["W'W"], rel=0.1)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_machine_that_fails_in_a_stage_changes_nothing(hosts: Machines, stage: str, fault: str) -> None:
    """One of two workers is killed, or told to end as when a cloud takes it back, or its link is down for 60 s.

    The scheduler notices a link that is down after 30 s.
    """
    hosts.start_missing_workers()
    work, request = STAGES[stage]
    running = release(hosts, work, f"{stage}-{fault}")
    running.reach(request)
    if fault == "worker-killed":
        hosts.kill("worker1")
    elif fault == "told-to-end":
        hosts.end("worker1")
    else:
        hosts.link("worker1", "down")
        time.sleep(60)
        hosts.link("worker1", "up")
    running.finish()


def test_a_scheduler_that_ends_ends_the_run_and_the_next_one_goes_on(hosts: Machines) -> None:
    """Run again with another scheduler, the release has one charge."""
    hosts.start_missing_workers()
    running = release(hosts, "tables", "again")
    running.reach(STAGES["count"][1])
    hosts.kill("scheduler")
    assert running.end() != 0
    print("it says:", hosts.log("again").splitlines()[-1])
    hosts.start_scheduler()
    hosts.start_missing_workers()
    running.start().finish()


@pytest.mark.parametrize("host", ["worker1", "flow"])
@pytest.mark.parametrize("offset", ["+600s", "-600s"])
def test_a_clock_that_is_ten_minutes_off_changes_nothing(hosts: Machines, host: str, offset: str) -> None:
    if shutil.which("faketime") is None:
        pytest.skip("needs faketime: apt-get install faketime")
    hosts.start_missing_workers()
    clock, place = ("faketime", "-f", offset), f"clock-of-{host}{offset}"
    if host == "worker1":
        restart_worker(hosts, *clock)
        release(hosts, "tables", place).finish()
        hosts.kill("worker1")
    else:
        release(hosts, "tables", place, *clock).finish()


def restart_worker(hosts: Machines, *before: str, options: tuple[str, ...] = (), control_group: Path | None = None) -> None:
    """Start a worker anew by a program that changes what it sees of its machine, or in a control group.

    Where it cannot start there, it is restarted for ever, and the other one works.
    """
    hosts.kill("worker1")
    registered = hosts.registrations("worker1")
    hosts.start_worker("worker1", *before, options=options)
    if control_group is not None:
        control_group.write_text(str(hosts.running["worker1"].pid))
    with suppress(AssertionError):
        hosts.wait(lambda: hosts.registrations("worker1") > registered, "no worker", seconds=30)


SCRATCH = ("--local-directory", f"{OWN_DISK}/scratch")


def test_a_worker_whose_disk_is_full_changes_nothing(hosts: Machines) -> None:
    hosts.start_missing_workers()
    with hosts.further_disk("worker1", "scratch", 2**20) as disk:
        fill(disk)
        restart_worker(hosts, options=SCRATCH)
        assert "No space left on device" in hosts.log("worker1")
        release(hosts, "tables", "disk-of-worker1-full").finish()
        hosts.kill("worker1")


def fill(disk: Path) -> None:
    """Write to a disk until it is full."""
    with suppress(OSError), (disk / "rest").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(2**12))


def test_a_run_whose_disk_is_full_ends_and_the_next_one_goes_on(hosts: Machines) -> None:
    """Its home, with ledger and key, is on the disk, which is full when all is counted."""
    hosts.start_missing_workers()
    with hosts.further_disk("flow", "disk-of-flow-full", 2**22) as disk:
        running = release(hosts, "tables", disk.name)
        running.reach(STAGES["measure"][1])
        fill(disk)
        assert running.end() != 0
        print("it says:", hosts.log(disk.name).splitlines()[-1])
        (disk / "rest").unlink()
        running.start().finish()


def test_a_worker_whose_disk_is_slow_changes_nothing(hosts: Machines) -> None:
    """It writes 100 kB a second, in at most 20 requests."""
    needs_throttles()
    hosts.start_missing_workers()
    with hosts.slow_disk("worker1", "scratch") as writers:
        restart_worker(hosts, options=SCRATCH, control_group=writers)
        release(hosts, "tables", "disk-of-worker1-slow").finish()
        hosts.kill("worker1")


def test_a_run_whose_disk_is_slow_changes_nothing(hosts: Machines) -> None:
    """It writes its home, with the ledger, at 100 kB a second, in at most 20 requests."""
    needs_throttles()
    hosts.start_missing_workers()
    with hosts.slow_disk("flow", "disk-of-flow-slow") as writers:
        running = release(hosts, "tables", "disk-of-flow-slow")
        writers.write_text(str(running.running.pid))
        running.finish()


def needs_throttles() -> None:
    if not THROTTLES.is_dir():
        pytest.skip("needs control groups that limit what is written (blkio)")
