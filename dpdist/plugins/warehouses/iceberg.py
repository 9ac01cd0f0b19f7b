"""Iceberg tables through PyIceberg, whose own configuration says where catalogs are (.pyiceberg.yaml, PYICEBERG_CATALOG__NAME__URI ...)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field

from dpdist.api.warehouses import PublishedRows, TargetKind, package
from dpdist.plugins.warehouses.target_errors import PACKAGE_PURPOSE, translate_target_errors

if TYPE_CHECKING:
    import pyarrow as pa

PART_BATCHES = 5
"""Of a file of the table: half a million rows."""


def _in_a_namespace(name: str) -> str:
    if name.count(".") < 2:
        raise ValueError(f"{name!r} is no Iceberg table; give catalog.namespace.table")
    return name


class IcebergTarget(TargetKind):
    """An Iceberg table. It is made when the first release comes, partitioned by period."""

    iceberg: Annotated[str, AfterValidator(_in_a_namespace)] = Field(
        description="an Iceberg table, catalog.namespace.table; the configuration of PyIceberg says where it is",
        examples=["lake.privacy.answers"],
    )

    @property
    def table_name(self) -> str:
        """What its catalog calls it."""
        return self.iceberg.partition(".")[2]

    def columns(self) -> list[str] | None:
        """Load the catalog and ask for the table."""
        with translate_target_errors("reached", self.table):
            catalog = self._catalog()
            return _columns(catalog.load_table(self.table_name)) if catalog.table_exists(self.table_name) else None

    def write(self, rows: PublishedRows) -> bool:
        """Overwrite the release's rows of its period."""
        with translate_target_errors("written", self.table):
            return self._write(self._catalog(), rows)

    def read_rows(self, release: str) -> Iterator[pa.RecordBatch]:
        """The rows of a release."""
        with translate_target_errors("read", self.table):
            table = self._catalog().load_table(self.table_name)
            from pyiceberg import expressions

            conditions: Any = expressions
            yield from table.scan(row_filter=conditions.EqualTo("release", release)).to_arrow_batch_reader()

    def _write(self, catalog: Any, rows: PublishedRows) -> bool:
        from pyiceberg import expressions

        conditions: Any = expressions  # its types do not know positional arguments
        table = self._open_table(catalog, rows)
        self.require_columns(_columns(table), rows.names)
        same_period = (
            conditions.IsNull("period") if rows.period is None else conditions.EqualTo("period", rows.period.isoformat())
        )
        mine = conditions.And(
            conditions.EqualTo("release", rows.release), same_period
        )  # the period's partition only is read and written
        matching_count = table.scan(
            row_filter=conditions.And(mine, conditions.EqualTo("certificate", rows.certificate)),
            selected_fields=("release",),
        ).count()
        if matching_count == rows.number:
            return False
        with table.transaction() as change:  # PyIceberg streams into tables without partitions only: one file a part
            for number, row_table in enumerate(_row_tables(rows)):
                change.append(row_table) if number else change.overwrite(row_table, overwrite_filter=mine)
        return True

    def _open_table(self, catalog: Any, rows: PublishedRows) -> Any:
        """The table, made if it is not there."""
        from pyiceberg.exceptions import TableAlreadyExistsError

        if catalog.table_exists(self.table_name):
            return catalog.load_table(self.table_name)
        catalog.create_namespace_if_not_exists(self.table_name.rpartition(".")[0])
        try:
            with (
                catalog.create_table_transaction(self.table_name, schema=rows.schema) as making,
                making.update_spec() as partitions,
            ):
                partitions.add_identity("period")
        except TableAlreadyExistsError:
            pass  # another run made it at the same time
        return catalog.load_table(self.table_name)

    def _catalog(self) -> Any:
        return package("pyiceberg.catalog", "iceberg", PACKAGE_PURPOSE).load_catalog(self.iceberg.partition(".")[0])


def _columns(table: Any) -> list[str]:
    return [field.name for field in table.schema().fields]


def _row_tables(rows: PublishedRows) -> Iterator[pa.Table]:
    """The rows in tables of a bounded size; one that is empty for no rows."""
    import pyarrow as pa

    batches = rows.batches()
    first_batches = list(islice(batches, PART_BATCHES))
    yield pa.Table.from_batches(first_batches, rows.schema)
    while later_batches := list(islice(batches, PART_BATCHES)):
        yield pa.Table.from_batches(later_batches, rows.schema)
