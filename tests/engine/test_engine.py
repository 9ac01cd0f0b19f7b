"""Placement of the largest computations, large things past the scheduler, clusters that lose their workers."""

from __future__ import annotations

import json
import os
import pickle
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import threadpoolctl
from distributed import KilledWorker, LocalCluster
from distributed.client import ClosedClientError, FutureCancelledError
from distributed.comm.core import CommClosedError

from dpdist import engine
from dpdist.arrays.lazy_vector import ArrayVector
from dpdist.engine import cluster_workers, runner, task_queue, tasks
from dpdist.errors import EngineError, InvalidSpec, OutOfMemory, TaskFailed
from dpdist.pipeline import release_run
from dpdist.process.resource_limits import WORKER_BYTES
from dpdist.reconstruction.least_squares import SharedArray
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests import HANGS
from tests.support import small_release, tls_certificates
from tests.support.forked_programs import Program

SCHEDULER = ("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
WORKER = ("distributed.cli.dask_worker", "--no-dashboard", "--nthreads")


class Processes:
    """A scheduler and workers as processes of their own, with TLS.

    Attributes:
        environment, settings: Dask's variables and settings for processes that are to reach them.
        tls: the options that make a scheduler or a worker one of them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[Program] = []
        self.file = folder / "scheduler.json"
        certificate, key = tls_certificates.written(folder / "certificates")
        self.environment, self.settings = (
            tls_certificates.environment(certificate, key),
            tls_certificates.settings(certificate, key),
        )
        self.tls = [
            "--protocol",
            "tls",
            "--tls-ca-file",
            str(certificate),
            "--tls-cert",
            str(certificate),
            "--tls-key",
            str(key),
        ]
        self.scheduler = self._start(*SCHEDULER, *self.tls, "--scheduler-file", str(self.file))
        deadline = time.monotonic() + HANGS
        while not self.file.exists() or not self.file.read_text():
            assert time.monotonic() < deadline, "the scheduler did not start"
            time.sleep(0.05)
        self.address = json.loads(self.file.read_text())["address"]

    def worker(self, threads: int, *options: str) -> Program:
        return self._start(*WORKER, str(threads), "--no-nanny", *self.tls, *options, self.address)

    def _start(self, *command: str) -> Program:
        self.running.append(Program(*command, folder=self.folder))
        return self.running[-1]

    def stop(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    found = Processes(tmp_path)
    with dask.config.set(found.settings):  # as in a process that has the variables from the start
        yield found
    found.stop()


def whereabouts(tag: str) -> tuple[str, int, int]:
    np.ones((4, 4)) @ np.ones((4, 4))
    blas = [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    return tag, os.getpid(), max(blas)


def test_heavy_work_runs_where_the_memory_is(processes: Processes) -> None:
    processes.worker(1, "--memory-limit", "300MB")
    large = processes.worker(2, "--memory-limit", "2GB")
    with engine.open_engine(processes.address) as started:
        started.client.wait_for_workers(2, timeout=HANGS)
        assert started.largest_worker_bytes == int(0.95 * 2 * 10**9) - WORKER_BYTES  # the rest is the worker's own
        for _ in range(3):
            assert started.on_largest_worker(whereabouts, "here", needed_bytes=10**9) == ("here", large.pid, 2)
        with pytest.raises(OutOfMemory, match=r"needs 3.73 GiB, 1.57 GiB allowed: start a worker with more memory \(and "):
            started.on_largest_worker(whereabouts, "nowhere", needed_bytes=4 * 10**9)
        chosen = processes.worker(1, "--memory-limit", "300MB", "--resources", "optimiser=1")
        started.client.wait_for_workers(3, timeout=HANGS)
        assert started.on_largest_worker(whereabouts, "apart")[1] == chosen.pid
        assert started.largest_worker_bytes == int(0.95 * 300 * 10**6) - WORKER_BYTES  # no other's, however much it has
        with pytest.raises(OutOfMemory, match=r"needs 0.93 GiB, 0.06 GiB allowed"):
            started.on_largest_worker(whereabouts, "nowhere", needed_bytes=10**9)


def slow_then_done(path: str) -> int:
    """Takes for ever the first time, and says where it runs."""
    marker = Path(path)
    if not marker.exists():
        marker.write_text(str(os.getpid()))
        time.sleep(2 * HANGS)
    return os.getpid()


def test_heavy_work_moves_when_its_worker_dies(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when every worker that it was meant for is gone, and another one comes."""
    monkeypatch.setattr(task_queue, "POLL_SECONDS", 0.2)
    first = processes.worker(1, "--resources", "optimiser=1")
    marker = tmp_path / "marker"

    def replace(_: float) -> None:
        if marker.exists() and first.poll() is None:
            assert int(marker.read_text()) == first.pid
            first.kill()
            processes.worker(1, "--resources", "optimiser=1")

    with engine.open_engine(processes.address) as started:
        started.client.wait_for_workers(1, timeout=HANGS)
        original = task_queue.optimisers

        def watched(client: Any) -> Any:
            replace(0)
            return original(client)

        monkeypatch.setattr(task_queue, "optimisers", watched)
        assert started.on_largest_worker(slow_then_done, str(marker)) not in (first.pid, os.getpid())


def large_sum(array: np.ndarray, item: int) -> np.ndarray:
    return array + item


class CountedVector(ArrayVector):
    """A vector that writes down how often it was read."""

    def read(self, start: int, stop: int) -> np.ndarray:
        with open(os.environ["READS"], "a", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n")
        return super().read(start, stop)


def inverse_plus(shared: SharedArray, item: int) -> float:
    return float(shared.values.sum()) + item


@pytest.mark.usefixtures("without_tls")
def test_what_all_tasks_of_a_stage_read_is_read_once_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An inverse of 2 GB was read for every task of a second. After the stage no worker holds it any longer."""
    monkeypatch.setenv("READS", str(tmp_path / "reads"))
    shared = SharedArray(CountedVector(np.ones(6)), (2, 3))
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        engine.open_engine(cluster.scheduler_address) as started,
    ):
        started.exchange = Store(tmp_path / "store")
        assert started.map(partial(inverse_plus, shared), list(range(40))) == [6.0 + item for item in range(40)]
        reads = (tmp_path / "reads").read_text().split()
        assert len(reads) == len(set(reads)) <= 2
        assert started.map(partial(inverse_plus, shared), [0]) == [6.0]
        assert len((tmp_path / "reads").read_text().split()) == len(reads) + 1
        deadline = time.monotonic() + HANGS
        while any(started.client.run(held_function).values()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(started.client.run(held_function).values())


def held_function() -> bool:
    """Whether this worker holds the function of a stage."""
    return tasks._Stage.function is not None


def squared(item: int) -> tuple[int, int]:
    return item * item, os.getpid()


@pytest.mark.usefixtures("without_tls")
def test_a_stage_of_many_items_is_few_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler takes milliseconds for a task, however small: 10^12 cells are half a million ranges of a scan."""
    monkeypatch.setattr(runner, "MOST_TASKS", 10)
    monkeypatch.setattr(task_queue, "TASKS_AHEAD", 4)
    told: list[tuple[int, int]] = []
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        engine.open_engine(cluster.scheduler_address) as started,
    ):
        started.exchange = Store(tmp_path / "store")
        for items, most in ((10, 10), (11, 6), (95, 10)):
            calls: list[int] = []
            original = started.client.map

            def counted(function: Any, some: Any, original: Any = original, calls: list[int] = calls, **options: Any) -> Any:
                calls.append(len(some))
                return original(function, some, **options)

            monkeypatch.setattr(started.client, "map", counted)
            found = started.map(squared, list(range(items)), report_progress=lambda done, total: told.append((done, total)))
            monkeypatch.setattr(started.client, "map", original)
            assert [value for value, _ in found] == [item * item for item in range(items)]
            assert sum(calls) == most
            assert told[-1] == (items, items)
        with pytest.raises(TaskFailed, match="ZeroDivisionError"):
            started.map(reciprocal, list(range(50, -1, -1)))


def refuses(folder: str) -> None:
    """Says on disk that it was called."""
    with open(Path(folder) / "calls", "a", encoding="utf-8") as file:
        file.write("x")
    raise InvalidSpec("no record has a person")


def fails(folder: str) -> None:
    """Says on disk that it was called."""
    with open(Path(folder) / "calls", "a", encoding="utf-8") as file:
        file.write("x")
    raise ValueError("no record has a person")


@pytest.mark.usefixtures("without_tls")
@pytest.mark.parametrize("exchange", [True, False])
def test_what_a_task_refuses_is_not_tried_again(tmp_path: Path, exchange: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Dask ran it four times, and logged four tracebacks."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        engine.open_engine(cluster.scheduler_address) as started,
        caplog.at_level("WARNING"),
    ):
        started.exchange = Store(tmp_path / "store") if exchange else None
        for calls, run in enumerate((started.map, partial(started.map_where, None)), start=1):
            with pytest.raises(InvalidSpec, match="no record has a person"):
                run(refuses, [str(tmp_path)])
            assert (tmp_path / "calls").read_text() == calls * "x"
        with pytest.raises(InvalidSpec, match="no record has a person"):
            started.on_largest_worker(refuses, str(tmp_path))
        assert (tmp_path / "calls").read_text() == "xxx"
        with pytest.raises(TaskFailed, match="ValueError"):  # of a kind that comes again
            started.map(fails, [str(tmp_path)])
        assert (tmp_path / "calls").read_text() == "xxxx"
    assert "no record has a person" not in caplog.text


def reciprocal(item: int) -> float:
    return 1 / item


@pytest.mark.usefixtures("without_tls")
def test_large_things_pass_by_the_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions and results of 4 MB travel through the store, and are gone from it afterwards."""
    array = np.arange(2**19, dtype=np.float64)
    sizes: list[int] = []
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        engine.open_engine(cluster.scheduler_address) as started,
    ):
        started.exchange = Store(tmp_path / "store")

        def measure_scheduler_tasks(done: int, total: int) -> None:
            del done, total
            tasks = list(cluster.scheduler.tasks.values())  # the scheduler runs in this process
            sizes.extend(len(pickle.dumps(task.run_spec)) for task in tasks)
            sizes.extend(task.nbytes for task in tasks)

        found = started.map(partial(large_sum, array), [1, 2, 3], report_progress=measure_scheduler_tasks)
        on_largest_worker = started.on_largest_worker(large_sum, array, 4)
    for item, result in zip((1, 2, 3, 4), [*found, on_largest_worker], strict=True):
        np.testing.assert_array_equal(result, array + item)
    assert 0 < max(sizes) < 2**18
    left = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert {path.name for path in left} <= {"lease.json", "beat.json"}  # this process's own, which lives


def logged(path: str, item: int) -> int:
    """item squared; who computed it is written down."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{item} {os.getpid()}\n")
    time.sleep(0.02)
    return item * item


