"""Sections of specs that plugins add: refused where the plugin is missing, found in one order, and never measured unasked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dpdist import plugin_registry
from dpdist.errors import InvalidSpec
from dpdist.page import truncation_text
from dpdist.page.truncation_text import bound_loss_sentences
from dpdist.plugin_registry import OFFERED, installed_plugins
from dpdist.spec import load
from dpdist.spec.budgeted_step import StepOrder
from dpdist.spec.release_spec import ReleaseSpec, json_schema
from dpdist.spec.sections import plugin_sections
from dpdist.spec.sections.plugin_sections import SectionKey
from dpdist.spec.steps.step_registry import CORE_STEPS
from tests.support import small_release
from tests.support.complete_tree import needs_plugin

KEYS = {
    "left_out": {},
    "quantiles": {"of": {"age": {"from": 0, "to": 11}}},
    "assume": {"records": 100},
    "gate": {"completeness": {}},
    "spec.site": {"name": "Office"},
}
PERSON = {"path": "records.parquet", "person": {"column": "person", "most_records": 2}}
CHOSEN = {"column": "person", "most_records": "private", "selection": {"most": 9}}


def without_plugins(work: Callable[[], Any]) -> Any:
    """What comes of some work, or the refusal, as where every plugin was deleted: those that are there are found again afterwards."""
    json_schema()  # what is kept for the whole process, such as the kinds of warehouses, is that of all plugins
    with pytest.MonkeyPatch.context() as patch:
        for module in (plugin_registry, plugin_sections):
            patch.setattr(module, "installed_plugins", lambda: ())
        try:
            return work()
        except InvalidSpec as refusal:
            return str(refusal)


@pytest.mark.parametrize("key", KEYS)
def test_a_section_of_a_missing_plugin_is_refused_in_one_line(key: str) -> None:
    plugin = next(name for name, words in OFFERED.items() if key in words)
    name = key.rpartition(".")[2]
    line = f"spec: {name}: '{name}' needs the plugin '{plugin}' of dpdist, which is not installed here; install it, or leave '{name}' out"
    assert without_plugins(lambda: load(small_release.spec(records=PERSON, **{name: KEYS[key]}))) == line
    assert without_plugins(lambda: load(small_release.spec(records=PERSON, **{name: None}))).guarantee.next_step is None
    assert name not in without_plugins(json_schema)["properties"]


def test_a_map_without_its_plugin_is_refused_in_one_line() -> None:
    values = {"sex": {"categories": ["DE", "FR"], "map": "countries"}, "age": {"from": 0, "to": 11}}
    refused = without_plugins(lambda: load(small_release.spec(domain=values)))
    assert refused == (
        "spec: domain.sex.map: 'map' needs the plugin 'page' of dpdist, which is not installed here; install it, or leave 'map' out "
        "(found 'countries')"
    )
    assert "map" not in without_plugins(json_schema)["$defs"]["AttributeSpec"]["properties"]


@pytest.mark.parametrize(
    "changes",
    [{"records": {**PERSON, "person": CHOSEN}}, {"sums": {"paid": {"from": 0, "to": "private", "selection": {"most": 9}}}}],
)
def test_a_private_bound_without_its_plugin_is_refused_in_one_line(changes: dict[str, Any]) -> None:
    refused = without_plugins(lambda: load(small_release.spec(**changes)))
    assert "'private' needs the plugin 'private_bounds' of dpdist, which is not installed" in refused
    assert "\n" not in refused


def test_what_a_missing_plugin_would_say_is_not_called_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that says what its bounds leave out, shown where nobody can put that in words."""
    monkeypatch.setattr(truncation_text, "installed_plugins", lambda: ())
    bounded = {"bound_enforced_while_counting": True, "most_records_of_one_person": 2}
    certificate: dict[str, Any] = {"privacy": bounded, "method": {"counted": "visits"}}
    (unknown,) = bound_loss_sentences(certificate)
    assert unknown.startswith("Counts the first 2 visits of each person; how many do not is not known")
    assert bound_loss_sentences({**certificate, "left_out": {}}) == []


@needs_plugin("bounds.private")
@needs_plugin("left_out")
@needs_plugin("quantiles")
def test_what_is_found_enters_what_is_found_after_it() -> None:
    asked: dict[str, Any] = {
        **{key: KEYS[key] for key in ("quantiles", "left_out")},
        "records": {"path": "records.parquet", "person": CHOSEN},
        "domain": {"sex": {"categories": "private", "selection": {"most": 4, "delta": 1e-7}}, "age": {"from": 0, "to": 11}},
        "sums": {"paid": {"from": 0, "to": "private", "selection": {"most": 9}}},
        "workload": [{"marginals": {"of": [["sex"]]}, "sum": "paid"}],
        "ledger": {"dataset": "small", "cap": {"rho": 1, "selection": 1e-6}},
    }
    steps = load(small_release.spec(**asked)).steps_to_find
    assert [step.spec_text for step in steps] == [
        "'most_records: private'",
        "'categories: private'",
        "'to: private'",
        "'left_out'",
        "'quantiles'",
    ]
    assert [step.order for step in steps] == sorted(step.order for step in steps)


def test_steps_of_the_core_say_when_they_are_found() -> None:
    assert {step.order for step in CORE_STEPS} == {StepOrder.VALUES, StepOrder.ROWS}


def test_every_key_for_a_plugin_is_one_that_a_plugin_is_said_to_offer() -> None:
    keys = {
        mark.key for field in ReleaseSpec.model_fields.values() for mark in field.metadata if isinstance(mark, SectionKey)
    }
    assert keys == {*KEYS}
    assert keys <= {word for words in OFFERED.values() for word in words}
    added = {key for plugin in installed_plugins() for key in plugin.sections}
    assert added <= {word for words in OFFERED.values() for word in words}
