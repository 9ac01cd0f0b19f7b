"""What every warehouse does, and the rows that it gets."""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from dpdist.errors import StoreError
from dpdist.machine.objects import Place
from dpdist.page import report

BATCH_ROWS = 100_000
"""Rows that are held at once while a release is written; a warehouse may keep some batches more (benchmarks/deliver.py)."""


@dataclass(frozen=True)
class Rows:
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
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())


@contextmanager
def rows_of(place: Place) -> Iterator[Rows]:
    """The rows of a published release, for the block. Raises: StoreError when a file of it was altered, or when it has no table."""
    with place.copied() as local:
        certificate = report.certificate_of(local)
        schema, number = report.shape(local)
        period = None if certificate["period"] is None else datetime.date.fromisoformat(certificate["period"])
        digest = hashlib.sha256((local / report.CERTIFICATE).read_bytes()).hexdigest()
        known = (
            ("release", certificate["release"], pa.string()),
            ("dataset", certificate["dataset"], pa.string()),
            ("period", period, pa.date32()),
            ("certificate", digest, pa.string()),
        )
        plain = [pa.field(field.name, _plain(field.type), field.nullable) for field in schema]
        whole = pa.schema([*(pa.field(name, kind) for name, _, kind in known), *plain])

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in report.batches(local, BATCH_ROWS):
                columns = [pa.repeat(pa.scalar(value, kind), batch.num_rows) for _, value, kind in known]
                columns += [column.cast(_plain(column.type)) for column in batch.columns]
                yield pa.RecordBatch.from_arrays(columns, schema=whole)

        yield Rows(certificate["release"], period, digest, number, whole, batches)


class Warehouse(Protocol):
    """A table of a warehouse."""

    def check(self) -> None:
        """Reach the table, or the place where it is to be made. Raises: StoreError with the cure; nothing is changed."""

    def write(self, rows: Rows) -> bool:
        """Put the rows of a release in place of what the table holds of it, in one step; whether anything was written.

        A table that holds them already is left as it is. Raises: StoreError when they cannot be written.
        """

    def read(self, release: str) -> Iterator[pa.RecordBatch]:
        """What the table holds of a release, in any order. Raises: StoreError when it cannot be read."""


def difference(rows: Rows, found: Iterator[pa.RecordBatch]) -> str:
    """How the rows that a table holds of a release differ from the published ones, empty if they do not."""
    there, sum_there = _sum_of_digests(found, rows.names)
    if there != rows.number:
        return f"it has {there:,} rows of the release, {rows.number:,} were published"
    return "" if sum_there == _sum_of_digests(rows.batches(), rows.names)[1] else "rows of it are not the published ones"


def _sum_of_digests(batches: Iterator[pa.RecordBatch], names: list[str]) -> tuple[int, int]:
    """How many rows there are, and the sum of their digests, in whatever order they come."""
    number = total = 0
    for batch in batches:
        columns = [
            batch.column(name).to_pylist() if name in batch.schema.names else [None] * batch.num_rows for name in names
        ]
        for row in zip(*columns, strict=True):
            plain = [
                None if isinstance(value, float) and math.isnan(value) else value for value in row
            ]  # warehouses keep NaN as they like
            total += int.from_bytes(hashlib.sha256(repr(plain).encode()).digest())
        number += batch.num_rows
    return number, total % 2**256


def needs(package: str, extra: str) -> StoreError:
    """The error of a package that is not installed."""
    return StoreError(
        f"output.to needs the package {package}, which is not installed; install it: pip install 'dpdist[{extra}]'"
    )


def other_columns(table: str, there: list[str], given: list[str]) -> StoreError:
    """The error of a table that has other columns."""
    return StoreError(
        f"the table {table} has the columns {', '.join(there)}, the release has {', '.join(given)}; name another table in output.to"
    )


def could_not(what: str, table: str, error: Exception) -> StoreError:
    """The error of a warehouse, without its text, which may hold credentials."""
    return StoreError(
        f"the table {table} cannot be {what} ({type(error).__name__}); check that the warehouse is there and lets this user in, and run "
        "again: nothing is charged twice"
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type without a dictionary: not every warehouse takes them."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind
