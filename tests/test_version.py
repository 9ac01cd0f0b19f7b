"""The version names the commit: of a build, of a checkout, of a work tree, and of neither."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml

import dpdist as dp
from dpdist.content.release_content import versions
from dpdist.version import BUILD_COMMIT_FILE, commit
from tests import HANGS

ROOT = Path(__file__).parents[1]
WRITTEN = "0123456789abcdef" * 2 + "01234567"


def git(folder: Path, *command: str) -> str:
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    done = subprocess.run(["git", *author, *command], cwd=folder, capture_output=True, text=True, check=True, timeout=HANGS)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of one commit with a package in it."""
    source = tmp_path / "source"
    (source / "dpdist").mkdir(parents=True)
    (source / "dpdist" / "__init__.py").touch()
    git(source, "init", "--quiet", "--initial-branch", "main")
    git(source, "add", ".")
    git(source, "commit", "--quiet", "--message", "One")
    return source


def test_the_version_is_the_package_s_and_names_the_commit() -> None:
    assert re.fullmatch(re.escape(importlib.metadata.version("dpdist")) + r"(\+g[0-9a-f]{12})?", dp.__version__)
    assert versions()["dpdist"] == dp.__version__


@pytest.mark.parametrize("state", ["loose", "packed", "detached", "work tree"])
def test_a_checkout_names_its_commit_however_it_is_kept(checkout: Path, state: str) -> None:
    if state == "packed":
        git(checkout, "pack-refs", "--all")
    if state == "detached":
        git(checkout, "checkout", "--quiet", "--detach")
    source = checkout
    if state == "work tree":
        source = checkout.parent / "beside"
        git(checkout, "worktree", "add", "--quiet", str(source), "-b", "other")
    assert commit(source / "dpdist") == git(checkout, "rev-parse", "HEAD")


def test_the_commit_of_a_build_wins_and_nonsense_is_no_commit(checkout: Path, tmp_path: Path) -> None:
    written = checkout / "dpdist" / BUILD_COMMIT_FILE
    written.write_text(WRITTEN + "\n")
    assert commit(checkout / "dpdist") == WRITTEN
    written.write_text("yesterday's\n")
    assert commit(checkout / "dpdist") is None
    (tmp_path / "elsewhere" / "dpdist").mkdir(parents=True)
    assert commit(tmp_path / "elsewhere" / "dpdist") is None
    (tmp_path / "elsewhere" / ".git").write_bytes(b"\xff\xfe")
    assert commit(tmp_path / "elsewhere" / "dpdist") is None


def test_a_build_writes_the_commit_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules that a wheel holds, and a source distribution."""
    pytest.importorskip("setuptools", reason="needs the PyPI package setuptools, which pip otherwise fetches for a build")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    for package in ("dpdist", "flows"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    monkeypatch.setenv("DPDIST_COMMIT", WRITTEN)
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", "built", "sdist"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=HANGS)
    assert commit(tmp_path / "built" / "dpdist") == WRITTEN
    (packed,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    assert commit(source / "dpdist") == WRITTEN


def test_one_version_is_named_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((ROOT / "helm" / "dpdist" / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == project
    assert f"image: ${{DPDIST_IMAGE:-dpdist:{project}}}\n" in (ROOT / "deploy" / "compose.yaml").read_text()
    assert f"-t dpdist:{project} " in (ROOT / "docs" / "operations.md").read_text()
    assert f"\n## [{project}] - " in (ROOT / "CHANGELOG.md").read_text()
    assert f"\n## {project}\n" in (ROOT / "helm" / "dpdist" / "UPGRADING.md").read_text()
