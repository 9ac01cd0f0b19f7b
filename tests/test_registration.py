"""A real Prefect server with basic auth: registering leaves what operators changed, and a run waits for its approvals."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import prefect.server.api
import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolUpdate
from prefect.exceptions import Pause
from prefect.flow_engine import run_flow
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Scheduled

from dpdist.errors import ApprovalsMissing, InvalidInput
from dpdist.privacy.ledger import approvals
from dpdist.privacy.ledger.approvals import Approvers
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.spec import load
from flows.commands import cli
from flows.prefect import automations, prefect_settings, work_pool
from flows.prefect.automations import zombie_automations
from flows.prefect.registration import Registration, register, wait_for_server
from flows.prefect.release_flow import release
from tests import HANGS
from tests.support import forked_programs, small_release
from tests.support.prefect_server import flow_server

ROOT = Path(__file__).parents[1]
LOGIN = "operator:a-password"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API of a Prefect server that asks for a password."""
    with flow_server(tmp_path_factory.mktemp("server"), PREFECT_SERVER_API_AUTH_STRING=LOGIN) as (api, _):
        yield api


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
    assert len([line for line in first if line.startswith("deployment")]) == 3
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
        client.read_global_concurrency_limit_by_name(prefect_settings.limit_name("visits", name))
        assert len(client.read_automations_by_name(f"{name} dpdist: runs that went silent")) == 1


def test_no_run_chooses_its_command(client: SyncPrefectClient, tmp_path: Path) -> None:
    """The job template of a new pool is closed, one that somebody opened is closed again, what the file says is fixed in it."""
    what = Registration(shipped(tmp_path), pool="closed", prefix="closed")
    register(client, what)
    template = client.read_work_pool("closed").base_job_template
    heartbeat = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "45"}
    assert template["job_configuration"]["env"] == heartbeat
    assert not template["job_configuration"].keys() & {"command", "working_dir"}
    assert not template["variables"]["properties"].keys() & {"command", "env", "working_dir"}
    assert client.read_deployment_by_name("release/closed-weekly").job_variables == {}
    properties = {**template["variables"]["properties"], "mine": {"type": "string", "default": ""}}
    opened = {
        **template,
        "job_configuration": {**template["job_configuration"], "command": "{{ mine }}", "labels": {"kept": "yes"}},
        "variables": {**template["variables"], "properties": properties},
    }
    client.update_work_pool("closed", WorkPoolUpdate(base_job_template=opened))
    assert register(client, what) == [
        "closed the job template of work pool 'closed': runs could choose their command, environment or folder"
    ]
    again = client.read_work_pool("closed").base_job_template["job_configuration"]
    assert (again.get("command"), again["env"], again["labels"]) == (None, heartbeat, {"kept": "yes"})
    changed = shipped(tmp_path)
    changed.write_text(changed.read_text().replace("'45'", "'30'"))
    assert register(client, what) == ["changed the job template of work pool 'closed': env"]
    assert register(client, what) == []
    differs = {"name": "closed", "job_variables": {"env": {}}}
    with pytest.raises(InvalidInput, match="deployment 'backfill' gives another job variable 'env'"):
        register(client, Registration(shipped(tmp_path, work_pool=differs), pool="closed", prefix="closed"))


def test_runs_send_heartbeats_though_the_file_forgets_them(client: SyncPrefectClient, tmp_path: Path) -> None:
    """Without them a run that works would be marked as crashed; what else the file says of the environment stays, and so does its pace."""
    file = shipped(tmp_path)
    content = yaml.safe_load(file.read_text())

    def pool(env: dict[str, str] | None) -> dict[str, str]:
        for deployment in content["deployments"]:
            deployment["work_pool"] = {"name": "silent"} | ({} if env is None else {"job_variables": {"env": env}})
        file.write_text(yaml.safe_dump(content))
        register(client, Registration(file, pool="silent", prefix="silent"))
        found: dict[str, str] = client.read_work_pool("silent").base_job_template["job_configuration"]["env"]
        return found

    name = "PREFECT_FLOWS_HEARTBEAT_FREQUENCY"
    assert pool(None) == {name: "45"}
    assert pool({"TZ": "UTC"}) == {"TZ": "UTC", name: "45"}
    assert pool({name: "30"}) == {name: "30"}


