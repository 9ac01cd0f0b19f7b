"""Workers, and the scheduler, killed amid what is measured and read through the store, amid a stream and amid DAWA."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

from dpdist import engine
from dpdist.engine import Engine
from dpdist.errors import EngineError
from dpdist.pipeline import release_run
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.runtime.context import Context, ignore_progress
from dpdist.size_limits import SIZES, Sizes
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.case_selection import slow_after_first
from tests.faults import harness
from tests.faults.test_kills import MECHANISMS
from tests.support import small_release

CASES: dict[str, tuple[dict[str, Any], Sizes]] = {
    "product through the store": (
        {"workload": [{"ranges": {"of": ["age"], "by": ["sex", "work"]}}], "mechanism": "kronecker"},
        Sizes(streamed_cells=10, shard_bytes=8 * 30),
    ),
    "stream": (
        {
            "workload": [{"filters": {"of": "age", "by": ["sex"], "apply": [{"exponential": 0.8}]}}],
            "stream": {"name": "ages", "through": 7},
        },
        SIZES,
    ),
    "dawa": (MECHANISMS["dawa"], SIZES),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as found:
        yield found


@pytest.mark.usefixtures("without_tls")
@pytest.mark.parametrize("case", slow_after_first(1, CASES))
def test_workers_killed_amid_what_they_share(
    home: Path, cluster: LocalCluster, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker is killed when the first task of a round is done; the counts are made anew, so that there is one."""
    changes, sizes = CASES[case]
    path = small_release.write(home.parent / "data", **changes)
    expected = small_release.undisturbed(path, home, sizes=sizes)
    shutil.rmtree(home / "store" / "histograms")
    original, killed = Engine.map, []

    def mapped(
        self: Engine, function: Callable[[Any], Any], items: Sequence[Any], *, report_progress: Any = None
    ) -> list[Any]:
        def kill(done: int, total: int) -> None:
            if done == 1 and len(killed) < (1 if case == "dawa" else 2):
                with Client(cluster.scheduler_address) as client:
                    pids = client.run(os.getpid)
                os.kill(next(iter(pids.values())), signal.SIGKILL)
                killed.append(total)
            if report_progress is not None:
                report_progress(done, total)

        return original(self, function, items, report_progress=kill)

    monkeypatch.setattr(Engine, "map", mapped)
    with engine.open_engine(cluster.scheduler_address) as started:
        context = Context(home, Store(home / "store", sizes), started, ignore_progress)
        done = release_run.release(context, load(path, sizes=sizes))
    assert killed
    assert small_release.tree(Path(done.folder)) == expected
    with open_ledger(home) as ledger:
        assert ledger.verify().running == 0
        assert [budget.releases for budget in ledger.budgets()] == [1]


@pytest.mark.usefixtures("without_tls")
@pytest.mark.parametrize("case", slow_after_first(1, CASES))
def test_the_scheduler_killed_amid_what_workers_share(home: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler is killed when the first task of a round is done; the release is finished without a cluster."""
    scheduler_killed(home, case, 1, monkeypatch)


@pytest.mark.slow
@pytest.mark.usefixtures("without_tls")
@pytest.mark.parametrize("round_number", range(2, 6))
@pytest.mark.parametrize("case", CASES)
def test_the_scheduler_killed_in_every_round(
    home: Path, case: str, round_number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler_killed(home, case, round_number, monkeypatch)


def scheduler_killed(home: Path, case: str, round_number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    changes, sizes = CASES[case]
    path = small_release.write(home.parent / "data", **changes)
    expected = small_release.undisturbed(path, home, sizes=sizes)
    shutil.rmtree(home / "store" / "histograms")
    original, rounds = Engine.map, []
    with harness.scheduler_and_worker(home.parent) as (address, scheduler), monkeypatch.context() as patch:

        def mapped(
            self: Engine, function: Callable[[Any], Any], items: Sequence[Any], *, report_progress: Any = None
        ) -> list[Any]:
            if items:  # a round without tasks does not reach the scheduler: digests of files may be known already
                rounds.append(len(items))

            def kill(done: int, total: int) -> None:
                if len(rounds) == round_number and done == 1:
                    scheduler.kill()
                    scheduler.wait()
                if report_progress is not None:
                    report_progress(done, total)

            return original(self, function, items, report_progress=kill)

        patch.setattr(Engine, "map", mapped)
        patch.setattr("dpdist.engine.engine_start.CONNECT_SECONDS", 3)
        with engine.open_engine(address) as started:
            context = Context(home, Store(home / "store", sizes), started, ignore_progress)
            if round_number == 1:
                with pytest.raises(EngineError, match="scheduler went away.*run the same command"):
                    release_run.release(context, load(path, sizes=sizes))
            else:
                with suppress(EngineError):  # the last task of the last round may have been done
                    release_run.release(context, load(path, sizes=sizes))
    assert len(rounds) >= round_number or Path("releases/small-1").exists()
    assert small_release.tree(Path(small_release.run(path, home, sizes=sizes).folder)) == expected
    with open_ledger(home) as ledger:
        assert ledger.verify().running == 0
        assert [budget.releases for budget in ledger.budgets()] == [1]
