"""The image and deploy/compose.yaml in real containers: make containers.

Needs podman and podman-compose as root, and the images python:3.11-slim and postgres:16, or tests/deploy/images/make.sh, which makes
stand-ins from Debian's packages where no registry is reached.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import HeldPort

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
REQUIRED = "DPDIST_TEST_CONTAINERS"
"""Set to 'required' where missing containers must fail the tests instead of skipping them (make containers does)."""
IMAGE = "localhost/dpdist-test"
MINUTES = 30
PLANTED = b"planted-secret-5c5c5c5c"
PLACES = (
    "root.key", "deploy/secrets/root.key", "deploy/secrets/postgres-password", "deploy/own.key", "examples/own/root.key",
    "data/records.parquet", "releases/mine/answers.csv", "examples/census/releases/mine/release.json", ".env", "build/demo/ledger.db",
)  # fmt: skip


def run(*command: str, cwd: Path | None = None, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=MINUTES * 60
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def needed(found: bool, reason: str) -> None:
    if found:
        return
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(f"containers are required here: {reason}")
    pytest.skip(reason)


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
    needed(shutil.which("podman") is not None, "needs podman: apt-get install podman buildah runc netavark aardvark-dns")
    base = (
        subprocess.run(["podman", "image", "exists", "python:3.11-slim"], capture_output=True, check=False).returncode == 0
    )
    needed(base, "needs the image python:3.11-slim: podman pull it, or run tests/deploy/images/make.sh")
    run("podman", "build", "--network", "host", "--tag", IMAGE, "--file", "deploy/Dockerfile", ".", cwd=checkout)
    return IMAGE


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
    says = "from dpdist import limits; print(limits.cores(), limits.memory_bytes())"
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


class Compose:
    """deploy/compose.yaml as its header says, from a fresh copy of the checkout."""

    def __init__(self, checkout: Path, image: str) -> None:
        self.folder, self.secrets, self.port = checkout, checkout.parent / "secrets", HeldPort()
        run("deploy/secrets.sh", str(self.secrets), cwd=checkout)
        data = checkout / "data"
        for place in (data, *data.rglob("*")):
            os.chown(place, 10001, 10001)
        self.environment = {**os.environ, "DPDIST_IMAGE": image, "PREFECT_PORT": str(self.port.number)}
        self.project = f"dpdist-test-{os.getpid()}"

    def __call__(self, *arguments: str) -> str:
        files = ["-f", "deploy/compose.yaml", "-f", "tests/deploy/compose.test.yaml"]
        command = ["podman-compose", "--env-file", str(self.secrets / "env"), "-p", self.project, *files, *arguments]
        return run(*command, cwd=self.folder, environment=self.environment)

    def inside(self, service: str, *command: str) -> str:
        return run("podman", "exec", f"{self.project}_{service}_1", *command)

    def until(self, service: str, script: str, what: str) -> str:
        """What a Python script prints in a container, as soon as it succeeds."""
        deadline = time.monotonic() + MINUTES * 60
        while True:
            try:
                return self.inside(service, "python", "-c", script)
            except AssertionError as error:
                if time.monotonic() > deadline:
                    raise AssertionError(f"{what} did not come") from error
                time.sleep(5)


@pytest.fixture(scope="session")
def installed(checkout: Path, image: str) -> Iterator[Compose]:
    """Everything of the compose file, up."""
    needed(shutil.which("podman-compose") is not None, "needs podman-compose: pip install podman-compose")
    database = subprocess.run(["podman", "image", "exists", "postgres:16"], capture_output=True, check=False).returncode == 0
    needed(database, "needs the image postgres:16: podman pull it, or run tests/deploy/images/make.sh")
    store = [
        "--build-arg",
        f"BASE={image}",
        "--tag",
        "localhost/dpdist-test-store",
        "--file",
        "tests/deploy/images/store.Dockerfile",
    ]
    run("podman", "build", "--network", "host", *store, "tests/deploy/images", cwd=checkout)
    compose = Compose(checkout, image)
    try:
        compose("up", "--detach", "--no-build")
        yield compose
    finally:
        compose("down", "--volumes")
        compose.port.release()


def test_compose_runs_as_its_header_says(installed: Compose) -> None:
    """UI and API ask for the login, the deployments are registered, the roles are apart, and the worker publishes."""
    port = "http://127.0.0.1:4200"
    ask = f"import urllib.request as u; print(u.urlopen('{port}/').status)"
    assert installed.until("prefect", ask, "Prefect's UI").strip() in ("200", "")
    login = (installed.secrets / "prefect-login").read_text().strip()
    registered = (
        "import base64, json, urllib.request as u;"
        f"r = u.Request('{port}/api/deployments/filter', b'{{}}', {{'content-type': 'application/json',"
        f" 'authorization': 'Basic ' + base64.b64encode(b'{login}').decode()}});"
        "names = sorted(d['name'] for d in json.load(u.urlopen(r))); assert len(names) == 6; print(*names)"
    )
    assert "weekly" in installed.until("prefect", registered, "the deployments")
    check = "import subprocess, sys; sys.exit(subprocess.run(['python', 'deploy/check.py']).returncode)"
    assert "a second run charged nothing" in installed.until("worker", check, "a release")
    refused = (
        "import os, sqlalchemy as sa; url = open('/run/secrets/dpdist-url').read().strip();"
        "engine = sa.create_engine(url)\n"
        "for statement in ('DELETE FROM dpdist_rows', \"UPDATE dpdist_caps SET facts = ''\"):\n"
        "    try:\n        engine.connect().execute(sa.text(statement)); print('done')\n"
        "    except sa.exc.ProgrammingError as error:\n        print(error.orig.sqlstate)\n"
    )
    assert installed.inside("worker", "python", "-c", refused).split() == ["42501", "42501"]
