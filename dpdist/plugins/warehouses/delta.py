"""Delta tables through delta-rs. Credentials of an object store come from the environment, as for releases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import Field

from dpdist.api.releases import parse_location
from dpdist.api.warehouses import (
    PathText,
    PublishedRows,
    TargetKind,
    package,
)
from dpdist.plugins.warehouses.target_errors import PACKAGE_PURPOSE, translate_target_errors

if TYPE_CHECKING:
    import pyarrow as pa


class DeltaTarget(TargetKind):
    """A Delta table. It is made when the first release comes, partitioned by period."""

    delta: PathText = Field(description="a Delta table: a folder or a URL", examples=["s3://bucket/answers"])

    @property
    def location(self) -> str:
        """Where it is."""
        return parse_location(self.delta).location

    def columns(self) -> list[str] | None:
        """Open the table, or find none."""
        with translate_target_errors("reached", self.location):
            table = self._open_table()
            return None if table is None else _columns(table)

    def write(self, rows: PublishedRows) -> bool:
        """Overwrite the release's rows."""
        with translate_target_errors("written", self.location):
            return self._write(rows)

    def read_rows(self, release: str) -> Iterator[pa.RecordBatch]:
        """The rows of a release."""
        deltalake = _package()
        import pyarrow as pa

        with translate_target_errors("read", self.location):
            query = deltalake.QueryBuilder().register("answers", deltalake.DeltaTable(self.location))
            result = query.execute(f"SELECT * FROM answers WHERE release = '{release}'")  # an id has no quotes (spec)
            yield from pa.RecordBatchReader.from_stream(result)

    def _write(self, rows: PublishedRows) -> bool:
        deltalake, location = _package(), self.location
        table = self._open_table()
        if table is None:
            deltalake.write_deltalake(location, rows.reader(), partition_by=["period"], mode="error")
            return True
        self.require_columns(_columns(table), rows.names)
        query = deltalake.QueryBuilder().register("answers", table)
        mine = f"release = '{rows.release}'"  # an id has no quotes (spec)
        matching_rows = query.execute(
            f"SELECT count(*) AS n FROM answers WHERE {mine} AND certificate = '{rows.certificate}'"
        ).read_all()
        if int(matching_rows["n"][0].as_py()) == rows.number:
            return False
        deltalake.write_deltalake(table, rows.reader(), mode="overwrite", predicate=mine)
        return True

    def _open_table(self) -> Any:
        """The table; None where there is none yet."""
        deltalake = _package()
        return deltalake.DeltaTable(self.location) if deltalake.DeltaTable.is_deltatable(self.location) else None


def _columns(table: Any) -> list[str]:
    return [field.name for field in table.schema().fields]


def _package() -> Any:
    return package("deltalake", "delta", PACKAGE_PURPOSE)
