"""One release whose scheduler, workers, flow and store are on five machines, with faults in each stage: same noise, one charge, no hang."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts import machines
from tests.hosts.machines import BIN, SCHEDULER, Machines

pytestmark = pytest.mark.large
RECORDS = """
import boto3, io, numpy as np, pyarrow as pa, pyarrow.parquet as pq
store = boto3.client("s3")
store.create_bucket(Bucket="dpdist")
state = np.random.default_rng(0)
for part in range(8):
    file = io.BytesIO()
    pq.write_table(pa.table({name: state.integers(0, 400, 60_000) for name in "xy"}), file)
    store.put_object(Bucket="dpdist", Key=f"records/part-{part}.parquet", Body=file.getvalue())
"""
SPEC = """
release: NAME
records: {path: "s3://dpdist/records/", called: calls}
domain: {x: {from: 0, to: 399}, y: {from: 0, to: LAST}}
workload: [{marginals: {of: [[x], [y], [x, y]]}}]
mechanism: marginals
budget: {rho: 0.1}
ledger: {dataset: calls, shared_records: true, cap: {rho: 2}}
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Five machines with records in the store, and a root key on that of the flow."""
    if why := machines.reason():
        pytest.skip(why)
    with Machines(tmp_path_factory.mktemp("hosts")) as made:
        made.wait(lambda: "Running on" in made.log("store"), "the store does not start")
        made.run("flow", str(BIN / "python"), "-c", RECORDS)
        made.run("flow", str(BIN / "dpdist"), "keys", "init")
        made.wait(lambda: all("Registered to" in made.log(name) for name in ("worker1", "worker2")), "no workers")
        yield made


def started(hosts: Machines, name: str) -> subprocess.Popen[bytes]:
    """A release that runs on the machine of the flow."""
    last = str(399 + sum(map(ord, name)) % 100)  # another domain: counts of other releases are not taken again
    (hosts.folder / "disks" / "flow" / f"{name}.yaml").write_text(SPEC.replace("NAME", name).replace("LAST", last))
    hosts.begun[name] = len(hosts.log("store"))
    return hosts.start(name, "flow", str(BIN / "dpdist"), "run", f"{name}.yaml", "--engine", f"tls://{SCHEDULER}:8786")


def finished(hosts: Machines, name: str, running: subprocess.Popen[bytes]) -> None:
    """The release has ended well, was charged once, and what was published is what was measured."""
    assert running.wait(timeout=600) == 0, hosts.log(name)[-3000:]
    rows = hosts.run("flow", str(BIN / "dpdist"), "ledger")
    events = re.findall(rf"^\d+ +(\w+) +calls +{name} ", rows, re.MULTILINE)
    assert events.count("reserved") == events.count("committed") == 1, rows
    verified = hosts.run("flow", str(BIN / "dpdist"), "verify", name)
    assert "wrong" not in verified, verified


def test_five_machines_publish_a_release(hosts: Machines) -> None:
    began = time.monotonic()
    finished(hosts, "whole", started(hosts, "whole"))
    print(f"no fault: {time.monotonic() - began:.0f} s")
    assert not any((Path(hosts.folder) / "disks" / worker / "home").exists() for worker in ("worker1", "worker2"))


STAGES = {
    "count": "HEAD /dpdist/store/histograms/",
    "measure": "PUT /dpdist/store/histograms/[^ ]*manifest.json",
    "answer": "PUT /dpdist/store/measurements/{name}/manifest.json",
    "publish": "PUT /dpdist/releases/{name}/answers.parquet",
}
"""Requests to the store with which a stage begins, or is under way."""


def reaches(hosts: Machines, name: str, stage: str, running: subprocess.Popen[bytes]) -> None:
    """Wait until a release that runs has reached a stage."""
    request = re.compile(STAGES[stage].format(name=name))
    begun = hosts.begun[name]
    hosts.wait(lambda: request.search(hosts.log("store")[begun:]) is not None, f"{name} does not reach {stage}")
    assert running.poll() is None


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("fault", ["worker killed", "link down"])
def test_a_machine_that_fails_in_a_stage_changes_nothing(hosts: Machines, stage: str, fault: str) -> None:
    """One of two workers is killed, or its link is down for 45 s; the scheduler notices after 30 s."""
    name = f"{stage}-{fault.replace(' ', '-')}"
    hosts.start_missing_workers()
    began, running = time.monotonic(), started(hosts, name)
    reaches(hosts, name, stage, running)
    if fault == "worker killed":
        hosts.kill("worker1")
    else:
        hosts.link("worker1", "down")
        time.sleep(45)
        hosts.link("worker1", "up")
    finished(hosts, name, running)
    print(f"{fault} in {stage}: {time.monotonic() - began:.0f} s")


def test_a_scheduler_that_ends_ends_the_run_and_the_next_one_goes_on(hosts: Machines) -> None:
    """Run again with another scheduler, the release has one charge."""
    hosts.start_missing_workers()
    running = started(hosts, "again")
    reaches(hosts, "again", "count", running)
    hosts.kill("scheduler")
    assert running.wait(timeout=300) != 0
    print("told:", hosts.log("again").splitlines()[-1])
    hosts.start_scheduler()
    hosts.start_missing_workers()
    finished(hosts, "again", started(hosts, "again"))


@pytest.mark.parametrize("stage", STAGES)
def test_a_worker_that_is_told_to_end_changes_nothing(hosts: Machines, stage: str) -> None:
    """As when a cloud takes a machine back: the worker has seconds to hand over what it holds."""
    name = f"{stage}-told-to-end"
    hosts.start_missing_workers()
    began, running = time.monotonic(), started(hosts, name)
    reaches(hosts, name, stage, running)
    hosts.end("worker2")
    finished(hosts, name, running)
    print(f"told to end in {stage}: {time.monotonic() - began:.0f} s")
    hosts.kill("worker2")


STRANGE = {
    "clock ten minutes ahead": ("faketime", "-f", "+600s"),
    "clock ten minutes behind": ("faketime", "-f", "-600s"),
    "disk full": ("sh", "-c", 'mount -t tmpfs -o size=32k none . && cd . && (dd if=/dev/zero of=full; exec "$@")', "-"),
}
"""A program that starts the worker of a machine that is not as it should be."""


@pytest.mark.parametrize("machine", STRANGE)
def test_a_strange_machine_changes_nothing(hosts: Machines, machine: str) -> None:
    if shutil.which(STRANGE[machine][0]) is None:
        pytest.skip(f"needs the program {STRANGE[machine][0]}")
    name = machine.replace(" ", "-")
    hosts.start_missing_workers()
    hosts.kill("worker1")
    known = hosts.log("worker1").count("Registered to")
    hosts.start_worker("worker1", *STRANGE[machine])
    began = time.monotonic()
    with contextlib.suppress(
        AssertionError
    ):  # a worker that cannot start there is restarted for ever, and the other one works
        hosts.wait(lambda: hosts.log("worker1").count("Registered to") > known, "no worker", seconds=30)
    assert ("No space left on device" in hosts.log("worker1")) == (machine == "disk full")
    finished(hosts, name, started(hosts, name))
    print(f"{machine}: {time.monotonic() - began:.0f} s; the worker: {hosts.log('worker1').splitlines()[-1][:160]}")
    hosts.kill("worker1")