def test_workers_come_and_go_while_a_stage_runs(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One joins and works at once, and is counted; one that is killed costs what was dealt to it, and no other task."""
    monkeypatch.setattr(cluster_workers, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(task_queue, "POLL_SECONDS", 0.2)
    going = processes.worker(1, "--memory-limit", "4GB")
    processes.worker(1, "--memory-limit", "4GB")
    log, items, seen = tmp_path / "log", 150, list[int]()
    with engine.open_engine(processes.address) as started:
        started.client.wait_for_workers(2, timeout=HANGS)
        time.sleep(2 * cluster_workers.LOOK_SECONDS)
        assert started.workers == 2
        before = started.memory_bytes
        started.exchange = Store(tmp_path / "store")

        def replace_workers(done: int, total: int) -> None:
            seen.append(started.workers)
            if done == 10:
                processes.worker(2, "--memory-limit", "2GB")
                started.client.wait_for_workers(3, timeout=HANGS)
            if done == 40:
                going.kill()

        assert started.map(partial(logged, str(log)), list(range(items)), report_progress=replace_workers) == [
            item**2 for item in range(items)
        ]
        deadline = time.monotonic() + HANGS
        while started.workers != 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert started.workers == 3
        assert started.memory_bytes < before
    assert {2, 4} <= set(seen)
    runs = [line.split() for line in log.read_text().splitlines()]
    assert len({pid for _, pid in runs}) == 3
    assert len(runs) - items <= 2 * task_queue.TASKS_AHEAD
    twice = {item for item, _ in runs if [each for each, _ in runs].count(item) > 1}
    assert all(any(pid == str(going.pid) for each, pid in runs if each == item) for item in twice)


def note_start_and_wait(path: str) -> int:
    """Takes a while, and writes down that it began."""
    with open(path, "a", encoding="utf-8") as file:
        file.write("begun\n")
    time.sleep(3)
    return os.getpid()


@pytest.mark.slow
def test_scaling_down_leaves_the_optimiser_alone(processes: Processes, tmp_path: Path) -> None:
    """Whoever scales down asks the scheduler which workers may go: that with the optimisation is the last, and its work begins once."""
    for memory in ("4GB", "1GB", "1GB"):
        processes.worker(1, "--memory-limit", memory)
    path = tmp_path / "log"
    with engine.open_engine(processes.address) as started, ThreadPoolExecutor(1) as pool:
        started.client.wait_for_workers(3, timeout=HANGS)
        found = pool.submit(started.on_largest_worker, note_start_and_wait, str(path), needed_bytes=2 * 10**9)
        deadline = time.monotonic() + HANGS
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        going = started.client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.workers_to_close(n=2))
        started.client.retire_workers(going, close_workers=True)
        assert found.result(timeout=HANGS)
        assert len(going) == 2
    assert path.read_text() == "begun\n"


def test_a_run_without_workers_shows_adaptive_scaling_a_task_that_waits(processes: Processes) -> None:
    """An autoscaler asks the scheduler how many workers it wants; it wants none where nothing waits."""
    with engine.open_engine(processes.address) as started, ThreadPoolExecutor(1) as pool:

        def target_workers() -> int:
            return int(started.client.sync(started.client.scheduler.adaptive_target))

        assert target_workers() == 0
        ready = pool.submit(started.check_started)
        deadline = time.monotonic() + HANGS
        while target_workers() == 0:
            assert time.monotonic() < deadline, "nothing waits"
            time.sleep(0.05)
        processes.worker(1)
        ready.result(timeout=HANGS)
        while target_workers() > 0:  # the task is given up
            assert time.monotonic() < deadline, "something still waits"
            time.sleep(0.05)


def test_a_cluster_without_workers_is_told(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_queue, "POLL_SECONDS", 0.2)
    monkeypatch.setattr(cluster_workers, "WITHOUT_WORKERS_SECONDS", 1)
    only = processes.worker(1)
    with engine.open_engine(processes.address) as started:
        started.client.wait_for_workers(1, timeout=HANGS)

        def kill_only_worker(done: int, total: int) -> None:
            del done, total
            only.kill()

        with pytest.raises(EngineError, match="has had no worker for 1 seconds; start some and run the same command again"):
            started.map(abs, list(range(-100, 0)), report_progress=kill_only_worker)


@pytest.mark.usefixtures("without_tls")
def test_the_last_worker_may_leave_before_the_largest_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one takes it: that nobody is there is no lack of memory."""
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        engine.open_engine(cluster.scheduler_address) as started,
    ):
        nobody, admitted = iter([{}]), started.admitted
        monkeypatch.setattr(started, "admitted", lambda **options: next(nobody, admitted(**options)))
        assert started.on_largest_worker(whereabouts, "here")[0] == "here"


