"""The shipped deployments when workers are killed: Prefect server, process workers and deploy/prefect.yaml as it is, nothing shortened.

A worker that is killed takes everything that it started along, as the kill of its container does. The run that it had keeps its turn
until its lease ends; then the next period is released, and with ``catch_up`` the one of the killed run, too.
"""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpdist.privacy.ledger.budget_ledger import Ledger
from tests import HANGS
from tests.deploy.installation import ROOT, Installation, kill, wait_until
from tests.support import small_release

pytestmark = pytest.mark.large

MONDAYS = ("2026-11-09", "2026-11-16")


class Shipped:
    """The shipped deployment ``weekly`` under a prefix, with a pool, records and a data set of its own."""

    def __init__(self, installation: Installation, name: str, folder: Path) -> None:
        self.installation, self.name = installation, name
        installation.register(ROOT / "deploy" / "prefect.yaml", "--prefix", name, "--pool", name)
        (self.deployment,) = [
            found for found in installation.ask("deployments/filter", {}) if found["name"] == f"{name}-weekly"
        ]
        for seed, monday in enumerate(MONDAYS):
            week = datetime.date.fromisoformat(monday) - datetime.timedelta(days=7)
            small_release.write(
                folder / name / str(week), table=small_release.records(seed=ord(name[0]) + seed)
            )  # no file is counted twice
        spec = folder / name / "release.yaml"
        content = small_release.spec(
            release=f"{name}-{{period}}",
            period="{period}",
            records={"path": "{period}/records.parquet"},
            ledger={"dataset": name, "cap": {"rho": 0.1, "per": "week"}},
            output={"folder": f"{installation.s3}/published/{name}/{{period}}"},
        )
        spec.write_text(yaml.safe_dump(content, sort_keys=False))
        self.spec = str(spec)

    def due(self, monday: str) -> str:
        """A run for that Monday, as the shipped schedule makes it. Returns its id."""
        scheduled = {"type": "SCHEDULED", "state_details": {"scheduled_time": f"{monday}T03:30:00Z"}}
        content = {"state": scheduled, "parameters": {**self.deployment["parameters"], "spec_path": self.spec}}
        return str(self.installation.ask(f"deployments/{self.deployment['id']}/create_flow_run", content)["id"])

    def worker(self) -> Any:
        return self.installation.start("prefect", "worker", "start", "--pool", self.name, "--type", "process")

    def state(self, run: str) -> str:
        return str(self.installation.ask(f"flow_runs/{run}")["state_type"])

    def killed_in(self, state: str) -> str:
        """The run of the first Monday, whose worker is killed as soon as it is in a state."""
        run, worker = self.due(MONDAYS[0]), self.worker()
        deadline = time.monotonic() + HANGS
        while (found := self.state(run)) != state:
            assert found in ("SCHEDULED", "PENDING"), f"the run is {found} before it was seen {state}"
            assert time.monotonic() < deadline
            time.sleep(0.05)
        kill(worker)
        assert self.state(run) == state
        return run


@pytest.mark.parametrize(
    ("states", "restarted"),
    [(("RUNNING",), False), (("PENDING", "RUNNING"), True)],
    ids=["running", "pending and running, server restarted"],
)
def test_the_period_after_a_kill_comes(
    installation: Installation, tmp_path: Path, states: tuple[str, ...], restarted: bool
) -> None:
    shipped = {state: Shipped(installation, state.lower(), tmp_path / "data") for state in states}
    killed = {state: deployment.killed_in(state) for state, deployment in shipped.items()}
    began = time.monotonic()
    if restarted:
        installation.restart_server()
    following = {state: deployment.due(MONDAYS[1]) for state, deployment in shipped.items()}
    for deployment in shipped.values():
        deployment.worker()
    for state, deployment in shipped.items():

        def ended(deployment: Shipped = deployment, run: str = following[state]) -> bool:
            return deployment.state(run) in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")

        wait_until(ended, f"the period after the one killed {state}")
        assert deployment.state(following[state]) == "COMPLETED"
        print(f"killed in {state}: the next period had come after {time.monotonic() - began:.0f} s")
    for state, run in killed.items():
        wait_until(lambda run=run: shipped["RUNNING"].state(run) == "CRASHED", f"the end of the run killed {state}")
        print(f"killed in {state}: told as crashed after {time.monotonic() - began:.0f} s")
    ledger = Ledger(installation.ledger_url)
    for state in states:
        charged = [list(budget.charges) for budget in ledger.budgets(state.lower(), charges=True)]
        assert charged == [
            [f"{state.lower()}-2026-11-02"],
            [f"{state.lower()}-2026-11-09"],
        ]  # catch_up released the killed one
    assert ledger.verify().releases == 2 * len(states)
    ledger.close()
