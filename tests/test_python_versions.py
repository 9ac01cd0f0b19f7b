"""The wheel as users install it: each of its layers alone, and on every Python that dpdist says it runs on."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import HANGS
from tests.support import installed_environments, small_release
from tests.support.installed_environments import LAYERS, OPTIONS, PROGRAMS, ROOT, Environment, Versions

HERE = sys.version_info[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MINORS = tuple(int(name.rpartition(".")[2]) for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name))
NEEDS = r'{} needs the package \w+, which is not installed: pip install "dpdist\[{}\]"'
REFUSED = [NEEDS.format(rf"dpdist\.{name}", "release") for name in ("plan", "run", "published", r"privacy\.Ledger")]
PREFECT = f"error: {NEEDS.format('the Prefect server that PREFECT_API_URL names', 'flows')}\n"
COMMAND = f"error: {NEEDS.format('the command dpdist', 'cli')}\n"
KINDS = ["counts", "pure", "processes", "series", "stream", "sums", "names"]

BLOCKED = """
import runpy, sys
allowed = set(sys.stdlib_module_names) | {{*{allowed!r}}}

class Layer:
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if root not in allowed and not root.startswith("_"):
            raise ModuleNotFoundError(f"No module named {{root!r}}", name=root)

sys.meta_path.insert(0, Layer())
sys.argv = {argv!r}
runpy.{run}({program!r}, run_name="__main__")
"""


def brought(extra: str) -> set[str]:
    """The distributions that a layer brings here, by what the packages' own metadata ask for."""
    found, waiting = set(), [("dpdist", extra)]
    while waiting:
        name, chosen = waiting.pop()
        if (name, chosen) in found:
            continue
        found.add((name, chosen))
        for line in metadata.requires(name) or []:
            asked = Requirement(line)
            if asked.marker is None or asked.marker.evaluate({"extra": chosen}):
                waiting += [(canonicalize_name(asked.name), each) for each in ("", *asked.extras)]
    return {name for name, _ in found}


@pytest.fixture(scope="module")
def modules() -> dict[str, set[str]]:
    """The modules of each layer. What a layer's packages bring counts, not what happens to be installed beside it."""
    owners = metadata.packages_distributions()
    names = {
        module: {name.lower().replace("_", "-").replace(".", "-") for name in found} for module, found in owners.items()
    }
    layers = {extra: brought(extra) for extra in LAYERS}
    return {
        extra: {"dpdist", "flows"} | {module for module, found in names.items() if found & layer}
        for extra, layer in layers.items()
    }