@pytest.mark.usefixtures("without_tls")
def test_a_scheduler_that_is_known_to_be_gone_is_told() -> None:
    """A client that has noticed it refuses tasks by another error than one that has not."""
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        engine.open_engine(cluster.scheduler_address) as started,
    ):
        started.client.close()
        with pytest.raises(EngineError, match="scheduler went away; start it and run the same command again"):
            started.map(abs, [-1])


@pytest.mark.usefixtures("without_tls")
def test_a_cluster_hands_out_some_tasks_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """10^4 tasks never stand in the scheduler together, and come back in order."""
    most = 0
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        engine.open_engine(cluster.scheduler_address) as started,
    ):

        def count_scheduler_tasks(done: int, total: int) -> None:
            nonlocal most
            most = max(most, len(cluster.scheduler.tasks))

        assert started.map(abs, list(range(-500, 0)), report_progress=count_scheduler_tasks) == list(range(500, 0, -1))
    assert most <= 3 * 2 * task_queue.TASKS_AHEAD


def test_a_release_on_an_optimiser_s_worker(home: Path, processes: Processes) -> None:
    """The solve runs on the worker with the resource; the release has the bytes of one in this process."""
    path = small_release.write(home.parent / "data")
    expected = small_release.undisturbed(path, home)
    for folder in ("strategies", "answers"):
        for kept in (home / "store").glob(folder):
            kept.rename(kept.with_name(f"other-{folder}"))
    processes.worker(1, "--memory-limit", "1GB")
    processes.worker(1, "--memory-limit", "1GB", "--resources", "optimiser=1")
    with engine.open_engine(processes.address) as started:
        started.client.wait_for_workers(2, timeout=HANGS)
        release_run.release(Context(home, Store(home / "store"), started, ignore_progress), load(path))
    published = small_release.tree(Path("releases/small-1"))
    assert published.keys() == expected.keys()
    assert published["answers.csv"] == expected["answers.csv"]


