"""Tables of Iceberg, Delta Lake and PostgreSQL into which published answers are written; every table holds each release once."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "warehouses",
    warehouses=(
        "dpdist.plugins.warehouses.iceberg:IcebergTarget",
        "dpdist.plugins.warehouses.delta:DeltaTarget",
        "dpdist.plugins.warehouses.postgres:PostgresTarget",
    ),
)
