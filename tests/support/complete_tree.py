"""What holds of the whole distribution alone, such as its generated pages, and not of a tree from which plugins were deleted."""

from __future__ import annotations

from typing import Any

import pytest

from dpdist import strategies
from dpdist.plugin_registry import OFFERED, installed_plugins, load_object, missing_plugin
from dpdist.spec.budgeted_step import BudgetedStep
from dpdist.spec.steps.step_registry import CORE_STEPS


def needs_plugin(word: str) -> pytest.MarkDecorator:
    """Skips a test where the plugin of a command or of a key, such as ``records.sql``, is missing."""
    return pytest.mark.skipif(bool(missing_plugin(word)), reason=f"the plugin of {word} is missing")


def installed_mechanisms(*names: str) -> tuple[str, ...]:
    """Those of some names, which a spec takes, whose plugins are there."""
    return tuple(name for name in names if not missing_plugin(f"mechanism.{name}"))


def installed_strategies(*names: str) -> dict[str, Any]:
    """Functions of ``dpdist.strategies`` by their names, of those whose plugins are there."""
    return {name: getattr(strategies, name) for name in names if name in dir(strategies)}


def installed_releases(releases: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Those of some releases, given by changes of a spec, whose mechanism and sections are there."""
    return {
        name: changes
        for name, changes in releases.items()
        if installed_mechanisms(changes.get("mechanism", "auto")) and not any(map(missing_plugin, changes))
    }


def installed_steps() -> set[type[BudgetedStep]]:
    """All that parts of a budget can find, with the plugins that are there."""
    sections = (load_object(reference) for plugin in installed_plugins() for reference in plugin.sections.values())
    return {*CORE_STEPS, *(load_object(step) for section in sections for step in section.steps)}


class Deleted:
    """Stands for what a plugin names that was deleted: nothing is an instance of it."""


def plugin_object(reference: str) -> Any:
    """What a plugin names as ``"module:object"``, for tests of the core that look at it, too, where it is there."""
    try:
        return load_object(reference)
    except ModuleNotFoundError:
        return Deleted


def is_plugin_missing() -> bool:
    """Whether a plugin of this distribution was deleted."""
    return any(missing_plugin(word) for words in OFFERED.values() for word in words)


needs_every_plugin = pytest.mark.skipif(is_plugin_missing(), reason="a plugin of this distribution is missing")
