"""What every warehouse does, and the rows that it gets. One class a warehouse: how a spec names a table, and how it is written."""

from __future__ import annotations

import datetime
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpdist.spec.tagged_unions import Family, SpecKind

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class PublishedRows:
    """The answers of one published release, with what tells them from those of other releases. They are read batch by batch.

    Attributes:
        release: its id.
        period: the first day of the period it is for, if it is for one.
        certificate: SHA-256 of the published certificate; the same release always has the same.
        number: how many rows there are.
        schema: columns ``release, dataset, period, certificate`` and those of answers.parquet.
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
    def check(self) -> None:
        """Reach the table, or the place where it is to be made. Raises: InvalidInput, StoreError with the cure; nothing is changed."""

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
