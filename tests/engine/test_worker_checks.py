"""Workers that lack something get no tasks: each is named once with what it lacks, and the others do the work."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster, SpecCluster, versions

from dpdist import engine
from dpdist.engine import Engine, cluster_workers, task_queue, worker_checks
from dpdist.errors import EngineError, StoreError
from dpdist.storage.array_store import Store
from tests import HANGS
from tests.case_selection import slow_after_first
from tests.faults import harness
from tests.support import small_release
from tests.support.forked_programs import Program

MOUNTS = os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0


@pytest.fixture(scope="module")
def cluster(s3: str) -> Iterator[SpecCluster]:
    del s3
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as found:
        yield found


def become(allow: str, installed: str, package: Any) -> None:
    """On a worker: whether it may use HTTP, a folder in which packages are installed beside the others, and whether it loads dpdist."""
    os.environ["AWS_ALLOW_HTTP"], sys.path[0] = allow, installed
    versions._version_cached.cache_clear()
    sys.modules.pop("dpdist.engine.worker_checks", None)
    if package is None:
        sys.modules["dpdist.engine.worker_checks"] = package  # type: ignore[assignment]


class Workers:
    """Two workers, of which the first may lack something."""

    def __init__(self, cluster: SpecCluster, client: Client) -> None:
        self.cluster, self.client, self.told = cluster, client, list[str]()
        client.wait_for_workers(2, timeout=HANGS)
        self.lame, self.sound = sorted(client.scheduler_info(n_workers=-1)["workers"])
        self.become()

    def become(self, *, allow: str = "true", installed: str = "", package: Any = True, only: bool = True) -> None:
        """Have the first worker, or both, lack something."""
        self.client.run(become, allow, installed, package, workers=[self.lame] if only else None)

    def use(self, found: Engine, store: Store) -> Engine:
        found.exchange, found.report = store, self.told.append
        return found


@pytest.fixture
def workers(cluster: SpecCluster, without_tls: None) -> Iterator[Workers]:
    del without_tls
    with Client(cluster.scheduler_address) as client:
        found = Workers(cluster, client)
        yield found
        found.become(only=False)


def address(_: int) -> str:
    return engine.this_worker()


LACKS: list[tuple[dict[str, Any], str]] = [
    (
        {"allow": "false"},
        r"does not find in the store s3://\S+ what the flow wrote there \(\w+\): give it the same mount, or bucket",
    ),
    ({"installed": "other"}, r"runs dpdist 0\.0\.9 \(here \S+\): give it the same image"),
    ({"package": None}, r"cannot load dpdist: give it the same image"),
]


def with_installed(lack: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What a worker is to lack, with a folder in which another version is installed where it says so."""
    if "installed" not in lack:
        return lack
    (folder / "dpdist-0.0.9.dist-info").mkdir()
    (folder / "dpdist-0.0.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: dpdist\nVersion: 0.0.9\n")
    return {"installed": str(folder)}


@pytest.mark.parametrize(("lack", "line"), LACKS, ids=["store", "version", "package"])
def test_what_each_worker_lacks_is_named(s3: str, workers: Workers, tmp_path: Path, lack: dict[str, Any], line: str) -> None:
    """Of the worker that lacks it alone; other versions also where no store is needed."""
    workers.become(**with_installed(lack, tmp_path))
    there = workers.client.scheduler_info(n_workers=-1)["workers"]
    admission = worker_checks.Admission(workers.client)
    assert [*admission.lacking(there)] == ([workers.lame] if "installed" in lack else [])
    admission = worker_checks.Admission(workers.client)
    admission.require(Store(f"{s3}/named"), ())
    ((lame, text),) = admission.lacking(there).items()
    assert lame == workers.lame
    assert re.fullmatch(f"{line}.*", text)


@pytest.mark.parametrize(("lack", "line"), slow_after_first(1, LACKS), ids=["store", "version", "package"])
def test_a_worker_that_lacks_something_is_left_alone(
    s3: str, workers: Workers, tmp_path: Path, lack: dict[str, Any], line: str
) -> None:
    """It is named once, the other one does all tasks; where both lack it, the run refuses at once, in one line."""
    lack = with_installed(lack, tmp_path)
    workers.become(**lack)
    with engine.open_engine(workers.cluster.scheduler_address) as started:
        workers.use(started, Store(f"{s3}/lacks"))
        assert set(started.map(address, range(40))) == {workers.sound}
        assert started.on_largest_worker(engine.this_worker) == workers.sound
        assert started.workers == 1
        (told,) = workers.told
        assert re.fullmatch(rf"the worker at {workers.lame} {line}.*; it gets no tasks of this run", told)
    workers.become(**lack, only=False)
    wanted = (
        rf"no worker of the cluster can do the tasks of this run: the worker at {workers.lame} {line}.* \(and 1 more lack"
    )
    asking: list[Callable[[Engine], object]] = [
        lambda found: found.map(address, range(40)),
        lambda found: found.check_started(),
    ]
    for ask in asking:  # with its first tasks, and before a charge
        with pytest.raises(EngineError) as refused, engine.open_engine(workers.cluster.scheduler_address) as started:
            ask(workers.use(started, Store(f"{s3}/lacks")))
        assert re.match(wanted, str(refused.value))
        assert "\n" not in str(refused.value)


