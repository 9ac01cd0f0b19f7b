"""Records out of tables of lakes, Delta and Iceberg, each at one of its snapshots."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "lakes",
    sources=("dpdist.plugins.lakes.delta_source:DeltaSource", "dpdist.plugins.lakes.iceberg_source:IcebergSource"),
)
