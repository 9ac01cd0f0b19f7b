"""Faults, injected for real. After each, either the release finishes with the very bytes of an undisturbed run, or nothing
was published and the ledger says what was spent."""

from __future__ import annotations

import os
import pkgutil
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

from dpdist import engine
from dpdist.errors import DpdistError, EngineError, LedgerError, StoreError
from dpdist.pipeline import measure, release_run
from dpdist.privacy import keys
from dpdist.privacy.ledger import database
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.reconstruction.least_squares import LeastSquares
from dpdist.runtime.context import Context
from dpdist.size_limits import SIZES, Sizes
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests import HANGS
from tests.case_selection import always
from tests.faults import harness
from tests.support import small_release
from tests.support.forked_programs import FORKED, exit_code, killed_run, limited_run
from tests.support.postgres_server import Server
from tests.support.small_release import run


def finishes_with(expected: dict[str, bytes], path: Path, home: Path) -> None:
    """The release, run again, publishes these bytes for its one charge."""
    assert small_release.tree(run(path, home).folder) == expected
    with open_ledger(home) as ledger:
        audit = ledger.verify()
        assert (audit.rows, audit.running) == (6, 0)  # budget, reserved, drawing, committed, signer, published
        assert ledger.budgets()[0].releases == 1


KILL_POINTS: dict[str, tuple[str, str]] = {
    "before the plan": ("dpdist.pipeline.release_run", "plan_as_charged"),
    "before the count": ("dpdist.pipeline.release_run", "count"),
    "before the exact measurement": ("dpdist.pipeline.measure", "exact_measurement"),
    "before the charge": ("dpdist.privacy.ledger.budget_ledger.Ledger", "reserve"),
    "after the charge": ("dpdist.privacy.ledger.budget_ledger.Ledger", "begin_drawing"),
    "before the draw": ("dpdist.pipeline.measure", "draw"),
    "amid the draw": ("dpdist.privacy.noise.Noise", "draw"),
    "before the check": ("dpdist.pipeline.measure", "make_durable"),
    "before the commit": ("dpdist.privacy.ledger.budget_ledger.Ledger", "commit"),
    "after the commit": ("dpdist.privacy.ledger.budget_ledger.Ledger", "_forget_deleted_rows"),
    "before the answers": ("dpdist.pipeline.release_run", "answer"),
    "amid the answers": ("dpdist.reconstruction.least_squares.LeastSquares", "answers"),
    "before the files": ("dpdist.publish.release_folder", "write_release"),
    "amid the files": ("dpdist.publish.outputs.data_dictionary", "columns_of_answers"),
    "before the signature": ("dpdist.privacy.signatures", "sign"),
}
OFTEN = (
    "before the charge", "after the charge", "amid the draw", "before the commit", "after the commit", "amid the answers",
    "amid the files",
)  # fmt: skip
"""Where the ledger, the noise or what is published could come apart."""


@dataclass(frozen=True)
class ChargedRelease:
    """A release that is charged, with nothing drawn: its spec, its state folder, and the files that it will publish."""

    path: Path
    home: Path
    expected: dict[str, bytes]


@pytest.mark.parametrize("point", KILL_POINTS)
def test_every_function_before_which_a_run_is_killed_is_there(point: str) -> None:
    """A name that is none any more would kill nothing."""
    place, name = KILL_POINTS[point]
    assert callable(getattr(pkgutil.resolve_name(place), name))


@pytest.fixture(scope="module")
def shared_charged_release(tmp_path_factory: pytest.TempPathFactory) -> ChargedRelease:
    """Begun, and published in a copy, once for all tests."""
    return charge_release(tmp_path_factory.mktemp("made"))


def charge_release(folder: Path, *, sizes: Sizes = SIZES, **changes: Any) -> ChargedRelease:
    """A release begun in a folder, and published in a copy."""
    with pytest.MonkeyPatch.context() as patch:
        for name in (keys.ENVIRONMENT, keys.FILE_ENVIRONMENT, "DPDIST_LEDGER"):
            patch.delenv(name, raising=False)
        patch.chdir(folder)
        keys.initialise(folder / "home")
        path = small_release.write(folder / "data", **changes)
        return ChargedRelease(path, folder / "home", small_release.undisturbed(path, folder / "home", sizes=sizes))


