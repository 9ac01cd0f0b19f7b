"""Names on workers: the same ones for any number of them, and where a worker is killed in each stage of counting."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, SpecCluster

from dpdist import engine
from dpdist.counting.name_counts import NameCounting
from dpdist.pipeline.preprocess import run_budgeted_steps
from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests import HANGS
from tests.case_selection import slow_after_first
from tests.faults.test_noise_workers import started
from tests.pipeline.test_private_categories import NAMES, selected_names, undecided

STAGES = ("take_shares", "deal_records", "share_weights", "hand_back", "add_up", "read_texts")
RIGHT = {stage: getattr(NameCounting, stage) for stage in STAGES}
PERSONS = {"path": "records.parquet", "person": {"column": "person", "most_records": 2}}


@pytest.fixture(scope="module")
def cluster() -> Iterator[SpecCluster]:
    with started(1) as found:
        yield found


def prepare_worker(environment: dict[str, str], stage: str, marker: str) -> None:
    """On a worker: the test's environment, and that it is killed where it does the first task of a stage, unless another one was."""
    for name in ("DPDIST_LEDGER", "DPDIST_HOME", keys.ENVIRONMENT, keys.FILE_ENVIRONMENT):
        os.environ.pop(name, None)
    os.environ.update(environment)
    for name, right in RIGHT.items():
        setattr(NameCounting, name, right)

    def die(self: Any, *arguments: Any) -> Any:
        try:
            Path(marker).touch(exist_ok=False)
        except FileExistsError:
            return RIGHT[stage](self, *arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(NameCounting, stage, die)


@pytest.mark.parametrize("stage", slow_after_first(1, list(STAGES)))
def test_a_worker_killed_in_a_stage_changes_no_name(
    home: Path, cluster: SpecCluster, stage: str, tmp_path: Path, without_tls: None
) -> None:
    """Names near the threshold, of which other noise would select others."""
    del without_tls
    path = undecided(home.parent / "data", home, records=PERSONS, budget={"rho": 0.3})
    copy = home.parent / "copy"
    shutil.copytree(home, copy)
    expected = selected_names(path, copy)
    assert 3 < len(expected) < NAMES
    marker = tmp_path / "killed"
    with Client(cluster.scheduler_address) as client:
        client.wait_for_workers(len(cluster.worker_spec), timeout=HANGS)
        client.run(partial(prepare_worker, {"DPDIST_HOME": os.environ["DPDIST_HOME"]}, stage, str(marker)))
    with engine.open_engine(cluster.scheduler_address) as where:
        context = Context(home, Store(home / "store"), where, ignore_progress)
        found = run_budgeted_steps(context, load(path)).measured.domain.attribute("town").categories
    assert marker.exists()
    assert found == expected
    with open_ledger(home) as ledger:
        assert (ledger.verify().running, list(ledger.charges("small", "total"))) == (0, ["small-1~categories"])
    assert not [each for each in (home / "store").rglob("scratch/*/*") if each.is_file()]
