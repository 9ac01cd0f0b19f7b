"""Deployment files: entry points exist, parameters fit, compose parses, the image's steps run."""

from __future__ import annotations

import datetime
import fnmatch
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.spec import load
from flows.periods import last_complete, periods
from tests import HANGS
from tests.deploy import container_rights
from tests.support import forked_programs

ROOT = Path(__file__).parents[2]
FLOWS = """
import json, sys
sys.path.insert(0, ".")
from pathlib import Path
from flows.prefect import prefect_settings
prefect_settings.configure(Path(sys.argv[1]))
import importlib
out = {}
for entry in sys.argv[2:]:
    module, name = entry.split(":")
    found = getattr(importlib.import_module(module.removesuffix(".py").replace("/", ".")), name)
    schema = found.parameters.model_dump()
    out[entry] = {"properties": sorted(schema["properties"]), "required": schema["required"] or [],
                  "described": sorted(k for k, v in schema["properties"].items() if v.get("description"))}
print(json.dumps(out))
"""


def deployments() -> list[dict[str, Any]]:
    return list(yaml.safe_load((ROOT / "deploy" / "prefect.yaml").read_text())["deployments"])


def test_entry_points_and_parameters(tmp_path: Path) -> None:
    """Every deployment's flow is importable, takes its parameters, and describes all of them: they are a form in the UI."""
    entries = [deployment["entrypoint"] for deployment in deployments()]
    done = forked_programs.finished(FLOWS, tmp_path, *entries, folder=ROOT)
    assert done.returncode == 0, done.stderr
    found = yaml.safe_load(done.stdout.splitlines()[-1])
    assert {"release", "backfill", "plan"} == {e.split(":")[1] for e in entries}  # what a worker without a key can run
    for deployment in deployments():
        schema = found[deployment["entrypoint"]]
        assert schema["described"] == schema["properties"], deployment["name"]
        given = deployment.get("parameters", {})
        assert set(given) <= set(schema["properties"])
        if given:
            assert set(schema["required"]) <= set(given)
            assert load(ROOT / given["spec_path"], period=datetime.date(2011, 6, 6)).release == "rentals-2011-06-06"


def test_compose_fits_the_image_and_itself() -> None:
    content = container_rights.compose()
    services = content["services"]
    for name, service in services.items():
        assert set(service.get("depends_on", {})) <= set(services), name
        assert set(service.get("secrets", [])) <= set(content["secrets"]), name
        for volume in service.get("volumes", []):
            assert volume.startswith(("${DPDIST_DATA", "./")) or volume.split(":")[0] in content["volumes"], volume
        environment = service.get("environment", {})
        for key, value in environment.items():
            if "PASSWORD" in key or key.endswith("_KEY"):
                assert value.startswith("/run/secrets"), key
    ours = [s for s in services.values() if "DPDIST_IMAGE" in s.get("image", "")]
    assert len(ours) == 10
    assert all(service["user"].startswith("${DPDIST_USER") for service in (*ours, services["postgres"]))
    assert all(service["read_only"] and service["cap_drop"] == ["ALL"] for service in ours)
    assert not [
        name for name, service in services.items() if "deploy" in service
    ]  # 'podman-compose down' removes one replica
    assert services["dask-noise"]["profiles"] == ["noise"]  # for whoever asks for it
    for name in ("scheduler", "dask-worker", "dask-optimiser", "dask-noise", "service"):
        environment = services[name]["environment"]
        assert environment["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "true"
        assert {"dask-certificate", "dask-key"} <= set(services[name]["secrets"])
    assert not re.search("tcp://", yaml.safe_dump(services))
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_containers_may_do_what_the_documentation_says() -> None:
    """The table of rights, from the mounts of the file. Only what ends may raise a cap; of what runs on, only what draws sees the key."""
    documented, given = container_rights.documented_rights(), container_rights.granted_rights()
    assert documented == given
    assert [name for name, found in given.items() if found[container_rights.LOGIN] == "dpdist_owner"] == ["ledger"]
    assert {name for name, found in given.items() if found[container_rights.KEY] == "read"} == {
        "ledger",
        "dask-noise",
        "service",
    }
    for column in ("specs", "records"):
        assert "write" not in {found[column] for found in given.values()}
    assert [name for name, found in given.items() if found["releases"] != "-"] == ["service"]


def test_what_prefect_commands_has_nothing_to_take() -> None:
    """Its worker and the job that registers: a login of Prefect, the specs and a socket to ask at, on a network where only Prefect is."""
    services = container_rights.compose()["services"]
    on_its_network = {name for name, service in services.items() if "prefect" in service.get("networks", [])}
    assert on_its_network == {"worker", "register", "prefect"}
    assert services["worker"]["networks"] == services["register"]["networks"] == ["prefect"]
    for name in ("worker", "register"):
        assert services[name]["secrets"] == ["prefect-login"]
        assert all(volume.endswith(":ro") for volume in services[name]["volumes"])
    assert {column for column, right in container_rights.granted_rights()["worker"].items() if right != "-"} == {
        "specs",
        "service's socket",
    }
    environment = services["worker"]["environment"]
    assert environment["DPDIST_SERVICE"] == "unix:/run/dpdist/service.sock"
    assert environment["DPDIST_SERVICE"] in services["service"]["command"]
    assert not {"DPDIST_ROOT_KEY_FILE", "DPDIST_LEDGER_FILE", "DPDIST_STORE", "DPDIST_ENGINE"} & environment.keys()


def test_every_image_is_vouched_for() -> None:
    """The documentation names each image of a shipped file, all of them by a digest or a full version; the container test can make each."""
    services = container_rights.compose()["services"]
    named = {service["image"] for service in services.values() if "build" not in service}
    named |= set(re.findall(r"^FROM (\S+)", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE))
    values = yaml.safe_load((ROOT / "helm" / "dpdist" / "values.yaml").read_text())
    named.add(values["ledger"]["embedded"]["image"])
    assert named | {values["image"]["repository"]} == {row["image"] for row in container_rights.table("Images")}
    for image in named:
        assert re.search(r"@sha256:[0-9a-f]{64}$|:\d+\.\d+(\.\d+)?-[a-z-]+$", image), image
    stand_ins = (ROOT / "tests" / "deploy" / "images" / "stand-ins.txt").read_text().splitlines()
    assert named == {line.split()[0] for line in stand_ins}


def test_what_runs_on_has_a_health_check() -> None:
    """A service without one is one that ends, and that nothing has to wait for until it is healthy."""
    services = container_rights.compose()["services"]
    assert {name for name, service in services.items() if "healthcheck" not in service} == {"ledger", "register"}
    assert all(services[name]["restart"] == "on-failure" for name in ("ledger", "register"))
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            ends = "healthcheck" not in services[other]
            assert how["condition"] == ("service_completed_successfully" if ends else "service_healthy"), name


def test_the_database_is_reached_by_tls_only() -> None:
    """Every service with a login checks the database's certificate, and the database takes nobody from outside without TLS."""
    services = container_rights.compose()["services"]
    logins = [name for name, service in services.items() if any(s.endswith("-url") for s in service.get("secrets", []))]
    assert len(logins) == 5
    for name in logins:
        assert services[name]["environment"]["PGSSLMODE"] == "verify-full", name
        assert services[name]["environment"]["PGSSLROOTCERT"] == "/run/secrets/postgres-certificate"
        assert "postgres-certificate" in services[name]["secrets"]
    assert [name for name, service in services.items() if "postgres-key" in service.get("secrets", [])] == ["postgres"]
    assert "ssl=on" in services["postgres"]["command"]
    rules = [line.split() for line in (ROOT / "deploy" / "pg_hba.conf").read_text().splitlines() if not line.startswith("#")]
    assert [(rule[0], rule[-1]) for rule in rules] == [("local", "trust"), ("hostssl", "scram-sha-256")]


def sent_to_the_builder(path: str) -> bool:
    """Whether the build context holds a path of the checkout: the last pattern of .dockerignore that matches it or a folder above it."""
    places = [str(place) for place in (Path(path), *Path(path).parents)]
    sent = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!")
        names = [Path(place).name for place in places] if pattern.startswith("**/") else places
        if any(fnmatch.fnmatch(name, pattern.removeprefix("**/")) for name in names):
            sent = line.startswith("!")
    return sent


@pytest.mark.parametrize(
    "path",
    [
        "deploy/secrets/root.key", "deploy/secrets/postgres-password", "root.key", "examples/own/root.key", "data/records.parquet",
        "releases/small/answers.csv", "examples/census/releases/a/release.json", ".git/config", ".venv/bin/python", "build/demo/ledger.db",
    ],
)  # fmt: skip
def test_secrets_and_records_beside_the_code_do_not_reach_the_image(path: str) -> None:
    assert not sent_to_the_builder(path)


def test_the_image_copies_named_files_only() -> None:
    """A folder that a user may put secrets into is never copied whole, and all that is copied reaches the builder."""
    copies = re.findall(r"^COPY (?!--from)(.*) \S+$", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
    sources = [source for copy in copies for source in copy.split()]
    assert set(sources) >= {"dpdist", "flows", "pyproject.toml"}
    assert "deploy" not in sources
    assert all(sent_to_the_builder(source) and (ROOT / source).exists() for source in sources)


@pytest.mark.slow
def test_the_image_s_steps_run(tmp_path: Path) -> None:
    """The Dockerfile's install step in a fresh virtual environment, from the files that it copies; the command works there."""
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    copied = re.search(r"COPY (pyproject.*) \./", text).group(1).split()
    build = tmp_path / "build"
    build.mkdir()
    for name in [*copied, "dpdist", "flows", "deploy", "examples"]:
        subprocess.run(["cp", "-r", str(ROOT / name), str(build)], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    pip = [tmp_path / "venv" / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    steps = re.findall(r"^ && pip --python \S+ install --no-cache-dir --no-compile (.*) \\$", text, re.MULTILINE)
    assert len(steps) == 2
    for step in steps:
        subprocess.run([*pip, *step.split()], cwd=build, check=True, timeout=HANGS)
    size = subprocess.run(["du", "-sm", str(tmp_path / "venv")], capture_output=True, text=True, check=True).stdout.split()[
        0
    ]
    print(f"the installed environment takes {size} MiB")
    environment = {
        "PATH": f"{tmp_path}/venv/bin:{os.environ['PATH']}",
        "DPDIST_HOME": str(tmp_path / "home"),
        "DPDIST_ENGINE": "inline",
    }
    for command in (["dpdist", "keys", "init"], ["python", "deploy/check.py"]):
        done = subprocess.run(
            command, cwd=build, env=environment, capture_output=True, text=True, check=False, timeout=HANGS
        )
        assert done.returncode == 0, done.stderr
    assert "a second run charged nothing" in done.stdout
    assert "USER 10001:10001" in text


def test_the_check_of_an_installation(home: Path) -> None:
    """What 'helm test' runs, here: one release, charged once."""
    done = forked_programs.finished(str(ROOT / "deploy" / "check.py"), DPDIST_HOME=str(home), DPDIST_ENGINE="inline")
    assert done.returncode == 0, done.stderr
    assert "key, ledger, store and cluster work" in done.stdout


def test_the_exporter_leaves_the_state_folder_alone(tmp_path: Path) -> None:
    """Its container sees what runs wrote down, read-only, in a folder that is not its own."""
    environment = {
        "DPDIST_HOME": str(tmp_path / "home"),
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "DPDIST_LEDGER": f"sqlite:///{tmp_path}/ledger.db",
    }
    done = forked_programs.finished("flows.commands.cli", "metrics", folder=ROOT, **environment)
    assert done.returncode == 0, done.stderr
    assert "dpdist_ledger_up" in done.stdout
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("moment", "every", "expected"),
    [
        ("2026-11-21T03:30", "day", "2026-11-20"),
        ("2026-11-21T00:00", "day", "2026-11-20"),
        ("2026-11-23T03:30", "week", "2026-11-16"),  # a Monday
        ("2026-11-22T23:59", "week", "2026-11-09"),  # the Sunday before: its week is not over
        ("2026-03-01T00:00", "month", "2026-02-01"),
        ("2026-01-15T12:00", "month", "2025-12-01"),
    ],
)
def test_the_last_period_that_was_over(moment: str, every: Any, expected: str) -> None:
    assert last_complete(datetime.datetime.fromisoformat(moment), every) == datetime.date.fromisoformat(expected)


def test_periods_in_a_range() -> None:
    first, last = datetime.date(2025, 12, 30), datetime.date(2026, 3, 2)
    assert [d.isoformat() for d in periods(first, last, "month")] == ["2025-12-01", "2026-01-01", "2026-02-01", "2026-03-01"]
    assert len(list(periods(first, last, "week"))) == 10
    assert len(list(periods(first, last, "day"))) == 63
    with pytest.raises(InvalidInput, match="the first must not be later than the last"):
        list(periods(last, first, "day"))


def test_specs_of_many_periods() -> None:
    path = ROOT / "examples" / "periodic" / "release.yaml"
    with pytest.raises(InvalidSpec, match="the spec is for many periods .{period}.; say which: --period"):
        load(path)
    spec = load(path, period=datetime.date(2011, 6, 13))
    assert (spec.release, spec.guarantee.period, Path(spec.source.path).name) == (
        "rentals-2011-06-13",
        datetime.date(2011, 6, 13),
        "2011-06-13.parquet",
    )
    single = ROOT / "examples" / "census" / "release.yaml"
    with pytest.raises(InvalidSpec, match="the spec is for the period .*, asked for 2011-06-13"):
        load(single, period=datetime.date(2011, 6, 13))
    assert inspect.isfunction(importlib.import_module("flows.periods").start_of)
