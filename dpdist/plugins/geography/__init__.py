"""Nested geographies, such as blocks in tracts in counties: the same table at each level, measured and fitted so that levels add up."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "geography",
    mechanisms=("dpdist.plugins.geography.hierarchy_mechanism:NESTED",),
    efforts={"nested": "dpdist.plugins.geography.hierarchy_mechanism:nested_effort"},
    strategies={"nested": "dpdist.plugins.geography.level_weights:nested"},
    fits=("dpdist.plugins.geography.level_fitting:NESTED_LEVELS",),
    needs=("nonnegative_answers",),
)
