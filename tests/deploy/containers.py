"""The shipped compose file in real containers: what starts it, asks it and ends parts of it."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy import container_rights
from tests.support import small_release
from tests.support.loopback_ports import HeldPort

ROOT = Path(__file__).parents[2]
REQUIRED = "DPDIST_TEST_CONTAINERS"
"""Set to 'required' where missing containers must fail the tests instead of skipping them (make containers does)."""
IMAGE = "localhost/dpdist-test"
MINUTES = 30
ENDED = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
_MONDAY = datetime.date.today() - datetime.timedelta(days=datetime.date.today().weekday())
WEEKS = tuple(str(_MONDAY - datetime.timedelta(weeks=weeks)) for weeks in (3, 2))
"""Of the last weeks, as the measuring service takes no periods that are long past."""


def run(*command: str, cwd: Path | None = None, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=MINUTES * 60
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def require_or_skip(found: bool, reason: str) -> None:
    if found:
        return
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(f"containers are required here: {reason}")
    pytest.skip(reason)


class Compose:
    """deploy/compose.yaml as its header says, from a fresh copy of the checkout."""

    def __init__(self, checkout: Path, image: str) -> None:
        self.folder, self.secrets, self.ports = checkout, checkout.parent / "secrets", (HeldPort(), HeldPort())
        self.data = checkout.parent / "data"
        run("deploy/secrets.sh", str(self.secrets), str(self.data), cwd=checkout)
        deployments = {"DPDIST_DEPLOYMENTS": "/data/specs/prefect.yaml"}
        ports = dict(zip(("PREFECT_PORT", "METRICS_PORT"), (str(port.number) for port in self.ports), strict=True))
        self.environment = {**os.environ, "DPDIST_IMAGE": image, **ports, **deployments}
        self.project = f"dpdist-test-{os.getpid()}"
        self.services: dict[str, Any] = container_rights.compose()["services"]
        self.started: set[str] = set()

    def __call__(self, *arguments: str) -> str:
        command = ["podman-compose", "--env-file", str(self.secrets / "env"), "-p", self.project]
        return run(*command, "-f", "deploy/compose.yaml", *arguments, cwd=self.folder, environment=self.environment)

    def start(self, service: str, *options: str) -> None:
        """Start a service as soon as what it depends on is as it asks for."""
        if service in self.started:
            return
        self.started.add(service)
        for other, how in self.services[service].get("depends_on", {}).items():
            self.start(other)
            getattr(self, how["condition"])(other)
        profiles = [option for name in self.services[service].get("profiles", []) for option in ("--profile", name)]
        self(*profiles, "up", "--detach", "--no-build", "--no-deps", *options, service)

    def service_healthy(self, service: str) -> None:
        """Wait until the service's own health check succeeds."""
        check = ["podman", "healthcheck", "run", f"{self.project}_{service}_1"]
        deadline = time.monotonic() + MINUTES * 60
        while subprocess.run(check, capture_output=True, check=False).returncode != 0:
            assert time.monotonic() < deadline, f"{service} did not become healthy"
            time.sleep(2)

    def service_completed_successfully(self, service: str) -> None:
        """Wait until the service has ended well."""
        assert run("podman", "wait", f"{self.project}_{service}_1").strip() == "0", service

    def once(self, service: str, *command: str) -> str:
        """What a command prints in a new container of a service."""
        return self("run", "--no-deps", "--rm", service, *command)

    def inside(self, service: str, *command: str) -> str:
        return run("podman", "exec", f"{self.project}_{service}_1", *command)

    def python(self, service: str, script: str) -> str:
        return self.inside(service, "python", "-c", script)

    def until(self, service: str, script: str, what: str) -> str:
        """What a Python script prints in a container, as soon as it succeeds."""
        deadline = time.monotonic() + MINUTES * 60
        while True:
            try:
                return self.python(service, script)
            except AssertionError as error:
                if time.monotonic() > deadline:
                    raise AssertionError(f"{what} did not come") from error
                time.sleep(5)

    def events(self, service: str, event: str) -> list[dict[str, Any]]:
        """The lines of JSON that a container wrote of an event. podman keeps its standard error apart from its standard output."""
        command = ["podman", "logs", f"{self.project}_{service}_1"]
        done = subprocess.run(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, check=True)
        lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"time"')]
        return [line for line in lines if line["event"] == event]

    def owned(self) -> None:
        """What the test puts into the folders belongs to the containers' user, as what people put there belongs to them."""
        for place in (self.data, *self.data.rglob("*")):
            os.chown(place, 10001, 10001)

    def kill(self, service: str) -> None:
        """End a container's first process, as a crash or the kernel does; its restart policy is not told."""
        found = run("podman", "inspect", "--format", "{{.State.Pid}}", f"{self.project}_{service}_1")
        os.kill(int(found), 9)

    def ask(self, what: str, content: dict[str, Any] | None = None, method: str | None = None) -> Any:
        """What Prefect's server answers to whoever has its login."""
        login = (self.secrets / "prefect-login").read_text().strip()
        script = (
            "import base64, sys, urllib.request as u;"
            f"r = u.Request('http://127.0.0.1:4200/api/{what}', {json.dumps(content).encode() if content is not None else None!r},"
            " {'content-type': 'application/json', 'authorization': 'Basic ' + base64.b64encode(sys.argv[1].encode()).decode()},"
            f" method={method!r});"
            "print(u.urlopen(r).read().decode() or 'null')"
        )
        return json.loads(self.inside("prefect", "python", "-c", script, login))


def published(folder: Path) -> dict[str, bytes]:
    """The files of a published release."""
    return small_release.tree(folder)


def write_release(compose: Compose, name: str, **changes: Any) -> None:
    """Records of the weeks and a spec of all of them, each below its folder."""
    for seed, week in enumerate(WEEKS):
        table = small_release.records(seed=ord(name[0]) + seed)  # no file is counted twice
        small_release.write(compose.data / "records" / name / week, table=table)
    content = small_release.spec(
        release=f"{name}-{{period}}",
        period="{period}",
        records={"path": f"/data/records/{name}/{{period}}/records.parquet"},
        ledger={"dataset": name, "cap": {"rho": 0.1, "per": "week"}},
        **changes,
    )
    write_spec(compose, name, content)


def write_spec(compose: Compose, name: str, content: dict[str, Any]) -> None:
    """A spec in the folder of specs, from where the measuring service takes it."""
    (compose.data / "specs" / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


def state(installed: Compose, run_id: str, wanted: set[str]) -> str:
    """The state of a run, as soon as it is one of these."""
    deadline, found = time.monotonic() + MINUTES * 60, "unknown"
    while found not in wanted:
        assert time.monotonic() < deadline, f"the run stayed {found}"
        time.sleep(2)
        try:
            found = str(installed.ask(f"flow_runs/{run_id}")["state_type"])
        except AssertionError as error:
            if "HTTP Error 500" not in str(
                error
            ):  # what Prefect's server answers where the machine is too busy for its database
                raise
    return found