def test_a_worker_that_hangs_holds_up_nobody(s3: str, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for a limited time and named once; the scheduler would have it for minutes more."""
    monkeypatch.setattr(worker_checks, "ANSWER_SECONDS", 1)
    hanging = workers.client.run(os.getpid)[workers.lame]
    os.kill(hanging, signal.SIGSTOP)
    try:
        with engine.open_engine(workers.cluster.scheduler_address) as started:
            workers.use(started, Store(f"{s3}/hangs"))
            for _ in range(2):
                assert set(started.map(address, range(4))) == {workers.sound}
            assert started.on_largest_worker(engine.this_worker) == workers.sound
            assert len(workers.client.scheduler_info(n_workers=-1)["workers"]) == 2
    finally:
        os.kill(hanging, signal.SIGCONT)
    (told,) = workers.told
    assert told.startswith(
        f"the worker at {workers.lame} has not answered for 1 seconds: look at its machine; it gets no tasks"
    )


def test_workers_are_asked_again_when_a_run_needs_other_files(s3: str, workers: Workers, tmp_path: Path) -> None:
    """In the same store: files that workers were not asked about may be on no disk of theirs."""
    asked: list[tuple[str, ...]] = []

    class Asking(worker_checks.Admission):
        """Remembers the files that workers are asked about."""

        def _ask(self, addresses: list[str]) -> dict[str, str]:
            asked.extend(tuple(called for _, called in self._files) for _ in addresses)
            return super()._ask(addresses)

    asking, store = Asking(workers.client), Store(f"{s3}/files")
    found = workers.client.scheduler_info(n_workers=-1)["workers"]
    files = []
    for name in ("first", "second"):
        (tmp_path / name).write_text("records")
        files.append((str(tmp_path / name), name))
    for needed in (files[:1], files[:1], files, files):
        asking.require(store, tuple(needed))
        assert asking.lacking(found) == {}
    assert asked == [("first",)] * 2 + [("first", "second")] * 2


def loses_the_store(item: int) -> str:
    """The first task on a worker that is to lose the store does so."""
    if os.environ.get("LAME") == engine.this_worker():
        os.environ["AWS_ALLOW_HTTP"] = "false"
    return engine.this_worker() if item >= 0 else ""


def name_lame_worker(name: str) -> None:
    os.environ["LAME"] = name


def test_a_worker_that_loses_the_store_costs_its_own_tasks(s3: str, workers: Workers) -> None:
    """It had been admitted: what fails there runs on the other one. What fails everywhere fails."""
    workers.client.run(name_lame_worker, workers.lame)
    with engine.open_engine(workers.cluster.scheduler_address) as started:
        workers.use(started, Store(f"{s3}/loses"))
        assert set(started.map(loses_the_store, range(12))) <= {workers.lame, workers.sound}
        assert set(started.map(address, range(12))) == {workers.sound}
        (told,) = workers.told
        assert told.startswith(f"the worker at {workers.lame} does not find in the store")
        with pytest.raises(StoreError, match="is not in the store"):
            started.map(Store(f"{s3}/loses").open, ["nothing"])


@pytest.mark.slow
def test_a_worker_that_joins_amid_a_stage_is_asked(
    s3: str, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it got before it was asked runs on the others."""
    monkeypatch.setattr(cluster_workers, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(task_queue, "POLL_SECONDS", 0.5)
    late: list[Program] = []
    with engine.open_engine(workers.cluster.scheduler_address) as started, pytest.MonkeyPatch.context() as patch:
        workers.use(started, Store(f"{s3}/joins"))

        def join(done: int, total: int) -> None:
            if done == total // 3:
                patch.setenv("AWS_ALLOW_HTTP", "false")
                options = ("--nthreads", "1", "--no-dashboard", "--no-nanny")
                late.append(
                    Program("distributed.cli.dask_worker", workers.cluster.scheduler_address, *options, folder=tmp_path)
                )
                patch.undo()
                workers.client.wait_for_workers(3, timeout=HANGS)

        found = started.map(address, range(150), report_progress=join)
        late[0].kill()
        late[0].wait()
    assert set(found) == {workers.lame, workers.sound}
    (told,) = workers.told
    assert told.split(" does not find in the store")[0].removeprefix("the worker at ") not in found


@pytest.mark.skipif(not MOUNTS, reason="only root mounts")
@pytest.mark.usefixtures("without_tls")
def test_a_release_without_one_worker_s_mount(home: Path) -> None:
    """A worker in a container that lacks the volume: it makes no folder, and the release has the bytes of one in this process."""
    path = small_release.write(home.parent / "data")
    expected = small_release.undisturbed(path, home)
    told: list[str] = []
    with harness.scheduler_and_worker(home.parent) as (where, _), Client(where) as client:
        client.wait_for_workers(1, timeout=HANGS)
        options = (where, "--nthreads", "1", "--no-dashboard", "--no-nanny")
        lame = Program("tests.support.worker_without_folder", str(home), *options, folder=Path("/"))
        client.wait_for_workers(2, timeout=HANGS)
        with engine.open_engine(where) as started:
            small_release.run(path, home, lambda stage, line: told.append(f"{stage}: {line}"), where=started)
        lame.kill()
        lame.wait()
    assert small_release.tree(Path("releases/small-1")) == expected
    (line,) = (line for line in told if line.startswith("warning"))
    assert re.fullmatch(
        rf"warning: the worker at \S+ does not see the folder {home}/store, .*; it gets no tasks of this run", line
    )
