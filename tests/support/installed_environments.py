"""Environments as users have them: the wheel with some of its layers, on any Python that is found, with nothing of the tests'.

``python -m tests.support.installed_environments`` prints what each layer brings.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from tests import HANGS

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "layers"
SYSTEM = "DPDIST_TEST_SYSTEM"
"""Names a folder with a whole system whose Python is later than any here, such as mmdebstrap makes of Debian."""
SECONDS = 10 * HANGS
LAYERS = {"": "pure", "release": "release", "cli": "commands", "flows": "scheduled", "all": "extras"}
"""The program of ``tests/layers`` that shows each; the programs of the layers before it run there, too."""
Versions = Literal["newest", "lowest", "constraints"]
OPTIONS: dict[Versions, tuple[str, ...]] = {
    "newest": (),
    "lowest": ("--resolution", "lowest-direct", "--only-binary", ":all:"),  # of those that a later Python can install
    "constraints": ("--constraint", str(ROOT / "constraints.txt")),
}
INSIDE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Starts a program with the folder named next as its root (util-linux)."""

Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Python:
    """An interpreter of this machine, or of a system in a folder, where its path is the one inside."""

    minor: int
    path: str
    system: Path | None = None

    def command(self, path: str, folder: Path) -> list[str]:
        """What starts an interpreter in a folder."""
        if self.system is None:
            return [path]
        return [*INSIDE, "--root", str(self.system), "--wd", self.inside(folder), path]

    def inside(self, folder: Path) -> str:
        """A folder's name for its programs."""
        return str(folder) if self.system is None else f"/{folder.relative_to(self.system)}"


def pythons(minor: int) -> Iterator[Python]:
    """Where a Python of that version may be: on the path, under pyenv, in the system that is named."""
    if sys.version_info[:2] == (3, minor):
        yield Python(minor, sys.executable)
    named = shutil.which(f"python3.{minor}")
    if named is not None:
        yield Python(minor, named)
    for path in Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob(f"3.{minor}.*/bin/python"):
        yield Python(minor, str(path))
    system = Path(os.environ.get(SYSTEM, ""))
    if os.environ.get(SYSTEM) and (system / f"usr/bin/python3.{minor}").exists():
        yield Python(minor, f"/usr/bin/python3.{minor}", system.resolve())


@functools.cache
def python(minor: int) -> Python | None:
    """A Python of that version that starts: what pyenv puts on the path may not."""
    for found in pythons(minor):
        asked = [*found.command(found.path, found.system or ROOT), "-c", "import sys; print(sys.version_info[1])"]
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


def wheel(folder: Path) -> Path:
    """The wheel, built from a copy of what is packed into it."""
    pytest.importorskip("setuptools", reason="needs the PyPI package setuptools, which pip otherwise fetches for a build")
    for name in ("dpdist", "flows"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    command = [sys.executable, "setup.py", "-q", "bdist_wheel", "-d", "out"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=2 * HANGS)
    (built,) = (folder / "out").glob("*.whl")
    return built


def shipped(folder: Path, *options: str) -> Path:
    """The folder that ``make dist`` makes of a clean clone of the last commit, without the image."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder / "clone")], check=True)
    command = ["make", "dist", f"PYTHON={sys.executable}", f"DIST={folder / 'made'}", *options]
    done = subprocess.run(command, cwd=folder / "clone", capture_output=True, text=True, check=False, timeout=HANGS)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "made"


@dataclass(frozen=True)
class Environment:
    """An environment with the wheel and some of its extras, in a folder of its own that programs run in."""

    of: Python
    folder: Path

    def installed(self, wheel: Path, extras: str, versions: Versions) -> Done:
        """Make it. A system of its own gets the packages into a folder: its interpreter cannot ask for them itself."""
        self.folder.mkdir(parents=True)
        asked = ["pip", "install", "--quiet", *OPTIONS[versions], f"{wheel}[{extras}]" if extras else str(wheel)]
        if versions == "lowest":  # what only a wheel asks for is not direct, and comes in its newest version
            asked += ["-r", str(ROOT / "pyproject.toml"), *(["--extra", extras] if extras else [])]
        if self.of.system is not None:
            where = ["--target", str(self._packages), "--python-version", f"3.{self.of.minor}", "--only-binary", ":all:"]
            return self._run([uv(), *asked, "--python", sys.executable, *where], {})
        made = self._run([uv(), "venv", "--quiet", "--python", self.of.path, str(self._packages)], {})
        return made if made.returncode != 0 else self._run([uv(), *asked, "--python", self._started], {})

    def ran(self, program: str, *words: str) -> Done:
        """A program of ``tests/layers``."""
        return self.python(self.of.inside(Path(shutil.copy(PROGRAMS / f"{program}.py", self.folder))), *words)

    def python(self, *words: str) -> Done:
        """Its interpreter, in a folder of this call's own, with a state folder there."""
        here = Path(tempfile.mkdtemp(dir=self.folder))
        place = self.of.inside(here)
        environment = {"DPDIST_HOME": f"{place}/home", "HOME": place}
        if self.of.system is not None:
            environment["PYTHONPATH"] = self.of.inside(self._packages)
        return self._run([*self.of.command(self._started, here), *words], environment, here)

    def packages(self) -> int:
        """How many are installed."""
        return len(self._run([uv(), "pip", "freeze", "--quiet", "--python", self._started], {}).stdout.splitlines())

    def size(self) -> int:
        """Bytes of all that is installed."""
        return sum(path.stat().st_size for path in self._packages.rglob("*") if path.is_file() and not path.is_symlink())

    def removed(self) -> None:
        """Delete it: whole ones take 900 MB."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _packages(self) -> Path:
        return self.folder / "environment"

    @property
    def _started(self) -> str:
        return self.of.path if self.of.system is not None else str(self._packages / "bin" / "python")

    def _run(self, command: list[str], environment: Mapping[str, str], folder: Path | None = None) -> Done:
        known = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DPDIST_", "VIRTUAL_ENV"))
        }
        return subprocess.run(
            command, cwd=folder or self.folder, env={**known, **environment}, capture_output=True, text=True, check=False, timeout=SECONDS
        )  # fmt: skip


def environment(of: Python, folder: Path) -> Environment:
    """A place for one: below the folder, or inside of the interpreter's own system."""
    inside = folder if of.system is None else of.system / "tmp" / f"{folder.parent.name}-{folder.name}-{os.getpid()}"
    return Environment(of, inside)


def main() -> None:
    """Print how many packages each layer brings to this Python, newest versions, and how much room they take."""
    print("| `pip install` | packages | MB |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        built = wheel(Path(folder, "wheel"))
        for extra in LAYERS:
            place = environment(Python(sys.version_info[1], sys.executable), Path(folder, extra or "pure"))
            done = place.installed(built, extra, "newest")
            if done.returncode != 0:
                sys.exit(done.stderr)
            print(f"| `dpdist{f'[{extra}]' if extra else ''}` | {place.packages()} | {place.size() / 1e6:,.0f} |")
            place.removed()


if __name__ == "__main__":
    main()
