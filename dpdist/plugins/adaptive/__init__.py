"""Mechanisms that find what they measure in the data: tables in rounds (after AIM), and DAWA."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "adaptive",
    mechanisms=(
        "dpdist.plugins.adaptive.data_dependent_mechanisms:DAWA",
        "dpdist.plugins.adaptive.data_dependent_mechanisms:ADAPTIVE",
    ),
    spaces={"choosing": "dpdist.plugins.adaptive.measured_tables:measured_tables_from"},
    strategies={
        "adaptive": "dpdist.plugins.adaptive.adaptive_rounds:adaptive",
        "dawa": "dpdist.plugins.adaptive.data_partition:dawa",
    },
    needs=("nonnegative_answers",),
)