def blocked(modules: set[str], folder: Path, program: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A program that finds no other packages than those of a layer."""
    path, run = (str(PROGRAMS / f"{program}.py"), "run_path") if "." not in program else (program, "run_module")
    text = BLOCKED.format(allowed=sorted(modules), argv=[program, *words], run=run, program=path)
    return subprocess.run(
        [sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, check=False, timeout=HANGS,
        env={"PYTHONPATH": str(ROOT), "DPDIST_HOME": str(folder / "home"), "PATH": "", **more},
    )  # fmt: skip


def refusals(told: str) -> bool:
    """Whether the pure program met one line for each thing that needs a release's layer."""
    lines = json.loads(told)["refused"]
    return all(re.fullmatch(expected, line) for expected, line in zip(REFUSED, lines, strict=True))


@pytest.fixture(scope="module")
def pure(modules: dict[str, set[str]], tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the pure program prints here, with all packages of other layers hidden."""
    done = blocked(modules[""], tmp_path_factory.mktemp("pure"), "pure", "alone")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_each_layer_needs_no_package_of_the_next(modules: dict[str, set[str]], pure: str, tmp_path: Path) -> None:
    """In this environment, with the packages of the others hidden; what is missing is reported in one line."""
    assert {"numpy", "numba", "cryptography"} <= modules[""] < modules["release"] < modules["cli"] < modules["flows"]
    assert modules["flows"] < modules["all"]
    assert not {"zarr", "pyarrow", "dask", "sqlalchemy", "yaml"} & modules[""]
    assert not {"typer", "rich", "fastapi"} & modules["release"]
    assert not {"prefect", "alembic", "docket"} & modules["cli"]
    assert refusals(pure)
    done = blocked(modules["release"], tmp_path, "release", "one")
    assert done.returncode == 0, done.stderr
    for extra in ("", "release"):
        done = blocked(modules[extra], tmp_path, "flows.main", "plan", "release.yaml")
        assert (done.returncode, done.stdout) == (1, "")
        assert re.fullmatch(COMMAND, done.stderr), done.stderr


@pytest.mark.slow
def test_the_command_needs_no_prefect_unless_a_server_is_named(modules: dict[str, set[str]], home: Path) -> None:
    path = small_release.write(home.parent / "data")
    done = blocked(
        modules["cli"], home.parent, "flows.main", "run", str(path), "--quiet", PREFECT_API_URL="http://127.0.0.1:1/api"
    )
    assert done.returncode == 1
    assert re.search(f"{PREFECT}$", done.stderr), done.stderr
    assert blocked(modules["cli"], home.parent, "flows.main", "run", str(path)).returncode == 0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built once."""
    return installed_environments.wheel(tmp_path_factory.mktemp("wheel"))


def shown(place: Environment, wheel: Path, extra: str, versions: Versions, *programs: tuple[str, ...]) -> list[str]:
    """What programs print in an environment of a layer, which is removed afterwards; what failed says so in their place."""
    told = []
    try:
        done = place.installed(wheel, extra, versions)
        for program in programs if done.returncode == 0 else ():
            done = place.python(*program[1:]) if program[0] == "python" else place.ran(*program)
            told.append(done.stdout if done.returncode == 0 else f"{program}: {done.returncode}\n{done.stderr}")
        return told if told else [done.stderr]
    finally:
        place.removed()


@pytest.mark.slow
def test_the_wheel_publishes_on_another_python(wheel: Path, tmp_path: Path) -> None:
    """A small release on the newest other one that is found, with the newest versions; `make large` shows all on all."""
    found = next(
        (python for minor in reversed(MINORS) if minor != HERE and (python := installed_environments.python(minor))), None
    )
    if found is None:
        pytest.skip(f"no other Python on the path, under pyenv or in {installed_environments.SYSTEM}")
    place = installed_environments.environment(found, tmp_path / "run")
    (told,) = shown(place, wheel, "release", "newest", ("release", "one"))
    assert told == json.dumps({"counts": 12 + 2 + 24 + 24}) + "\n"


@pytest.mark.slow
def test_the_pure_layer_as_it_is_installed(wheel: Path, pure: str, tmp_path: Path) -> None:
    """It brings few packages, and the same integers of noise as here, where those of other layers are hidden."""
    place = installed_environments.environment(installed_environments.Python(HERE, sys.executable), tmp_path / "run")
    line = ("python", "-m", "flows.main", "--version")
    told, command = shown(place, wheel, "", "newest", ("pure", "alone"), line)
    assert told.startswith("{"), told
    assert json.loads(told) == json.loads(pure)
    assert re.search(f"{COMMAND}$", command), command


@pytest.mark.large
@pytest.mark.parametrize("extra", LAYERS)
def test_every_layer_as_it_is_installed(wheel: Path, tmp_path: Path, extra: str) -> None:
    place = installed_environments.environment(installed_environments.Python(HERE, sys.executable), tmp_path / "run")
    programs = {
        "pure": ("pure",),
        "release": ("release", "one"),
        **{name: (name,) for name in ("commands", "scheduled", "extras")},
    }
    chosen = [programs[name] for name in [*LAYERS.values()][: 1 + [*LAYERS].index(extra)]]
    told = shown(place, wheel, extra, "newest", *chosen)
    assert [line[:1] for line in told] == ["{"] * len(chosen), "\n".join(told)


@pytest.mark.large
@pytest.mark.parametrize("versions", OPTIONS)
@pytest.mark.parametrize("minor", MINORS)
def test_every_kind_of_release_on_every_python(wheel: Path, tmp_path: Path, minor: int, versions: Versions) -> None:
    """With all extras, each at the version asked for: releases in Python, on the command line, from and to databases."""
    found = installed_environments.python(minor)
    if found is None:
        pytest.skip(f"no Python 3.{minor} on the path, under pyenv or in {installed_environments.SYSTEM}")
    place = installed_environments.environment(found, tmp_path / "run")
    told = shown(place, wheel, "all", versions, ("release", "every"), ("commands",), ("extras",))
    assert [line[:1] for line in told] == ["{"] * 3, "\n".join(told)
    assert [*ast.literal_eval(told[0])] == KINDS
    assert json.loads(told[1]) == {"planned": 19, "published": 19}
    assert set(json.loads(told[2]).values()) == {38}
