"""The import contract fails when somebody breaks it: faults are planted in a copy of the tree, and lint-imports must name each."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS = {contract["containers"][0]: contract["layers"] for contract in CONTRACTS if contract["type"] == "layers"}
MATHEMATICS, PURE = (contract for contract in CONTRACTS if contract["name"].startswith("mathematics"))
TRIED = ("zarr", "nobody_knows_it", "dpdist.storage.array_store", "dpdist.engine")
"""Packages of a later layer and of none, and modules of the tree."""
ROOMS = tuple(
    name
    for name in ("strategies", "mechanisms", "grids", "arrays", "workloads", "operators")
    if (ROOT / "dpdist" / name).is_dir()
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of everything that the contract is about."""
    for package in ("dpdist", "flows"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests").mkdir()
    for name in ("__init__", "pure_layer"):
        shutil.copy(ROOT / "tests" / f"{name}.py", tmp_path / "tests")
    return tmp_path


def lint(tree: Path) -> tuple[int, str]:
    """Exit code and text of lint-imports in a tree."""
    program = (
        "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports_command; lint_imports_command()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "--no-cache"], cwd=tree, capture_output=True, text=True, check=False
    )
    assert "Contracts:" in done.stdout or "Could not" in done.stdout, done.stdout + done.stderr
    return done.returncode, done.stdout


def modules(tree: Path, room: str) -> list[str]:
    """The modules of a package of the library."""
    return sorted(path.stem for path in (tree / "dpdist" / room).glob("*.py") if path.stem != "__init__")


def test_the_tree_as_it_is(tree: Path) -> None:
    code, text = lint(tree)
    assert code == 0, text


def test_no_mathematics_may_import_them(tree: Path) -> None:
    """In a module of every room: at its head, or hidden inside a function; each of them at the head of some."""
    planted = {room: modules(tree, room)[0] for room in ROOMS}
    for number, (room, module) in enumerate(planted.items()):
        with (tree / "dpdist" / room / f"{module}.py").open("a") as file:
            for place, imported in enumerate(TRIED):
                hidden = (number + place) % 2
                file.write(f"\ndef hidden_{place}():\n    import {imported}\n" if hidden else f"\nimport {imported}\n")
    code, text = lint(tree)
    assert code == 1
    for room, module in planted.items():
        for imported in TRIED:
            assert re.search(rf"dpdist\.{room}\.{module} -> {re.escape(imported)} \(l\.", text), (room, imported, text)


def test_every_room_of_mathematics_is_covered() -> None:
    """A package of mathematics that is added later is held to the same."""
    assert {f"dpdist.{room}" for room in ROOMS} <= set(MATHEMATICS["source_modules"]) < set(PURE["source_modules"])
    assert "dpdist.storage" in MATHEMATICS["forbidden_modules"]


def test_no_module_between_may_import_them(tree: Path) -> None:
    """One that mathematics imports and no contract names; and exact noise itself. Nor any but one the client of object stores."""
    planted = {"process/threads": "nobody_knows_it", "privacy/sampler": "nobody_knows_it", "sources/file_listing": "obstore"}
    for module, imported in planted.items():
        with (tree / "dpdist" / f"{module}.py").open("a") as file:
            file.write(f"\ndef hidden():\n    import {imported}\n")
    code, text = lint(tree)
    assert code == 1
    for module, imported in planted.items():
        assert f"dpdist.{module.replace('/', '.')} -> {imported} (l." in text, text


def test_the_pure_layer_installs_what_it_may_import() -> None:
    """And llvmlite, of which Numba is the other half."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    asked = {re.match(r"[\w-]+", line).group().replace("-", "_") for line in dependencies}
    assert {*PURE["allowed_packages"]} == asked | {"llvmlite"}


def test_modules_without_a_layer_are_refused(tree: Path) -> None:
    for package in LAYERS:
        (tree / package.replace(".", "/") / "added.py").write_text('"""Nobody said where this belongs."""\n')
    code, text = lint(tree)
    assert code == 1
    for package in LAYERS:
        assert f"- {package}.added" in text, package


def test_circles_are_refused(tree: Path) -> None:
    """Between modules of one room without layers of its own, also inside a function or for types alone."""
    for room, first, second in (
        ("reconstruction", "answer_vectors", "least_squares"),
        ("privacy", "noise_distributions", "noise"),
    ):
        with (tree / "dpdist" / room / f"{first}.py").open("a") as file:
            file.write(f"\nif TYPE_CHECKING:\n    from dpdist.{room} import {second}\n")
    code, text = lint(tree)
    assert code == 1
    assert "No cycles are allowed in dpdist.reconstruction" in text
    assert "No cycles are allowed in dpdist.privacy" in text


def test_upward_imports_are_refused(tree: Path) -> None:
    """From the lowest layer of every package to the highest."""
    planted = {}
    for package, layers in LAYERS.items():
        highest, lowest = (re.split(r"[ |():]+", layers[end].strip("()"))[0] for end in (0, -1))
        below = tree / package.replace(".", "/") / lowest
        with (below / "__init__.py" if below.is_dir() else below.with_suffix(".py")).open("a") as file:
            file.write(f"\ndef hidden():\n    import {package}.{highest}\n")
        planted[package] = f"{package}.{lowest} -> {package}.{highest}"
    code, text = lint(tree)
    assert code == 1
    for package, told in planted.items():
        assert told in text, package
