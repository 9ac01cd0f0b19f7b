"""Published answers as rows of a table that others query. One file a warehouse; every table holds each release once."""

from __future__ import annotations

from dpdist.spec.tagged_unions import Family
from dpdist.spec.targets.delta import ToDelta
from dpdist.spec.targets.iceberg import ToIceberg
from dpdist.spec.targets.postgres import ToPostgres

TARGETS = Family(ToIceberg, ToDelta, ToPostgres)
"""The warehouses that specs can name."""
