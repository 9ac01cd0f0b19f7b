"""Thresholded histograms on workers: the same rows for any number of them, killed in each stage, and rows that are not of the key."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, SpecCluster

from dpdist import engine
from dpdist.counting.sparse_counts import CellCounting, SparseCounts
from dpdist.engine import Engine
from dpdist.errors import StoreError
from dpdist.pipeline import release_run, sparse_noise
from dpdist.pipeline.sparse_noise import SparseShards
from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.spec.steps import thresholded_step
from dpdist.storage.array_store import Store
from tests import HANGS
from tests.case_selection import slow_after_first
from tests.faults.test_noise_workers import started
from tests.faults.test_steps import ChargedRelease
from tests.pipeline.test_thresholded import changes, views
from tests.support import small_release

STAGES: dict[str, tuple[type, str]] = {
    "reading records": (CellCounting, "deal_records"),
    "bounding persons": (CellCounting, "bound_persons"),
    "adding up": (CellCounting, "add_up"),
    "drawing": (SparseShards, "draw"),
    "checking": (SparseShards, "agrees"),
}
TASK_BYTES = 60_000
"""Memory of a task so small that persons and cells are dealt out to several parts."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SpecCluster]:
    with started(2) as found:
        yield found


@pytest.fixture(scope="module")
def shared_charged_release(tmp_path_factory: pytest.TempPathFactory) -> ChargedRelease:
    """A release whose rows are charged and not drawn, with what it publishes in one process."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        for name in (keys.ENVIRONMENT, keys.FILE_ENVIRONMENT, "DPDIST_LEDGER"):
            patch.delenv(name, raising=False)
        patch.chdir(folder)
        keys.initialise(folder / "home")
        path = small_release.write(folder / "data", table=views(900), **changes())
        return ChargedRelease(path, folder / "home", small_release.undisturbed(path, folder / "home"))


@pytest.fixture
def charged_release(shared_charged_release: ChargedRelease, home: Path, without_tls: None) -> ChargedRelease:
    """In the test's own state folder."""
    del without_tls
    shutil.copytree(shared_charged_release.home, home, dirs_exist_ok=True)
    return ChargedRelease(shared_charged_release.path, home, shared_charged_release.expected)


def put_right(environment: dict[str, str]) -> None:
    """On a worker: the test's environment, and no fault of an earlier test."""
    for name in ("DPDIST_LEDGER", "DPDIST_HOME", keys.ENVIRONMENT, keys.FILE_ENVIRONMENT):
        os.environ.pop(name, None)
    os.environ.update(environment)
    for (holder, name), right in RIGHT.items():
        setattr(holder, name, right)


RIGHT = {(holder, name): getattr(holder, name) for holder, name in [*STAGES.values(), (SparseShards, "rows")]}


