"""The image and deploy/compose.yaml in real containers: make containers.

The installation's schedule releases two weeks, and while the first is released the containers of the worker, of the measuring service and
of the Dask scheduler are killed.

The file is the shipped one, unchanged; this module waits for what its depends_on names, as docker compose does and podman 4.3 cannot.

Needs podman and podman-compose as root, and the images that the shipped files name, or tests/deploy/images/make.sh, which makes stand-ins
of those names from Debian's packages where no registry is reached. The test's output says which images were stand-ins.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy import container_programs, container_rights, stolen_login
from tests.deploy.containers import (
    ENDED,
    IMAGE,
    MINUTES,
    ROOT,
    WEEKS,
    Compose,
    published,
    require_or_skip,
    run,
    state,
    write_release,
    write_spec,
)
from tests.support import small_release

pytestmark = pytest.mark.large

PLANTED = b"planted-secret-5c5c5c5c"
PLACES = (
    "root.key", "deploy/secrets/root.key", "deploy/secrets/postgres-password", "deploy/own.key", "examples/own/root.key",
    "data/records.parquet", "releases/mine/answers.csv", "examples/census/releases/mine/release.json", ".env", "build/demo/ledger.db",
)  # fmt: skip


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh copy of the checkout, with secrets planted where people put them."""
    folder = tmp_path_factory.mktemp("containers") / "dpdist"
    folder.mkdir()
    files = run("git", "ls-files", "-z", cwd=ROOT).split("\0")
    for name in filter(None, files):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    for name in PLACES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(PLANTED)
    return folder


@pytest.fixture(scope="session")
def image(checkout: Path) -> str:
    """The image, built from that checkout."""
    require_or_skip(
        shutil.which("podman") is not None, "needs podman: apt-get install podman buildah runc netavark aardvark-dns"
    )
    for row in container_rights.table("Images"):
        if row["image"] != "dpdist":
            _require_image(f"docker.io/library/{row['image']}")
    run("podman", "build", "--network", "host", "--tag", IMAGE, "--file", "deploy/Dockerfile", ".", cwd=checkout)
    return IMAGE


def _require_image(name: str) -> None:
    """Fails or skips where an image is missing; says whether it is a stand-in."""
    inspection = subprocess.run(
        ["podman", "image", "inspect", "--format", '{{index .Labels "dpdist.stand-in"}}', name],
        capture_output=True,
        text=True,
        check=False,
    )
    require_or_skip(
        inspection.returncode == 0, f"needs the image {name}: podman pull it, or run tests/deploy/images/make.sh"
    )
    print(
        f"{name} is {'a stand-in of Debian packages' if inspection.stdout.strip() == 'true' else 'the image of that name'}"
    )


def test_planted_secrets_are_not_in_the_image(image: str, tmp_path: Path) -> None:
    """Every file of every layer is read."""
    archive = tmp_path / "image.tar"
    run("podman", "save", "--format", "docker-archive", "--output", str(archive), image)
    read = 0
    with tarfile.open(archive) as layers:
        for layer in layers:
            if not layer.name.endswith(".tar") or not layer.isfile():
                continue
            with tarfile.open(fileobj=layers.extractfile(layer)) as files:
                for file in files:
                    content = files.extractfile(file) if file.isfile() else None
                    assert not any(file.name.endswith(f"app/{place}") for place in PLACES), file.name
                    if content is not None:
                        read += 1
                        assert file.size > 2**20 or PLANTED not in content.read(), file.name
    assert read > 5000  # of the packages alone


def test_limits_of_a_container_are_seen(image: str) -> None:
    says = "from dpdist.process import resource_limits; print(resource_limits.cores(), resource_limits.memory_bytes())"
    assert run("podman", "run", "--rm", "--cpus", "0.5", "--memory", "1g", image, "python", "-c", says).split() == [
        "1",
        str(2**30),
    ]


def test_the_image_runs_as_nobody_in_particular(image: str) -> None:
    """With a read-only root and without capabilities, it publishes a release into /data."""
    options = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--volume", "/data", "--env", "DPDIST_ENGINE=inline"]
    script = "id -u; dpdist keys init && dpdist run examples/census/release.yaml >/dev/null && ls /data/releases"
    said = run("podman", "run", "--rm", *options, image, "sh", "-c", script).split()
    assert said[0] == "10001"
    assert "census" in said[-1]


