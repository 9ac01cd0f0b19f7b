"""Plugins can be deleted: the tree without them lints, publishes and verifies; and somebody else's package can add one."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import pytest

from dpdist import plugin_registry
from dpdist.errors import InvalidInput
from dpdist.mechanisms.mechanism import Mechanism
from dpdist.planner.answer_rounding import AnswerRounding
from dpdist.planner.release_joining import ReleaseJoining
from dpdist.plugin_registry import OFFERED, Plugin, installed_plugins, load_object
from dpdist.publish.output_file import Output
from dpdist.query.published_release import QuestionReader
from dpdist.reconstruction.answer_fitting import AnswerFitting
from dpdist.spec.sections.plugin_sections import PluginSection
from dpdist.spec.sections.sources import Location
from dpdist.spec.warehouse_target import TargetKind
from tests.support.complete_tree import needs_every_plugin, plugin_object

ROOT = Path(__file__).parents[1]
PLUGINS = sorted(path.parent.name for path in (ROOT / "dpdist" / "plugins").glob("*/__init__.py"))
FACES = ("dpdist.api", "dpdist.plugin_registry", "flows.api")
"""All that a plugin imports of dpdist, beside its own folder."""
KEPT = (
    *("dpdist", "flows", "tests", "docs", "benchmarks", "deploy", "examples", "helm", "tools"),
    *("CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "README.md", "mkdocs.yml", "pyproject.toml"),
)


def copy_without_plugins(folder: Path, *plugins: str) -> Path:
    """A copy of the tree in which plugins and their tests are missing."""
    ignore = shutil.ignore_patterns("__pycache__", "releases", ".hypothesis")
    for name in KEPT:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=ignore, symlinks=True)
        else:
            shutil.copy(ROOT / name, folder / name)
    for plugin in plugins:
        shutil.rmtree(folder / "dpdist" / "plugins" / plugin)
        shutil.rmtree(folder / "tests" / "plugins" / plugin, ignore_errors=True)
    return folder


def run(tree: Path, *words: str, more_paths: Sequence[Path] = (), **variables: str) -> subprocess.CompletedProcess[str]:
    """A program of Python that finds dpdist in a tree, and its state beside it."""
    paths = os.pathsep.join(map(str, (tree, *more_paths)))
    environment = os.environ | {
        "PYTHONPATH": paths,
        "DPDIST_HOME": str(tree / "home"),
        "DPDIST_ENGINE": "inline",
        "COLUMNS": "200",
        **variables,
    }
    return subprocess.run([sys.executable, *words], cwd=tree, env=environment, capture_output=True, text=True, check=False)


def publish_census(tree: Path, more_paths: Sequence[Path] = ()) -> Path:
    """The folder of the census example, published and verified by a tree."""
    for words in (("keys", "init"), ("run", "examples/census/release.yaml"), ("verify", "census-2026-11")):
        done = run(tree, "-m", "flows.main", *words, more_paths=more_paths)
        assert done.returncode == 0, done.stdout + done.stderr
    return tree / "releases" / "census-2026-11"


def lint(tree: Path) -> None:
    """The import contract holds, with the layers that are there."""
    done = run(tree, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", "--no-cache")
    assert done.returncode == 0, done.stdout


def test_every_plugin_of_this_distribution_is_found() -> None:
    assert [plugin.name for plugin in installed_plugins()] == PLUGINS
    assert set(OFFERED) <= set(PLUGINS)
    for plugin in installed_plugins():
        assert {*plugin.commands} <= {*OFFERED.get(plugin.name, ())}, (
            "a missing plugin is named by the commands that it offers"
        )


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_plugin_imports_the_face_of_the_core_alone(plugin: str) -> None:
    own = f"dpdist.plugins.{plugin}"
    needed = {name for each in installed_plugins() if each.name == plugin for name in each.needs}
    allowed = (*FACES, own, *(f"dpdist.plugins.{name}" for name in needed))
    for path in sorted((ROOT / "dpdist" / "plugins" / plugin).rglob("*.py")):
        for module in _imported(path):
            assert any(f"{module}.".startswith(f"{face}.") for face in allowed), f"{path.name} imports {module}"


EXTENDED = (
    *(AnswerFitting, AnswerRounding, Location, Mechanism, Output, PluginSection, QuestionReader, ReleaseJoining, TargetKind),
    plugin_object("dpdist.plugins.nonnegative_answers.answer_fit:AnswerFit"),
)
"""Classes of which plugins have objects or kinds of their own."""


@needs_every_plugin
@pytest.mark.parametrize("plugin", PLUGINS)
def test_whatever_extends_the_core_is_registered(plugin: str) -> None:
    """A class that no field of its plugin leads to would be in nobody's way, and of no use."""
    (registration,) = (each for each in installed_plugins() if each.name == plugin)
    values = [getattr(registration, field.name) for field in fields(registration)]
    names = [name for value in values for name in (value.values() if isinstance(value, Mapping) else value)]
    registered = [load_object(name) for name in names if ":" in name]
    in_use = {base for each in registered for base in (each if isinstance(each, type) else type(each)).__mro__}
    for module in pkgutil.walk_packages([str(ROOT / "dpdist" / "plugins" / plugin)], f"dpdist.plugins.{plugin}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, type) and issubclass(value, EXTENDED) and value.__module__ == module.name:
                assert value in (*in_use, *EXTENDED), f"{name} of {module.name} is not registered"
            elif isinstance(value, EXTENDED) and type(value).__module__ == module.name:
                assert any(value is each for each in registered), f"{name} of {module.name} is not registered"


def test_one_name_is_one_thing_in_all_faces() -> None:
    """A plugin that imports a name of another face gets no other object: GAUSSIAN is a kind of noise, and no set of norms."""
    modules = [f"dpdist.api.{path.stem}" for path in (ROOT / "dpdist" / "api").glob("[a-z]*.py")]
    modules += [f"flows.api.{path.stem}" for path in (ROOT / "flows" / "api").glob("[a-z]*.py")]
    objects: dict[str, object] = {}
    for module in modules:
        face = importlib.import_module(module)
        assert face.__file__ is not None
        imports = [node for node in ast.parse(Path(face.__file__).read_text()).body if isinstance(node, ast.ImportFrom)]
        for name in (alias.asname or alias.name for node in imports for alias in node.names):
            assert objects.setdefault(name, getattr(face, name)) is getattr(face, name), f"{name} of {module}"


COMPUTED = [
    path
    for path in sorted((ROOT / "dpdist").rglob("*.py"))
    if any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in ast.parse(path.read_text()).body)
]
"""Modules that find names when they are asked for, such as the strategies that plugins add."""


