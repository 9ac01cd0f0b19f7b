"""What this process may use of its machine: processors and memory, within its control groups (version 1 and 2).

A container sees the processors and the memory of the whole machine; what it may use of them is a quota of its control group.
"""

from __future__ import annotations

import math
import os
import re
import resource
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from dpdist.errors import OutOfMemory

MIB = 2**20
BLOCK = 2**16
"""Bytes that are read at once of a file that the kernel makes."""
PROGRAM_BYTES = 288 * MIB
"""What a process that runs a release takes in the end, without what its stages are planned at.

Anonymous memory of 180 MiB with all imports, threads and compiled code, and 108 MiB of the 176 MiB of libraries that it maps
(``tests/planner/test_memory_estimate.py`` measures it).
"""
WORKER_BYTES = 208 * MIB
"""The same of a worker process: 160 MiB and mapped libraries."""
TERMINATED_SHARE = 0.95
"""A worker process that takes more of its limit is ended: by Dask's nanny, or here by ``local_cluster``."""
LATER_BYTES = 112 * MIB
"""What a process that has planned a release still takes for itself: threads of Arrow, compiled noise, imports of later stages."""
ADDRESS_BYTES, ADDRESS_BYTES_A_CORE = 2816 * MIB, 128 * MIB
"""Address space of such a process, which ``ulimit -v`` bounds: allocators and threads reserve much more than they use."""

_MOUNTS = {"cpu": ("cpu", "cpu,cpuacct", "cpuacct,cpu"), "memory": ("memory",)}
"""Folders of version 1, one for each controller; distributions name them in different ways."""


def cores(groups: Path = Path("/sys/fs/cgroup"), group_file: Path = Path("/proc/self/cgroup")) -> int:
    """Processors that this process may keep busy: those it may run on, or its quota, rounded up.

    Args:
        groups: where control groups are mounted.
        group_file: names the control groups of this process.
    """
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for folder in _folders("cpu", groups, group_file):
        quota, period = _cpu_quota(folder)
        if quota > 0 and period > 0:
            count = min(count, math.ceil(quota / period))
    return count


