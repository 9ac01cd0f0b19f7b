"""A gate before publishing: answers that earlier periods make very unlikely are warned of, or held back; how complete records are."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "gate",
    sections={"gate": "dpdist.plugins.gate.gate_section:GateSpec"},
    charge_gates=("dpdist.plugins.gate.file_gate:check_files",),
    gates=("dpdist.plugins.gate.series_gate:check_release",),
    release_holds=("dpdist.plugins.gate.held_releases:read_holds",),
    commands={"gate": "dpdist.plugins.gate.gate_command:gate"},
)
"""The key ``gate`` of a spec, and the command ``dpdist gate``."""
