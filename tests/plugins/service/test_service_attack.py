"""Whoever holds Prefect's login runs what they like on Prefect's worker, and gets nothing that only the measuring service may have.

The service, the worker and the operator are three users. The tests need root, which alone can start processes of others.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolUpdate
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
from prefect.states import Crashed

from dpdist.privacy import keys
from flows.prefect.registration import Registration, register, wait_for_server
from tests import HANGS
from tests.plugins.service.measuring_service import (
    CLIENTS,
    ROOT,
    SERVICE,
    WORKER,
    Running,
    as_user,
    folder_for_all,
    interpreter,
)
from tests.plugins.service.test_spec_registry import WEEK, weekly
from tests.support import small_release
from tests.support.prefect_server import flow_server

LOGIN = "operator:a-password"
BEFORE = WEEK - datetime.timedelta(days=7)

THIEF = '''
"""Take whatever can be had: files, memory, releases that nobody allowed."""
import datetime, json, os, pathlib, sys, traceback

FOLDER, PROCESS = pathlib.Path({folder!r}), {process}


def tried(work):
    try:
        return work()
    except BaseException as error:
        return [type(error).__name__]


def memory():
    with open(f"/proc/{{PROCESS}}/maps") as maps, open(f"/proc/{{PROCESS}}/mem", "rb") as mem:
        first = next(line for line in maps if " rw" in line).split("-")
        mem.seek(int(first[0], 16))
        return len(mem.read(16))


def asked(spec, day):
    from dpdist.plugins.service.service_address import Address
    from dpdist.plugins.service.service_client import RemoteRelease
    list(RemoteRelease(Address.of({listen!r}), str(spec), day))
    return "published"


def steal(name):
    week = datetime.date.fromisoformat({week!r})
    given, mine = FOLDER / "specs" / "weekly.yaml", FOLDER / "loot" / f"{{name}}.yaml"
    mine.write_text(given.read_text().replace("0.1", "0.11"))
    found = {{
        "user": os.getuid(),
        "environment": sorted(key for key in os.environ if key.startswith("DPDIST_")),
        "took": {{
            "root key": tried(lambda: len((FOLDER / "home" / "root.key").read_text())),
            "ledger": tried(lambda: len((FOLDER / "home" / "ledger.db").read_bytes())),
            "records": tried(lambda: len((FOLDER / "specs" / str(week) / "records.parquet").read_bytes())),
            "environment": tried(lambda: len(pathlib.Path(f"/proc/{{PROCESS}}/environ").read_bytes())),
            "memory": tried(memory),
            "signal": tried(lambda: os.kill(PROCESS, 0) or "may"),
            "spec changed": tried(lambda: given.open("a").close() or "may"),
            "spec added": tried(lambda: (FOLDER / "specs" / "mine.yaml").write_text("")),
        }},
        "asked": {{
            "edited": tried(lambda: asked(mine, week)),
            "other day": tried(lambda: asked(given, week + datetime.timedelta(days=1))),
            "years ago": tried(lambda: asked(given, week - datetime.timedelta(days=7000))),
            "to come": tried(lambda: asked(given, week + datetime.timedelta(days=7000))),
            "no day": tried(lambda: asked(given, None)),
        }},
    }}
    (FOLDER / "loot" / f"{{name}}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    steal(sys.argv[1])
else:
    from prefect import flow

    @flow
    def thief(name: str = "entrypoint"):
        steal(name)
'''


@dataclass(frozen=True)
class Installed:
    """A service of its own user, the operator's specs and records, and a folder that the worker may write."""

    folder: Path
    service: Running
    python: str

    @property
    def thief(self) -> Path:
        return self.folder / "loot" / "thief.py"

    def loot(self, name: str) -> dict[str, Any]:
        """What a thief got."""
        found = json.loads((self.folder / "loot" / f"{name}.json").read_text())
        assert isinstance(found, dict)
        return found

    def as_worker(self, **environment: str) -> dict[str, Any]:
        """Options of a process of the worker's user, which is one of the service's clients."""
        own = str(self.folder / "loot")
        there = {"HOME": own, "TMPDIR": own, "DPDIST_SERVICE": self.service.listen}
        return as_user(WORKER, CLIENTS, **there, **environment)


