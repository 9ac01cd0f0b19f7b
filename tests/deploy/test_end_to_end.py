"""The whole installation on loopback: PostgreSQL, Prefect server, Dask, an S3-compatible store, a process worker, schedules.

A schedule fires and publishes to the object store; then the server is restarted and a Dask worker is killed; the next period is
released, too. However often the schedules fire, the ledger holds two charges.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpdist.privacy.ledger.approvals import Approvers, new_key
from dpdist.privacy.ledger.budget_ledger import Ledger
from dpdist.publish import release_folder
from dpdist.spec import load
from dpdist.storage.objects import parse_location
from tests import HANGS
from tests.deploy.installation import ROOT, Installation, wait_until
from tests.support import small_release

WEEKS = ("2026-11-09", "2026-11-16")


def schedules(spec: Path, weeks: tuple[str, ...], *, cron: str = "* * * * *") -> dict[str, Any]:
    """A deployment that fires for each of the weeks."""
    return {
        "name": "dpdist",
        "pull": [{"prefect.deployments.steps.set_working_directory": {"directory": str(ROOT)}}],
        "deployments": [
            {
                "name": "weekly",
                "entrypoint": "flows/prefect/release_flow.py:release",
                "work_pool": {"name": "dpdist"},
                "concurrency_limit": {"limit": 1, "collision_strategy": "ENQUEUE"},
                "parameters": {"spec_path": str(spec), "every": "week"},
                "schedules": [
                    {"cron": cron, "timezone": "UTC", "slug": f"week-{week}", "parameters": {"period": week}}
                    for week in weeks
                ],
            }
        ],
    }


def weekly(installation: Installation, data: Path) -> Path:
    """Records of each week, and the spec of all: its path."""
    for seed, week in enumerate(WEEKS):
        small_release.write(data / week, table=small_release.records(seed=seed))
    spec = data / "release.yaml"
    content = small_release.spec(
        release="weekly-{period}",
        period="{period}",
        records={"path": "{period}/records.parquet"},
        ledger={"dataset": "small", "cap": {"rho": 0.1, "per": "week"}},
        output={"folder": f"{installation.s3}/published/{{period}}"},
    )
    spec.write_text(yaml.safe_dump(content, sort_keys=False))
    return spec


def check_published(installation: Installation, week: str) -> None:
    with parse_location(f"{installation.s3}/published/{week}").local_copy() as folder:
        table, certificate = release_folder.load_release(folder)
        assert certificate["release"] == f"weekly-{week}"
        assert table.num_rows == certificate["queries"]


@pytest.mark.slow
def test_a_run_of_the_deployment_publishes_its_period(
    installation: Installation, hook: tuple[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    """The small form of the schedules: the same installation, one run that is asked for, the schedule looked at."""
    file = tmp_path / "prefect.yaml"
    file.write_text(yaml.safe_dump(schedules(weekly(installation, tmp_path / "data"), WEEKS[:1], cron="0 6 1 1 *")))
    installation.register(file)
    (deployment,) = installation.ask("deployments/filter", {})
    (schedule,) = deployment["schedules"]
    assert (schedule["schedule"]["cron"], schedule["parameters"]) == ("0 6 1 1 *", {"period": WEEKS[0]})
    installation.environment["DPDIST_LOG"] = "json"
    installation.start("prefect", "worker", "start", "--pool", "dpdist", "--type", "process")
    installation.ask(f"deployments/{deployment['id']}/create_flow_run", {"parameters": {"period": WEEKS[0]}})
    wait_until(lambda: any(told.get("where") for told in hook[1]), "the period")
    with_ledger = Ledger(installation.ledger_url)
    assert {b.period: list(b.charges) for b in with_ledger.budgets(charges=True)} == {"2026-W46": ["weekly-2026-11-09"]}
    assert with_ledger.verify().releases == 1
    with_ledger.close()
    check_published(installation, WEEKS[0])
    lines = [line for line in (installation.folder / "log").read_text().splitlines() if line.startswith('{"time"')]
    assert json.loads(lines[0])["event"] == "started"  # the run is a process of the worker, which passes its lines on
    names = [run["name"] for run in installation.ask("flow_runs/filter", {"limit": 10})]
    assert f"weekly-{WEEKS[0]}" in names  # runs are called after the release they are for
    tasks = {run["name"] for run in installation.ask("task_runs/filter", {"limit": 20})}
    assert {f"{stage} weekly-{WEEKS[0]}" for stage in ("plan", "answer", "publish")} <= tasks
    assert not {name for name in tasks if name.startswith(("count", "measure"))}  # they depend on the records


@pytest.mark.large
def test_schedules_publish_each_period_once(
    installation: Installation, hook: tuple[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    spec = weekly(installation, tmp_path / "data")
    file = tmp_path / "prefect.yaml"

    def published(week: str) -> bool:
        return f"{installation.s3}/published/{week}" in [told.get("where") for told in hook[1]]

    file.write_text(yaml.safe_dump(schedules(spec, WEEKS[:1])))
    installation.register(file)
    installation.register(file)  # again: nothing changes
    installation.start("prefect", "worker", "start", "--pool", "dpdist", "--type", "process")
    wait_until(lambda: published(WEEKS[0]), "the first period")
    installation.restart_server()
    installation.dask.running[1].kill()  # one of two workers
    file.write_text(yaml.safe_dump(schedules(spec, WEEKS)))
    installation.register(file)
    wait_until(lambda: published(WEEKS[1]), "the second period")
    assert "Failed" not in installation.states()
    with_ledger = Ledger(installation.ledger_url)
    budgets = {budget.period: list(budget.charges) for budget in with_ledger.budgets(charges=True)}
    assert budgets == {"2026-W46": ["weekly-2026-11-09"], "2026-W47": ["weekly-2026-11-16"]}
    assert with_ledger.verify().releases == 2
    with_ledger.close()
    charged = [told["release"] for told in hook[1] if told.get("charged")]
    assert sorted(charged) == ["weekly-2026-11-09", "weekly-2026-11-16"]
    for week in WEEKS:
        check_published(installation, week)
    kinds = {artifact["type"] for artifact in installation.ask("artifacts/filter", {"limit": 200})}
    assert {"table", "markdown"} <= kinds
    limit = installation.ask("v2/concurrency_limits/dpdist-small")
    assert limit["limit"] == 1
    assert limit["active_slots"] in (0, 1)


@pytest.mark.large
def test_a_run_that_waits_goes_on_in_a_process_of_its_own(installation: Installation, tmp_path: Path) -> None:
    """Suspended, its process ends and its turn is free; the approval has the worker start it again."""
    spec, key = weekly(installation, tmp_path / "data"), tmp_path / "approver.pem"
    checked = load(spec, period=datetime.date.fromisoformat(WEEKS[0]))
    ledger = Ledger(installation.ledger_url)
    ledger.declare("small", checked.guarantee.cap, checked.guarantee.protection)
    ledger.set_approvers("small", Approvers((new_key(key),), 1), "agreed on")
    file = tmp_path / "prefect.yaml"
    file.write_text(yaml.safe_dump(schedules(spec, WEEKS[:1], cron="0 6 1 1 *")))
    installation.register(file)
    (deployment,) = installation.ask("deployments/filter", {})
    installation.start("prefect", "worker", "start", "--pool", "dpdist", "--type", "process")

    def charged() -> list[str]:
        return [release for budget in ledger.budgets(charges=True) for release in budget.charges]

    def started(week: str) -> str:
        asked = {"parameters": {"period": week}}
        return str(installation.ask(f"deployments/{deployment['id']}/create_flow_run", asked)["id"])

    def state(run: str) -> str:
        return str(installation.ask(f"flow_runs/{run}")["state_name"])

    runs = [started(week) for week in WEEKS]  # one at a time: the second comes though the first waits
    wait_until(lambda: [state(run) for run in runs] == ["Suspended"] * 2, "both runs suspended")
    assert charged() == []
    command = [sys.executable, "-m", "flows.main", "approve", str(spec), "--period", WEEKS[0], "--key", str(key)]
    done = subprocess.run(command, env=installation.environment, capture_output=True, text=True, check=False, timeout=HANGS)
    assert "resumed Prefect's run" in done.stdout, done.stderr
    wait_until(lambda: state(runs[0]) == "Completed", "the approved run")
    assert state(runs[1]) == "Suspended"
    check_published(installation, WEEKS[0])
    assert charged() == [f"weekly-{WEEKS[0]}"]
    ledger.close()
