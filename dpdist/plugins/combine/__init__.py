"""One answer from several releases: best linear unbiased estimates from all that they measured, without any charge."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "combine",
    commands={"combine": "dpdist.plugins.combine.combine_command:combine"},
    joinings=("dpdist.plugins.combine.consistent_releases:CONSISTENT_RELEASES",),
)
