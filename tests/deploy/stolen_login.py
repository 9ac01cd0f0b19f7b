"""What somebody with Prefect's login tries in the container of Prefect's worker, and three ways to get there."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

from tests.deploy.containers import ENDED, MINUTES, Compose, state

PROGRAM = """
import datetime, json, os, pathlib, socket, sys

def tried(work):
    try:
        return work()
    except BaseException as error:
        return type(error).__name__

def taken(place):
    path = pathlib.Path(place)
    return sum(len(each.read_bytes()) for each in path.rglob("*") if each.is_file()) if path.is_dir() else len(path.read_bytes())

def reached(place):
    host, _, port = place.partition(":")
    with socket.create_connection((host, int(port)), timeout=5):
        return "reached"

def replaced(path):
    os.unlink(path)
    socket.socket(socket.AF_UNIX).bind(path)
    return "replaced"

def asked(spec, day):
    from dpdist.plugins.service.service_address import Address
    from dpdist.plugins.service.service_client import RemoteRelease
    list(RemoteRelease(Address.of(os.environ.get("DPDIST_SERVICE") or "unix:/run/dpdist/service.sock"), str(spec), day))
    return "published"

def serving(entry):
    return b"serve" in (entry / "cmdline").read_bytes().split(b"\\0")

def memory():
    (process,) = [entry for entry in pathlib.Path("/proc").glob("[0-9]*") if serving(entry)]
    return len((process / "environ").read_bytes())

SECRETS = ("root-key", "dpdist-url", "dpdist_owner-url", "dpdist_noise-url", "dpdist_metrics-url", "dask-key", "postgres-password")
FOLDERS = ("records", "store", "dpdist", "releases", "prefect")
given, mine, week = pathlib.Path("/data/specs/weekly.yaml"), pathlib.Path("/tmp/mine.yaml"), datetime.date.fromisoformat("{week}")
mine.write_text(given.read_text().replace("0.1", "0.11"))
found = {{
    "files": {{place: tried(lambda place=place: taken(place)) for place in
              [*(f"/run/secrets/{{name}}" for name in SECRETS), *(f"/data/{{name}}" for name in FOLDERS)]}},
    "hosts": {{place: tried(lambda place=place: reached(place)) for place in ("postgres:5432", "scheduler:8786", "metrics:9464")}},
    "changes": {{
        "memory of the service": tried(memory),
        "a spec changed": tried(lambda: given.open("a").close() or "may"),
        "a spec added": tried(lambda: given.with_name("mine.yaml").write_text("")),
        "the socket replaced": tried(lambda: replaced("/run/dpdist/service.sock")) if "DPDIST_SERVICE" in os.environ else "",
    }},
    "asked": {{
        "edited": tried(lambda: asked(mine, week)),
        "another day": tried(lambda: asked(given, week + datetime.timedelta(days=1))),
        "years ago": tried(lambda: asked(given, week - datetime.timedelta(days=7000))),
        "to come": tried(lambda: asked(given, week + datetime.timedelta(days=7000))),
        "no day": tried(lambda: asked(given, None)),
    }},
    "environment": sorted(name for name in os.environ if name.startswith(("DPDIST", "PG", "DASK", "AWS"))),
}}
print(json.dumps(found))
"""
"""Takes what can be had, and prints what it got of each thing: bytes, a word, or the name of the error."""
LOOT = "/tmp/loot-{name}.json"


def check_nothing(loot: dict[str, Any], way: str) -> None:
    """Everything was tried, and nothing was got."""
    assert len(loot["files"]) == 12
    assert loot["files"] == dict.fromkeys(loot["files"], "FileNotFoundError"), way
    assert loot["hosts"] == dict.fromkeys(loot["hosts"], "gaierror"), way  # not even a name
    assert set(loot["changes"].values()) <= {"OSError", "ValueError"}, (way, loot["changes"])  # read-only; no such process
    assert loot["asked"] == dict.fromkeys(loot["asked"], "InvalidSpec"), way
    assert set(loot["environment"]) <= {"DPDIST_DIRECTORY", "DPDIST_HOME", "DPDIST_OUTPUT", "DPDIST_SERVICE"}, way


def by_hand(installed: Compose, week: str) -> dict[str, Any]:
    """What a shell in the worker's container gets."""
    found: dict[str, Any] = json.loads(installed.python("worker", PROGRAM.format(week=week)))
    return found


def by_command(installed: Compose, week: str) -> dict[str, Any]:
    """What the command of a run gets: the closed template gives none a command; the same login opens it."""
    pool = installed.ask("work_pools/dpdist", method="GET")
    (plan,) = [each for each in installed.ask("deployments/filter", {}) if each["name"] == "plan"]
    chosen = {"job_variables": {"command": _shell("closed", week)}, "parameters": {"spec_path": "/data/specs/nothing.yaml"}}
    state(installed, installed.ask(f"deployments/{plan['id']}/create_flow_run", chosen)["id"], ENDED)
    template = pool["base_job_template"]
    variables = template["variables"]
    opened = {
        "job_configuration": {**template["job_configuration"], "command": "{{ command }}"},
        "variables": {**variables, "properties": {**variables["properties"], "command": {"type": "string"}}},
    }
    installed.ask("work_pools/dpdist", {"base_job_template": opened}, "PATCH")
    try:
        chosen["job_variables"] = {"command": _shell("command", week)}
        stolen = installed.ask(f"deployments/{plan['id']}/create_flow_run", chosen)["id"]
        loot = _loot(installed, "command")
        crashed = {"state": {"type": "CRASHED"}, "force": True}  # it told Prefect no end
        installed.ask(f"flow_runs/{stolen}/set_state", crashed)
    finally:
        installed.ask("work_pools/dpdist", {"base_job_template": template}, "PATCH")
    closed = installed.inside("worker", "sh", "-c", f"cat {LOOT.format(name='closed')} 2>/dev/null || echo none")
    assert closed.strip() == "none", "the closed template let a run choose its command"
    return loot


def by_pull_step(installed: Compose, week: str) -> dict[str, Any]:
    """What a deployment of the thief's own gets, by a shell script before its flow."""
    step = {"prefect.deployments.steps.run_shell_script": {"script": _shell("pull", week)}}
    made = {
        "name": "theft",
        "flow_id": installed.ask("flows/", {"name": "theft"})["id"],
        "work_pool_name": "dpdist",
        "pull_steps": [step],
        "path": ".",
        "entrypoint": "theft.py:theft",
    }
    deployment = installed.ask("deployments/", made)["id"]
    installed.ask(f"deployments/{deployment}/create_flow_run", {})
    loot = _loot(installed, "pull")
    installed.ask(f"deployments/{deployment}", method="DELETE")
    return loot


def _shell(name: str, week: str) -> str:
    """A command that runs the program and keeps what it got."""
    place = LOOT.format(name=name)
    program = f"import sys; sys.stdout = open('{place}.part', 'w')\n{PROGRAM.format(week=week)}\nsys.stdout.close()\n"
    program += f"import os; os.rename('{place}.part', '{place}')\n"
    return f"python -c \"import base64; exec(base64.b64decode('{base64.b64encode(program.encode()).decode()}'))\""


def _loot(installed: Compose, name: str) -> dict[str, Any]:
    """What a thief kept, as soon as it has."""
    deadline = time.monotonic() + MINUTES * 60
    while True:
        text = installed.inside("worker", "sh", "-c", f"cat {LOOT.format(name=name)} 2>/dev/null || true")
        if text:
            found: dict[str, Any] = json.loads(text)
            return found
        assert time.monotonic() < deadline, f"the thief {name} never ran"
        time.sleep(2)
