"""A run of Prefect whose release is held waits in the server with the reason, goes on once somebody says so, and ends where it is void."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient
from prefect.exceptions import Pause
from prefect.flow_engine import run_flow
from prefect.states import Scheduled

from dpdist.plugins.gate.held_releases import HeldRelease
from dpdist.privacy.ledger.budget_ledger import open_ledger
from flows.commands import cli
from flows.prefect.registration import Registration, register
from flows.prefect.release_flow import release
from tests.observability.receiver import exported_metrics
from tests.support import small_release
from tests.test_registration import client, server, shipped  # noqa: F401 - fixtures

FIRST = datetime.date(2026, 11, 2)


@pytest.mark.slow
def test_a_run_waits_while_its_release_is_held(
    client: SyncPrefectClient,  # noqa: F811
    server: str,  # noqa: F811
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before the charge, because half of the files are missing: the same as where answers are unlikely."""
    monkeypatch.setenv("PREFECT_API_URL", server)
    data, days = tmp_path / "data", [FIRST + datetime.timedelta(weeks=number) for number in range(5)]
    for number, day in enumerate(days):
        for part in range(2 if number < 3 else 1):
            small_release.write(data / str(day) / f"part-{part}", table=small_release.records(seed=10 * number + part))
            (data / str(day) / f"part-{part}" / "release.yaml").unlink()
            written = datetime.datetime.combine(day, datetime.time(), datetime.UTC).timestamp() + 8 * 86400
            os.utime(data / str(day) / f"part-{part}" / "records.parquet", (written, written))
    content = small_release.spec(
        release="small-{period}",
        period="{period}",
        records={"path": "{period}"},
        workload=[{"marginals": {"ways": [1]}}],
        ledger={"dataset": "small", "cap": {"rho": 0.25, "per": "week"}},
    )
    spec = data / "release.yaml"
    spec.write_text(yaml.safe_dump(content, sort_keys=False))
    register(client, Registration(shipped(tmp_path / "file"), pool="held", prefix="held"))
    deployment = client.read_deployment_by_name("release/held-weekly")
    given = {"spec_path": str(spec), "every": "week", "catch_up": 0, "engine_address": "inline", "home": str(home)}

    def start(day: datetime.date) -> tuple[object, dict[str, object]]:
        known = given | {"period": day.isoformat()}
        due = Scheduled(scheduled_time=datetime.datetime.now(datetime.UTC))
        return client.create_flow_run_from_deployment(deployment.id, parameters=known, state=due).id, known

    def charged() -> list[str]:
        with open_ledger(home) as ledger:
            return [name for budget in ledger.budgets(charges=True) for name in budget.charges]

    for day in days[:3]:
        run, known = start(day)
        run_flow(release, flow_run=client.read_flow_run(run), parameters=known)
    waiting = [start(day) for day in days[3:]]
    for day, (run, known) in zip(days[3:], waiting, strict=True):
        for _ in range(2):  # resumed without a decision, as in the UI, it waits again
            with pytest.raises(Pause):
                run_flow(release, flow_run=client.read_flow_run(run), parameters=known)
            state = client.read_flow_run(run).state
            assert (state.name, f"approval:small-{day}" in client.read_flow_run(run).tags) == ("Suspended", True)
            assert f"waits: small-{day} is held, and nothing was charged: its records are in 1 file" in state.message
            assert f"dpdist gate small-{day} --publish --why REASON" in state.message
            client.resume_flow_run(run)
        with pytest.raises(Pause):
            run_flow(release, flow_run=client.read_flow_run(run), parameters=known)
    assert len(charged()) == 3
    assert 'dpdist_releases_held{dataset="small"} 2.0' in exported_metrics(home)
    assert 'reason="ReleaseHeld"' not in exported_metrics(home)
    for day, choice in zip(days[3:], ("--publish", "--void"), strict=True):
        with pytest.raises(SystemExit):
            cli.app(["gate", f"small-{day}", choice, "--why", "one branch burnt down"])
        assert f"resumed Prefect's run small-{day}" in capsys.readouterr().out
    for run, known in waiting:
        run_flow(release, flow_run=client.read_flow_run(run), parameters=known)
        assert client.read_flow_run(run).state.is_completed()
    assert charged() == [f"small-{day}" for day in days[:4]]
    assert [(HeldRelease(home, f"small-{day}").facts() or {})["events"][-1]["event"] for day in days[3:]] == [
        "passed",
        "void",
    ]
    assert 'dpdist_releases_held{dataset="small"} 0.0' in exported_metrics(home)
