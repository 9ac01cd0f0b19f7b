"""Registering deployments in a real Prefect server with basic auth: what operators changed there stays as it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolUpdate
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Scheduled

from dpdist.errors import InvalidInput
from flows import settings
from flows.automations import zombies
from flows.registration import Registration, register, wait_for_server
from tests import HANGS
from tests.ports import HeldPort

ROOT = Path(__file__).parents[1]
LOGIN = "operator:a-password"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API of a Prefect server that asks for a password."""
    folder, port = tmp_path_factory.mktemp("server"), HeldPort()
    environment = {**os.environ, **settings.SILENT, "PREFECT_HOME": str(folder), "PREFECT_SERVER_API_AUTH_STRING": LOGIN}
    environment.pop("PREFECT_API_URL", None)
    command = [
        sys.executable,
        "-m",
        "prefect",
        "server",
        "start",
        "--no-ui",
        "--host",
        "127.0.0.1",
        "--port",
        str(port.number),
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield f"http://127.0.0.1:{port.number}/api"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        port.release()


@pytest.fixture
def client(server: str) -> Iterator[SyncPrefectClient]:
    known = {PREFECT_API_URL: server, PREFECT_API_AUTH_STRING: LOGIN}
    with temporary_settings(known), get_client(sync_client=True) as found:
        wait_for_server(found, HANGS)
        yield found


def shipped(folder: Path, **weekly: Any) -> Path:
    """The shipped file with changes to its deployment ``weekly``."""
    content = yaml.safe_load((ROOT / "deploy" / "prefect.yaml").read_text())
    content["deployments"][0] |= weekly
    folder.mkdir(exist_ok=True)
    file = folder / "prefect.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def test_registering_again_changes_nothing_that_operators_changed(client: SyncPrefectClient, tmp_path: Path) -> None:
    what = Registration(shipped(tmp_path), pool="again", pool_limit=2, datasets=("visits", "rentals"))
    first = register(client, what)
    assert len([line for line in first if line.startswith("deployment")]) == 6
    assert "created limit 'dpdist-rentals'" in first
    assert register(client, what) == []
    weekly = client.read_deployment_by_name("release/weekly")
    (schedule,) = weekly.schedules
    assert (schedule.active, weekly.concurrency_options.collision_strategy) == (False, "ENQUEUE")
    # the operator's turn: switch the schedule on, set the pool's limit and job template, a parameter; a run waits
    client.update_deployment_schedule(weekly.id, schedule.id, active=True)
    template = {**client.read_work_pool("again").base_job_template, "edited": {}}
    client.update_work_pool("again", WorkPoolUpdate(concurrency_limit=7, base_job_template=template))
    client.update_deployment(weekly.id, DeploymentUpdate(parameters={**weekly.parameters, "catch_up": 9}))
    waiting = client.create_flow_run_from_deployment(weekly.id, state=Scheduled())
    assert register(client, what) == []
    changed = shipped(
        tmp_path, schedules=[{"cron": "0 5 * * 2", "timezone": "Europe/Vienna", "slug": "every-monday", "active": False}]
    )
    assert register(client, Registration(changed, pool="again")) == ["deployment 'weekly': schedule 'every-monday'"]
    weekly, pool = client.read_deployment_by_name("release/weekly"), client.read_work_pool("again")
    (schedule,) = weekly.schedules
    assert (schedule.schedule.cron, schedule.schedule.timezone, schedule.active) == ("0 5 * * 2", "Europe/Vienna", True)
    assert (weekly.parameters["catch_up"], pool.concurrency_limit, pool.base_job_template["edited"]) == (9, 7, {})
    assert client.read_flow_run(waiting.id).state.is_scheduled()


def test_what_the_file_changes_is_changed(client: SyncPrefectClient, tmp_path: Path) -> None:
    def weekly(**changes: Any) -> list[str]:
        return register(client, Registration(shipped(tmp_path, **changes), pool="changes", prefix="changes"))

    weekly(parameters={"spec_path": "a.yaml", "every": "week"})
    done = weekly(parameters={"spec_path": "b.yaml"}, description="another", schedules=[])
    assert done == ["deployment 'changes-weekly': description, parameters, schedule 'every-monday' removed"]
    found = client.read_deployment_by_name("release/changes-weekly")
    assert (found.parameters, found.description, found.schedules) == ({"spec_path": "b.yaml"}, "another", [])
    assert found.tags == ["dpdist"]


def test_two_installations_share_a_server(client: SyncPrefectClient, tmp_path: Path) -> None:
    file = shipped(tmp_path)
    for name in ("north", "south"):
        register(client, Registration(file, pool=name, datasets=("visits",), prefix=name))
        assert client.read_deployment_by_name(f"release/{name}-weekly").work_pool_name == name
        client.read_global_concurrency_limit_by_name(settings.limit_name("visits", name))
        assert len(client.read_automations_by_name(f"{name} dpdist: runs that went silent")) == 1


def test_refusals(client: SyncPrefectClient, server: str, tmp_path: Path) -> None:
    file = shipped(tmp_path)
    register(client, Registration(file, pool="typed"))
    with pytest.raises(InvalidInput, match="is of type 'process', asked for was 'kubernetes'; give --type process"):
        register(client, Registration(file, pool="typed", kind="kubernetes"))
    with pytest.raises(InvalidInput, match="needs a slug of its own"):
        register(client, Registration(shipped(tmp_path, schedules=[{"cron": "0 5 * * 2"}])))
    with pytest.raises(InvalidInput, match="no flow at 'flows/release.py:relese'"):
        register(client, Registration(shipped(tmp_path, entrypoint="flows/release.py:relese")))
    with (
        temporary_settings(
            {PREFECT_API_URL: server, PREFECT_API_AUTH_STRING: "operator:wrong", PREFECT_CLIENT_MAX_RETRIES: 0}
        ),
        get_client(sync_client=True) as stranger,
        pytest.raises(InvalidInput, match="does not take these credentials .HTTP 401"),
    ):
        wait_for_server(stranger, HANGS)
    with (
        temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api", PREFECT_CLIENT_MAX_RETRIES: 0}),
        get_client(sync_client=True) as nobody,
        pytest.raises(InvalidInput, match="no Prefect server answers"),
    ):
        wait_for_server(nobody, 0)


def test_the_command(server: str, tmp_path: Path) -> None:
    """As compose and the chart run it: data sets one after the other, credentials from the environment."""
    environment = {**os.environ, "PREFECT_API_URL": server, "PREFECT_API_AUTH_STRING": LOGIN, "PREFECT_HOME": str(tmp_path)}
    options = ["--dataset", "one", "--dataset", "two", "--prefix", "command", "--pool", "command"]
    said = []
    for _ in range(2):
        command = [sys.executable, str(ROOT / "deploy" / "register.py"), *options]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=HANGS)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert "created limit 'command-dpdist-two'" in said[0]
    assert said[1] == "everything was registered before; nothing was changed\n"


def test_a_run_that_never_sent_a_heartbeat_is_told_as_crashed() -> None:
    """Killed as soon as it runs, it has sent none: its state starts the clock (tests/deploy/test_kills.py tries it)."""
    silent, starting = zombies("")
    assert silent.trigger.after == {"prefect.flow-run.Running", "prefect.flow-run.heartbeat"}
    assert starting.trigger.after == {"prefect.flow-run.Pending"}
