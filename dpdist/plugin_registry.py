"""Plugins: capabilities in packages of their own, which are found through entry points; the core imports none of them.

A package declares an entry point of the group ``dpdist.plugins`` whose object is a ``Plugin`` (docs/plugins.md shows one). What a plugin
adds is named as a reference, ``"module:object"``, and is imported where it is first needed. Without a plugin's package everything else
works, and a request for what it adds is answered in one line that names the plugin.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from dpdist.errors import InvalidInput

GROUP = "dpdist.plugins"
"""The group of entry points in which plugins are declared."""
OFFERED: Mapping[str, tuple[str, ...]] = {
    "adaptive": ("mechanism.adaptive", "mechanism.dawa"),
    "bound_tradeoffs": ("assume",),
    "combine": ("combine", "postprocess.consistent_with"),
    "databases": ("records.sql", "records.connection"),
    "deployment": ("doctor", "sizes"),
    "gate": ("gate",),
    "geography": ("mechanism.nested",),
    "laplace_designs": (
        "mechanism.weighted-design",
        "mechanism.p-identity-products",
        "mechanism.weighted-marginals",
    ),
    "languages": ("language",),
    "lakes": ("records.delta", "records.iceberg", "records.snapshot"),
    "oblique_products": ("mechanism.oblique",),
    "nonnegative_answers": ("postprocess.non_negative",),
    "observability": ("metrics",),
    "page": ("export", "domain.map", "spec.site"),
    "private_bounds": ("bounds.private", "records.person.selection", "sums.selection"),
    "published_baselines": ("mechanism.low-rank", "mechanism.smoothing", "mechanism.fourier", "mechanism.datacube"),
    "quantiles": ("quantiles",),
    "questions": ("ask",),
    "service": ("serve", "DPDIST_SERVICE"),
    "site": ("site",),
    "spec_drafts": ("init",),
    "streams": ("mechanism.triangular", "mechanism.buffered", "mechanism.banded"),
    "studio": ("studio",),
    "synthetic": ("synthesize",),
    "truncation_loss": ("left_out",),
    "verifier": ("output.verifier",),
    "warehouses": ("output.to.delta", "output.to.iceberg", "output.to.postgres"),
    "whole_numbers": ("postprocess.integer",),
}
"""Commands, keys of specs (with dots) and variables of the environment that need plugins of this distribution: whoever uses one where the
plugin is missing is told its name."""


@dataclass(frozen=True)
class Plugin:
    """What one plugin adds to dpdist.

    Attributes:
        name: of the plugin, which tells it from all others.
        commands: of the command line, by their names: references of functions that Typer takes.
        outputs: references of ``Output`` objects, which write files of every release, in this order.
        pages: references of ``Output`` objects that are written last, for they list what there is; they stand in place of the plain page.
        notebook_charts: references of functions that turn a page into images for notebooks.
        mechanisms: references of ``Mechanism`` objects, each after those that it follows.
        strategies: functions of a workload that ``dpdist.strategies`` has, too, by their names: references.
        spaces: functions that read what was measured in rounds, by what only these facts of a strategy say: references.
        fittings: the reference of an ``AnswerFitting`` object, which makes answers non-negative.
        fits: references of ``AnswerFit`` objects of the plugin ``nonnegative_answers``, for workloads of one form.
        roundings: the reference of an ``AnswerRounding`` object, which makes whole numbers of answers.
        joinings: the reference of a ``ReleaseJoining`` object, which estimates from several releases of the same records.
        question_readers: the reference of a ``QuestionReader`` object, which answers questions to published releases.
        efforts: what optimisers take, by their names: references of functions of a workload that return an ``Effort``.
        sources: references of ``Location`` classes, the places of records that ``records`` can name.
        warehouses: references of ``TargetKind`` classes, the tables that ``output.to`` can name.
        charge_gates: references of functions that are given a release before anything of it is charged, and refuse it by ``ReleaseHeld``.
        gates: references of functions that are given a measured release before it is published, and refuse it by ``ReleaseHeld``.
        release_holds: references of functions of a state folder that give what became of releases that were held (``ReleaseHold``).
        observers: references of functions that give an ``Observer`` of a run, or None where the environment asks for none.
        release_services: references of functions that give the service which publishes releases for this process, or None where it
            measures itself (``flows.release_services``).
        verifiers: references of functions that recompute the claims of a published folder, given rows of the ledger or None: a line
            for each claim, which begins with "right", "wrong" or "cannot be checked", and a line for each thing that was not checked.
        translations: the package that holds the sentences of its pages in other languages, ``<code>.toml`` with the tables of
            the plugin ``languages``; "": its pages are in English.
        sections: of specs, by their keys: references of ``PluginSection`` classes, which say by which steps a part of the budget finds
            what they ask for.
        bound_losses: by the parts of certificates that say what bounds leave out: functions of a certificate that give the sentences.
        needs: names of plugins without which it is left out.
    """

    name: str
    commands: Mapping[str, str] = field(default_factory=dict)
    outputs: Sequence[str] = ()
    pages: Sequence[str] = ()
    notebook_charts: Sequence[str] = ()
    mechanisms: Sequence[str] = ()
    strategies: Mapping[str, str] = field(default_factory=dict)
    efforts: Mapping[str, str] = field(default_factory=dict)
    spaces: Mapping[str, str] = field(default_factory=dict)
    fittings: Sequence[str] = ()
    fits: Sequence[str] = ()
    roundings: Sequence[str] = ()
    joinings: Sequence[str] = ()
    question_readers: Sequence[str] = ()
    sources: Sequence[str] = ()
    warehouses: Sequence[str] = ()
    charge_gates: Sequence[str] = ()
    gates: Sequence[str] = ()
    release_holds: Sequence[str] = ()
    observers: Sequence[str] = ()
    release_services: Sequence[str] = ()
    verifiers: Sequence[str] = ()
    translations: str = ""
    sections: Mapping[str, str] = field(default_factory=dict)
    bound_losses: Mapping[str, str] = field(default_factory=dict)
    needs: Sequence[str] = ()


@cache
def installed_plugins() -> tuple[Plugin, ...]:
    """The plugins whose packages are there, by name. Raises: InvalidInput for an entry point that names no plugin, or a name twice."""
    from importlib.metadata import entry_points  # its import takes 25 ms, and most processes ask for no plugin

    plugins: dict[str, tuple[str, Plugin]] = {}
    for entry in entry_points(group=GROUP):
        try:
            plugin = entry.load()
        except ModuleNotFoundError as missing:
            if f"{entry.module}.".startswith(f"{missing.name}."):
                continue  # its folder was deleted, or is not part of this installation
            raise
        if not isinstance(plugin, Plugin):
            raise InvalidInput(
                f"the entry point {entry.name!r} of the group {GROUP} is {entry.value}, which is no Plugin; correct it"
            )
        known, _ = plugins.setdefault(plugin.name, (entry.value, plugin))
        if known != entry.value:
            raise InvalidInput(f"{known} and {entry.value} are both the plugin {plugin.name!r}; uninstall one of them")
    complete = {name for name, (_, plugin) in plugins.items() if all(need in plugins for need in plugin.needs)}
    return tuple(plugins[name][1] for name in sorted(complete))


def load_object(reference: str) -> Any:
    """The object that ``"module:object"`` names."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def plugin_objects(references: str) -> Iterator[Any]:
    """What all plugins name in one of their fields: such as "outputs"."""
    for plugin in installed_plugins():
        yield from map(load_object, getattr(plugin, references))


def missing_plugin(word: str) -> str:
    """The plugin that a command or a key of a spec needs and that is not installed; "" where there is none."""
    offering = next((name for name, words in OFFERED.items() if word in words), "")
    return "" if offering in ("", *(plugin.name for plugin in installed_plugins())) else offering


def require_plugin(word: str) -> None:
    """Refuse a command or a key of a spec whose plugin is missing. Raises: ValueError."""
    if missing_plugin(word):
        raise ValueError(missing_plugin_text(word))


def missing_plugin_text(word: str) -> str:
    """The line about a command or a key whose plugin is missing."""
    name = word.rpartition(".")[2]
    return f"{name!r} needs the plugin {missing_plugin(word)!r} of dpdist, which is not installed here; install it, or leave {name!r} out"
