"""A cluster that sends pickles which run code: the measuring process refuses them, and one without that refusal runs them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

from dpdist.privacy import keys
from flows import unpickling
from tests import HANGS, small
from tests.measuring_service import ROOT

POISONS = ("result", pytest.param("exchange", marks=pytest.mark.slow))


class Evil:
    """Runs a command where it is unpickled."""

    def __init__(self, target: str) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self.target}",)


def poison(how: str, target: str) -> None:
    """On a worker: what tasks return or leave in the store is hostile from now on."""
    from dpdist.machine.engine import tasks

    def hostile(exchange: Any, folder: str, function: Any, item: Any) -> Any:
        del function, item
        return Evil(target) if how == "result" else tasks.Parcel.of(exchange, folder, Evil(target))

    tasks.by_reference = hostile


@pytest.fixture(scope="module")
def cluster() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0", memory_limit=2**31) as made,
        Client(made) as client,
    ):
        yield client


def measuring(folder: Path, client: Client, *, restricted: bool) -> subprocess.Popen[str]:
    """The measuring service's own process over the cluster; without the restriction where that is asked for."""
    import hashlib

    digest = hashlib.sha256((folder / "specs" / "release.yaml").read_bytes()).hexdigest()
    off = "" if restricted else "unpickling.restrict = lambda end: None\n"
    words = [str(folder / "specs"), "100", "day", digest, "-"]
    script = f"import sys\nfrom flows import measuring, unpickling\n{off}sys.argv[1:] = {words!r}\n"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DPDIST_HOME": str(folder / "home"),
        "DPDIST_ENGINE": client.scheduler.address,
        "DPDIST_ENGINE_WITHOUT_TLS": "1",
    }
    command = [sys.executable, "-c", f"{script}measuring.main()"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def told(folder: Path, client: Client) -> str:
    """All that the restricted process tells, to its end."""
    with measuring(folder, client, restricted=True) as process:
        return process.communicate(timeout=HANGS)[0]


def given(folder: Path) -> Path:
    small.write(folder / "specs", output={"folder": str(folder / "published")})
    keys.initialise(folder / "home")
    return folder


def test_a_release_over_an_honest_cluster_is_published(cluster: Client, tmp_path: Path) -> None:
    assert '"state": "published"' in told(given(tmp_path), cluster)


@pytest.mark.parametrize("how", POISONS)
def test_a_hostile_cluster_runs_no_code_in_the_service(how: str, cluster: Client, tmp_path: Path) -> None:
    target = tmp_path / "taken"
    cluster.run(poison, how, str(target))
    try:
        assert "the cluster sent something that asks for " in told(given(tmp_path), cluster)
        assert not target.exists()
        with measuring(tmp_path, cluster, restricted=False) as process:
            while not target.exists():  # the poison works
                assert process.poll() is None
                time.sleep(0.2)
            process.kill()
    finally:
        cluster.restart()


@pytest.mark.parametrize(
    ("module", "name", "may"),
    [
        ("dpdist.machine.engine.tasks", "Parcel", True),
        ("dpdist.machine.store", "_sent", True),
        ("dpdist.records.rows", "CountSummary", True),
        ("dpdist.errors", "InvalidSpec", True),
        ("dpdist.operators.dense", "Dense", True),
        ("builtins", "ValueError", True),
        ("numpy", "dtype", True),
        ("posix", "system", False),
        ("os", "system", False),
        ("builtins", "eval", False),
        ("builtins", "getattr", False),
        ("builtins", "type", False),
        ("functools", "partial", False),
        ("dpdist.machine.engine.tasks", "by_reference", False),
        ("dpdist.machine.engine.runner", "Engine", False),
        ("dpdist.machine.store", "Store.delete", False),
        ("dpdist.machine.store", "os.system", False),
        ("dpdist.machine.store", "os", False),
        ("dpdist.privacy.keys", "Secret", False),
        ("distributed.protocol.pickle", "loads", False),
        ("dpdist.machine.engine", "TaskFailed", False),  # by its own module only
        ("no.such", "module", False),
    ],
)
def test_what_a_pickle_may_ask_for(module: str, name: str, may: bool) -> None:
    assert unpickling.allowed(module, name) is may
