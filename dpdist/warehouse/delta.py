"""Delta tables through delta-rs. Credentials of an object store come from the environment, as for releases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from dpdist.errors import StoreError
from dpdist.machine.objects import place_at
from dpdist.warehouse.base import Rows, could_not, needs, other_columns


class Delta:
    """A table, named by its folder or URL. It is made when the first release comes, partitioned by period."""

    def __init__(self, place: str) -> None:
        self.place = place_at(place).location

    def check(self) -> None:
        """Open the table, or find none."""
        deltalake = _package()
        try:
            deltalake.DeltaTable.is_deltatable(self.place)
        except Exception as error:  # noqa: BLE001 - whatever a store raises
            raise could_not("reached", self.place, error) from None

    def write(self, rows: Rows) -> bool:
        """Overwrite the release's rows."""
        try:
            return self._write(rows)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a store raises
            raise could_not("written", self.place, error) from None

    def read(self, release: str) -> Iterator[pa.RecordBatch]:
        """The rows of a release."""
        deltalake = _package()
        try:
            query = deltalake.QueryBuilder().register("answers", deltalake.DeltaTable(self.place))
            found = query.execute(f"SELECT * FROM answers WHERE release = '{release}'")  # an id has no quotes (spec)
            yield from pa.RecordBatchReader.from_stream(found)
        except Exception as error:  # noqa: BLE001 - whatever a store raises
            raise could_not("read", self.place, error) from None

    def _write(self, rows: Rows) -> bool:
        deltalake = _package()
        if not deltalake.DeltaTable.is_deltatable(self.place):
            deltalake.write_deltalake(self.place, rows.reader(), partition_by=["period"], mode="error")
            return True
        table = deltalake.DeltaTable(self.place)
        there = [field.name for field in table.schema().fields]
        if there != rows.names:
            raise other_columns(self.place, there, rows.names)
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
    try:
        import deltalake
    except ImportError:
        raise needs("deltalake", "delta") from None
    return deltalake
