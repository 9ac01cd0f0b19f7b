"""Published answers as rows of a table that others query. One file a warehouse; every table holds each release once."""

from __future__ import annotations

from dpdist.spec.tagged_unions import Family
from dpdist.spec.targets.delta import DeltaTarget
from dpdist.spec.targets.iceberg import IcebergTarget
from dpdist.spec.targets.postgres import PostgresTarget

TARGETS = Family(IcebergTarget, DeltaTarget, PostgresTarget)
"""The warehouses that specs can name."""
