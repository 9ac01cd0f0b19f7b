"""What a container may use: quotas of control groups of both versions, on trees as kernels lay them out, and on this machine's own."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from dpdist import engine
from dpdist.engine import Engine
from dpdist.planner import memory_estimate
from dpdist.planner.release_plan import plan, stage_memory
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.process import resource_limits
from dpdist.process.durable_files import private_folder
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests import HANGS
from tests.support import small_release

GIB = 2**30
TREES = {
    "version 2, a container's own root": ({"cpu.max": "50000 100000", "memory.max": str(GIB)}, "0::/\n", 1, GIB),
    "version 2, a group above": (
        {"pod/cpu.max": "50000 100000", "pod/app/cpu.max": "max 100000", "pod/memory.max": str(2 * GIB)},
        "0::/pod/app\n", 1, 2 * GIB,
    ),
    "version 2, no limit": ({"cpu.max": "max 100000", "memory.max": "max"}, "0::/\n", None, None),
    "version 2, a colon in a name": ({"unit:1:a.service/memory.max": str(2 * GIB)}, "0::/unit:1:a.service\n", None, 2 * GIB),
    "version 1, one mount each": (
        {"cpu/a/cpu.cfs_quota_us": "50000", "cpu/a/cpu.cfs_period_us": "100000", "memory/a/memory.limit_in_bytes": str(GIB)},
        "3:memory:/a\n1:cpu:/a\n", 1, GIB,
    ),
    "version 1, the path is the machine's": (
        {"cpu,cpuacct/cpu.cfs_quota_us": "50000", "cpu,cpuacct/cpu.cfs_period_us": "100000", "memory/memory.limit_in_bytes": str(GIB)},
        "4:cpu,cpuacct:/kubepods/pod1\n3:memory:/kubepods/pod1\n", 1, GIB,
    ),
    "version 1, no limit": (
        {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000", "memory/memory.limit_in_bytes": "9223372036854771712"},
        "3:memory:/\n1:cpu:/\n", None, None,
    ),
    "nothing readable": ({"cpu.max": "broken", "memory.max": ""}, "what\n", None, None),
    "more than there is": ({"cpu.max": "99900000 100000", "memory.max": str(2**60)}, "0::/\n", None, None),
}  # fmt: skip


@pytest.mark.parametrize("case", TREES)
def test_control_groups(tmp_path: Path, case: str) -> None:
    files, own, cores, memory_bytes = TREES[case]
    groups = tmp_path / "cgroup"
    for name, text in files.items():
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / name).write_text(f"{text}\n")
    (tmp_path / "own").write_text(own)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert resource_limits.cores(groups, tmp_path / "own") == (cores or len(os.sched_getaffinity(0)))
    assert resource_limits.memory_bytes(groups, tmp_path / "own") == (memory_bytes or total)
    left = resource_limits.free_bytes(0, groups, tmp_path / "own")
    assert left <= max(0, (memory_bytes or total) - resource_limits.PROGRAM_BYTES)
    workers = resource_limits.free_bytes(2, groups, tmp_path / "own")
    assert workers == pytest.approx(
        max(0, left - 2 * resource_limits.WORKER_BYTES) // 3, abs=2**24
    )  # this process grows meanwhile


@pytest.mark.parametrize(("limit", "taken"), [("memory.max", "anon"), ("memory.limit_in_bytes", "total_rss")])
def test_others_in_a_control_group_leave_less(tmp_path: Path, limit: str, taken: str) -> None:
    """What other processes of the group hold is not there; pages that can be read again are."""
    group = tmp_path / ("memory" if taken == "total_rss" else "")
    group.mkdir(exist_ok=True)
    (tmp_path / "own").write_text("3:memory:/\n0::/\n")
    (group / limit).write_text(f"{16 * GIB}\n")
    (group / "memory.stat").write_text(f"cache {9 * GIB}\nfile {9 * GIB}\n")
    alone = resource_limits.free_bytes(0, tmp_path, tmp_path / "own")
    mine = resource_limits.status_bytes("RssAnon")
    (group / "memory.stat").write_text(f"cache {9 * GIB}\n{taken} {mine + GIB}\nfile {9 * GIB}\n")
    assert alone - resource_limits.free_bytes(0, tmp_path, tmp_path / "own") == pytest.approx(GIB, abs=2**26)


def test_limits_are_never_above_what_dask_finds() -> None:
    """Dask reads fewer places: where it knows a limit, it is known here, too."""
    from dask.system import cpu_count

    assert 1 <= resource_limits.cores() <= cpu_count()
    assert 0 < resource_limits.memory_bytes() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_a_small_release_fits_on_a_node_of_many_cores(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers for each core are bounded by what there is to work on: 64 cores and 4 GiB are enough for some hundred cells."""
    monkeypatch.setattr(memory_estimate, "cores", lambda: 64)
    path = small_release.write(tmp_path / "spec", workload=[{"marginals": {"ways": [3]}}], mechanism="identity")
    node = Engine(workers=1, memory_bytes=4 * GIB, threads=64, connect=None, local=True)
    planned = plan(Context(home, Store(home / "store"), node, ignore_progress), load(path))
    assert max(stage.bytes for stage in stage_memory(planned, node)) < GIB


