"""Optima for persons in several cells or steps, and continual release beyond square roots: triangular, few exponentials, bands."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "user_level",
    mechanisms=(
        "dpdist.plugins.user_level.contribution_mechanism:COA",
        "dpdist.plugins.user_level.stream_mechanisms:TRIANGULAR",
        "dpdist.plugins.user_level.stream_mechanisms:BUFFERED",
        "dpdist.plugins.user_level.stream_mechanisms:BANDED",
    ),
    efforts={"persons": "dpdist.plugins.user_level.contribution_mechanism:persons_effort"},
    strategies={
        "banded": "dpdist.plugins.user_level.banded_toeplitz:banded",
        "buffered": "dpdist.plugins.user_level.buffered_toeplitz:buffered",
        "triangular": "dpdist.plugins.user_level.triangular_factor:triangular",
    },
)
