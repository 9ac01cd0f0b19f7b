"""What this process may use of its machine: processors and memory, within its control groups (version 1 and 2).

A container sees the processors and the memory of the whole machine; what it may use of them is a quota of its control group.
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Iterator
from pathlib import Path

_MOUNTS = {"cpu": ("cpu", "cpu,cpuacct", "cpuacct,cpu"), "memory": ("memory",)}
"""Folders of version 1, one for each controller; distributions name them in different ways."""


def cores(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Processors that this process may keep busy: those it may run on, or its quota, rounded up.

    Args:
        groups: where control groups are mounted.
        own: names the control groups of this process.
    """
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder in _folders("cpu", groups, own):
        quota, period = _cpu_quota(folder)
        if quota > 0 and period > 0:
            found = min(found, math.ceil(quota / period))
    return found


def memory_bytes(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Memory of the machine, or what the control groups and the resource limits (``ulimit -v``) of this process leave of it."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if address_space != resource.RLIM_INFINITY:
        found = min(found, address_space)
    for folder in _folders("memory", groups, own):
        limits = (_numbers(folder / name) for name in ("memory.max", "memory.limit_in_bytes"))
        found = min([found, *(limit[0] for limit in limits if limit and limit[0] > 0)])
    return found


def _cpu_quota(folder: Path) -> tuple[int, int]:
    """Microseconds of processor time in a period, and the period; zeros where there is no quota."""
    both = _numbers(folder / "cpu.max") or _numbers(folder / "cpu.cfs_quota_us") + _numbers(folder / "cpu.cfs_period_us")
    return (both[0], both[1]) if len(both) == 2 else (0, 0)


def _folders(controller: str, groups: Path, own: Path) -> Iterator[Path]:
    """The control groups that this process is in, and all above them: each of them limits it.

    A container may see its own group mounted at the top while its path is the machine's: folders that are not there are passed over.
    """
    try:
        lines = [line.split(":", 2) for line in own.read_text(encoding="utf-8").splitlines()]
    except OSError:
        lines = []
    unified, divided = "/", "/"
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if controllers == "":
            unified = path
        elif controller in controllers.split(","):
            divided = path
    for mount, path in [("", unified), *((name, divided) for name in _MOUNTS[controller])]:
        top = groups / mount
        below = top / path.lstrip("/")
        yield from (folder for folder in (below, *below.parents) if folder.is_relative_to(top) and folder.is_dir())


def _numbers(file: Path) -> tuple[int, ...]:
    """The numbers of a limit; nothing where there is none ('max') or no such file."""
    try:
        return tuple(int(word) for word in file.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return ()