@pytest.fixture
def charged_release(shared_charged_release: ChargedRelease, home: Path) -> ChargedRelease:
    """In the test's own state folder."""
    shutil.copytree(shared_charged_release.home, home, dirs_exist_ok=True)
    return ChargedRelease(shared_charged_release.path, home, shared_charged_release.expected)


@pytest.mark.parametrize("point", always(OFTEN, KILL_POINTS))
def test_a_killed_run_is_finished_with_the_bytes_of_an_undisturbed_one(charged_release: ChargedRelease, point: str) -> None:
    assert exit_code(killed_run, *KILL_POINTS[point], charged_release.path, charged_release.home) == -signal.SIGKILL
    assert not Path("releases/small-1").exists()
    finishes_with(charged_release.expected, charged_release.path, charged_release.home)


@pytest.mark.slow
def test_the_command_killed_amid_its_answers_is_finished_by_the_command(charged_release: ChargedRelease) -> None:
    """The real command: Prefect's embedded server, Dask workers, everything killed with it."""
    path, home, expected = charged_release.path, charged_release.home, charged_release.expected
    command = [sys.executable, "-m", "flows.commands.cli", "run", str(path)]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    ) as it:
        assert it.stderr is not None
        for line in it.stderr:
            if line.startswith("answer:"):
                os.killpg(it.pid, signal.SIGKILL)
                break
    assert it.returncode == -signal.SIGKILL
    assert not Path("releases/small-1").exists()
    subprocess.run(command, check=True, capture_output=True)
    assert small_release.tree(Path("releases/small-1")) == expected
    finishes_with(expected, path, home)


