"""What depends on a mechanism or on a grid is said by it: nobody asks for a grid's class or compares mechanisms' names."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpdist
from dpdist.measurement.integer_measurement import IntegerMeasurement
from dpdist.mechanisms.mechanism_registry import REGISTRY
from tests.contracts.cases import CASES
from tests.contracts.pipeline import Pipeline
from tests.support.complete_tree import needs_every_plugin, needs_plugin

PACKAGE = Path(dpdist.__file__).parent
NAMES = set(REGISTRY)
NOISE = {"gaussian", "laplace"}
"""Kinds of noise, too: privacy compares them."""


def subclasses(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


for module in pkgutil.walk_packages([str(PACKAGE)], "dpdist."):
    importlib.import_module(module.name)
GRIDS = {each.__name__ for each in subclasses(IntegerMeasurement)} - {"IntegerMeasurement"}


def names_in(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} | {
        part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)
    }


def grid_questions(source: str) -> list[int]:
    """Lines that ask whether something is of a grid's class."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("isinstance", "issubclass")
        and names_in(node.args[1]) & GRIDS
    ]


def name_comparisons(source: str, names: set[str]) -> list[int]:
    """Lines that compare with a mechanism's name, match one, or are tables of several."""
    out = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            operands: list[ast.AST] = [node.left, *node.comparators]
            parts = [e for o in operands for e in (o.elts if isinstance(o, ast.Tuple | ast.List | ast.Set) else [o])]
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        elif isinstance(node, ast.Dict) and sum(isinstance(k, ast.Constant) and k.value in names for k in node.keys) > 1:
            parts = [key for key in node.keys if key is not None]
        else:
            continue
        if any(isinstance(part, ast.Constant) and part.value in names for part in parts):
            out.append(node.lineno)
    return out


def sources(*left_out: str) -> Iterator[tuple[str, str]]:
    for folder in (PACKAGE, PACKAGE.parent / "flows"):
        for path in sorted(folder.rglob("*.py")):
            name = str(path.relative_to(PACKAGE.parent))
            if not name.startswith(left_out):
                yield name, path.read_text()


@needs_every_plugin
def test_nobody_asks_for_the_class_of_a_grid() -> None:
    assert {"DenseMeasurement", "DirectMeasurement", "TermMeasurement", "FilterMeasurement", "DawaMeasurement"} <= GRIDS
    assert {name: found for name, text in sources("dpdist/measurement/") if (found := grid_questions(text))} == {}


def test_nobody_compares_names_of_mechanisms() -> None:
    """Outside the registry and the spec. Optimisers have public names of their own (``strategies/solver_resources.py``).

    The verifier imports nothing: names of factors in its file are all that it has.
    """
    named = tuple(
        f"dpdist/plugins/{plugin}/__init__.py"
        for plugin in ("adaptive", "laplace_designs", "oblique_products", "published_baselines", "streams")
    )  # they declare mechanisms by name
    left_out = (
        "dpdist/mechanisms/",
        *named,
        "dpdist/spec/",
        "dpdist/strategies/solver_resources.py",
        "dpdist/plugins/verifier/verify.py",
    )
    found = {}
    for name, text in sources(*left_out):
        names = NAMES - NOISE if name.startswith("dpdist/privacy/") or "noise" in text else NAMES
        if lines := name_comparisons(text, names):
            found[name] = lines
    assert found == {}


@pytest.mark.parametrize(
    "planted",
    [
        "if isinstance(planned.measurement, FilterMeasurement): pass",
        "ok = isinstance(grid, (IntegerMeasurement, DenseMeasurement))",
        "ok = isinstance(grid, TermMeasurement | filter_measurement.FilterMeasurement)",
        "ok = issubclass(type(grid), TermMeasurement)",
    ],
)
def test_a_planted_question_is_found(planted: str) -> None:
    assert grid_questions(planted) == [1]


@pytest.mark.parametrize(
    "planted",
    [
        "if name == 'coa': pass",
        "ok = strategy.name in ('convolution', 'square-root')",
        "ok = 'residual' != name",
        "table = {'eigen': 1, 'coa': 2}",
        "match name:\n    case 'residual': pass",
    ],
)
def test_a_planted_comparison_is_found(planted: str) -> None:
    assert name_comparisons(planted, NAMES)


def test_no_function_hides_a_module() -> None:
    """``import dpdist.strategies.optimal`` gives the module, whatever the package exports."""
    for package in ("dpdist.strategies", "dpdist.mechanisms", "dpdist.measurement"):
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            made = importlib.import_module(f"{package}.{module.name}")
            assert getattr(importlib.import_module(package), module.name) is made, module.name


FIRST = {given.mechanism: name for name, given in reversed(CASES.items())}


OF_PLUGIN = [pytest.param(name, marks=needs_plugin(f"mechanism.{name}")) for name in ("dawa", "adaptive")]


@pytest.mark.parametrize("mechanism", ["coa", "identity", "laplace", "residual", *OF_PLUGIN])
def test_only_answers_that_depend_on_the_records_have_an_error_besides_the_noise(mechanism: str, tmp_path: Path) -> None:
    planned = Pipeline(CASES[FIRST[mechanism]], tmp_path, 4).plan("add-remove")
    made = planned.strategy
    assert isinstance(planned.measurement.rows, int)
    assert made.norm in REGISTRY[mechanism].noises
    assert made.biased == REGISTRY[mechanism].is_data_dependent


def test_every_series_that_is_measured_step_by_step_can_be_extended() -> None:
    assert {name for name, each in REGISTRY.items() if each.supports_streams} == {
        name for name, each in REGISTRY.items() if each.supports_extension
    }
