"""The wheel on every Python that dpdist says it runs on: installed with the versions that its ranges allow, it publishes releases."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import pytest

from tests import HANGS

ROOT = Path(__file__).parents[1]
MINORS = (11, 12, 13, 14)
Versions = Literal["newest", "lowest", "constraints"]
OPTIONS: dict[Versions, tuple[str, ...]] = {
    "newest": (),
    "lowest": ("--resolution", "lowest-direct"),
    "constraints": ("--constraint", str(ROOT / "constraints.txt")),
}
INSTALLS_SECONDS = 10 * HANGS

RELEASES = """
import json, pathlib, sys
import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import dpdist as dp
from dpdist.privacy import keys
from dpdist.release import extent

every = sys.argv[1] == "every"
keys.initialise(pathlib.Path("home").resolve())
state = np.random.default_rng(0)
names = np.repeat([f"town {number}" for number in range(20)], 30)
records = pa.table({
    "age": state.integers(0, 12, 600), "sex": state.choice(["f", "m"], 600), "town": names, "paid": state.integers(0, 100, 600),
})
domain = {"age": {"from": 0, "to": 11}, "sex": {"categories": ["f", "m"]}}
asked = [{"marginals": {"ways": [1, 2]}}, {"cdf": {"of": "age", "by": ["sex"]}}]
rho, epsilon = {"rho": 0.1}, {"epsilon": 1}
towns = {"town": {"categories": "private", "selection": {"share": 0.2, "delta": 1e-6, "most": 70}, "other": "elsewhere"}}
steps = [{"filters": {"of": "age", "by": ["sex"], "apply": [{"running_sum": True}]}}]
kinds = {
    "counts": {"domain": domain, "workload": asked, "budget": rho},
    "pure": {"domain": domain, "workload": asked, "budget": epsilon},
    "processes": {"domain": domain, "workload": asked, "budget": rho},
    "series": {"domain": domain, "workload": steps, "budget": rho},
    "stream": {"domain": domain, "workload": steps, "budget": rho, "stream": {"name": "ages", "through": 5}},
    "sums": {
        "domain": domain, "sums": {"paid": {"from": 0, "to": 99}}, "budget": rho,
        "workload": [*asked, {"marginals": {"ways": [1]}, "mean": "paid"}],
    },
    "names": {"domain": {**towns, "sex": domain["sex"]}, "workload": [{"marginals": {"ways": [1, 2]}}], "budget": rho},
}
done = {}
for kind in kinds if every else ["counts"]:
    content = kinds[kind]
    cap = {"epsilon": 2} if content["budget"] is epsilon else {"rho": 0.3, **({"selection": 1e-6} if kind == "names" else {})}
    spec = {"release": kind, **content, "ledger": {"dataset": kind, "cap": cap, "shared_records": True}}
    if kind == "processes":
        extent.RECORD_BYTES = -1  # as if there were many
    given = records.filter(compute.less_equal(records["age"], 5)) if kind == "stream" else records
    release = dp.run(spec, records=given)
    extent.RECORD_BYTES = 2**24
    assert ("distributed" in sys.modules) == (kind not in ("counts", "pure")), kind
    answers = release.answers.arrow
    assert release.charged and answers.num_rows > 3, kind
    done[kind] = answers.num_rows
print(json.dumps(done))
"""


def interpreters(minor: int) -> Iterator[Path]:
    """Where a Python of that version may be: on the path, and under pyenv."""
    if sys.version_info[:2] == (3, minor):
        yield Path(sys.executable)
    named = shutil.which(f"python3.{minor}")
    if named is not None:
        yield Path(named)
    yield from Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob(f"3.{minor}.*/bin/python")


def interpreter(minor: int) -> Path | None:
    """A Python of that version that starts: what pyenv puts on the path may not."""
    for found in interpreters(minor):
        asked = [found, "-c", "import sys; print(sys.version_info[1])"]
        told = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=HANGS)
        if told.returncode == 0 and told.stdout.strip() == str(minor):
            return found
    return None


def uv() -> str:
    """The installer of the test environment; it takes a third of pip's CPU time."""
    found = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if found is None:
        pytest.skip("uv is not installed")
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built once from a copy of what is packed into it."""
    pytest.importorskip("setuptools", reason="needs the PyPI package setuptools, which pip otherwise fetches for a build")
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("dpdist", "flows"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    command = [sys.executable, "setup.py", "-q", "bdist_wheel", "-d", "out"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=2 * HANGS)
    (built,) = (folder / "out").glob("*.whl")
    return built


def published(
    python: Path, wheel: Path, folder: Path, versions: Versions, *, every: bool
) -> subprocess.CompletedProcess[str]:
    """What releases tell that run in an environment of their own, in an empty folder, with nothing of this one."""
    folder.mkdir(parents=True)
    known = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DPDIST_", "VIRTUAL_ENV"))}
    place, chosen = folder / "environment", folder / "environment" / "bin" / "python"
    for command in (
        [uv(), "venv", "--quiet", "--python", python, place],
        [uv(), "pip", "install", "--quiet", "--python", chosen, *OPTIONS[versions], wheel],
        [chosen, "-c", RELEASES, "every" if every else "one"],
    ):
        environment = {**known, "DPDIST_HOME": str(folder / "home"), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=INSTALLS_SECONDS
        )
        if done.returncode != 0:
            break
    shutil.rmtree(place, ignore_errors=True)  # 700 MB
    return done


@pytest.fixture(scope="module")
def small_releases(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Future[object]]]:
    """One small release on every later Python that is found, all at once."""
    found = {minor: python for minor in MINORS if sys.version_info[:2] != (3, minor) and (python := interpreter(minor))}
    folder = tmp_path_factory.mktemp("pythons")
    with ThreadPoolExecutor(max(1, len(found))) as pool:
        yield {
            minor: pool.submit(published, python, wheel, folder / str(minor), "newest", every=False)
            for minor, python in found.items()
        }


@pytest.mark.parametrize("minor", [minor for minor in MINORS if sys.version_info[:2] != (3, minor)])
def test_the_wheel_publishes_with_the_newest_versions(small_releases: dict[int, Future[object]], minor: int) -> None:
    """What ``pip install dpdist`` brings; the environment of the tests shows the rest on its own Python."""
    if minor not in small_releases:
        pytest.skip(f"no Python 3.{minor} on the path or under pyenv")
    done = small_releases[minor].result()
    assert done.returncode == 0, done.stderr
    assert done.stdout == '{"counts": 107}\n'.replace("107", str(12 + 2 + 24 + 24))


@pytest.mark.slow
@pytest.mark.parametrize("versions", OPTIONS)
@pytest.mark.parametrize("minor", MINORS)
def test_every_kind_of_release_on_every_python(wheel: Path, tmp_path: Path, minor: int, versions: Versions) -> None:
    python = interpreter(minor)
    if python is None:
        pytest.skip(f"no Python 3.{minor} on the path or under pyenv")
    done = published(python, wheel, tmp_path / "run", versions, every=True)
    assert done.returncode == 0, done.stderr
    assert [*eval(done.stdout)] == ["counts", "pure", "processes", "series", "stream", "sums", "names"]
