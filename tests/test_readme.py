"""The README's two commands, as written, in a fresh copy of the tree."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dpdist.spec import load
from tests import HANGS
from tests.support import forked_programs

ROOT = Path(__file__).parents[1]


def files_of_the_tree() -> list[str]:
    """What a clone would hold: tracked and new files, nothing ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    return [*filter(None, listed.decode().split("\0"))]


def copy_of_the_tree(target: Path) -> Path:
    """A copy of these files."""
    for name in files_of_the_tree():
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes((ROOT / name).read_bytes())
            (target / name).chmod((ROOT / name).stat().st_mode)
    return target


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """make in a folder, with this environment instead of a new .venv (installing is what .ci/run shows)."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("DPDIST_", "PREFECT_"))}
    ready = [option for mark in (".installed", ".installed-test") for option in ("-o", f"{sys.prefix}/{mark}")]
    command = ["make", *ready, *arguments, f"VENV={sys.prefix}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=HANGS, env=environment)


def test_a_clone_holds_the_folders_that_newcomers_are_told_of() -> None:
    """Whatever programs leave in the tree is ignored: it was committed once, with tables of a peer's benchmark."""
    _, _, table = (ROOT / "CONTRIBUTING.md").read_text().partition("| folder | what it holds |")
    told = {*re.findall(r"`([a-z]+)/", table.partition("\n\n")[0]), ".ci", "examples"}
    assert {name.partition("/")[0] for name in files_of_the_tree() if "/" in name} <= told


def test_the_two_commands_are_the_ones_in_the_readme() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    commands = [line.split("#")[0].strip() for line in blocks[0].splitlines()]
    assert commands == ["make demo", "make test"]


def test_make_demo_publishes_a_release(tmp_path: Path) -> None:
    """The census example's records and domain, with fewer questions; the example itself is read, and published by ``make slow``."""
    tree = copy_of_the_tree(tmp_path / "clone")
    example = tree / "examples" / "census" / "release.yaml"
    assert load(example).workload.queries.shape == (2085, 5460)
    content = yaml.safe_load(example.read_text())
    content["workload"] = [{"marginals": {"of": [["sex"], ["income"]]}}]
    (example.parent / "few.yaml").write_text(yaml.safe_dump(content))
    done = make(tree, "demo", "DEMO=examples/census/few.yaml")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "published releases/census-2026-11" in done.stdout
    certificate = json.loads((tree / "releases" / "census-2026-11" / "release.json").read_text())
    assert certificate["queries"] == 4


@pytest.mark.slow
def test_make_demo_publishes_the_census_example(tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path / "clone")
    done = make(tree, "demo")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "published releases/census-2026-11" in done.stdout
    certificate = json.loads((tree / "releases" / "census-2026-11" / "release.json").read_text())
    assert certificate["mechanism"]["name"] == "coa"  # of equally good strategies the one whose measurement is published
    assert 0 <= certificate["mechanism"]["certified_gap"] < 1e-6
    assert certificate["queries"] == 2085


def test_make_test_runs_the_suite(tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path / "clone")
    done = make(tree, "test", "TESTS=tests/test_loopback_ports.py", "PROCESSES=0")  # .ci/run shows the rest
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert re.search(r"\d+ passed", done.stdout)


@pytest.mark.parametrize("path", ["README.md", "docs/release.schema.json"])
def test_no_registry_host_or_personal_path(path: str) -> None:
    text = (ROOT / path).read_text()
    assert "/home/" not in text
    assert "/work/" not in text
    assert "pypi.org" not in text


def test_the_spec_is_the_one_that_the_tutorial_runs() -> None:
    """The README's spec, and the columns of its output, are checked where the tutorial is executed."""
    readme, tutorial = ((ROOT / page).read_text() for page in ("README.md", "docs/tutorial.md"))
    (shown,) = re.findall(r"```yaml\n(.*?)```", readme, flags=re.DOTALL)
    assert f'```yaml title="release.yaml"\n{shown}```' in tutorial
    assert "dpdist show visitors-2026-11 --group branch" in tutorial


def test_the_python_example_runs_as_written() -> None:
    example = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len(example) == 1
    done = forked_programs.finished(example[0])
    assert done.returncode == 0, done.stderr
    cost, bound, gap = (float(word) for word in done.stdout.split())
    assert bound <= cost <= bound * (1 + 1e-6)
    assert gap == pytest.approx(cost / bound - 1)
