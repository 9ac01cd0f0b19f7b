"""Where releases run: what a folder or an object store promises, and what the pods of the Helm chart need for given specs."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "deployment",
    commands={
        "doctor": "dpdist.plugins.deployment.doctor_command:doctor",
        "chart-values": "dpdist.plugins.deployment.chart_values:chart_values",
    },
)
"""The commands ``dpdist doctor`` and ``dpdist chart-values``."""