@pytest.fixture
def installed() -> Iterator[Installed]:
    python = interpreter()
    if python is None:
        pytest.skip("only root starts processes of another user, with a Python that they may run")
    with folder_for_all() as folder:
        weekly(folder / "specs")
        keys.initialise(folder / "home")
        for name, owner in {"home": SERVICE, "run": SERVICE, "releases": SERVICE, "loot": WORKER}.items():
            (folder / name).mkdir(exist_ok=True)
            os.chown(folder / name, owner, owner)
        os.chown(folder / "home" / "root.key", SERVICE, SERVICE)
        for seed, week in enumerate((WEEK, BEFORE)):
            small_release.write(folder / "specs" / str(week), table=small_release.records(seed=seed))
            os.chown(folder / "specs" / str(week), SERVICE, SERVICE)
            (folder / "specs" / str(week)).chmod(0o700)
            os.chown(folder / "specs" / str(week) / "records.parquet", SERVICE, SERVICE)
        environment = {
            "DPDIST_HOME": str(folder / "home"),
            "HOME": str(folder / "home"),
            "NUMBA_CACHE_DIR": str(folder / "home" / "numba"),
        }
        options = as_user(SERVICE, CLIENTS, **environment)
        service = Running(folder, folder / "home", "--group", str(CLIENTS), command=[python], **options)
        found = Installed(folder, service, python)
        text = THIEF.format(folder=str(folder), process=service.process.pid, listen=service.listen, week=str(WEEK))
        found.thief.write_text(text)
        try:
            yield found
        finally:
            service.end()


def check_nothing(loot: dict[str, Any]) -> None:
    """Everything was tried as the worker's user, and nothing was got."""
    assert loot["user"] == WORKER
    assert not {"DPDIST_ROOT_KEY_FILE", "DPDIST_LEDGER_FILE", "DPDIST_HOME"} & {*loot["environment"]}
    assert loot["took"] == {name: ["PermissionError"] for name in loot["took"]}
    assert len(loot["took"]) == 8
    assert loot["asked"] == {name: ["InvalidSpec"] for name in loot["asked"]}


def test_another_user_gets_nothing(installed: Installed) -> None:
    """The same program gets everything as the service's own user: it does try."""
    program = [installed.python, str(installed.thief)]
    subprocess.run([*program, "other"], check=True, timeout=HANGS, cwd="/", **installed.as_worker())
    check_nothing(installed.loot("other"))
    (installed.folder / "loot").chmod(0o777)
    own = as_user(SERVICE, CLIENTS, HOME=str(installed.folder / "home"), DPDIST_SERVICE=installed.service.listen)
    subprocess.run([*program, "own"], check=True, timeout=HANGS, cwd="/", **own)
    took = installed.loot("own")["took"]
    assert [name for name in took if isinstance(took[name], list)] == ["spec changed", "spec added"]  # the operator's alone
    stranger = as_user(WORKER, HOME=str(installed.folder / "loot"))  # without the group
    asked = "from dpdist.plugins.service.service_address import Address; from dpdist.plugins.service.service_client import RemoteRelease; "
    asked += f"RemoteRelease(Address.of({installed.service.listen!r}), 'sha256:' + '0' * 64, None)"
    done = subprocess.run(
        [installed.python, "-c", asked], check=False, capture_output=True, text=True, cwd="/", timeout=HANGS, **stranger
    )
    assert "does not answer (Permission denied)" in done.stderr


