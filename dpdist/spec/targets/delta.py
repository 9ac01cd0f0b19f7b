"""Delta tables through delta-rs. Credentials of an object store come from the environment, as for releases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import Field

from dpdist.sources.optional_packages import package
from dpdist.spec.targets.warehouse import NEEDED, PublishedRows, TargetKind, other_columns, reaching
from dpdist.spec.value_types import PathText
from dpdist.storage.objects import place_at

if TYPE_CHECKING:
    import pyarrow as pa


class ToDelta(TargetKind):
    """A Delta table. It is made when the first release comes, partitioned by period."""

    delta: PathText = Field(description="a Delta table: a folder or a URL", examples=["s3://bucket/answers"])

    @property
    def place(self) -> str:
        """Where it is."""
        return place_at(self.delta).location

    def check(self) -> None:
        """Open the table, or find none."""
        deltalake = _package()
        with reaching("reached", self.place):
            deltalake.DeltaTable.is_deltatable(self.place)

    def write(self, rows: PublishedRows) -> bool:
        """Overwrite the release's rows."""
        with reaching("written", self.place):
            return self._write(rows)

    def read(self, release: str) -> Iterator[pa.RecordBatch]:
        """The rows of a release."""
        deltalake = _package()
        import pyarrow as pa

        with reaching("read", self.place):
            query = deltalake.QueryBuilder().register("answers", deltalake.DeltaTable(self.place))
            found = query.execute(f"SELECT * FROM answers WHERE release = '{release}'")  # an id has no quotes (spec)
            yield from pa.RecordBatchReader.from_stream(found)

    def _write(self, rows: PublishedRows) -> bool:
        deltalake, place = _package(), self.place
        if not deltalake.DeltaTable.is_deltatable(place):
            deltalake.write_deltalake(place, rows.reader(), partition_by=["period"], mode="error")
            return True
        table = deltalake.DeltaTable(place)
        there = [field.name for field in table.schema().fields]
        if there != rows.names:
            raise other_columns(place, there, rows.names)
        query = deltalake.QueryBuilder().register("answers", table)
        mine = f"release = '{rows.release}'"  # an id has no quotes (spec)
        found = query.execute(
            f"SELECT count(*) AS n FROM answers WHERE {mine} AND certificate = '{rows.certificate}'"
        ).read_all()
        if int(found["n"][0].as_py()) == rows.number:
            return False
        deltalake.write_deltalake(table, rows.reader(), mode="overwrite", predicate=mine)
        return True


def _package() -> Any:
    return package("deltalake", "delta", NEEDED)
