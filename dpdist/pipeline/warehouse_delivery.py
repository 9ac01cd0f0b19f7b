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
from dpdist.spec.targets import TARGETS
from dpdist.spec.targets.warehouse import PublishedRows, TargetKind
from dpdist.storage.objects import Place

BATCH_ROWS = 100_000
"""Rows that are held at once while a release is written; a warehouse may keep some batches more (benchmarks/deliver.py)."""


def deliver(place: Place, targets: Iterable[TargetKind]) -> list[str]:
    """Put a published release into every target; the names of those that did not have it. Raises: StoreError."""
    with rows_of(place) as rows:
        return [target.called for target in targets if target.write(rows)]


def differences(rows: PublishedRows, tables: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Of each table, by its kind and name, how it differs from the published rows of a release; empty if it does not."""
    for kind, name in tables:
        try:
            yield f"{kind} {name}", _difference(rows, TARGETS.of({kind: name}).read(rows.release))
        except (DpdistError, ValueError) as error:
            yield f"{kind} {name}", str(error)


def _difference(rows: PublishedRows, found: Iterator[pa.RecordBatch]) -> str:
    there, sum_there = _sum_of_digests(found, rows.names)
    if there != rows.number:
        return f"it has {there:,} rows of the release, {rows.number:,} were published"
    return "" if sum_there == _sum_of_digests(rows.batches(), rows.names)[1] else "rows of it are not the published ones"


def _sum_of_digests(batches: Iterator[pa.RecordBatch], names: list[str]) -> tuple[int, int]:
    """How many rows there are, and the sum of their digests, in whatever order they come."""
    number = total = 0
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in names if name in batch.schema.names]
        for row in zip(*columns, strict=True):
            plain = [
                None if isinstance(value, float) and math.isnan(value) else value for value in row
            ]  # some keep NaN as NULL
            total += int.from_bytes(hashlib.sha256(repr(plain).encode()).digest())
        number += batch.num_rows
    return number, total % 2**256


@contextmanager
def rows_of(place: Place) -> Iterator[PublishedRows]:
    """The rows of a published release, for the block. Raises: StoreError when a file of it was altered, or when it has no table."""
    with place.copied() as local:
        schema, number = release_folder.shape(local)
        yield _rows(_source(local), schema, number, lambda: release_folder.batches(local, BATCH_ROWS))


def synthetic_rows(place: Place, records: pa.Table, name: str) -> PublishedRows:
    """Synthetic records of a published release as rows that say so.

    Args:
        records: their columns.
        name: tells them from other sets of the same release.
    Raises: StoreError when a file of the release was altered.
    """
    with place.copied() as local:
        source = _source(local)
    marked = records.append_column("synthetic", pa.array([True] * records.num_rows, pa.bool_())).replace_schema_metadata()
    source["release"] = f"{source['release']}/{name}"
    return _rows(source, marked.schema, marked.num_rows, lambda: iter(marked.to_batches(BATCH_ROWS)))


def _source(local: Path) -> dict[str, Any]:
    """What tells the rows of a published release from those of others."""
    certificate = release_folder.certificate_of(local)
    period = None if certificate["period"] is None else datetime.date.fromisoformat(certificate["period"])
    digest = hashlib.sha256((local / release_folder.CERTIFICATE).read_bytes()).hexdigest()
    return {"release": certificate["release"], "dataset": certificate["dataset"], "period": period, "certificate": digest}


def _rows(
    source: Mapping[str, Any], schema: pa.Schema, number: int, read: Callable[[], Iterator[pa.RecordBatch]]
) -> PublishedRows:
    kinds = {name: pa.date32() if name == "period" else pa.string() for name in source}
    plain = [pa.field(field.name, _plain(field.type), field.nullable) for field in schema]
    whole = pa.schema([*(pa.field(name, kind) for name, kind in kinds.items()), *plain])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in read():
            columns = [pa.repeat(pa.scalar(source[name], kind), batch.num_rows) for name, kind in kinds.items()]
            columns += [column.cast(_plain(column.type)) for column in batch.columns]
            yield pa.RecordBatch.from_arrays(columns, schema=whole)

    return PublishedRows(source["release"], source["period"], source["certificate"], number, whole, batches)


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type without a dictionary: not every warehouse takes them."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind
