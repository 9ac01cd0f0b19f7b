"""Quantiles and medians of columns by group, which a part of the budget chooses by the exponential mechanism."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "quantiles",
    sections={"quantiles": "dpdist.plugins.quantiles.quantile_section:QuantilesSpec"},
    outputs=("dpdist.plugins.quantiles.quantile_table:QUANTILES",),
)
"""The key ``quantiles`` of a spec, and the file quantiles.csv."""