def test_progress_in_this_process_ends_at_the_whole() -> None:
    seen = list[tuple[int, int]]()
    assert engine.inline().map(abs, [-3, 1, -2], report_progress=lambda done, of: seen.append((done, of))) == [3, 1, 2]
    assert seen == [(1, 3), (2, 3), (3, 3)]


LOSSES: dict[str, tuple[Exception, str]] = {
    "workers": (KilledWorker("rows-0", None, 3), "most likely for memory"),
    "futures": (FutureCancelledError("rows-0", "scheduler-connection-lost"), "scheduler went away"),
    "cancelled": (CancelledError("rows-0"), "scheduler went away"),
    "connection": (CommClosedError("in TCP: stream is closed"), "scheduler went away"),
    "client": (ClosedClientError("the client is closed"), "scheduler went away"),
    "connections": (RuntimeError("ConnectionPool is closed"), "scheduler went away"),
}


@pytest.mark.parametrize("lost", LOSSES)
def test_no_loss_is_taken_for_a_result(lost: str) -> None:
    """Whatever Dask raises when workers or the scheduler are gone is one error that says what to do, and nothing goes on."""
    error, message = LOSSES[lost]
    with pytest.raises(EngineError, match=message), cluster_workers.losses_told():
        raise error


def test_what_is_no_loss_is_raised_as_it_is() -> None:
    with pytest.raises(RuntimeError, match="of a task"), cluster_workers.losses_told():
        raise RuntimeError("of a task")