def die_once(stage: str, marker: str) -> None:
    """On a worker: it is killed where it does the first task of a stage, unless another one was."""
    holder, name = STAGES[stage]
    right = getattr(holder, name)

    def die(self: Any, *arguments: Any) -> Any:
        try:
            Path(marker).touch(exist_ok=False)
        except FileExistsError:
            return right(self, *arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(holder, name, die)


def rows_without_noise() -> None:
    """On a worker: the exact counts of occupied cells in place of noisy ones."""

    def rows(self: SparseShards, task: Any, key: Any) -> Any:
        counted = sparse_noise.replace(self.counted, key=task.run_key)
        pairs = [(cells, counts << 24) for _, cells, counts in counted.read_shards(task.shards)]
        return np.stack(sparse_noise.in_order(pairs))

    SparseShards.rows = rows  # type: ignore[method-assign]


def publish(
    charged_release: ChargedRelease, cluster: SpecCluster, plant: Callable[[], None] | None = None, *, rogues: int = 3
) -> bytes:
    """The rows that a release on these workers publishes, of which some have a fault."""
    with Client(cluster.scheduler_address) as client:
        client.wait_for_workers(len(cluster.worker_spec), timeout=HANGS)
        client.run(put_right, {"DPDIST_HOME": os.environ["DPDIST_HOME"]})
        if plant is not None:
            workers = client.scheduler_info(n_workers=-1)["workers"]
            drawers_first = sorted(workers, key=lambda address: (not workers[address]["resources"], address))
            client.run(plant, workers=drawers_first[:rogues])
    with engine.open_engine(cluster.scheduler_address) as where:
        context = Context(charged_release.home, Store(charged_release.home / "store"), where, ignore_progress)
        done = release_run.release(context, load(charged_release.path))
    with open_ledger(charged_release.home) as ledger:
        assert ledger.verify().running == 0
        assert list(ledger.charges("small", "total")) == ["small-1~thresholded", "small-1"]
    left = [path for path in (charged_release.home / "store").rglob("*") if path.is_file() and "scratch" in str(path)]
    assert not left
    return (Path(done.folder) / "thresholded.csv").read_bytes()


@pytest.mark.parametrize(
    "stage", slow_after_first(1, ["drawing", "bounding persons", "reading records", "adding up", "checking"])
)
def test_a_worker_killed_in_a_stage_changes_no_row(
    charged_release: ChargedRelease, cluster: SpecCluster, stage: str, tmp_path: Path
) -> None:
    marker = tmp_path / "killed"
    rows = publish(charged_release, cluster, partial(die_once, stage, str(marker)))
    assert marker.exists()
    assert rows == charged_release.expected["thresholded.csv"]
    assert rows.count(b"\n") > 2


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("task_bytes", [TASK_BYTES, None])
def test_rows_are_the_same_for_any_number_of_workers_and_parts(
    charged_release: ChargedRelease, workers: int, task_bytes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if task_bytes is not None:
        choose = "dpdist.counting.sparse_counts.choose_part_count"
        monkeypatch.setattr(choose, lambda source, where, tasks: 3 * tasks)
        monkeypatch.setattr("dpdist.counting.sparse_counts.pending_rows", lambda *given: 100)
    with started(workers - 1) as cluster:
        assert publish(charged_release, cluster) == charged_release.expected["thresholded.csv"]


def test_what_is_left_in_the_store_opens_nothing(
    charged_release: ChargedRelease, cluster: SpecCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The functions that workers get through the store hold neither a key nor the digest of exact counts."""
    counted, functions = list[SparseCounts](), list[bytes]()
    count, share = thresholded_step.count_cells, Engine._past_the_scheduler

    def count_and_note(*arguments: Any, **options: Any) -> SparseCounts:
        counted.append(count(*arguments, **options))
        return counted[-1]

    def share_and_note(self: Engine, function: Any) -> Any:
        functions.append(pickle.dumps(function))
        return share(self, function)

    monkeypatch.setattr(thresholded_step, "count_cells", count_and_note)
    monkeypatch.setattr(Engine, "_past_the_scheduler", share_and_note)
    publish(charged_release, cluster)
    assert len(functions) >= len(STAGES)
    person_key = keys.commitment_key(keys.load(charged_release.home), "persons of small-1").reveal()
    secrets = [counted[0].key.content, counted[0].digest.encode(), person_key]
    assert not any(secret in function for secret in secrets for function in functions)


@pytest.mark.parametrize("rogues", slow_after_first(1, [1, 3]))
def test_rows_that_are_not_of_the_key_are_found_and_nothing_is_committed(
    charged_release: ChargedRelease, cluster: SpecCluster, rogues: int
) -> None:
    """By the other worker, or, where both publish exact counts, by the process of the release."""
    with pytest.raises(StoreError, match="are not the noise of this release's key. Nothing is committed"):
        publish(charged_release, cluster, rows_without_noise, rogues=rogues)
    with open_ledger(charged_release.home) as ledger:
        assert ledger.receipt("small-1~thresholded").state == "drawing"
    assert publish(charged_release, cluster) == charged_release.expected["thresholded.csv"]