@pytest.mark.parametrize("path", COMPUTED, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_that_find_names_have_those_that_they_list_and_no_others(path: Path) -> None:
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name  # noqa: B018  asking for it is the test
    assert all(getattr(module, name) is not None for name in (dir(module) if "__dir__" in vars(module) else ()))


def _imported(path: Path) -> set[str]:
    """Modules of dpdist and of its application that a file imports."""
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules = {
        f"{node.module}.{alias.name}" if node.module == "dpdist.plugins" else str(node.module)
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return {name for name in names | modules if name.partition(".")[0] in ("dpdist", "flows")}


MISSING_KEYS = {
    "mechanism.adaptive": lambda spec: spec.replace("mechanism: auto", "mechanism: adaptive"),
    "mechanism.nested": lambda spec: spec.replace("mechanism: auto", "mechanism: nested"),
    "mechanism.banded": lambda spec: spec.replace("mechanism: auto", "mechanism: banded"),
    "mechanism.weighted-design": lambda spec: spec.replace("mechanism: auto", "mechanism: weighted-design"),
    "mechanism.oblique": lambda spec: spec.replace("mechanism: auto", "mechanism: oblique"),
    "mechanism.low-rank": lambda spec: spec.replace("mechanism: auto", "mechanism: low-rank"),
    "records.sql": lambda spec: re.sub(r"path: \S+", "sql: SELECT 1", spec),
    "output.verifier": lambda spec: f"{spec}\noutput: {{verifier: true}}\n",
    "output.to.postgres": lambda spec: f"{spec}\noutput: {{to: [{{postgres: public.answers}}]}}\n",
    "language": lambda spec: f"{spec}\nlanguage: de\n",
    "spec.site": lambda spec: f"{spec}\nsite: {{name: Office}}\n",
    "quantiles": lambda spec: f"{spec}\nquantiles: {{of: {{age: {{from: 0, to: 90}}}}}}\n",
    "assume": lambda spec: f"{spec}\nassume: {{records: 1000}}\n",
    "bounds.private": lambda spec: f"{spec}\nsums: {{paid: {{from: 0, to: private, selection: {{most: 9}}}}}}\n",
    "left_out": lambda spec: f"{spec}\nleft_out: {{}}\n",
    "gate": lambda spec: f"{spec}\ngate: {{action: hold}}\n",
    "postprocess.non_negative": lambda spec: f"{spec}\npostprocess: {{non_negative: true}}\n",
    "postprocess.integer": lambda spec: f"{spec}\npostprocess: {{integer: true}}\n",
    "postprocess.consistent_with": lambda spec: f"{spec}\npostprocess: {{consistent_with: [earlier.yaml]}}\n",
}
"""Changes of a spec that need a plugin, by what a missing plugin is said to offer."""
COMMANDS = """
import contextlib, io, sys
from flows.main import main

for command in sys.argv[1:]:
    sys.argv = ["dpdist", *command.split()]
    printed, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        try:
            main()
        except SystemExit as end:
            code = end.code
    assert (code, printed.getvalue()) == (1, ""), command
    print(" ".join(errors.getvalue().split()))
"""
"""Runs commands in one process, and prints in a line what each wrote where it was refused."""


def test_the_core_publishes_and_verifies_without_any_plugin(tmp_path: Path) -> None:
    tree = copy_without_plugins(tmp_path, *PLUGINS)
    lint(tree)
    files = {path.name for path in publish_census(tree).iterdir()}
    assert {"release.json", "answers.parquet", "index.html"} <= files
    assert "croissant.json" not in files
    spec = (tree / "examples" / "census" / "release.yaml").read_text()
    refusals = [
        (command, command)
        for command in ("ask", "serve", "studio", "init", "site", "synthesize", "export", "gate", "metrics")
    ]
    for number, (word, change) in enumerate(MISSING_KEYS.items()):
        path = tree / "examples" / "census" / f"missing-{number}.yaml"
        path.write_text(change(spec))
        refusals.append((word, f"plan {path}"))
    refused = run(tree, "-c", COMMANDS, *(command for _, command in refusals))
    assert refused.returncode == 0, refused.stderr
    for (word, command), line in zip(refusals, refused.stdout.splitlines(), strict=True):
        plugin = next(name for name, words in OFFERED.items() if word in words)
        name = word.rpartition(".")[2]
        assert f"{name!r} needs the plugin {plugin!r} of dpdist, which is not installed here" in line, command
    refused = run(tree, "-m", "flows.main", "run", "examples/census/release.yaml", DPDIST_SERVICE="unix:/nowhere")
    assert (refused.returncode, refused.stdout) == (1, "")  # nothing is measured by a client
    assert "'DPDIST_SERVICE' needs the plugin 'service' of dpdist, which is not installed here" in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("plugin", [*PLUGINS, "all of them"])
def test_each_plugin_can_be_deleted(plugin: str, tmp_path: Path) -> None:
    """With those that need it: import contract, types, and every module of the core's tests; ``make core`` runs these."""
    needing = [each.name for each in installed_plugins() if plugin in each.needs]
    tree = copy_without_plugins(tmp_path, *(PLUGINS if plugin == "all of them" else [plugin, *needing]))
    lint(tree)
    for words in (("-m", "mypy"), ("-m", "pytest", "-q", "--collect-only", "-n0", "tests")):
        done = run(tree, *words)
        assert done.returncode == 0, done.stdout[-3000:]
    publish_census(tree)


@pytest.mark.slow
def test_a_package_of_somebody_else_adds_a_file_to_releases(tmp_path: Path) -> None:
    """One file and one entry point: the package in tests/outside/sdmx_csv, installed beside dpdist."""
    package = tmp_path / "package"
    shutil.copytree(ROOT / "tests" / "outside" / "sdmx_csv", package)
    options = ("--no-deps", "--no-compile", "--no-build-isolation", "--quiet", "--target", str(tmp_path / "site"))
    installed = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, str(package)], capture_output=True, text=True, check=False
    )
    assert installed.returncode == 0, installed.stderr
    (tmp_path / "work").mkdir()
    for name in ("dpdist", "flows", "examples"):
        (tmp_path / "work" / name).symlink_to(ROOT / name)
    folder = publish_census(tmp_path / "work", [tmp_path / "site"])
    rows = (folder / "answers.sdmx.csv").read_text().splitlines()
    assert rows[0].startswith("STRUCTURE,STRUCTURE_ID,ACTION,")
    assert rows[1].startswith("dataflow,DPDIST:CPS_1994_95(1.0),I,age,age 0 or less,")
    assert len(rows) == 1 + len((folder / "answers.csv").read_text().splitlines()) - 1


def _discovered_plugins(monkeypatch: pytest.MonkeyPatch, **references: str) -> tuple[Plugin, ...]:
    """What is installed where entry points have these references."""
    entries = [importlib.metadata.EntryPoint(name, value, plugin_registry.GROUP) for name, value in references.items()]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries)
    return installed_plugins.__wrapped__()


FIRST, SECOND, NEEDING = Plugin("first"), Plugin("first"), Plugin("needing", needs=("missing",))


def test_odd_entry_points_are_refused_and_plugins_that_lack_others_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    here = __name__
    assert _discovered_plugins(monkeypatch, a=f"{here}:FIRST", b=f"{here}:FIRST") == (FIRST,)
    assert _discovered_plugins(monkeypatch, a=f"{here}:NEEDING", b="dpdist.plugins.no_such_folder:PLUGIN") == ()
    with pytest.raises(InvalidInput, match="which is no Plugin"):
        _discovered_plugins(monkeypatch, a=f"{here}:ROOT")
    with pytest.raises(InvalidInput, match="are both the plugin 'first'; uninstall one of them"):
        _discovered_plugins(monkeypatch, a=f"{here}:FIRST", b=f"{here}:SECOND")
