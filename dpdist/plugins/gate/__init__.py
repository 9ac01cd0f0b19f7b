"""A gate before publishing: answers that earlier periods of a series make very unlikely are warned of, or held back."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "gate",
    gates=("dpdist.plugins.gate.series_gate:check_release",),
    commands={"gate": "dpdist.plugins.gate.gate_command:gate"},
)
"""The key ``gate`` of a spec, and the command ``dpdist gate``."""
