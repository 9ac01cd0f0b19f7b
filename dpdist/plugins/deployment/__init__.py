"""Where releases run: what a folder or an object store promises, and what the pods of the Helm chart need for given specs."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "deployment",
    commands={
        "doctor": "dpdist.plugins.deployment.doctor_command:doctor",
        "sizes": "dpdist.plugins.deployment.sizes_command:sizes",
    },
)
"""The commands ``dpdist doctor`` and ``dpdist sizes``."""