def test_another_user_reaches_its_own_folders(image: str, tmp_path: Path) -> None:
    """As in compose, where containers run as whoever made the secrets."""
    specs = tmp_path / "specs"
    specs.mkdir(mode=0o700)
    (specs / "a.yaml").touch()
    for path in (specs, specs / "a.yaml"):
        os.chown(path, 1234, 1234)
    options = ["--user", "1234:1234", "--read-only", "--volume", f"{specs}:/data/specs:ro"]
    assert run("podman", "run", "--rm", *options, image, "ls", "/data/specs").split() == ["a.yaml"]


@pytest.fixture(scope="session")
def installed(checkout: Path, image: str) -> Iterator[Compose]:
    """Everything of the compose file, up."""
    require_or_skip(shutil.which("podman-compose") is not None, "needs podman-compose: pip install podman-compose")
    compose = Compose(checkout, image)
    shutil.copy2(checkout / "deploy" / "prefect.yaml", compose.data / "specs" / "prefect.yaml")
    write_release(compose, "weekly")
    compose.owned()
    try:
        for service, content in compose.services.items():
            if "profiles" not in content:
                compose.start(service)
        yield compose
    finally:
        if os.environ.get("DPDIST_TEST_KEEP") is None:
            # 'down' leaves the second of two noise workers, and it starts again and again
            drawers = run("podman", "ps", "--all", "--quiet", "--filter", f"name={compose.project}_dask-noise").split()
            if drawers:
                run("podman", "rm", "--force", "--time", "0", *drawers)
            compose("down", "--volumes")
        for port in compose.ports:
            port.release()


def test_compose_runs_as_its_header_says(installed: Compose) -> None:
    """UI and API ask for the login, the deployments are registered, the roles are apart, and the worker publishes."""
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:4200/').status)"
    assert installed.until("prefect", ask, "Prefect's UI").strip() == "200"
    refused = (
        "import urllib.request as u, urllib.error\n"
        "try:\n    u.urlopen(u.Request('http://127.0.0.1:4200/api/flows/filter', b'{}', {'content-type': 'application/json'}))\n"
        "except urllib.error.HTTPError as error:\n    print(error.code)"
    )
    assert installed.python("prefect", refused).strip() == "401"
    deadline = time.monotonic() + MINUTES * 60
    while len(found := installed.ask("deployments/filter", {})) < 3:
        assert time.monotonic() < deadline, f"registered were {[deployment['name'] for deployment in found]}"
        time.sleep(5)
    assert {deployment["name"] for deployment in found} == {"weekly", "backfill", "plan"}
    (plan,) = [deployment for deployment in found if deployment["name"] == "plan"]
    asked = {"parameters": {"spec_path": "/data/specs/weekly.yaml", "period": WEEKS[0]}}
    planned = installed.ask(f"deployments/{plan['id']}/create_flow_run", asked)["id"]
    assert state(installed, planned, ENDED) == "COMPLETED"  # without key, ledger and records
    check = "import subprocess, sys; sys.exit(subprocess.run(['python', 'deploy/check.py']).returncode)"
    assert "a second run charged nothing" in installed.until("service", check, "a release")
    refused = (
        "import os, sqlalchemy as sa; url = open('/run/secrets/dpdist-url').read().strip();"
        "engine = sa.create_engine(url)\n"
        "for statement in ('DELETE FROM dpdist_rows', \"UPDATE dpdist_caps SET facts = ''\"):\n"
        "    try:\n        engine.connect().execute(sa.text(statement)); print('done')\n"
        "    except sa.exc.ProgrammingError as error:\n        print(error.orig.sqlstate)\n"
    )
    assert installed.python("service", refused).split() == ["42501", "42501"]


def test_each_container_may_do_what_the_documentation_says(installed: Compose) -> None:
    """Every cell of the table of rights is tried from within: read a file, write one, read the root key."""
    installed.start("dask-noise", "--scale", "dask-noise=2")
    for place in container_rights.OUTSIDE.values():
        (installed.data / place / "probe").write_text("probe")
    installed.owned()
    found = {}
    for name, service in installed.services.items():
        script = container_programs.ATTEMPTS.format(places=" ".join(container_rights.PLACES.values()), name=name)
        tried = installed.inside if service["restart"] == "unless-stopped" else installed.once
        found[name] = dict(
            zip([*container_rights.PLACES, container_rights.KEY], tried(name, "sh", "-c", script).split(), strict=True)
        )
    documented = {name: {**row} for name, row in container_rights.documented_rights().items()}
    logins = {name: row.pop(container_rights.LOGIN) for name, row in documented.items()}
    assert found == documented
    assert {name for name, login in logins.items() if login == "dpdist_owner"} == {"ledger"}


def test_one_of_several_containers_writes_a_name_first(installed: Compose) -> None:
    """The shared folder gives what a store must: of three containers that write the same 300 documents at once, one wins each."""
    writers = ["service_1", "dask-worker_1", "dask-optimiser_1"]
    script = container_programs.RACE.format(start=time.time() + 15)
    running = {
        name: subprocess.Popen(
            ["podman", "exec", f"{installed.project}_{name}", "python", "-c", script, name],
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in writers
    }
    won = {name: process.communicate(timeout=MINUTES * 60)[0].split() for name, process in running.items()}
    print("documents won:", {name: len(numbers) for name, numbers in won.items()})
    assert sorted(int(number) for numbers in won.values() for number in numbers) == list(range(300))
    assert sum(bool(numbers) for numbers in won.values()) >= 2  # they were at it at the same time
    read = "from dpdist.storage.documents import Documents; d = Documents('/data/store')\n" + (
        "print(*(d.read_document(f'scratch/race/{n}.json')['by'] for n in range(300)))"
    )
    by = installed.python("dask-worker", read).split()
    assert {name: [str(n) for n, each in enumerate(by) if each == name] for name in writers} == won


def test_services_are_healthy_and_reach_the_database_by_tls_only(installed: Compose) -> None:
    for name, service in installed.services.items():
        if "healthcheck" in service and "profiles" not in service:
            installed.service_healthy(name)
    attempt = (
        "import psycopg, sys; url = open('/run/secrets/dpdist-url').read().strip().replace('+psycopg', '')\n"
        "try:\n    psycopg.connect(url + sys.argv[1]).close(); print('reached')\n"
        "except psycopg.OperationalError as error:\n    print(error)"
    )
    assert "no encryption" in installed.inside("service", "python", "-c", attempt, "?sslmode=disable")
    other = "?sslrootcert=/run/secrets/dask-certificate"
    assert "certificate verify failed" in installed.inside("service", "python", "-c", attempt, other)
    assert installed.inside("service", "python", "-c", attempt, "").strip() == "reached"
    asked = "SELECT count(*) FILTER (WHERE ssl), count(*) FILTER (WHERE NOT ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
    command = ["psql", "-U", "postgres", "-At", "-c", asked + "WHERE client_addr IS NOT NULL"]
    encrypted, plain = installed.inside("postgres", *command).strip().split("|")
    assert int(encrypted) > 0
    assert plain == "0"


def test_noise_workers_in_containers_of_their_own(installed: Compose) -> None:
    """They alone of the Dask workers mount the root key, read-only, and a login that charges nothing; they draw the flow's own bytes."""
    small_release.write(installed.data / "records" / "noise", table=small_release.records(seed=77))
    content = small_release.spec(
        release="noise-1",
        mechanism="identity",
        records={"path": "../records/noise/records.parquet"},
        ledger={"dataset": "noise", "cap": {"rho": 0.25}},
    )
    write_spec(installed, "noise", content)
    installed.owned()
    installed.start("dask-noise", "--scale", "dask-noise=2")
    installed.once("ledger", "dpdist", "ledger", "declare", "/data/specs/noise.yaml")
    said = json.loads(
        installed.until("service", container_programs.DRAWN_BY_WORKERS, "a release with noise by workers").splitlines()[-1]
    )
    assert said["drawers"] == 2
    assert said["same"]
    assert "measure: 5 of 5 parts drawn by workers" in said["told"]
    assert not [line for line in said["told"] if line.startswith("warning")]

    mounted = {
        service: set(installed.inside(service, "ls", "/run/secrets").split())
        for service in ("dask-worker", "dask-optimiser", "scheduler", "dask-noise")
    }
    assert mounted.pop("dask-noise") == {
        "root-key",
        "dpdist_noise-url",
        "postgres-certificate",
        "dask-certificate",
        "dask-key",
    }
    assert all(names == {"dask-certificate", "dask-key"} for names in mounted.values())
    overwrite = "echo other > /run/secrets/root-key || echo refused"
    assert installed.inside("dask-noise", "sh", "-c", overwrite).split() == ["refused"]
    charge = (
        "import sqlalchemy as sa; engine = sa.create_engine(open('/run/secrets/dpdist_noise-url').read().strip())\n"
        "print(engine.connect().execute(sa.text('SELECT count(*) FROM dpdist_salts')).scalar())\n"
        "for statement in ('DELETE FROM dpdist_salts', 'INSERT INTO dpdist_rows SELECT * FROM dpdist_rows', 'DELETE FROM dpdist_rows'):\n"
        "    try:\n        engine.connect().execute(sa.text(statement)); print('done')\n"
        "    except sa.exc.ProgrammingError as error:\n        print(error.orig.sqlstate)\n"
    )
    assert installed.python("dask-noise", charge).split() == ["0", "42501", "42501", "42501"]
    refused, nobody = installed.python("service", container_programs.WITHOUT_TLS).splitlines()
    assert "is not reached by TLS" in refused
    assert nobody == "nobody answers"
    key = (installed.secrets / "root.key").read_text().strip()
    for service in ("dask-worker", "dask-noise", "scheduler", "service", "worker"):
        name = f"{installed.project}_{service}_1"
        logs = subprocess.run(
            ["podman", "logs", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
        )
        assert key not in logs.stdout
        assert key not in run("podman", "inspect", name)


def test_prefect_s_login_gets_nothing(installed: Compose) -> None:
    """From within the worker's container, by a run's command and by a pull step: no key, ledger, record, store or spec of one's own."""
    for way in (stolen_login.by_hand, stolen_login.by_command, stolen_login.by_pull_step):
        stolen_login.check_nothing(way(installed, WEEKS[0]), way.__name__)
    everything = json.loads(installed.python("service", stolen_login.PROGRAM.format(week=WEEKS[0])))
    assert everything["files"]["/run/secrets/root-key"] > 0  # the same program finds what is there
    assert everything["hosts"]["postgres:5432"] == "reached"


def test_scheduled_weeks_come_though_containers_are_killed(installed: Compose) -> None:
    """The first week's run is killed with worker, service and Dask scheduler; both weeks are published, and charged once each."""
    installed.once("ledger", "dpdist", "ledger", "declare", "/data/specs/weekly.yaml", "--period", WEEKS[0])
    (weekly,) = [found for found in installed.ask("deployments/filter", {}) if found["name"] == "weekly"]
    runs = []
    for week in WEEKS:
        monday = datetime.date.fromisoformat(week) + datetime.timedelta(days=7)
        scheduled = {"type": "SCHEDULED", "state_details": {"scheduled_time": f"{monday}T03:30:00Z"}}
        content = {
            "state": scheduled,
            "parameters": {**weekly["parameters"], "spec_path": "/data/specs/weekly.yaml"},
        }
        runs.append(installed.ask(f"deployments/{weekly['id']}/create_flow_run", content)["id"])
        if len(runs) == 1:
            state(installed, runs[0], {"RUNNING"})
            for service in ("worker", "service", "scheduler"):
                installed.kill(service)
    assert state(installed, runs[1], ENDED) == "COMPLETED"
    assert state(installed, runs[0], ENDED) == "CRASHED"
    before = {week: published(installed.data / "releases" / f"weekly-{week}") for week in WEEKS}
    for week, files in before.items():
        assert {"answers.csv", "index.html"} <= files.keys()
        again = ["dpdist", "run", "/data/specs/weekly.yaml", "--period", week, "--json", "--quiet"]
        assert json.loads(installed.inside("worker", *again))["charged"] is False
        assert published(installed.data / "releases" / f"weekly-{week}") == files
    budgets = (
        "from dpdist.storage import home_folder; from dpdist.privacy.ledger.budget_ledger import open_ledger\n"
        "with open_ledger(home_folder.state_folder()) as ledger:\n"
        "    print(*[charge for b in ledger.budgets('weekly', charges=True) for charge in b.charges])"
    )
    assert installed.python("service", budgets).split() == [f"weekly-{week}" for week in WEEKS]
    assert installed.inside("service", "dpdist", "ledger", "verify")
    scrape = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9464/metrics').read().decode())"
    metrics = installed.python("metrics", scrape)
    charging = (
        "import sqlalchemy as sa; engine = sa.create_engine(open('/run/secrets/dpdist_metrics-url').read().strip())\n"
        "try:\n    engine.connect().execute(sa.text('INSERT INTO dpdist_rows SELECT * FROM dpdist_rows')); print('done')\n"
        "except sa.exc.ProgrammingError as error:\n    print(error.orig.sqlstate)\n"
    )
    assert installed.python("metrics", charging).split() == ["42501"]
    for line in (
        'dpdist_releases{dataset="weekly",state="committed"} 2.0',
        'dpdist_periods_missing{dataset="weekly"}',
        'dpdist_dask_certificate_end_timestamp_seconds{certificate="ca-file"} 1',  # not 0: it can read it
    ):
        assert line in metrics
    assert {line["release"] for line in installed.events("service", "published")} >= {f"weekly-{week}" for week in WEEKS}
