"""The registry: every mechanism is one line here, or one of a plugin. ``auto`` compares in this order, certified optima first."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from functools import cached_property

from dpdist.errors import InvalidInput
from dpdist.mechanisms.baseline_mechanisms import Gaussian, Hierarchical, IdentityMechanism, Laplace, Wavelet
from dpdist.mechanisms.dense_mechanisms import Coa, Eigen, PIdentity
from dpdist.mechanisms.filter_mechanisms import Convolution, SquareRoot
from dpdist.mechanisms.marginal_mechanisms import Marginals
from dpdist.mechanisms.mechanism import Mechanism
from dpdist.mechanisms.product_mechanisms import KroneckerMechanism, Residual
from dpdist.mechanisms.symmetric_mechanism import Symmetric
from dpdist.plugin_registry import missing_plugin, missing_plugin_text, plugin_objects

AUTO = "auto"
"""In a spec: the mechanism with the least error of those that are compared."""


class MechanismRegistry(MutableMapping[str, Mechanism]):
    """Mechanisms by their names; those of plugins are imported when it is first read."""

    def __init__(self, *mechanisms: Mechanism) -> None:
        self._own_mechanisms = mechanisms

    @cached_property
    def _by_name(self) -> dict[str, Mechanism]:
        mechanisms = [*self._own_mechanisms]
        for mechanism in plugin_objects("mechanisms"):
            names = [registered.name for registered in mechanisms]
            place = names.index(mechanism.follows) + 1 if mechanism.follows in names else len(names)
            mechanisms.insert(place, mechanism)
        return {mechanism.name: mechanism for mechanism in mechanisms}

    def __getitem__(self, name: str) -> Mechanism:
        return self._by_name[name]

    def __setitem__(self, name: str, mechanism: Mechanism) -> None:
        self._by_name[name] = mechanism

    def __delitem__(self, name: str) -> None:
        del self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)


REGISTRY = MechanismRegistry(
    Marginals(),
    KroneckerMechanism(),
    Symmetric(),
    Coa(),
    Eigen(),
    Residual(),
    Convolution(),
    SquareRoot(),
    PIdentity(),
    IdentityMechanism(),
    Gaussian(),
    Laplace(),
    Wavelet(),
    Hierarchical(),
)


def _unknown_mechanism_text(name: str) -> str:
    """The line about a name that no mechanism has here."""
    if missing_plugin(f"mechanism.{name}"):
        return missing_plugin_text(f"mechanism.{name}")
    return f"mechanism {name!r} is unknown; allowed are {', '.join((AUTO, *REGISTRY))}"


def mechanism_of(name: str) -> Mechanism:
    """The mechanism of a name. Raises: InvalidInput for names that are not registered."""
    if name not in REGISTRY:
        raise InvalidInput(_unknown_mechanism_text(name))
    return REGISTRY[name]


def markdown_table() -> str:
    """The registry as a Markdown table, for the documentation."""
    noises = {"l2": "Gaussian", "l1": "Laplace"}
    table_lines = ["| mechanism | answers | noise | what it is |", "|---|---|---|---|"]
    for mechanism in REGISTRY.values():
        noise_names = " or ".join(text for norm, text in noises.items() if norm in mechanism.noises)
        table_lines.append(f"| `{mechanism.name}` | {mechanism.answers} | {noise_names} | {mechanism.summary} |")
    return "\n".join(table_lines) + "\n"
