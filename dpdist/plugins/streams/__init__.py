"""Continual release beyond square roots: triangular optima, few exponentials, and bands for persons who are in several steps."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "streams",
    mechanisms=(
        "dpdist.plugins.streams.stream_mechanisms:TRIANGULAR",
        "dpdist.plugins.streams.stream_mechanisms:BUFFERED",
        "dpdist.plugins.streams.stream_mechanisms:BANDED",
    ),
    strategies={
        "banded": "dpdist.plugins.streams.banded_toeplitz:banded",
        "buffered": "dpdist.plugins.streams.buffered_toeplitz:buffered",
        "triangular": "dpdist.plugins.streams.triangular_factor:triangular",
    },
)
