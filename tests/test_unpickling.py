"""A cluster that sends pickles which run code: the measuring process refuses them, and one without that refusal runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

from dpdist.privacy import keys
from flows import unpickling
from tests import small
from tests.measuring_service import ROOT

POISONS = ("result", "exchange", "error")


class Evil:
    """Runs a command where it is unpickled."""

    def __init__(self, target: str) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self.target}",)


class EvilError(Exception):
    """The same as an error."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.target = target

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self.target}",)


def poison(how: str, target: str) -> None:
    """On a worker: what tasks return, leave in the store or raise is hostile from now on."""
    from dpdist.machine import engine

    def hostile(exchange: Any, folder: str, function: Any, item: Any) -> Any:
        del function, item
        if how == "error":
            raise EvilError(target)
        return Evil(target) if how == "result" else engine._Kept.of(exchange, folder, Evil(target))

    engine._by_reference = hostile


@pytest.fixture(scope="module")
def cluster() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0", memory_limit=2**31) as made,
        Client(made) as client,
    ):
        yield client


def measured(folder: Path, client: Client, *, restricted: bool) -> subprocess.CompletedProcess[str]:
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
    return subprocess.run(
        [sys.executable, "-c", f"{script}measuring.main()"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )


def given(folder: Path) -> Path:
    small.write(folder / "specs")
    keys.initialise(folder / "home")
    return folder


def test_a_release_over_an_honest_cluster_is_published(cluster: Client, tmp_path: Path) -> None:
    done = measured(given(tmp_path), cluster, restricted=True)
    assert '"state": "published"' in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("how", POISONS)
def test_a_hostile_cluster_runs_no_code_in_the_service(how: str, cluster: Client, tmp_path: Path) -> None:
    target = tmp_path / "taken"
    cluster.run(poison, how, str(target))
    try:
        refused = measured(given(tmp_path), cluster, restricted=True)
        assert not target.exists(), refused.stdout
        assert '"state": "refused"' in refused.stdout, refused.stdout + refused.stderr
        measured(tmp_path, cluster, restricted=False)
        assert target.exists()  # the poison works
    finally:
        cluster.restart()


@pytest.mark.parametrize(
    ("module", "name", "may"),
    [
        ("dpdist.machine.engine", "_Kept", True),
        ("dpdist.machine.store", "_sent", True),
        ("dpdist.records.rows", "CountSummary", True),
        ("dpdist.errors", "InvalidSpec", True),
        ("builtins", "ValueError", True),
        ("numpy", "dtype", True),
        ("posix", "system", False),
        ("os", "system", False),
        ("builtins", "eval", False),
        ("builtins", "getattr", False),
        ("builtins", "type", False),
        ("functools", "partial", False),
        ("dpdist.machine.engine", "_by_reference", False),
        ("dpdist.machine.engine", "Engine", False),
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
