"""Digests of what was asked: an optional field of a later version changes none, everything that means something changes them."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dpdist import engine, spec
from dpdist.digests import canonical_form, canonical_text, compute_digest
from dpdist.planner.release_kinds import ReleasePlan, stream_digest
from dpdist.planner.release_plan import plan
from dpdist.privacy.ledger.budget_ledger import Receipt, StreamPart
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec.attributes import AttributeSpec
from dpdist.spec.sections.records import Person
from dpdist.spec.value_types import SpecPart
from dpdist.storage.array_store import Store
from tests.support import small_release

ROOMS = [importlib.import_module(each.name) for each in pkgutil.walk_packages(spec.__path__, "dpdist.spec.")]
MODELS = {
    name: module
    for module in ROOMS
    for name, kind in vars(module).items()
    if inspect.isclass(kind) and issubclass(kind, SpecPart) and kind.__module__ == module.__name__
}
NOISE = Noise(GAUSSIAN, 1000)
PART = StreamPart("ages", "d" * 64, 0, 4)
CONTENT = small_release.spec(
    workload=[
        {"marginals": {"ways": [1]}, "weight": 2},
        {"cdf": {"of": "age", "by": ["sex"]}},
        {"ranges": {"of": ["age"], "list": [[0, 3], [2, 5]]}},
        {"predicates": ["age < 3"]},
        {"filters": {"of": "age", "by": ["sex", "work"], "apply": [{"mean": 3}]}},
    ],
    postprocess={"known": [{"where": "sex == 'f'", "count": 3}], "integer": True},
    records={"path": "records.parquet", "person": {"column": "person", "most_records": 2}},
)
SERIES = small_release.spec(
    release="part-1",
    workload=[{"filters": {"of": "age", "by": ["sex"], "apply": [{"exponential": 0.8}]}}],
    stream={"name": "ages", "through": 3},
    budget={"epsilon": "0.5", "delta": "1e-6"},
    ledger={"dataset": "small", "cap": {"rho": 1}},
    records={"path": "records.parquet", "person": {"column": "person", "most_records": 2}},
)


@dataclasses.dataclass
class Planned:
    """What identities read of a plan."""

    job: Any
    noise: Any = NOISE
    measurement: Any = dataclasses.field(default_factory=lambda: dataclasses.make_dataclass("Grid", ["digest"])("e" * 64))


def digests(content: dict[str, Any], series: dict[str, Any], module: ModuleType = spec, **parts: Any) -> list[str]:
    """Every digest that covers what was asked: the spec's, the stream's, the binding of the charge, the name of the answers."""
    one, grows = module.load(content), module.load(series)
    noise, part = parts.get("noise", NOISE), parts.get("part", PART)
    plans = [Planned(one, noise), Planned(grows, noise)]
    return [
        one.digest,
        grows.digest,
        stream_digest(plans[1], grows.guarantee.release_mode.name),
        *(ReleasePlan.binding(plan, part) for plan in plans),
        compute_digest("post-processing", one.outputs.postprocess),
    ]


@pytest.fixture(scope="module")
def later_spec(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The package of specs as a later version might have it: more optional fields in every model."""
    name, folder = "spec_of_a_later_version", tmp_path_factory.mktemp("later")
    added = '    added: int | None = Field(None, alias="extra")\n    also: tuple[str, ...] = ()\n'
    for path in Path(spec.__file__).parent.rglob("*.py"):
        source, place = path.read_text().replace("dpdist.spec", name), path.relative_to(Path(spec.__file__).parent)
        for model in (model for model, module in MODELS.items() if str(module.__file__) == str(path)):
            source, found = re.subn(rf"(class {model}\((?:.|\n)*?\"\"\"(?:.|\n)*?\"\"\"\n)", rf"\1{added}", source, count=1)
            assert found == 1
        source = source.replace("import annotations\n", "import annotations\nfrom pydantic import Field\n", 1)
        (folder / name / place).parent.mkdir(exist_ok=True)
        (folder / name / place).write_text(source)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        package = importlib.import_module(name)
        for model, module in MODELS.items():
            grown = sys.modules[module.__name__.replace("dpdist.spec", name)]
            assert {"added", "also"} <= set(getattr(grown, model).model_fields)
        yield package
        for each in [each for each in sys.modules if each.partition(".")[0] == name]:
            del sys.modules[each]


def test_an_optional_field_of_a_spec_changes_no_digest(later_spec: ModuleType) -> None:
    assert digests(CONTENT, SERIES, later_spec) == digests(CONTENT, SERIES)


