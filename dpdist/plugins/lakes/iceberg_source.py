"""Iceberg tables as the records of a release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from dpdist.api import InvalidSpec
from dpdist.api.sources import ArrowStream, ColumnType, RecordTable, TableFiles, Use, package
from dpdist.plugins.lakes import table_formats
from dpdist.plugins.lakes.lake_source import LakeSource


@dataclass(frozen=True)
class IcebergTable(RecordTable):
    """An Iceberg table, catalog.namespace.table, at one of its snapshots; the current one when it is first read, unless one is named."""

    table: str
    snapshot: int | None

    @property
    def kind(self) -> str:
        return "iceberg"

    @property
    def identity(self) -> str:
        return self.table if self.snapshot is None else f"{self.table}\0{self.snapshot}"

    def read_files(self) -> TableFiles:
        _, snapshot = self._load_snapshot()
        return TableFiles(int(snapshot.summary["total-data-files"]), snapshot.timestamp_ms / 1000)

    @contextmanager
    def open_records(self, uses: Mapping[str, Use], spill: Path, memory_bytes: int) -> Iterator[tuple[str, ArrowStream]]:
        table, described = self._load_snapshot()
        snapshot = described.snapshot_id
        table_formats.check_iceberg(table, described, uses)
        yield str(snapshot), table.scan(selected_fields=tuple(uses), snapshot_id=snapshot).to_arrow_batch_reader()

    def _load_snapshot(self) -> tuple[Any, Any]:
        """PyIceberg's table, and the snapshot that is read. Raises: InvalidSpec where there is none."""
        catalogs = package("pyiceberg.catalog", "iceberg")
        catalog, _, name = self.table.partition(".")
        table = catalogs.load_catalog(catalog).load_table(name)
        current = table.current_snapshot()
        snapshot = self.snapshot or (None if current is None else current.snapshot_id)
        if snapshot is None:
            raise InvalidSpec(f"the Iceberg table {self.table} has no snapshot yet; write records into it first")
        described = table.snapshot_by_id(snapshot)
        if described is None:
            raise InvalidSpec(f"the Iceberg table {self.table} has no snapshot {snapshot}; name one that it keeps")
        return table, described


class IcebergSource(LakeSource):
    """An Iceberg table."""

    iceberg: str = Field(
        description="in place of 'path', an Iceberg table, catalog.namespace.table; the configuration of PyIceberg says where it is",
        examples=["lake.shop.visits"],
    )

    def table(self, folder: Path, types: Mapping[str, ColumnType]) -> RecordTable:
        return IcebergTable(self.iceberg, self.snapshot)
