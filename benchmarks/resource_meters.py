"""What parts of ``scale.py`` are measured by: local workers, and the time, memory, traffic and files of them and of this process."""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import Any
from unittest import mock

import psutil
from distributed import LocalCluster
from distributed.comm.tcp import TCP

from dpdist import engine
from dpdist.content.destination import DraftFolder
from dpdist.pipeline.distributed_noise import RESOURCE
from dpdist.process.resource_limits import TERMINATED_SHARE, WORKER_BYTES
from dpdist.storage.array_store import Store
from dpdist.storage.documents import Documents

GIB = 2**30


class Peak(threading.Thread):
    """Largest memory of this process and all its children together, and of the children alone.

    Attributes:
        taken: CPU seconds of all such threads, a tenth of a core: ``spent`` leaves them out.
    """

    taken = 0.0

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.bytes, self.children, self.stop = 0, 0, threading.Event()

    def run(self) -> None:
        me = psutil.Process()
        until = time.thread_time()
        while not self.stop.wait(0.2):
            own, others = _resident(me), sum(_resident(child) for child in me.children(recursive=True))
            self.bytes, self.children = max(self.bytes, own + others), max(self.children, others)
            Peak.taken, until = Peak.taken + time.thread_time() - until, time.thread_time()


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


@contextmanager
def workers(gib: float, count: int = 2, *, drawing: bool = False) -> Iterator[engine.Engine]:
    """Worker processes of one thread, with so much memory beyond what the program takes; on request they draw noise.

    They have the disk of this machine, so they write what is published, as workers do that dpdist starts itself.
    """
    _count()
    os.environ[engine.WITHOUT_TLS] = "1"  # the records are made up
    place = {"memory_limit": worker_limit(gib), "resources": {RESOURCE: 1} if drawing else None}
    with (
        LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address="127.0.0.1:0", **place) as cluster,
        engine.open_engine(cluster.scheduler_address) as started,
        mock.patch.object(engine.Engine, "elsewhere", False),
    ):
        started.client.run(_ready)
        yield started


def _ready() -> None:
    """Import what tasks use, before anything is measured, and count from now on."""
    for name in (
        "dpdist.pipeline.release_run",
        "dpdist.counting.histogram_counting",
        "pyarrow.parquet",
        "scipy.fft",
        "zarr.codecs",
    ):
        importlib.import_module(name)
    _count()


def worker_limit(gib: float) -> int:
    """The bytes that a worker may take with its program, as the engine gives them to workers of its own: Dask ends one that nears them."""
    return int((gib * GIB + WORKER_BYTES) / TERMINATED_SHARE)


def spent() -> float:
    """CPU seconds of this process and its children, but for those of measuring memory."""
    me = psutil.Process()
    return sum(sum(each.cpu_times()[:2]) for each in [me, *me.children(recursive=True)]) - Peak.taken


@contextmanager
def measured() -> Iterator[dict[str, float]]:
    """Wall seconds, CPU seconds and peak bytes of a block."""
    out: dict[str, float] = {}
    peak = Peak()
    peak.start()
    started, cpu = time.perf_counter(), spent()
    yield out
    out["seconds"], out["cpu"] = time.perf_counter() - started, spent() - cpu
    peak.stop.set()
    peak.join()
    out["peak"], out["children"] = peak.bytes, peak.children


@dataclass(frozen=True)
class Use:
    """What has been used until now, or between two moments.

    Attributes:
        cpu, seconds: of all processes together, and of the clock.
        sent: bytes that client, scheduler and workers sent one another.
        read, written: bytes that workers read from files and wrote to files.
        read_here, written_here: those of this process.
        objects: files that were written to the store or are part of a release.
    """

    cpu: float
    seconds: float
    sent: int
    read: int
    written: int
    read_here: int
    written_here: int
    objects: int

    def __sub__(self, earlier: Use) -> Use:
        return Use(*(now - before for now, before in zip(astuple(self), astuple(earlier), strict=True)))


def measure_use(client: Any) -> Use:
    """What this process and the workers of a client have used until now."""
    counters = [_SentCounters.now(), *client.run(_SentCounters.now).values()]
    me = psutil.Process()
    here, there = me.io_counters(), [child.io_counters() for child in me.children(recursive=True)]
    return Use(
        spent(),
        time.perf_counter(),
        sum(sent for sent, _ in counters),
        sum(child.read_chars for child in there),
        sum(child.write_chars for child in there),
        here.read_chars,
        here.write_chars,
        sum(objects for _, objects in counters),
    )


WRITERS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (Documents, ("write_document", "create_document")),
    (Store, ("put_values", "begin", "write_shard")),
    (DraftFolder, ("write_file",)),
)
"""What writes one file each."""


class _SentCounters:
    """What this process has sent over Dask's connections, and how many files it has written."""

    sent, objects, counts = 0, 0, False

    @staticmethod
    def now() -> tuple[int, int]:
        return _SentCounters.sent, _SentCounters.objects


def _count() -> None:
    """Count from now on what this process sends and writes."""
    if _SentCounters.counts:
        return
    _SentCounters.counts, plain = True, TCP.write

    async def write(self: TCP, *arguments: Any, **options: Any) -> int:
        sent: int = await plain(self, *arguments, **options)
        _SentCounters.sent += sent
        return sent

    TCP.write = write
    for owner, names in WRITERS:
        for name in names:
            setattr(owner, name, _counted(getattr(owner, name)))


def _counted(method: Callable[..., Any]) -> Callable[..., Any]:
    def count_call(*arguments: Any, **options: Any) -> Any:
        _SentCounters.objects += 1
        return method(*arguments, **options)

    return count_call