@pytest.mark.parametrize(("name", "value"), [("noise", NOISE), ("part", PART)])
def test_an_optional_field_of_a_dataclass_changes_no_digest(name: str, value: Any) -> None:
    later = dataclasses.make_dataclass("Later", [("added", int, 7)], bases=(type(value),), frozen=True)
    grown = later(**dataclasses.asdict(value))
    assert digests(CONTENT, SERIES, **{name: grown}) == digests(CONTENT, SERIES)
    changed = later(**dataclasses.asdict(value), added=8)
    assert digests(CONTENT, SERIES, **{name: changed}) != digests(CONTENT, SERIES)


def _with_value(content: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The content with the value at a dotted path replaced."""
    first, _, rest = path.partition(".")
    if isinstance(content, list):
        return [_with_value(part, rest, value) if i == int(first) and rest else part for i, part in enumerate(content)]
    return {**content, first: _with_value(content.get(first, {}), rest, value) if rest else value}


CHANGES = {
    "release": "small-2",
    "period": "2026-01-05",
    "neighbours": "replace-one",
    "mechanism": "coa",
    "tolerance": 1e-5,
    "eigen": {"group_size": 3},
    "limits": {"minutes": 5},
    "budget": {"rho": 0.2},
    "domain.age": {"from": 0, "to": 11, "outside": "clip"},
    "domain.sex": {"categories": ["m", "f"]},
    "domain.work": {"categories": ["a", "b", "c"], "labels": ["x", "y", "z"]},
    "workload.0.weight": 3,
    "records.person.most_records": 3,
    "records.person.column": "household",
    "records.columns": {"age": "years"},
}


@pytest.mark.parametrize("path", list(CHANGES))
def test_whatever_decides_what_is_measured_changes_the_spec_and_the_binding(path: str) -> None:
    before, after = digests(CONTENT, SERIES), digests(_with_value(CONTENT, path, CHANGES[path]), SERIES)
    assert [i for i in range(6) if before[i] != after[i]] == [0, 3]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("domain.age", {"from": 0, "to": 11, "outside": "drop"}),
        ("domain.work", {"categories": ["a", "b", "d"]}),
        ("records.person.most_records", 3),
        ("budget", {"epsilon": "0.5", "delta": "1e-6", "calibration": "zcdp"}),
        ("stream", {"name": "others", "through": 3}),
    ],
)
def test_whatever_decides_what_a_stream_measures_changes_the_stream(path: str, value: Any) -> None:
    before, after = digests(CONTENT, SERIES), digests(CONTENT, _with_value(SERIES, path, value))
    assert [i for i in range(6) if before[i] != after[i]] == [1, 2, 4]


def test_the_order_of_attributes_means_something_that_of_keys_does_not() -> None:
    swapped = {**CONTENT, "domain": dict(reversed(CONTENT["domain"].items()))}
    assert spec.load(swapped).digest != spec.load(CONTENT).digest
    assert spec.load(dict(reversed(CONTENT.items()))).digest == spec.load(CONTENT).digest


@pytest.mark.parametrize(
    ("path", "value"), [("title", "x"), ("output", {"folder": "y"}), ("records.path", "z.csv"), ("postprocess", {})]
)
def test_what_does_not_decide_what_is_measured_changes_nothing(path: str, value: Any) -> None:
    assert spec.load(_with_value(CONTENT, path, value)).digest == spec.load(CONTENT).digest


def test_a_default_that_is_written_down_is_left_out() -> None:
    written = _with_value(_with_value(CONTENT, "neighbours", "add-remove"), "tolerance", "1e-6")
    assert spec.load(written).digest == spec.load(CONTENT).digest


def test_the_form() -> None:
    model = AttributeSpec.model_validate({"from": 0, "to": 3, "outside": "clip"})
    assert canonical_text(model) == '{"from":0,"outside":"clip","to":3}'
    assert (
        canonical_text({"b": Fraction(1, 10), "a": (datetime.date(2026, 1, 5), None, 0.1)})
        == '{"a":["2026-01-05",null,0.1],"b":"1/10"}'
    )
    assert canonical_text(PART) == f'{{"digest":"{"d" * 64}","start":0,"stop":4,"stream":"ages"}}'
    assert compute_digest("spec", {"a": 1}) == "ccad4b1431522f03af26538efdd65308705825620c655b062b58434ba36ad4eb"
    assert compute_digest("spec", 1) != compute_digest("stream", 1)


@pytest.mark.parametrize("value", [object(), b"x", {1, 2}, Path("x"), Person])
def test_values_without_a_form_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="no canonical form"):
        canonical_form({"a": [value]})


def receipt(digest: str, part: StreamPart | None = None) -> Receipt:
    names = {field.name: None for field in dataclasses.fields(Receipt)}
    return Receipt(**{**names, "release": "small-1", "spec_digest": digest, "part": part, "state": "reserved"})


def planned(tmp_path: Path, content: dict[str, Any]) -> ReleasePlan:
    context = Context(tmp_path, Store(tmp_path / "store"), engine.inline(), ignore_progress)
    return plan(context, spec.load(content))