@pytest.mark.parametrize(
    ("asked", "threads"),
    [
        ({}, 4),
        ({"OMP_NUM_THREADS": "3"}, 3),
        ({"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "3"}, 1),
        ({"OPENBLAS_NUM_THREADS": "9"}, 4),
        ({"OPENBLAS_NUM_THREADS": "0", "OMP_NUM_THREADS": "2"}, 2),
        ({"OMP_NUM_THREADS": "2,1"}, 4),
    ],
)
def test_optimisers_take_the_threads_that_are_there_or_fewer(
    asked: dict[str, str], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_limits, "cores", lambda *_: 4)
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name)
    for name, number in asked.items():
        monkeypatch.setenv(name, number)
    assert engine.inline().threads == threads


def test_a_plan_beyond_the_address_space_is_refused_in_one_line(home: Path) -> None:
    """As under ``ulimit -v``: a dense strategy over 9,000 cells where a process may have 2 GiB."""
    path = small_release.write(
        home.parent / "data",
        domain={"age": {"from": 0, "to": 8999}},
        workload=[{"cdf": {"of": "age"}}],
        mechanism="coa",
    )
    done = subprocess.run(
        [sys.executable, "-m", "flows.commands.cli", "plan", str(path), "--engine", "inline"],
        env={**os.environ, "DPDIST_HOME": str(home)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 * GIB, 2 * GIB)),
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS,
    )
    assert done.returncode == 1, done.stdout
    assert "needs 3.00 GiB, 2.00 GiB allowed: raise" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def limited(command: str, path: Path, home: Path, limit: Limit) -> subprocess.CompletedProcess[str]:
    """A command that may take so much memory."""
    return subprocess.run(
        [sys.executable, "-m", "flows.main", command, str(path), "--quiet"],
        env={**os.environ, "DPDIST_HOME": str(home), "DPDIST_OUTPUT": str(home / "releases")},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS,
    )


Limit = Callable[[], object]


def check_refused(done: subprocess.CompletedProcess[str], home: Path, *, said: str) -> None:
    """Refused in one line that names need, limit and cure, and nothing is charged."""
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert done.stderr.count("\n") == 1, done.stderr
    assert re.search(said, done.stderr), done.stderr
    with open_ledger(home) as book:
        assert book.receipt("small-1") is None


def test_a_run_that_would_not_fit_the_address_space_charges_nothing(home: Path) -> None:
    """It was charged and then failed: threads and allocators reserve more than 2 GB of addresses."""
    path = small_release.write(home.parent / "data")
    limit = partial(resource.setrlimit, resource.RLIMIT_AS, (2 * 10**9, 2 * 10**9))
    check_refused(limited("run", path, home, limit), home, said=r"needs 3\.\d\d GiB, 1\.86 GiB allowed: raise")


@pytest.fixture
def group() -> Iterator[Callable[[int], Limit]]:
    """Makes limits of memory by a control group of the test's own."""
    made = Path("/sys/fs/cgroup/memory") / f"dpdist-test-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"needs a memory control group of version 1 that it may write: {error.strerror}")

    def limited_to(allowed: int) -> Limit:
        (made / "memory.limit_in_bytes").write_text(str(allowed))
        return lambda: (made / "cgroup.procs").write_text(str(os.getpid()))

    yield limited_to
    for _ in range(100):
        try:
            made.rmdir()
            return
        except OSError:  # the kernel counts the last process a moment longer
            time.sleep(0.1)
    raise AssertionError(f"{made} is still in use")


def wide(home: Path) -> Path:
    """A release of 1,125,750 ranges: its stages take 0.2 GiB."""
    ranges = {"domain": {"age": {"from": 0, "to": 1499}}, "workload": [{"ranges": {"of": ["age"]}}]}
    return small_release.write(home.parent / "wide", **ranges, mechanism="identity")


def test_what_does_not_fit_a_control_group_is_refused(home: Path, group: Callable[[int], Limit]) -> None:
    """The kernel killed it: the plan before anything was said, the run after its charge."""
    path = small_release.write(home.parent / "data")
    check_refused(
        limited("plan", path, home, group(150 * 10**6)), home, said=r"itself needs 0\.28 GiB, 0\.14 GiB allowed: raise"
    )
    check_refused(
        limited("run", path, home, group(250 * 10**6)), home, said=r"itself needs 0\.28 GiB, 0\.23 GiB allowed: raise"
    )


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [310, 350, 400, 460, 560, 720, 900])
def test_a_release_under_a_control_group_is_refused_or_published(
    home: Path, group: Callable[[int], Limit], megabytes: int
) -> None:
    """Whatever the limit: a small and a wide release end published, or refused before their charge."""
    for path in (small_release.write(home.parent / "data"), wide(home)):
        state = home / path.parent.name
        private_folder(state)
        (state / "root.key").write_text("5c" * 32 + "\n")
        (state / "root.key").chmod(0o600)
        done = limited("run", path, state, group(megabytes * 10**6))
        if done.returncode != 0:
            check_refused(done, state, said=r"needs 0\.\d\d GiB, 0\.\d\d GiB allowed: ")


def test_what_is_read_of_the_kernel_is_closed_again(tmp_path: Path) -> None:
    """It is asked often: a file that stays open at each time ends a long run."""

    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = opened()
    for _ in range(3):
        assert resource_limits.status_bytes("RssAnon") > 0
        assert resource_limits.free_bytes() > 0
        assert resource_limits.free_bytes(group_file=tmp_path / "nowhere") > 0
    assert opened() == before
