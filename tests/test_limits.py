"""What a container may use: quotas of control groups of both versions, on trees as kernels lay them out, and on this machine's own."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from dpdist import engine, limits
from dpdist.engine import Engine
from dpdist.release import memory
from dpdist.release.context import Context, silent
from dpdist.release.plan import plan, stage_memory
from dpdist.spec import load
from dpdist.store import Store
from tests import HANGS, small

GIB = 2**30
TREES = {
    "version 2, a container's own root": ({"cpu.max": "50000 100000", "memory.max": str(GIB)}, "0::/\n", 1, GIB),
    "version 2, a group above": (
        {"pod/cpu.max": "50000 100000", "pod/app/cpu.max": "max 100000", "pod/memory.max": str(2 * GIB)},
        "0::/pod/app\n", 1, 2 * GIB,
    ),
    "version 2, no limit": ({"cpu.max": "max 100000", "memory.max": "max"}, "0::/\n", None, None),
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
    assert limits.cores(groups, tmp_path / "own") == (cores or len(os.sched_getaffinity(0)))
    assert limits.memory_bytes(groups, tmp_path / "own") == (memory_bytes or total)


def test_limits_are_never_above_what_dask_finds() -> None:
    """Dask reads fewer places: where it knows a limit, it is known here, too."""
    from dask.system import cpu_count

    assert 1 <= limits.cores() <= cpu_count()
    assert 0 < limits.memory_bytes() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_a_small_release_fits_on_a_node_of_many_cores(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers for each core are bounded by what there is to work on: 64 cores and 4 GiB are enough for some hundred cells."""
    monkeypatch.setattr(memory, "cores", lambda: 64)
    path = small.write(tmp_path / "spec", workload=[{"marginals": {"ways": [3]}}], mechanism="identity")
    node = Engine(workers=1, memory_bytes=4 * GIB, threads=64, connect=None, local=True)
    planned = plan(Context(home, Store(home / "store"), node, silent), load(path))
    assert max(stage.bytes for stage in stage_memory(planned, node)) < GIB
    assert engine.inline().threads == limits.cores()


def test_a_plan_beyond_the_address_space_is_refused_in_one_line(home: Path) -> None:
    """As under ``ulimit -v``: a dense strategy over 9,000 cells where a process may have 2 GiB."""
    path = small.write(
        home.parent / "data",
        domain={"age": {"from": 0, "to": 8999}},
        workload=[{"cdf": {"of": "age"}}],
        mechanism="coa",
    )
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", "plan", str(path), "--engine", "inline"],
        env={**os.environ, "DPDIST_HOME": str(home)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 * GIB, 2 * GIB)),
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS,
    )
    assert done.returncode == 1, done.stdout
    assert "GiB, 2.00 GiB allowed" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
