"""Workers that come and go amid a release, as adaptive scaling has them: from none to four, to none, and back."""

from __future__ import annotations

import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest

from tests.hosts.host_releases import HostRelease, machines_with_records
from tests.hosts.machines import MORE_WORKERS, SCHEDULER, WORKERS, Machines
from tests.hosts.test_hosts import release, write_queries
from tests.support import tls_certificates

pytestmark = pytest.mark.large
ALL = (*WORKERS, *MORE_WORKERS)
LASTING_ROWS = 2**18
"""Queries whose W'W takes longer than four workers need to start, and than a worker lives that is lent."""
TARGET_SECONDS = 0.5
"""Within which adaptive scaling wants the tasks that wait to be done."""
PATIENCE = 5
"""How often in a row fewer workers have to be wanted before some leave; ``distributed.Adaptive`` looks three times, every second."""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Seven machines with records and queries in the store, no worker yet."""
    with machines_with_records(tmp_path_factory.mktemp("scaling"), more=MORE_WORKERS, begin_with=()) as made:
        write_queries(made, LASTING_ROWS)
        yield made


OPEN_PYTHON = (
    'mkdir -p .python && mount --rbind "$0" .python && mount -t tmpfs -o mode=755 none "$1" '
    '&& mkdir -p "$0" && mount --rbind .python "$0" && shift && exec "$@"'
)
"""A shell's program: of a closed folder one within it is seen, and nothing else."""


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


def adapted(scaler: Autoscaler, running: HostRelease) -> None:
    """Scale until a release has ended, and no worker is left."""
    deadline = time.monotonic() + 600
    while running.running.poll() is None or scaler.workers:
        scaler.adapt()
        assert time.monotonic() < deadline, scaler.numbers
        time.sleep(1)
    scaler.adapt()


def test_adaptive_scaling_from_none_to_four_and_back(hosts: Machines) -> None:
    """The work of a stage is cut into four parts for the one worker that is there when it begins; others take them over."""
    running, scaler = release(hosts, "rows", "scaled", rows=LASTING_ROWS), Autoscaler(hosts)
    adapted(scaler, running)
    running.finish()
    print(f"workers: {scaler.numbers}")
    assert max(scaler.numbers) == len(ALL)
    assert scaler.numbers[-1] == 0
    scaler.client.close()


def test_workers_with_a_lifetime_change_nothing(hosts: Machines) -> None:
    """Each ends after some seconds and is started again, as machines that are lent for a while."""
    begun = {host: hosts.registrations(host) for host in WORKERS}
    lifetime = ("--lifetime", "8s", "--lifetime-stagger", "2s")
    for host in WORKERS:
        hosts.start_worker(host, options=lifetime)
    running = release(hosts, "rows", "lent", rows=LASTING_ROWS)
    while running.running.poll() is None:
        for host in WORKERS:
            if hosts.running[host].poll() is not None:
                hosts.start_worker(host, options=lifetime)
        assert time.monotonic() - running.begin < 600
        time.sleep(0.3)
    running.finish()
    lives = {host: hosts.registrations(host) - begun[host] for host in WORKERS}
    print(f"lives of workers: {lives}")
    assert min(lives.values()) > 1
    for host in WORKERS:
        hosts.kill(host)


def program_of_user(user: int) -> tuple[str, ...]:
    """A program that starts another one for a user, who may use this Python even if it lies in a folder of root's."""
    start = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs")
    python = Path(sys.base_prefix)
    closed = next((folder for folder in reversed(python.parents) if not folder.stat().st_mode & stat.S_IXOTH), None)
    return start if closed is None else ("sh", "-c", OPEN_PYTHON, str(python), str(closed), *start)


def test_four_workers_of_four_users_work_at_once(hosts: Machines) -> None:
    """Each is a user of its own, who owns the disk of its machine and nothing else."""
    begun = {host: hosts.registrations(host) for host in ALL}
    for user, host in enumerate(ALL, start=20_001):
        subprocess.run(["chown", "--recursive", f"{user}:{user}", str(hosts.disk(host))], check=True)
        hosts.start_worker(host, *program_of_user(user))
    hosts.wait(lambda: all(hosts.registrations(host) > begun[host] for host in ALL), "no workers")
    running = release(hosts, "persons", "of-four-users")
    running.finish()
    for host in ALL:
        assert f"{hosts.address(host)} " in running.requests
    users = {Path(f"/proc/{hosts.running[host].pid}").stat().st_uid for host in ALL}
    assert users == set(range(20_001, 20_001 + len(ALL)))