def test_a_draw_killed_between_shards_is_finished_the_same(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_release.write(home.parent / "data", mechanism="identity")
    sizes = Sizes(shard_bytes=8 * 16)
    written: list[int] = []
    original = Store.write_shard

    def failing(self: Store, plan: Any, shard: int, block: Any) -> str:
        if plan.name.startswith("measurements/") and len(written) == 2:
            raise KeyboardInterrupt
        if plan.name.startswith("measurements/"):
            written.append(shard)
        return original(self, plan, shard, block)

    monkeypatch.setattr(Store, "write_shard", failing)
    with pytest.raises(KeyboardInterrupt):
        run(path, home, sizes=sizes)
    assert len(written) == 2
    halfway = home.parent / "halfway"
    shutil.copytree(home, halfway)
    monkeypatch.setattr(Store, "write_shard", original)
    first = small_release.tree(run(path, home, sizes=sizes).folder)
    shutil.rmtree("releases")
    assert small_release.tree(run(path, halfway, sizes=sizes).folder) == first


def _racer(path: str, home: str, folder: str, results: Any) -> None:
    os.makedirs(folder)
    os.chdir(folder)
    try:
        results.put(run(Path(path), Path(home)).charged)
    except Exception as error:  # noqa: BLE001 - reported to the parent
        results.put(f"{type(error).__name__}: {error}")


def test_two_flows_racing_for_one_release(home: Path) -> None:
    path = small_release.write(home.parent / "data")
    results = FORKED.Queue()
    folders = [home.parent / f"race{i}" for i in range(3)]
    racers = [FORKED.Process(target=_racer, args=(str(path), str(home), str(f), results)) for f in folders]
    for racer in racers:
        racer.start()
    outcomes = [results.get(timeout=HANGS) for _ in racers]
    for racer in racers:
        racer.join()
    assert all(isinstance(outcome, bool) for outcome in outcomes), outcomes
    with open_ledger(home) as ledger:
        assert ledger.budgets()[0].releases == 1
        assert ledger.verify().rows == 5 + len(folders)  # published three times
    published = [small_release.tree(folder / "releases" / "small-1") for folder in folders]
    assert published[0] == published[1] == published[2]


def test_two_flows_racing_for_the_last_of_a_budget(home: Path) -> None:
    paths = [small_release.write(home.parent / name, release=name, budget={"rho": 0.2}) for name in ("one", "two", "three")]
    results = FORKED.Queue()
    racers = [
        FORKED.Process(target=_racer, args=(str(p), str(home), str(home.parent / f"race-{p.parent.name}"), results))
        for p in paths
    ]
    for racer in racers:
        racer.start()
    outcomes = [results.get(timeout=HANGS) for _ in racers]
    for racer in racers:
        racer.join()
    assert sorted(outcomes, key=str)[2] is True, outcomes
    assert sum("BudgetExceeded" in str(outcome) and "rho=0.05 is left" in str(outcome) for outcome in outcomes) == 2
    published = [p.parent.name for p in paths if (home.parent / f"race-{p.parent.name}" / "releases").exists()]
    with open_ledger(home) as ledger:
        assert list(ledger.budgets(charges=True)[0].charges) == published
        assert ledger.verify().releases == 1


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as found:
        yield found


def kill_a_worker(cluster: LocalCluster) -> None:
    """SIGKILL one worker process; its nanny starts another."""
    with Client(cluster.scheduler_address) as client:
        pids = client.run(os.getpid)
    os.kill(next(iter(pids.values())), signal.SIGKILL)


@pytest.mark.usefixtures("without_tls")
@pytest.mark.parametrize(
    "moment",
    always(
        ["amid the count", "amid the draw"],
        ["amid the count", "before the draw", "amid the draw", "before the answers", "amid the answers"],
    ),
)
def test_a_worker_killed(
    charged_release: ChargedRelease, cluster: LocalCluster, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, home, expected = charged_release.path, charged_release.home, charged_release.expected
    if moment == "amid the count":
        shutil.rmtree(home / "store" / "histograms")
    monkeypatch.setattr(LeastSquares, "rows_a_task", lambda self: 9)
    killed: list[str] = []

    def kill() -> None:
        if not killed:
            killed.append(moment)
            kill_a_worker(cluster)

    def before(holder: Any, name: str, *, only: Callable[..., bool] = lambda *_: True) -> None:
        original = getattr(holder, name)

        def wrapped(*arguments: Any, **options: Any) -> Any:
            if only(*arguments):
                kill()
            return original(*arguments, **options)

        monkeypatch.setattr(holder, name, wrapped)

    def progress(stage: str, line: str) -> None:
        if (moment == f"amid the {stage}s" and "blocks" in line) or moment == f"amid the {stage}":
            kill()

    if moment == "before the draw":
        before(measure, "exact_measurement")
    elif moment == "amid the draw":
        before(Store, "write_shard", only=lambda _, plan, *__: plan.name.startswith("measurements/"))
    elif moment == "before the answers":
        before(release_run, "answer")
    with engine.open_engine(cluster.scheduler_address) as started:
        release_run.release(Context(home, Store(home / "store"), started, progress), load(path))
    assert killed == [moment]
    assert small_release.tree(Path("releases/small-1")) == expected
    finishes_with(expected, path, home)


@pytest.mark.usefixtures("without_tls")
def test_a_scheduler_killed(charged_release: ChargedRelease, monkeypatch: pytest.MonkeyPatch) -> None:
    """One clear error, nothing published; another cluster, or none, finishes with the same bytes."""
    path, home, expected = charged_release.path, charged_release.home, charged_release.expected
    monkeypatch.setattr(LeastSquares, "rows_a_task", lambda self: 9)
    monkeypatch.setattr("dpdist.engine.engine_start.CONNECT_SECONDS", 3)
    with harness.scheduler_and_worker(home.parent) as (address, scheduler):

        def progress(stage: str, line: str) -> None:
            if stage == "answer" and "blocks" in line:
                scheduler.kill()
                scheduler.wait()

        with (
            engine.open_engine(address) as started,
            pytest.raises(EngineError, match="scheduler went away.*run the same command"),
        ):
            release_run.release(Context(home, Store(home / "store"), started, progress), load(path))
    assert not Path("releases/small-1").exists()
    finishes_with(expected, path, home)


def test_a_cluster_that_is_not_there(home: Path) -> None:
    with (
        pytest.raises(EngineError, match="tls://host:port of a Dask scheduler, found .nonsense."),
        engine.open_engine("nonsense"),
    ):
        pass


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB."""
    folder = tmp_path / "small-disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs needs root; test_writes_that_fail_halfway covers the same without")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("left_kib", always([0, 20, 60, 400], [0, 4, 12, 20, 28, 36, 60, 100, 400]))
def test_a_full_disk(
    charged_release: ChargedRelease, small_disk: Path, left_kib: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up at ever later moments: one clear error, and after making room the same bytes."""
    path, home, expected = charged_release.path, charged_release.home, charged_release.expected
    crowded = small_disk / "home"
    shutil.copytree(home, crowded)
    monkeypatch.chdir(small_disk)
    filler = small_disk / "filler"
    free = shutil.disk_usage(small_disk).free
    filler.write_bytes(bytes(free - left_kib * 1024))
    if left_kib == 400:
        run(path, crowded)
    else:
        with pytest.raises(DpdistError):
            run(path, crowded)
        assert not Path("releases/small-1").exists()
    filler.unlink()
    finishes_with(expected, path, crowded)


@pytest.mark.parametrize("limit", always([0, 1_000, 10_000], [0, 200, 1_000, 2_500, 10_000, 19_000]))
def test_writes_that_fail_halfway(charged_release: ChargedRelease, limit: int) -> None:
    """No file may grow beyond a limit: blocks, the ledger's journal, records and pages fail in the middle of a write."""
    ours, theirs = FORKED.Pipe(duplex=False)
    assert exit_code(limited_run, limit, charged_release.path, charged_release.home, theirs) == 0
    assert ours.poll()
    assert ours.recv()
    assert not Path("releases/small-1").exists()
    finishes_with(charged_release.expected, charged_release.path, charged_release.home)


def test_a_block_damaged_before_the_commit_is_drawn_again(
    charged_release: ChargedRelease, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, home, expected = charged_release.path, charged_release.home, charged_release.expected
    original = measure.draw

    def damaged(store: Store, name: str, *rest: Any) -> Any:
        stored = original(store, name, *rest)
        blocks = [f for f in (home / "store" / name).rglob("c/*") if f.is_file()]
        blocks[0].write_bytes(blocks[0].read_bytes()[:-7])
        return stored

    monkeypatch.setattr(measure, "draw", damaged)
    for _ in range(2):
        with pytest.raises(StoreError, match="not committed: delete 'measurements/small-1'.*the same noise is drawn"):
            run(path, home)
        monkeypatch.setattr(measure, "draw", original)
    with open_ledger(home) as ledger:
        assert ledger.receipt("small-1").state == "drawing"
    shutil.rmtree(home / "store" / "measurements" / "small-1")
    finishes_with(expected, path, home)


def test_a_block_altered_after_the_commit_is_never_published(home: Path) -> None:
    path = small_release.write(home.parent / "data")
    done = run(path, home)
    shutil.rmtree(done.folder)
    for name in ("answers", "measurements"):
        block = next(f for f in (home / "store" / name).rglob("c/*") if f.is_file())
        content = bytearray(block.read_bytes())
        content[len(content) // 2] ^= 1
        block.write_bytes(content)
    with pytest.raises(StoreError, match=r"cannot be read|truncated or altered"):
        run(path, home)
    shutil.rmtree(home / "store" / "answers")
    with pytest.raises(StoreError, match=r"measurements/small-1.*(cannot be read|truncated or altered)"):
        run(path, home)
    assert not done.folder.exists()
    with open_ledger(home) as ledger:
        assert ledger.budgets()[0].releases == 1


@pytest.mark.slow
def test_postgresql_stopped_amid_a_release(home: Path, shaky: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server dies after the draw and before the commit; later the release is finished with the same bytes."""
    monkeypatch.setenv("DPDIST_LEDGER", shaky.database())
    path = small_release.write(home.parent / "data")
    small_release.reserved(path, home)
    original = measure.draw

    def stop(*arguments: Any) -> Any:
        stored = original(*arguments)
        shaky.stop()
        return stored

    monkeypatch.setattr(measure, "draw", stop)
    monkeypatch.setattr(database, "OUTAGE_SECONDS", 1.0)
    with pytest.raises(LedgerError, match="did not come back in 1 s: run again when it is back"):
        run(path, home)
    assert not Path("releases").exists()
    monkeypatch.setattr(measure, "draw", None)  # it must not be needed again
    shaky.start()
    with open_ledger(home) as ledger:
        assert ledger.receipt("small-1").state == "drawing"
        assert ledger.verify().running == 1
    first = small_release.tree(run(path, home).folder)
    finishes_with(first, path, home)
