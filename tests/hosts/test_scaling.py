"""Workers that come and go amid a release, as adaptive scaling has them: from none to four, to none, and back."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest

from tests.hosts import machines
from tests.hosts.machines import BIN, MORE_WORKERS, SCHEDULER, WORKERS, Machines
from tests.hosts.test_hosts import RECORDS, finished, started
from tests.support import tls_certificates

pytestmark = pytest.mark.large
ALL = (*WORKERS, *MORE_WORKERS)
TARGET_SECONDS = 0.5
"""Within which adaptive scaling wants the tasks that wait to be done."""
PATIENCE = 5
"""How often in a row fewer workers have to be wanted before some leave; ``distributed.Adaptive`` looks three times, every second."""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Machines]:
    """Eight machines, no worker yet."""
    if why := machines.reason():
        pytest.skip(why)
    with Machines(tmp_path, more=MORE_WORKERS, begin_with=()) as made:
        made.wait(lambda: "Running on" in made.log("store"), "the store does not start")
        made.run("flow", str(BIN / "python"), "-c", RECORDS)
        made.run("flow", str(BIN / "dpdist"), "keys", "init")
        yield made


class Autoscaler:
    """Does what ``distributed.Adaptive`` does: it asks the scheduler how many workers it wants, and which may leave.

    Attributes:
        numbers: how many workers there were, each time that this changed.
        came: the names of all that came.
    """

    def __init__(self, hosts: Machines) -> None:
        from distributed import Client

        with dask.config.set(tls_certificates.settings(*hosts.pair)):
            self.client = Client(f"tls://{SCHEDULER}:8786")
        self.hosts, self.numbers, self.fewer = hosts, [0], 0
        self.came: set[str] = set()

    def adapt(self) -> None:
        """Start workers that are wanted, and end those that are not."""
        call, scheduler = self.client.sync, self.client.scheduler
        present = self.workers
        wanted = min(len(ALL), int(call(scheduler.adaptive_target, target_duration=TARGET_SECONDS)))
        for host in [name for name in ALL if not self._runs(name)][: max(0, wanted - self._running)]:
            self.hosts.start_worker(host)
        self.came |= {worker["name"] for worker in present.values()}
        self.fewer = self.fewer + 1 if wanted < len(present) else 0
        if self.fewer >= PATIENCE:
            leaving = call(scheduler.workers_to_close, n=len(present) - wanted)
            call(scheduler.retire_workers, workers=leaving, close_workers=True, remove=True)
        if len(present) != self.numbers[-1]:
            self.numbers.append(len(present))

    @property
    def workers(self) -> dict[str, Any]:
        """What the scheduler knows of its workers."""
        known: dict[str, Any] = self.client.scheduler_info(n_workers=-1)["workers"]
        return known

    @property
    def _running(self) -> int:
        return sum(map(self._runs, ALL))

    def _runs(self, host: str) -> bool:
        process = self.hosts.running.get(host)
        return process is not None and process.poll() is None


def adapted(scaler: Autoscaler, running: subprocess.Popen[bytes]) -> None:
    """Scale until a release has ended, and no worker is left."""
    deadline = time.monotonic() + 600
    while running.poll() is None or scaler.workers:
        scaler.adapt()
        assert time.monotonic() < deadline, scaler.numbers
        time.sleep(1)
    scaler.adapt()


def test_adaptive_scaling_from_none_to_four_and_back(hosts: Machines) -> None:
    began, running, scaler = time.monotonic(), started(hosts, "scaled"), Autoscaler(hosts)
    adapted(scaler, running)
    finished(hosts, "scaled", running)
    print(f"workers: {scaler.numbers}; {time.monotonic() - began:.0f} s")
    assert (scaler.came, scaler.numbers[-1]) == (set(ALL), 0)
    scaler.client.close()


def test_workers_with_a_lifetime_change_nothing(hosts: Machines) -> None:
    """Each ends after some seconds and is started again, as machines that are lent for a while."""
    for host in WORKERS:
        hosts.start_worker(host, options=("--lifetime", "8s", "--lifetime-stagger", "2s"))
    began, running = time.monotonic(), started(hosts, "lent")
    while running.poll() is None:
        for host in WORKERS:
            if hosts.running[host].poll() is not None:
                hosts.start_worker(host, options=("--lifetime", "8s", "--lifetime-stagger", "2s"))
        assert time.monotonic() - began < 600
        time.sleep(0.3)
    finished(hosts, "lent", running)
    lives = {host: hosts.log(host).count("Registered to") for host in WORKERS}
    print(f"lives of workers: {lives}; {time.monotonic() - began:.0f} s")
    assert min(lives.values()) > 1