def test_a_kubernetes_template_is_closed() -> None:
    """Containers' arguments, environment and image, as Prefect's own template for Kubernetes has them."""
    shipped = Path(prefect.server.api.__file__).parent / "collections_data" / "views" / "aggregate-worker-metadata.json"
    template = json.loads(shipped.read_text())["prefect-kubernetes"]["kubernetes"]["default_base_job_configuration"]
    made = work_pool.close_template(template, {"image": "dpdist@sha256:0"})
    (container,) = made["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "dpdist@sha256:0"
    assert not container.keys() & {"args", "env"}
    assert not made["variables"]["properties"].keys() & {"command", "env", "image"}
    assert work_pool.close_template(made, {}) == made
    assert made["job_configuration"]["namespace"] == template["job_configuration"]["namespace"]  # the rest stays


def test_refusals(client: SyncPrefectClient, server: str, tmp_path: Path) -> None:
    file = shipped(tmp_path)
    register(client, Registration(file, pool="typed"))
    with pytest.raises(InvalidInput, match="is of type 'process', asked for was 'kubernetes'; give --type process"):
        register(client, Registration(file, pool="typed", kind="kubernetes"))
    with pytest.raises(InvalidInput, match="needs a slug of its own"):
        register(client, Registration(shipped(tmp_path, schedules=[{"cron": "0 5 * * 2"}])))
    with pytest.raises(InvalidInput, match="no flow at 'flows/prefect/release_flow.py:relese'"):
        register(client, Registration(shipped(tmp_path, entrypoint="flows/prefect/release_flow.py:relese")))
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
    environment = {"PREFECT_API_URL": server, "PREFECT_API_AUTH_STRING": LOGIN, "PREFECT_HOME": str(tmp_path)}
    options = ["--dataset", "one", "--dataset", "two", "--prefix", "command", "--pool", "command"]
    said = []
    for _ in range(2):
        done = forked_programs.finished(str(ROOT / "deploy" / "register.py"), *options, **environment)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert "created limit 'command-dpdist-two'" in said[0]
    assert said[1] == "everything was registered before; nothing was changed\n"


def test_registering_replaces_automations_of_earlier_versions(client: SyncPrefectClient, tmp_path: Path) -> None:
    """Its own only; what is of this version stays as operators left it, and one that they disabled stays disabled."""
    what = Registration(shipped(tmp_path), pool="automations", prefix="older")
    silent, starting = zombie_automations("older")
    another = f"{silent.description} of before"
    before = silent.model_copy(update={"description": another, "trigger": starting.trigger, "enabled": False})
    gone = silent.model_copy(update={"name": "older dpdist: runs that nobody watches"})
    mine = silent.model_copy(update={"name": "older dpdist: tell me", "description": "an operator's"})
    other = zombie_automations("older-2")[0].model_copy(update={"name": "older-2 dpdist: of another installation"})
    for automation in (before, gone, mine, other):
        client.create_automation(automation)
    assert {line for line in register(client, what) if " automation " in line} == {
        "renewed automation 'older dpdist: runs that went silent'",
        "removed automation 'older dpdist: runs that nobody watches' of another version",
        "created automation 'older dpdist: runs that never began'",
    }
    (renewed,) = client.read_automations_by_name(silent.name)
    assert (renewed.trigger, renewed.enabled, renewed.description) == (silent.trigger, False, silent.description)
    for automation in (mine, other):
        assert len(client.read_automations_by_name(automation.name)) == 1
    client.update_automation(renewed.id, silent.model_copy(update={"tags": [*silent.tags, "edited"]}))
    assert register(client, what) == []
    assert client.read_automations_by_name(silent.name)[0].tags == ["dpdist", "edited"]


def test_a_run_that_never_sent_a_heartbeat_is_told_as_crashed() -> None:
    """Killed as soon as it runs, it has sent none: its state starts the clock (tests/deploy/test_kills.py tries it)."""
    silent, starting = zombie_automations("")
    assert silent.trigger.after == {"prefect.flow-run.Running", "prefect.flow-run.heartbeat"}
    assert starting.trigger.after == {"prefect.flow-run.Pending"}
    for automation in (silent, starting):
        assert "prefect.flow-run.Suspended" in automation.trigger.expect  # it waits for approvals, and has no process


@pytest.mark.slow
def test_a_run_waits_for_its_approvals(
    client: SyncPrefectClient,
    server: str,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Suspended before anything is charged, again where it is resumed without them; the last approval resumes it."""
    monkeypatch.setenv("PREFECT_API_URL", server)
    data, key = tmp_path / "data", tmp_path / "approver.pem"
    small_release.write(data / "2026-11-02")
    content = small_release.spec(release="small-{period}", period="{period}", records={"path": "{period}/records.parquet"})
    spec = data / "release.yaml"
    spec.write_text(yaml.safe_dump(content, sort_keys=False))
    checked = load(spec, period=datetime.date(2026, 11, 2))
    with open_ledger(home) as book:
        book.declare("small", checked.guarantee.cap, checked.guarantee.protection)
        book.set_approvers("small", Approvers((approvals.new_key(key),), 1), "agreed on")

    def charged() -> list[str]:
        with open_ledger(home) as book:
            return [release for budget in book.budgets(charges=True) for release in budget.charges]

    register(client, Registration(shipped(tmp_path / "file"), pool="waits", prefix="waits"))
    deployment = client.read_deployment_by_name("release/waits-weekly")
    known = {"spec_path": str(spec), "every": "week", "catch_up": 0, "engine_address": "inline", "home": str(home)}
    due = Scheduled(scheduled_time=datetime.datetime(2026, 11, 9, 3, 30, tzinfo=datetime.UTC))
    with pytest.raises(ApprovalsMissing):  # nobody would start a run without a deployment again: refused
        release(**known, period=datetime.date(2026, 11, 2))
    run = client.create_flow_run_from_deployment(deployment.id, parameters=known, state=due).id
    for _ in range(2):  # a resume without an approval, as in the UI, changes nothing
        with pytest.raises(Pause):
            run_flow(release, flow_run=client.read_flow_run(run), parameters=known)
        waiting = client.read_flow_run(run)
        assert (waiting.state.name, "approval:small-2026-11-02" in waiting.tags) == ("Suspended", True)
        assert "'small-2026-11-02' needs 1 approvals of its spec as it is now, found 0" in waiting.state.message
        assert f"dpdist approve {spec} --period 2026-11-02 --key FILE" in waiting.state.message
        assert charged() == []
        client.resume_flow_run(run)
        assert client.read_flow_run(run).state.is_scheduled()
    with pytest.raises(Pause):
        run_flow(release, flow_run=client.read_flow_run(run), parameters=known)
    with pytest.raises(SystemExit):
        cli.app(["approve", str(spec), "--period", "2026-11-02", "--key", str(key)])
    assert f"resumed Prefect's run small-2026-11-02 ({run})" in capsys.readouterr().out
    assert client.read_flow_run(run).state.is_scheduled()
    run_flow(release, flow_run=client.read_flow_run(run), parameters=known)  # weeks later: still of the same period
    assert client.read_flow_run(run).state.is_completed()
    assert charged() == ["small-2026-11-02"]


def test_what_is_compared_of_an_automation_has_its_sets_in_order() -> None:
    """They come in another order in every process: an automation would be replaced at every registering."""
    told = {"trigger": {"expect": ["b", "a"], "within": 30}, "actions": [{"kind": "y"}, {"kind": "x"}], "name": "c"}
    again = {"trigger": {"expect": ["a", "b"], "within": 30}, "actions": [{"kind": "x"}, {"kind": "y"}], "name": "c"}
    assert automations._ordered(told) == automations._ordered(again) == again
