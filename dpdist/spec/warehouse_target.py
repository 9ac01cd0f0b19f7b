"""What every warehouse does, and the rows that it gets. One class a warehouse: how a spec names a table, and how it is written."""

from __future__ import annotations

import datetime
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpdist.errors import StoreError
from dpdist.spec.tagged_unions import Family, SpecKind

if TYPE_CHECKING:
    import pyarrow as pa

SOURCE_COLUMNS = ("release", "dataset", "period", "certificate")
"""What tells the rows of a published release from those of others."""


@dataclass(frozen=True)
class PublishedRows:
    """The answers of one published release, with what tells them from those of other releases. They are read batch by batch.

    Attributes:
        release: its id.
        period: the first day of the period it is for, if it is for one.
        certificate: SHA-256 of the published certificate; the same release always has the same.
        number: how many rows there are.
        schema: ``warehouse_columns`` of those of answers.parquet.
        batches: reads them from the start; it can be called again.
    """

    release: str
    period: datetime.date | None
    certificate: str
    number: int
    schema: pa.Schema
    batches: Callable[[], Iterator[pa.RecordBatch]]

    @property
    def names(self) -> list[str]:
        """Of the columns."""
        return list(self.schema.names)

    def reader(self) -> pa.RecordBatchReader:
        """All rows, from the start."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, self.batches())


def warehouse_columns(released: Iterable[str]) -> list[str]:
    """The columns of a warehouse's table, in their order, for those of a release's table.

    Warehouses do not all tell columns apart by the case of their letters.
    """
    names = list(SOURCE_COLUMNS)
    for column in released:
        is_taken = column.casefold() in {name.casefold() for name in names}
        names.append(f"attribute_{column}" if is_taken else column)
    return names


class TargetKind(SpecKind):
    """A table of a warehouse, by the warehouse's name."""

    @property
    def table(self) -> str:
        """What the warehouse calls it."""
        return str(getattr(self, self.key()))

    @property
    def table_label(self) -> str:
        """What messages call it: the kind of warehouse and the table."""
        return f"{self.key()} {self.table}"

    @abstractmethod
    def columns(self) -> Sequence[str] | None:
        """Reach the table, or the place where it is to be made, and change nothing: the names of its columns, None where there is no table.

        Raises: InvalidInput, StoreError with the cure.
        """

    def require_columns(self, table_columns: Sequence[str] | None, release_columns: Sequence[str]) -> None:
        """Raises: StoreError when there is a table, and it has other columns than the rows of a release, in this order."""
        if table_columns is not None and list(table_columns) != list(release_columns):
            raise StoreError(
                f"the table {self.table} has the columns {', '.join(table_columns)}, the release has {', '.join(release_columns)}; "
                "name another table in output.to"
            )

    @abstractmethod
    def write(self, rows: PublishedRows) -> bool:
        """Put the rows of a release in place of what the table holds of it, in one step; whether anything was written.

        A table that holds them already is left as it is. Raises: StoreError when they cannot be written.
        """

    @abstractmethod
    def read_rows(self, release: str) -> Iterator[pa.RecordBatch]:
        """What the table holds of a release, in any order. Raises: StoreError when it cannot be read."""


TARGETS = Family[TargetKind](plugin_field="warehouses")
"""The warehouses that specs can name."""