@pytest.mark.slow
def test_prefect_s_login_is_not_the_root_key(installed: Installed) -> None:
    """Commands, environment, pull steps and entry points of somebody with the login; the schedule's own run works beside them."""
    folder = installed.folder
    spec = folder / "specs" / "weekly.yaml"
    file = folder / "prefect.yaml"
    content = yaml.safe_load((ROOT / "deploy" / "prefect.yaml").read_text())
    content["deployments"] = content["deployments"][:1]
    content["deployments"][0]["parameters"] = {"spec_path": str(spec), "every": "week", "period": str(WEEK)}
    file.write_text(yaml.safe_dump(content))
    shell = f"{installed.python} {installed.thief}"
    with flow_server(folder / "server", PREFECT_SERVER_API_AUTH_STRING=LOGIN) as (api, server):
        known = {PREFECT_API_URL: api, PREFECT_API_AUTH_STRING: LOGIN}
        with temporary_settings(known), get_client(sync_client=True) as client:
            wait_for_server(client, HANGS)
            register(client, Registration(file))
            environment = {
                "PREFECT_API_URL": api,
                "PREFECT_API_AUTH_STRING": LOGIN,
                "PREFECT_HOME": str(folder / "loot" / "prefect"),
                "PREFECT_WORKER_QUERY_SECONDS": "2",
                "DPDIST_DIRECTORY": str(ROOT),
            }
            command = [installed.python, "-m", "prefect", "worker", "start", "--pool", "dpdist", "--type", "process"]
            log = (folder / "loot" / "worker.log").open("ab")
            worker = subprocess.Popen(
                command,
                cwd=folder / "loot",
                stdout=log,
                stderr=log,
                start_new_session=True,
                **installed.as_worker(**environment),
            )
            try:
                weekly_id = client.read_deployment_by_name("release/weekly").id
                chosen = {"command": f"{shell} closed", "env": {"CHOSEN": "1"}, "working_dir": "/"}
                ended(
                    client, client.create_flow_run_from_deployment(weekly_id, job_variables=chosen).id, "COMPLETED", folder
                )
                assert not (folder / "loot" / "closed.json").exists()  # the closed template: the ordinary release ran
                assert installed.service.charges() == [f"small-{WEEK}"]
                template = client.read_work_pool("dpdist").base_job_template
                free = {"command": "{{ command }}", "env": "{{ env }}"}
                properties = {
                    **template["variables"]["properties"],
                    "command": {"type": "string"},
                    "env": {"type": "object"},
                }
                opened = {
                    "job_configuration": {**template["job_configuration"], **free},
                    "variables": {**template["variables"], "properties": properties},
                }
                client.update_work_pool("dpdist", WorkPoolUpdate(base_job_template=opened))
                stolen = client.create_flow_run_from_deployment(weekly_id, job_variables={"command": f"{shell} command"}).id
                wait_for(folder / "loot" / "command.json", folder)
                check_nothing(installed.loot("command"))
                client.set_flow_run_state(stolen, Crashed(), force=True)  # it told Prefect no end, and would keep its turn
                for name, steps, entrypoint in (
                    (
                        "pull",
                        [{"prefect.deployments.steps.run_shell_script": {"script": f"{shell} pull"}}],
                        "thief.py:thief",
                    ),
                    (
                        "entrypoint",
                        [{"prefect.deployments.steps.set_working_directory": {"directory": str(folder / "loot")}}],
                        "thief.py:thief",
                    ),
                ):
                    made = client.create_deployment(
                        flow_id=client.create_flow_from_name("thief"),
                        name=name,
                        work_pool_name="dpdist",
                        pull_steps=steps,
                        path=".",
                        entrypoint=entrypoint,
                    )
                    client.create_flow_run_from_deployment(made)
                    wait_for(folder / "loot" / f"{name}.json", folder)
                    check_nothing(installed.loot(name))
                assert installed.service.charges() == [f"small-{WEEK}"]
                assert installed.service.health()
                assert "closed the job template of work pool 'dpdist'" in register(client, Registration(file))[0]
                client.create_flow_run_from_deployment(weekly_id, parameters={"period": str(BEFORE)})
                wait_until(lambda: f"began small-{BEFORE}" in installed.service.log(), folder)
                os.killpg(server, signal.SIGKILL)  # Prefect's server, amid a run: the release goes on
                wait_until(lambda: f"published small-{BEFORE}" in installed.service.log(), folder)
                assert sorted(installed.service.charges()) == [f"small-{BEFORE}", f"small-{WEEK}"]
            finally:
                worker.kill()
                worker.wait(HANGS)
                log.close()


def ended(client: SyncPrefectClient, run: Any, state: str, folder: Path) -> None:
    """Wait until a flow run has ended as it should."""
    deadline = time.monotonic() + HANGS
    while not (found := client.read_flow_run(run).state).is_final():
        assert time.monotonic() < deadline
        time.sleep(1)
    assert found.type.value == state, (found.message, (folder / "loot" / "worker.log").read_text()[-3000:])


def wait_for(file: Path, folder: Path) -> None:
    """Wait until a thief has told what it got."""
    wait_until(lambda: file.exists() and file.read_text().endswith("}"), folder)


def wait_until(is_so: Callable[[], bool], folder: Path) -> None:
    """Wait, and say what the worker told if it never comes to be."""
    deadline = time.monotonic() + HANGS
    while not is_so():
        assert time.monotonic() < deadline, (folder / "loot" / "worker.log").read_text()[-3000:]
        time.sleep(0.5)