def blas_threads() -> int:
    """Threads of linear algebra in this process: one a core, or fewer if OPENBLAS_NUM_THREADS or OMP_NUM_THREADS asks for fewer.

    OpenBLAS reads both when it is loaded, the first before the second. Its threads wait for work by spinning for a while, which takes
    the processor from other processes.
    """
    requested = [os.environ.get(name, "") for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")]
    return min([cores(), *[int(number) for number in requested if number.isdigit() and int(number)][:1]])


def memory_bytes(groups: Path = Path("/sys/fs/cgroup"), group_file: Path = Path("/proc/self/cgroup")) -> int:
    """Memory of the machine, or what the control groups and the resource limits (``ulimit -v``) of this process leave of it."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *(limit for limit, _ in _group_limits(groups, group_file)), *_address_space()])


def free_bytes(workers: int = 0, groups: Path = Path("/sys/fs/cgroup"), group_file: Path = Path("/proc/self/cgroup")) -> int:
    """Memory that is left for what stages are planned at, for each of this process and its worker processes.

    Subtracted are what this process takes now and will take for itself, what others in its control groups take, and what the
    worker processes will take for themselves.

    Args:
        workers: worker processes that are still to be started.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    here = status_bytes("RssAnon")
    program = max(PROGRAM_BYTES, here + LATER_BYTES)
    free = [machine, *(limit - max(0, taken - here) for limit, taken in _group_limits(groups, group_file))]
    available = [(min(free) - program - workers * WORKER_BYTES) // (workers + 1)]
    for limit in _address_space():
        reserved = max(
            ADDRESS_BYTES + ADDRESS_BYTES_A_CORE * cores(groups, group_file), status_bytes("VmSize") + LATER_BYTES
        )
        available = [*available, limit - reserved]
    return max(0, min(available))


def check_program() -> None:
    """Refuse to begin where the program itself does not fit. Raises: OutOfMemory."""
    if free_bytes() == 0:
        address = ADDRESS_BYTES + ADDRESS_BYTES_A_CORE * cores()
        needed_bytes = address if min(_address_space(), default=address) < address else PROGRAM_BYTES
        raise OutOfMemory("dpdist itself", needed_bytes, memory_bytes(), RAISE)


def explain_limits() -> str:
    """A clause that says why stages may take less than the limits of this process."""
    whole, available = memory_bytes() / 2**30, free_bytes() / 2**30
    return f"of the {whole:.2f} GiB that this process and its workers may take, the programs themselves take {whole - available:.2f}"


RAISE = "raise the memory limit of the container or service, or 'ulimit -v' where that is set"


def _address_space() -> list[int]:
    """The limit of this process's address space, if there is one."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return [] if limit == resource.RLIM_INFINITY else [limit]


def _group_limits(groups: Path, group_file: Path) -> Iterator[tuple[int, int]]:
    """The memory limit of each control group that has one, and what its processes take that cannot be reclaimed."""
    for folder in _folders("memory", groups, group_file):
        for name, counted in (("memory.max", "anon"), ("memory.limit_in_bytes", "total_rss")):
            limit = _numbers(folder / name)
            if limit and limit[0] > 0:
                yield limit[0], _stat_value(folder / "memory.stat", counted)


def _stat_value(file: Path, name: str) -> int:
    """The number behind a name in a file of lines; 0 where there is none."""
    match = re.search(rf"^{name}:?\s+(\d+)", _read_kernel_file(file), re.MULTILINE)
    return int(match[1]) if match else 0


def status_bytes(name: str) -> int:
    """A size of this process by the name that the kernel gives it, in bytes."""
    return 1024 * _stat_value(Path("/proc/self/status"), name)


def _cpu_quota(folder: Path) -> tuple[int, int]:
    """Microseconds of processor time in a period, and the period; zeros where there is no quota."""
    quota = _numbers(folder / "cpu.max") or _numbers(folder / "cpu.cfs_quota_us") + _numbers(folder / "cpu.cfs_period_us")
    return (quota[0], quota[1]) if len(quota) == 2 else (0, 0)


def _folders(controller: str, groups: Path, group_file: Path) -> tuple[Path, ...]:
    """The control groups that this process is in, and all above them: each of them limits it.

    A container may see its own group mounted at the top while its path is the machine's: folders that are not there are passed over.
    """
    return _folders_of(controller, groups, _read_kernel_file(group_file))


@lru_cache
def _folders_of(controller: str, groups: Path, group_list: str) -> tuple[Path, ...]:
    """The same, of a list of a process's control groups: they are looked up often, and stay where they are."""
    entries = [entry.split(":", 2) for entry in group_list.splitlines()]
    folders = list[Path]()
    unified, divided = "/", "/"
    for _, controllers, path in (entry for entry in entries if len(entry) == 3):
        if controllers == "":
            unified = path
        elif controller in controllers.split(","):
            divided = path
    for mount, path in [("", unified), *((name, divided) for name in _MOUNTS[controller])]:
        top = groups / mount
        below = top / path.lstrip("/")
        folders += (folder for folder in (below, *below.parents) if folder.is_relative_to(top) and folder.is_dir())
    return tuple(folders)


def _numbers(file: Path) -> tuple[int, ...]:
    """The numbers of a limit; nothing where there is none ('max') or no such file."""
    try:
        return tuple(int(word) for word in _read_kernel_file(file).split())
    except ValueError:
        return ()


def _read_kernel_file(file: Path) -> str:
    """What a file holds that the kernel makes when it is read; nothing where there is none. It is asked often, so without a buffer."""
    try:
        opened = os.open(file, os.O_RDONLY)
    except OSError:
        return ""
    content = bytearray()
    try:
        while chunk := os.read(opened, BLOCK):  # the kernel gives a page at a time
            content += chunk
        return os.fsdecode(bytes(content))
    except OSError:
        return ""
    finally:
        os.close(opened)
