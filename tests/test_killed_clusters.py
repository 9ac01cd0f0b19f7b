"""Releases on a cluster whose processes are killed at random moments: all finish, with the bytes of undisturbed runs."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dpdist.privacy.ledger.budget_ledger import open_ledger
from tests import HANGS
from tests.engine.test_engine import Processes
from tests.support import small_release

ROUNDS = 1
RUN = """
import sys
from pathlib import Path
from dpdist import engine
from dpdist.pipeline import release_run
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
home = Path(sys.argv[2])
with engine.started(sys.argv[3]) as started:
    release_run.release(Context(home, Store(home / "store"), started, ignore_progress), load(sys.argv[1]))
"""


def soak(folder: Path, releases: int, seed: int) -> tuple[int, int]:
    """Publish so many releases while workers, the optimiser's worker, the scheduler and the run itself are killed.

    Returns: kills, and runs that it took. Every release must end with the files of an undisturbed run and one charge.
    """
    chance = random.Random(seed)
    kills = runs = 0
    for number in range(releases):
        home = folder / f"home-{number}"
        home.mkdir()
        (home / "root.key").write_text("5c" * 32 + "\n")
        (home / "root.key").chmod(0o600)
        mechanism = chance.choice(["coa", "coa", "identity", "eigen"])
        path = small_release.write(folder / f"data-{number}", mechanism=mechanism, eigen={"group_size": 5})
        expected = small_release.undisturbed(path, home)
        _forget(home, chance)
        place = folder / f"cluster-{number}"
        place.mkdir()
        cluster = Processes(place)
        _workers(cluster)
        for _ in range(40):
            runs += 1
            run = subprocess.Popen(
                [sys.executable, "-c", RUN, str(path), str(home), cluster.address],
                cwd=Path.cwd(),
                env={**os.environ, **cluster.environment},
                stderr=subprocess.PIPE,
            )
            killed = threading.Event()
            killer = threading.Timer(chance.uniform(0.8, 4.0), _kill_one, (cluster, run, chance.random(), killed))
            if kills < 2 * (number + 1):  # two for each release, then it may finish
                killer.start()
            _, error = run.communicate(timeout=HANGS)
            killer.cancel()
            killer.join() if killer.is_alive() else None
            kills += killed.is_set()
            if run.returncode == 0:
                break
            lost = b"EngineError" in error and b"TLS" not in error
            assert run.returncode == -signal.SIGKILL or lost, error.decode()
            if cluster.scheduler.poll() is not None:
                cluster.stop()
                place = folder / f"cluster-{number}-{runs}"
                place.mkdir()
                cluster = Processes(place)
                _workers(cluster)
        cluster.stop()
        assert small_release.tree(Path("releases/small-1")) == expected
        for file in sorted(Path("releases").rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
        with open_ledger(home) as ledger:
            assert ledger.budgets()[0].releases == 1
            assert ledger.verify().rows == 6  # budget, reserved, drawing, committed, signer, published
    return kills, runs


def _workers(cluster: Processes) -> None:
    """One for the tasks with a nanny, which starts it again; two for the optimiser."""
    cluster.worker(1, "--resources", "optimiser=1")
    cluster.worker(1, "--resources", "optimiser=1")
    cluster.worker(1)


def _kill_one(cluster: Processes, run: subprocess.Popen[bytes], draw: float, killed: threading.Event) -> None:
    """SIGKILL the run itself, the scheduler or a worker; a killed worker is replaced."""
    if run.poll() is not None:
        return
    killed.set()
    if draw < 0.25:
        run.kill()
    elif draw < 0.4:
        cluster.scheduler.kill()
        cluster.scheduler.wait()
    else:
        workers = [process for process in cluster.running[1:] if process.poll() is None]
        victim = workers[int(draw * 1000) % len(workers)]
        victim.kill()
        cluster.worker(1, *(["--resources", "optimiser=1"] if victim is not workers[-1] else []))


def _forget(home: Path, chance: random.Random) -> None:
    """Of the reserved release, forget what stages can make again: some runs count and optimise once more, some do not.

    The strategy stays: another solve may differ in its last bits, and the noise is bound to it.
    """
    for name in ("histograms", "grams"):
        if chance.random() < 0.7:
            subprocess.run(["rm", "-rf", str(home / "store" / name)], check=True)


@pytest.mark.large
def test_a_short_soak(tmp_path: Path, home: Path) -> None:
    del home  # for the current folder
    kills, runs = soak(tmp_path, ROUNDS, seed=1)
    assert kills >= ROUNDS
    assert runs >= ROUNDS


@pytest.mark.large
def test_thirty_releases_survive(tmp_path: Path, home: Path) -> None:
    del home
    os.environ.setdefault("PYTHONHASHSEED", "0")
    kills, runs = soak(tmp_path, 30, seed=2)
    print(f"30 releases, {kills} kills, {runs} runs")
    assert kills >= 30
