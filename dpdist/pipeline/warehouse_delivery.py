"""The rows of a published release, and their way into the tables that its spec names."""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpdist.errors import DpdistError
from dpdist.publish import release_folder
from dpdist.spec.warehouse_target import SOURCE_COLUMNS, TARGETS, PublishedRows, TargetKind, warehouse_columns
from dpdist.storage.objects import StorageLocation

BATCH_ROWS = 100_000
"""Rows that are held at once while a release is written; a warehouse may keep some batches more (benchmarks/warehouse_delivery.py)."""


def deliver(location: StorageLocation, targets: Iterable[TargetKind]) -> list[str]:
    """Put a published release into every target; the names of those that did not have it. Raises: StoreError."""
    with rows_of(location) as rows:
        return [target.table_label for target in targets if target.write(rows)]


def differences(rows: PublishedRows, tables: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Of each table, by its kind and name, how it differs from the published rows of a release; empty if it does not."""
    for kind, name in tables:
        try:
            yield f"{kind} {name}", _difference(rows, TARGETS.parse({kind: name}).read_rows(rows.release))
        except (DpdistError, ValueError) as error:
            yield f"{kind} {name}", str(error)


def _difference(rows: PublishedRows, target_batches: Iterator[pa.RecordBatch]) -> str:
    target_row_count, target_digest_sum = _sum_of_digests(target_batches, rows.names)
    if target_row_count != rows.number:
        return f"it has {target_row_count:,} rows of the release, {rows.number:,} were published"
    return (
        ""
        if target_digest_sum == _sum_of_digests(rows.batches(), rows.names)[1]
        else "rows of it are not the published ones"
    )


def _sum_of_digests(batches: Iterator[pa.RecordBatch], names: list[str]) -> tuple[int, int]:
    """How many rows there are, and the sum of their digests, in whatever order they come."""
    number = total = 0
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in names if name in batch.schema.names]
        for row in zip(*columns, strict=True):
            row_values = [
                None if isinstance(value, float) and math.isnan(value) else value for value in row
            ]  # some keep NaN as NULL
            total += int.from_bytes(hashlib.sha256(repr(row_values).encode()).digest())
        number += batch.num_rows
    return number, total % 2**256


@contextmanager
def rows_of(location: StorageLocation) -> Iterator[PublishedRows]:
    """The rows of a published release, for the block. Raises: StoreError when a file of it was altered, or when it has no table."""
    with location.local_copy() as local:
        schema, number = release_folder.table_shape(local)
        yield _published_rows(_source_columns(local), schema, number, lambda: release_folder.read_batches(local, BATCH_ROWS))


def synthetic_rows(location: StorageLocation, records: pa.Table, name: str) -> PublishedRows:
    """Synthetic records of a published release as rows that say so.

    Args:
        records: their columns.
        name: tells them from other sets of the same release.
    Raises: StoreError when a file of the release was altered.
    """
    with location.local_copy() as local:
        source = _source_columns(local)
    marked_records = records.append_column(
        "synthetic", pa.array([True] * records.num_rows, pa.bool_())
    ).replace_schema_metadata()
    source["release"] = f"{source['release']}/{name}"
    return _published_rows(
        source, marked_records.schema, marked_records.num_rows, lambda: iter(marked_records.to_batches(BATCH_ROWS))
    )


def _source_columns(local: Path) -> dict[str, Any]:
    """What tells the rows of a published release from those of others."""
    certificate = release_folder.certificate_of(local)
    period = None if certificate["period"] is None else datetime.date.fromisoformat(certificate["period"])
    digest = hashlib.sha256((local / release_folder.CERTIFICATE).read_bytes()).hexdigest()
    return {"release": certificate["release"], "dataset": certificate["dataset"], "period": period, "certificate": digest}


def _published_rows(
    source: Mapping[str, Any], schema: pa.Schema, number: int, read_batches: Callable[[], Iterator[pa.RecordBatch]]
) -> PublishedRows:
    kinds = {name: pa.date32() if name == "period" else pa.string() for name in SOURCE_COLUMNS}
    names = warehouse_columns(schema.names)
    full_schema = pa.schema(
        [
            *(pa.field(name, kind) for name, kind in kinds.items()),
            *(
                pa.field(name, _without_dictionary(field.type), field.nullable)
                for name, field in zip(names[len(kinds) :], schema, strict=True)
            ),
        ]
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in read_batches():
            columns = [pa.repeat(pa.scalar(source[name], kind), batch.num_rows) for name, kind in kinds.items()]
            columns += [column.cast(_without_dictionary(column.type)) for column in batch.columns]
            yield pa.RecordBatch.from_arrays(columns, schema=full_schema)

    return PublishedRows(source["release"], source["period"], source["certificate"], number, full_schema, batches)


def _without_dictionary(kind: pa.DataType) -> pa.DataType:
    """A type without a dictionary: not every warehouse takes them."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind
